package request

import (
	"context"
	"strconv"
	"strings"

	"github.com/cbroglie/mustache"
)

// Mail is the part of a message that is made from templates: as sources, or rendered.
type Mail struct {
	Subject, Text, HTML string
	Headers             []Header // the values are templates, the names are not
}

// Template is mail that has been compiled. It can render several at the same time. Subject, text and header values are
// not escaped, HTML is.
//
// The library (github.com/cbroglie/mustache) trusts its templates: it reads partials from the file system, renders
// without end, recurses without end, and a name of a million dots overflows its stack. So each source is scanned before
// the library sees it (source.go), partials come from the tenant's own templates and may not include themselves
// (partials.go), and rendered text goes to a writer that stops (limit.go).
type Template struct {
	subject, text, html *piece // nil: empty
	headers             []headerPiece
}

type headerPiece struct {
	name  string
	value *piece
}

// piece is one compiled source.
type piece struct {
	pointer string // to its place in the request
	parsed  *mustache.Template
	// partials are all that it can include, by name, for the search for missing variables.
	partials map[string]*mustache.Template
	limit    int // of what it renders, in octets
}

// Limits, in octets where nothing else is given.
const (
	maxSource = 4 << 20  // of a template
	maxOutput = 4 << 20  // of a rendered text
	maxLine   = 16 << 10 // of a rendered subject or header value
	maxSteps  = 200_000  // pieces of text, variables and rounds of loops in one rendered text
)

// compile compiles mail whose partials are those of the set. Faults point into a request.
func compile(m Mail, of partials) (*Template, Faults) {
	t := &Template{}
	var faults Faults
	one := func(pointer, source string, html bool, limit int) *piece {
		if source == "" {
			return nil
		}
		p, err := compilePiece(source, html, of)
		if err != nil {
			faults = append(faults, Fault{Pointer: pointer, Detail: err.Error(), Remedy: "correct the template"})
			return nil
		}
		p.pointer, p.limit = pointer, limit
		return p
	}
	t.subject = one("/subject", m.Subject, false, maxLine)
	t.text = one("/text", m.Text, false, maxOutput)
	t.html = one("/html", m.HTML, true, maxOutput)
	for i, h := range m.Headers {
		value := one("/headers/"+strconv.Itoa(i)+"/value", h.Value, false, maxLine)
		t.headers = append(t.headers, headerPiece{name: h.Name, value: value})
	}
	if faults != nil {
		return nil, faults
	}
	return t, nil
}

func compilePiece(source string, html bool, of partials) (*piece, error) {
	scanned, err := scan(source)
	if err != nil {
		return nil, err
	}
	p := &piece{partials: map[string]*mustache.Template{}}
	provider := &mustache.StaticProvider{Partials: map[string]string{}}
	for _, name := range scanned.partials {
		if err := of.add(p, provider, name, html, nil); err != nil {
			return nil, err
		}
	}
	p.parsed, err = mustache.ParseStringPartialsRaw(source, provider, !html)
	return p, err
}

// Render fills in the template. A variable is the first of data that has it; one that none has is empty
// or, if strict, a fault. The error is [Faults] or that of ctx, whose end is the only limit of time.
func (t *Template) Render(ctx context.Context, strict bool, data ...Data) (Mail, error) {
	var m Mail
	var err error
	one := func(p *piece) (s string) {
		if p == nil || err != nil {
			return ""
		}
		s, err = p.render(ctx, strict, data)
		return s
	}
	m.Subject = oneLine(one(t.subject))
	m.Text = one(t.text)
	m.HTML = one(t.html)
	for _, h := range t.headers {
		m.Headers = append(m.Headers, Header{Name: h.name, Value: oneLine(one(h.value))})
	}
	if err != nil {
		return Mail{}, err
	}
	return m, nil
}

func (p *piece) render(ctx context.Context, strict bool, data []Data) (string, error) {
	if strict {
		if err := p.findMissing(ctx, data); err != nil {
			return "", p.fault(ctx, err)
		}
	}
	w := &limited{ctx: ctx, room: p.limit, steps: maxSteps}
	chain := make([]any, 0, len(data)+1)
	for _, d := range data {
		chain = append(chain, d.values)
	}
	err := p.parsed.FRender(w, append(chain, map[string]any{})...)
	if w.err != nil {
		err = w.err // the library drops errors of the writer after a variable
	}
	if err != nil {
		return "", p.fault(ctx, err)
	}
	return w.out.String(), nil
}

// fault is err as the client gets it.
func (p *piece) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return Faults{{Pointer: p.pointer, Detail: err.Error(), Remedy: "correct the template or its data"}}
}

// oneLine makes one line of a subject or a header value.
func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n\x00") {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\r' || r == '\n' || r == 0 }), " ")
}
