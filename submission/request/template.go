package request

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
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
// the library sees it (source.go), partials come from the tenant's own templates and may not include themselves, and
// rendered text goes to a writer that stops.
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

// Data are the values of variables.
type Data struct{ values map[string]any }

// NewData takes values from JSON: map[string]any, []any, string, bool, nil, float64 or json.Number. It
// copies them in the form that the library prints as JSON shows them: no <nil>, no 1e+06.
func NewData(values map[string]any) Data {
	if values == nil {
		return Data{map[string]any{}}
	}
	return Data{plainValue(values).(map[string]any)}
}

func plainValue(v any) any {
	switch v := v.(type) {
	case nil:
		return ""
	case string, bool:
		return v
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, value := range v {
			m[name] = plainValue(value)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, value := range v {
			l[i] = plainValue(value)
		}
		return l
	case json.Number:
		if f, err := v.Float64(); err == nil && f == 0 {
			return 0 // false in a section
		}
		return v.String()
	case float64:
		if v == 0 {
			return 0
		}
		if math.Abs(v) < 1e21 {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// partials are the templates that others can include, of one tenant.
type partials struct{ text, html map[string]string }

// add gives a piece the partial of a name with all that this one includes. path are the partials that
// lead here: one that includes itself would be rendered without end.
func (of partials) add(p *piece, to *mustache.StaticProvider, name string, html bool, path []string) error {
	if slices.Contains(path, name) {
		return fmt.Errorf("the partial %q includes itself: %s", name, strings.Join(append(path, name), " > "))
	}
	if len(path) == maxInclusions {
		return fmt.Errorf("partials are nested deeper than %d: %s", maxInclusions, strings.Join(path, " > "))
	}
	if p.partials[name] != nil {
		return nil // with all that it includes
	}
	sources := of.text
	if html {
		sources = of.html
	}
	source, ok := sources[name]
	if !ok {
		return fmt.Errorf("there is no partial %q: partials are the stored templates of the tenant", name)
	}
	if len(source) > maxPartial {
		return fmt.Errorf("the partial %q is longer than %d octets", name, maxPartial)
	}
	scanned, err := scan(source)
	if err != nil {
		return fmt.Errorf("partial %q: %w", name, err)
	}
	path = append(slices.Clone(path), name)
	for _, inner := range scanned.partials {
		if err := of.add(p, to, inner, html, path); err != nil {
			return err
		}
	}
	if !html {
		source = scanned.raw
	}
	to.Partials[name] = source
	if p.partials[name], err = mustache.ParseStringPartials(source, to); err != nil {
		return fmt.Errorf("partial %q: %w", name, err)
	}
	return nil
}

// limited is a writer that stops. The library writes the text before each tag, even if there is none, so
// that each round of each loop comes here.
type limited struct {
	out         strings.Builder
	ctx         context.Context
	room, steps int
	err         error // the first one, and that of each write after it
}

// stepsPerLook is the number of writes between two looks at the context.
const stepsPerLook = 16

func (w *limited) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.steps--
	w.room -= len(p)
	switch {
	case w.steps < 0:
		w.err = errSteps
	case w.room < 0:
		w.err = fmt.Errorf("the rendered text is longer than %d octets", w.out.Len()+len(p)+w.room)
	case w.steps%stepsPerLook == 0:
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return 0, w.err
	}
	return w.out.Write(p)
}

var errSteps = fmt.Errorf("rendering takes more than %d steps", maxSteps)
