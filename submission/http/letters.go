package http

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/submission/request"
)

// Templates compiles templates, and has those that tenants have stored.
type Templates interface {
	Compile(tenant string, m request.Mail) (*request.Template, request.Faults)
	Stored(tenant, name string) (*request.Template, bool)
}

// letters makes the messages of a request.
type letters struct {
	x *Submission
	q *request.Request
	// text is the template of the letters' text, and headers of the header fields beside a stored one; nil:
	// they are as in the request.
	text, headers *request.Template
	shared        request.Data
	kept          []request.Mail // as rendered for the first recipients
	octets        int            // of those
	built         int64          // octets of text and files in all messages together, as check found them
	domain        string         // of message ids
}

// keptOctets is how much rendered text of a request is kept between its check and its use. More is rendered
// twice.
const keptOctets = 8 << 20

// Check reports what is wrong with a request beside what request.Check does.
func (x *Submission) Check(q *request.Request) (faults request.Faults) {
	faults = checkHeaders("/headers", q.Headers)
	for i := range q.Recipients {
		faults = append(faults, checkHeaders(fmt.Sprintf("/recipients/%d/headers", i), q.Recipients[i].Headers)...)
	}
	for i := range q.Attachments {
		if f := request.CheckAttachment(&q.Attachments[i]); f != nil {
			f.Pointer = fmt.Sprintf("/attachments/%d%s", i, f.Pointer)
			faults = append(faults, *f)
		}
	}
	if q.Pool != "" && (x.mail.MayUsePool == nil || !x.mail.MayUsePool(x.call.Identity.Tenant, q.Pool)) {
		faults = append(faults, request.Fault{Pointer: "/pool", Detail: "there is no such pool for this tenant",
			Remedy: "leave it out, or ask the operator for the pools of the tenant"})
	}
	l := &letters{x: x, q: q}
	faults = append(faults, l.compile()...)
	x.letters = append(x.letters, l)
	return faults
}

// checkHeaders checks fields that stand at a pointer as an object.
func checkHeaders(pointer string, headers []request.Header) request.Faults {
	faults := request.CheckHeaders(headers)
	for i := range faults {
		var at int
		if _, err := fmt.Sscanf(faults[i].Pointer, "/%d", &at); err == nil && len(headers[at].Name) < 200 {
			faults[i].Pointer = pointer + "/" + pointerToken.Replace(headers[at].Name)
		} else {
			faults[i].Pointer = pointer
		}
	}
	return faults
}

// pointerToken writes a name as a token of a pointer (RFC 6901, 3).
var pointerToken = strings.NewReplacer("~", "~0", "/", "~1")

// compile reads the templates of the request, if there are any.
func (l *letters) compile() request.Faults {
	q, tenant := l.q, l.x.call.Identity.Tenant
	personal := slices.ContainsFunc(q.Recipients, func(p request.Personal) bool { return p.Data != nil })
	if q.Template == "" && q.Data == nil && !personal {
		return nil
	}
	if l.x.mail.Templates == nil {
		return request.Faults{{Pointer: "/template", Detail: "there are no templates here",
			Remedy: "send subject, text and html without data"}}
	}
	l.shared = request.NewData(q.Data)
	m := request.Mail{Subject: q.Subject, Text: q.Text, HTML: q.HTML, Headers: q.Headers}
	if q.Template != "" {
		var ok bool
		if l.text, ok = l.x.mail.Templates.Stored(tenant, q.Template); !ok {
			return request.Faults{{Pointer: "/template", Detail: "the tenant has no template of this name",
				Remedy: "correct the name, or have the operator add the template"}}
		}
		if len(q.Headers) == 0 {
			return nil
		}
		headers, faults := l.x.mail.Templates.Compile(tenant, request.Mail{Headers: q.Headers})
		l.headers = headers
		return faults
	}
	text, faults := l.x.mail.Templates.Compile(tenant, m)
	l.text = text
	return faults
}

// count is how many messages there are.
func (l *letters) count() int {
	if l.q.Recipients == nil {
		return 1
	}
	return len(l.q.Recipients)
}

