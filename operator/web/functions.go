package web

import (
	"fmt"
	"html/template"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// functions are those of templates.
func (s *Server) functions() template.FuncMap {
	return template.FuncMap{
		"url": func(path string, query ...any) string {
			return pathWith(s.templates.base, path, query...)
		},
		"link":    s.link,
		"asset":   s.assetURL,
		"count":   count,
		"rate":    legible.Rate,
		"size":    legible.Size,
		"percent": percentage,
		"cut":     cut,
		"ago":     func(t time.Time) template.HTML { return s.distance(t, "ago") },
		"until":   func(t time.Time) template.HTML { return s.distance(t, "until") },
		"clock":   clock,
		"stamp":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"plural":  plural,
		"reply":   func(r *api.Reply) template.HTML { return cut(100, r) },
		"replyOf": api.ReplyOf,
		"act":     newAct,
		"cell":    s.cell,
		"state":   state,
		"may": func(path string) (bool, error) {
			r, err := s.action(path)
			return err == nil && s.templates.role >= r.role, err
		},
		"verb":  func(path string) string { return s.routeOf("POST", path).title },
		"final": func(path string) bool { return s.routeOf("POST", path).action.final },
		"sees": func(path string) bool {
			r := s.routeOf("GET", path)
			return r != nil && s.templates.role >= r.role
		},
		"bounces":   func() string { return strings.Join(api.BounceTypes, ",") },
		"ruling":    func() []input { return inputs(new(api.AddRule), "for") },
		"spans":     func() []string { return suspensions },
		"waits":     func(w api.Waiting) string { return w.Line(s.cfg.Now()) },
		"why":       func(r api.RecipientStatus) string { return r.Why(time.UTC) },
		"words":     func(name any) string { return strings.ReplaceAll(fmt.Sprint(name), "_", " ") },
		"figure":    figure,
		"heat":      heat,
		"alarmPage": func(name string) string { return alarmPages[name] },
		"ages":      func(sum api.Summary, path, param string) ages { return ages{sum, path, param} },
		"lane":      lane,
		"join":      strings.Join,
		"title":     capital,
	}
}

// pathWith gives a path of the console with its base, and a query of names and values. Empty values are left out.
func pathWith(base, path string, query ...any) string {
	v := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if value := fmt.Sprint(query[i+1]); value != "" {
			v.Add(fmt.Sprint(query[i]), value)
		}
	}
	if len(v) == 0 {
		return base + path
	}
	return base + path + "?" + v.Encode()
}

// link gives a link with a text of any length to a path of the console, in a template.
func (s *Server) link(path, text string, query ...any) template.HTML {
	return template.HTML(`<a href="` + template.HTMLEscapeString(pathWith(s.templates.base, path, query...)) + `">` +
		string(cut(60, text)) + `</a>`)
}

// maxTitle bounds the whole of a text that is cut, in octets.
const maxTitle = 2000

// cut shows at most n characters of a text. The whole of it is in the title.
func cut(n int, text any) template.HTML {
	s := fmt.Sprint(text)
	end, chars := len(s), 0
	for i := range s {
		if chars == n {
			end = i
			break
		}
		chars++
	}
	if end == len(s) {
		return template.HTML(template.HTMLEscapeString(s))
	}
	whole := s
	if len(whole) > maxTitle {
		whole = whole[:maxTitle]
	}
	return template.HTML(`<span class="cut" title="` + template.HTMLEscapeString(whole) + `">` +
		template.HTMLEscapeString(s[:end]) + `…</span>`)
}

// count writes a number, or that which n points to, with its thousands apart.
func count(n any) string {
	v := reflect.Indirect(reflect.ValueOf(n))
	if v.CanInt() {
		return listing.Thousands(v.Int())
	}
	return listing.Thousands(int64(v.Uint()))
}

// distance writes how far a time is from now: "3m ago", "in 2h". The zero time is not known.
func (s *Server) distance(t time.Time, how string) template.HTML {
	if t.IsZero() {
		return none
	}
	d := t.Sub(s.cfg.Now())
	var text string
	switch {
	case d > -time.Second && d < time.Second:
		text = "now"
	case how == "ago" || d < 0:
		text = legible.Age(-d) + " ago"
	default:
		text = "in " + legible.Left(d)
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%[1]s">%s</time>`, t.UTC().Format(time.RFC3339), text))
}

// clock writes a time of day with its date.
func clock(t time.Time) template.HTML {
	if t.IsZero() {
		return none
	}
	return template.HTML(t.UTC().Format(`<time datetime="` + time.RFC3339 + `">2006-01-02 15:04:05</time>`))
}

// lane gives the mail from a source to a site, nil when there is none.
func lane(d *api.Destination, source string) *api.Lane {
	for i := range d.Lanes {
		if d.Lanes[i].Source == source {
			return &d.Lanes[i]
		}
	}
	return nil
}

// plural writes a count with its noun.
func plural(n int, noun string) string { return count(n) + " " + legible.Plural(n, noun) }

func capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// field is an input of a form that nobody edits.
type field struct{ Name, Value string }

// act is the button of an action, for {{template "button"}}.
type act struct {
	Path   string
	Fields []field
	Spans  []string // times to choose from
	More   []string // paths of further actions in the same form
}

// newAct makes the button of an action with names and values of what it is about.
func newAct(path string, fields ...any) act {
	a := act{Path: path}
	for i := 0; i+1 < len(fields); i += 2 {
		a.Fields = append(a.Fields, field{fmt.Sprint(fields[i]), fmt.Sprint(fields[i+1])})
	}
	return a
}

// action returns the route of an action. A template that has another is wrong.
func (s *Server) action(path string) (*route, error) {
	r := s.routeOf("POST", path)
	if r == nil {
		return nil, fmt.Errorf("there is no action %s", path)
	}
	return r, nil
}

// ages is a summary by age, for {{template "ages"}}. Path and Param make the links of its rows; without, they are
// states.
type ages struct {
	Sum         api.Summary
	Path, Param string
}

// heat gives the class of a cell by its part of the largest one: the number stands there, the shade helps to find
// it.
func heat(n int, rows []api.SummaryRow) string {
	top := 0
	for _, row := range rows {
		top = max(top, slices.Max(append(row.Counts, 0)))
	}
	if n == 0 || top == 0 {
		return ""
	}
	return "h" + strconv.Itoa(min(1+4*n/top, 4))
}

// figure writes a rate that may be unknown.
func figure(f api.Figure) string {
	if !f.Known() {
		return "–"
	}
	return legible.Rate(float64(f))
}
