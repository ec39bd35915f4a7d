package compat

import (
	"cmp"
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"

	"example.org/mta/submission/http"
	"example.org/mta/submission/request"
)

// Services gives the routes of services by their names, "sendgrid" and "resend", and the forms of their
// errors.
func Services(names []string) (routes []http.Route, forms []http.Form) {
	services := map[string]func() ([]http.Route, http.Form){"sendgrid": sendGridService, "resend": resendService}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		r, f := services[name]()
		routes, forms = append(routes, r...), append(forms, f)
	}
	return routes, forms
}

// translation is what a service's request becomes.
type translation struct {
	requests []*request.Request
	reader
	// place gives the place in the service's request of a pointer into our i-th.
	place func(i int, pointer string) string
	// permissive has the requests sent that have no faults, whose pointers begin with the index; without it
	// one fault refuses all.
	permissive bool
	// positions are the places of requests in the service's request; nil: they are the same.
	positions []int
}

// take has the messages of a request accepted that translate reads from its body.
func take(c *http.Call, translate func(root *request.Node,
	x *http.Submission) *translation) (*http.Sent, *translation, error) {
	body, err := c.ReadBody()
	if err != nil {
		return nil, nil, err
	}
	x, err := c.Begin(body)
	if err != nil {
		return nil, nil, err
	}
	defer x.End()
	root, faults := request.ParseTree(body, limits)
	if root == nil || len(faults) > 0 {
		return nil, nil, request.Faults(faults)
	}
	t := translate(root, x)
	if x.Earlier == nil {
		t.check(x)
	}
	if err := t.settle(); err != nil {
		return nil, nil, err
	}
	sent := x.Earlier
	if sent == nil {
		if sent, err = x.Send(t.requests...); err != nil {
			return nil, nil, err
		}
	}
	if sent.Replayed {
		c.Writer.Header().Set("Idempotent-Replayed", "true")
	}
	if len(t.ignored) > 0 {
		c.Writer.Header().Set("X-MTA-Ignored", strings.Join(t.ignored, ", "))
	}
	return sent, t, nil
}

// check has each request checked, and their recipients counted.
func (t *translation) check(x *http.Submission) {
	recipients, read := 0, len(t.faults)
	for i, q := range t.requests {
		if q == nil || read > 0 && !t.permissive {
			continue
		}
		for _, f := range append(q.Check(x.Now, x.Limits), x.Check(q)...) {
			f.Pointer = t.place(i, f.Pointer)
			if !slices.Contains(t.faults, f) { // what requests share is wrong in each
				t.fault(f.Pointer, f.Detail, f.Remedy)
			}
		}
		recipients += len(q.To) + len(q.Cc) + len(q.Bcc)
	}
	if recipients > x.Limits.Recipients && len(t.requests) > 1 {
		t.permissive = false
		t.fault("", fmt.Sprintf("there are %d addresses", recipients),
			fmt.Sprintf("send %d at most, and the others in another request", x.Limits.Recipients))
	}
}

// settle refuses a request with faults, or leaves out what they are in.
func (t *translation) settle() error {
	if len(t.faults) == 0 {
		return nil
	}
	whole := slices.ContainsFunc(t.faults, func(f request.Fault) bool { return f.Pointer == "" })
	var valid []*request.Request
	var positions []int
	for i, q := range t.requests {
		if q != nil && !slices.ContainsFunc(t.faults, func(f request.Fault) bool { return element(f.Pointer) == i }) {
			valid, positions = append(valid, q), append(positions, i)
		}
	}
	if !t.permissive || whole || len(valid) == 0 {
		return request.Faults(t.faults)
	}
	t.requests, t.positions = valid, positions
	return nil
}

// position is the place of the i-th message that was sent in the service's request.
func (t *translation) position(i int) int {
	if i < len(t.positions) {
		return t.positions[i]
	}
	return i
}

// element is the index with which a pointer into an array begins, -1 for none.
func element(pointer string) int {
	var i int
	if n, err := fmt.Sscanf(pointer, "/%d", &i); n != 1 || err != nil {
		return -1
	}
	return i
}

// pathOf is a pointer with dots, as the services name fields.
func pathOf(pointer string) string {
	return strings.NewReplacer("/", ".", "~1", "/", "~0", "~").Replace(strings.TrimPrefix(pointer, "/"))
}

// sentence is a fault in words.
func sentence(f request.Fault) string {
	s := f.Detail
	if f.Pointer != "" {
		s = pathOf(f.Pointer) + ": " + s
	}
	if f.Remedy != "" {
		s += ": " + f.Remedy
	}
	return s
}

// refusals are the recipients that were refused, each with the reason; i is the index of the message.
func refusals(messages []http.SentMessage, refused func(i int, why string)) {
	for i, m := range messages {
		for _, r := range m.Recipients {
			if r.Status == http.Refused || r.Status == http.Failed {
				why := cmp.Or(r.Detail, m.Detail)
				why = cmp.Or(why, "not accepted for now: try again")
				refused(i, r.Address+": "+why)
			}
		}
	}
}

// messagesOf are those that a problem names.
func messagesOf(p *http.Problem) []http.SentMessage {
	m, _ := p.Extra["messages"].([]http.SentMessage)
	return m
}

// describe is a problem in one line.
func describe(p *http.Problem) string {
	title := p.Title
	title = cmp.Or(title, nethttp.StatusText(p.Status))
	if p.Detail == "" {
		return title
	}
	return p.Detail
}