// check renders all letters, so that nothing is accepted where one can't be.
func (l *letters) check(ctx context.Context) (faults request.Faults, err error) {
	for i := range l.q.Attachments {
		l.built += int64(l.count()) * int64(len(l.q.Attachments[i].Content)) * 4 / 3 // as base64
	}
	if l.text == nil {
		l.built += int64(l.count()) * int64(len(l.q.Text)+len(l.q.HTML))
		return nil, nil
	}
	for i := range l.count() {
		m, err := l.render(ctx, i, max(1, renderTime-l.x.rendering))
		var wrong request.Faults
		switch {
		case errors.As(err, &wrong):
			if faults = append(faults, l.faultsOf(i, wrong)...); len(faults) >= manyFaults {
				return faults, nil
			}
		case err != nil:
			return nil, err
		default:
			l.built += int64(len(m.Text) + len(m.HTML))
			if len(faults) == 0 && l.octets < keptOctets {
				l.octets += len(m.Text) + len(m.HTML)
				l.kept = append(l.kept, m)
			}
		}
	}
	return faults, l.x.call.holdMore(int64(l.octets))
}

// manyFaults are enough for a client to see what is wrong.
const manyFaults = 100

// faultsOf are those of rendering with a recipient's data.
func (l *letters) faultsOf(i int, wrong request.Faults) request.Faults {
	if l.q.Recipients == nil {
		return wrong
	}
	all := slices.Clone(wrong)
	for j := range all {
		all[j].Detail = strings.TrimPrefix(all[j].Pointer, "/") + ": " + all[j].Detail
		all[j].Pointer = fmt.Sprintf("/recipients/%d/data", i)
	}
	return all
}

// render fills in the templates for a recipient, within a time that begins when it is the tenant's turn; 0: any.
func (l *letters) render(ctx context.Context, i int, within time.Duration) (m request.Mail, err error) {
	if i < len(l.kept) {
		return l.kept[i], nil
	}
	leave, err := l.x.call.server.renders.enter(ctx, l.x.call.Identity.Tenant)
	if err != nil {
		return m, err
	}
	defer leave()
	if within != 0 {
		limited, done := context.WithTimeout(ctx, within)
		defer done()
		ctx = limited
	}
	began := time.Now()
	defer func() { l.x.rendering += time.Since(began) }()
	data := []request.Data{l.shared}
	if l.q.Recipients != nil {
		data = []request.Data{request.NewData(l.q.Recipients[i].Data), l.shared}
	}
	if m, err = l.text.Render(ctx, l.q.Strict, data...); err != nil || l.headers == nil {
		return m, err
	}
	h, err := l.headers.Render(ctx, l.q.Strict, data...)
	m.Headers = h.Headers
	return m, err
}

// letter makes one message.
func (l *letters) letter(ctx context.Context, i int) (*request.Letter, error) {
	out := request.NewLetter(l.q)
	if l.text != nil {
		m, err := l.render(ctx, i, 0) // it was within its time before
		if err != nil {
			return nil, err
		}
		out.Subject, out.Text, out.HTML, out.Headers = m.Subject, m.Text, m.HTML, m.Headers
	}
	if l.q.Recipients != nil {
		p := &l.q.Recipients[i]
		out.To, out.Headers = p.To, overlaid(out.Headers, p.Headers)
	}
	out.Date, out.MessageID, out.Random = l.x.Now, l.messageID(), rand.Reader
	return out, nil
}

// overlaid gives the request's fields, and in place of those of the same name the recipient's.
func overlaid(shared, personal []request.Header) []request.Header {
	if len(personal) == 0 {
		return shared
	}
	all := slices.DeleteFunc(slices.Clone(shared), func(h request.Header) bool {
		return slices.ContainsFunc(personal, func(p request.Header) bool { return strings.EqualFold(p.Name, h.Name) })
	})
	return append(all, personal...)
}

// messageID makes a unique one, at the author's domain.
func (l *letters) messageID() string {
	if l.domain == "" {
		l.domain = l.x.mail.Intake.Hostname
		if len(l.q.From) > 0 && !strings.HasPrefix(l.q.From[0].Address.Domain(), "[") {
			l.domain = l.q.From[0].Address.Domain()
		}
	}
	return strings.ToLower(rand.Text()) + "@" + l.domain
}

// renders bounds the messages of each tenant that are rendered at a time to the number of processors: more of them
// would be no faster, and everything else would wait for a processor behind them.
type renders struct{ slots sync.Map } // chan struct{} by tenant

// enter waits until a message of a tenant may be rendered, or ctx ends. leave must be called after it.
func (r *renders) enter(ctx context.Context, tenant string) (leave func(), err error) {
	held, ok := r.slots.Load(tenant)
	if !ok {
		held, _ = r.slots.LoadOrStore(tenant, make(chan struct{}, runtime.GOMAXPROCS(0)))
	}
	slots := held.(chan struct{})
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
