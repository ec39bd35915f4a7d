package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
)

//go:embed templates
var templateFiles embed.FS

// templates are those of all pages. One is filled at a time, since their functions read who gets it: a set for each
// role took 12 MB.
type templates struct {
	mu    sync.Mutex // guards what follows
	files map[string]*template.Template
	role  Role
	base  string // of URLs
}

// parse reads the templates of all pages.
func (s *Server) parse() error {
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return err
	}
	base, err := template.New("").Funcs(s.functions()).ParseFS(templateFiles, "templates/layout.html",
		"templates/parts.html")
	if err != nil {
		return err
	}
	s.templates.files = make(map[string]*template.Template, len(names))
	for _, name := range names {
		own, err := template.Must(base.Clone()).ParseFS(templateFiles, name)
		if err != nil {
			return err
		}
		s.templates.files[strings.TrimPrefix(name, "templates/")] = own
	}
	return nil
}

// render fills a part of a page's template.
func (s *Server) render(r *request, file, part string, data any) ([]byte, error) {
	s.templates.mu.Lock()
	defer s.templates.mu.Unlock()
	t := s.templates.files[file]
	if t == nil {
		return nil, fmt.Errorf("there is no template %s", file)
	}
	s.templates.role, s.templates.base = r.role(), r.base
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, part, data); err != nil {
		return nil, &api.Error{Status: http.StatusInternalServerError,
			Message: fmt.Sprintf("the page has a fault: %v", err)}
	}
	return reveal(b.Bytes()), nil
}

// showPage answers with a page, or with the part of it that is refreshed.
func (s *Server) showPage(w http.ResponseWriter, r *request) error {
	key := strconv.Itoa(int(r.role())) + r.base + r.http.URL.Path + "?" + r.values.Encode()
	v, err := s.views.get(r.ctx, key, func(ctx context.Context) (*view, error) { return s.makeView(ctx, r) })
	var gone error
	switch {
	case err != nil && v != nil && relayGone(err):
		gone = err
	case err != nil:
		return err
	}
	part := v.part
	if gone != nil {
		if part, err = s.part(r, v, gone); err != nil {
			return err
		}
	}
	if r.http.Header.Get("HX-Request") != "" {
		return write(w, r, http.StatusOK, part)
	}
	return s.layout(w, r, http.StatusOK, v.top, part.plain)
}

// part puts the time below what is refreshed, and above it a banner when the relay is gone.
func (s *Server) part(r *request, v *view, gone error) (body, error) {
	html, err := s.render(r, r.route.page.template, "part", struct {
		Live template.HTML
		Made time.Time
		Gone error
		Hint string
	}{template.HTML(v.live), v.made, gone, api.Hint(gone)})
	return s.compressed(html), err
}

// makeView asks the relay and fills the template. No request's goroutine does it, whose panics the server would recover
// from: a fault of a page must not end the relay.
func (s *Server) makeView(ctx context.Context, by *request) (_ *view, err error) {
	defer s.recovered(by, &err)
	r := *by
	r.ctx = ctx
	p := r.route.page
	data, err := p.data(&r)
	if err != nil && r.get("after") != "" && status(err) == http.StatusBadRequest {
		data, err = s.begin(&r, p, err)
	}
	if err != nil {
		return nil, err
	}
	v := &view{made: s.cfg.Now()}
	if v.top, err = s.render(&r, p.template, "top", data); err != nil {
		return nil, err
	}
	v.live, err = s.render(&r, p.template, "live", data)
	if r.notice != "" && err == nil {
		notice, err := s.render(&r, p.template, "notice", r.notice)
		if err != nil {
			return nil, err
		}
		v.live = append(notice, v.live...)
	}
	if err == nil {
		v.part, err = s.part(&r, v, nil)
	}
	return v, err
}

// recovered makes a panic an error.
func (s *Server) recovered(r *request, err *error) {
	if p := recover(); p != nil {
		s.cfg.Log.Error("the console has a fault", "path", r.http.URL.Path, "panic", p, "stack", string(debug.Stack()))
		*err = &api.Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf("the page has a fault: %v", p),
			Hint: "the relay's log has more; please report it"}
	}
}

// begin shows the first page of a list whose cursor the relay does not take, and says so. When that fails
// too, the cursor was not the reason.
func (s *Server) begin(r *request, p *page, why error) (any, error) {
	r.values = maps.Clone(r.values)
	r.values.Del("after")
	data, err := p.data(r)
	if err != nil {
		return nil, why
	}
	r.notice = "The place in the list is no longer valid: this is its beginning."
	return data, nil
}

// relayGone reports whether an error means that the relay does not answer, rather than that it refuses.
func relayGone(err error) bool {
	e := (*api.Error)(nil)
	return api.Down(err) || errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e)
}

// status gives the status of HTTP that an error is answered with.
func status(err error) int {
	e := (*api.Error)(nil)
	if errors.As(err, &e) && e.Status != 0 {
		return e.Status
	}
	if relayGone(err) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// frame is the data of the layout.
type frame struct {
	Title     string
	User      string
	Role      Role
	LoggedIn  bool
	LogsOut   bool
	ReadOnly  bool
	Menu      []menuItem
	Nodes     []menuItem // of the cluster; nil: there is none
	Node      int        // another one, whose page this is
	Self      string     // URL of the page
	Every     int        // seconds between two refreshes, 0: never
	Top, Part template.HTML
}

type menuItem struct {
	URL, Title string
	Here       bool
}

// show writes a page that has no top: a part of a template.
func (s *Server) show(w http.ResponseWriter, r *request, code int, file, part string, data any) error {
	html, err := s.render(r, file, part, data)
	if err != nil {
		return err
	}
	return s.layout(w, r, code, nil, html)
}

// layout answers with a whole page around its parts.
func (s *Server) layout(w http.ResponseWriter, r *request, code int, top, part []byte) error {
	f := frame{Title: r.route.title, Node: r.node, Role: r.role(), ReadOnly: s.cfg.ReadOnly, Top: template.HTML(top),
		Part: template.HTML(part)}
	f.Self = r.base + r.http.URL.RequestURI()
	if r.session != nil {
		f.LoggedIn, f.LogsOut, f.User = true, r.session.id != "", r.session.identity.User
		f.Menu, f.Nodes = s.menu(r), s.nodes(r)
	}
	if p := r.route.page; p != nil && p.every > 0 && (code == http.StatusOK || code == http.StatusServiceUnavailable) {
		f.Every = int(p.every / time.Second)
	}
	f.Title = cmp.Or(f.Title, http.StatusText(code))
	html, err := s.render(r, "layout.html", "layout", f)
	if err != nil {
		return err
	}
	return write(w, r, code, s.compressed(html))
}

func (s *Server) menu(r *request) (items []menuItem) {
	for i := range s.routes {
		rt := &s.routes[i]
		if rt.menu && r.role() >= rt.role {
			here := rt.path == r.route.path || rt.path != "/" && strings.HasPrefix(r.route.path, rt.path+"/")
			items = append(items, menuItem{r.url(rt.path), rt.title, here})
		}
	}
	return items
}

// fail answers with an error: the relay's words, and what to do.
func (s *Server) fail(w http.ResponseWriter, r *request, err error) {
	code := status(err)
	if errors.Is(err, context.Canceled) {
		return // nobody is there to read it
	}
	if code == http.StatusInternalServerError {
		s.cfg.Log.Error("a page of the console has failed", "path", r.http.URL.Path, "error", err)
	}
	part, failed := s.render(r, "error.html", "live", struct {
		Status        int
		Message, Hint string
		Gone          bool
	}{code, err.Error(), api.Hint(err), relayGone(err)})
	if failed == nil && r.http.Header.Get("HX-Request") != "" {
		failed = write(w, r, code, s.compressed(part))
	} else if failed == nil {
		failed = s.layout(w, r, code, nil, part)
	}
	if failed != nil {
		s.cfg.Log.Error("a page of the console has failed", "path", r.http.URL.Path, "error", failed)
	}
}

// body is what is sent, in both forms.
type body struct{ plain, gzip []byte }

// compressed compresses what is worth it: what fits into a packet is not.
func (s *Server) compressed(html []byte) body {
	if len(html) < 1400 {
		return body{html, nil}
	}
	z, _ := s.zippers.Get().(*gzip.Writer)
	if z == nil {
		z = gzip.NewWriter(nil)
	}
	defer s.zippers.Put(z)
	var b bytes.Buffer
	z.Reset(&b)
	z.Write(html)
	z.Close()
	return body{html, b.Bytes()}
}

// write sends a page, compressed where the browser can take it.
func write(w http.ResponseWriter, r *request, code int, out body) error {
	h, html := w.Header(), out.plain
	h.Set("Content-Type", "text/html; charset=utf-8")
	if out.gzip != nil && acceptsGzip(r.http) {
		h.Set("Content-Encoding", "gzip")
		html = out.gzip
	}
	h.Set("Vary", "Accept-Encoding, HX-Request")
	h.Set("Content-Length", strconv.Itoa(len(html)))
	w.WriteHeader(code)
	_, _ = w.Write(html) // an error is the browser's, that has gone
	return nil
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" {
			return strings.ReplaceAll(q, " ", "") != "q=0"
		}
	}
	return false
}

// reveal makes visible what strangers' text hides in a page that is about to be sent: control characters
// and marks that turn the direction of text become \u001b and the like, octets that are not UTF-8 \xff. The
// templates have none themselves, line ends apart, so whatever is found is data.
func reveal(html []byte) []byte {
	first := bytes.IndexFunc(html, hidden)
	if first < 0 {
		return html
	}
	out := append(make([]byte, 0, len(html)+64), html[:first]...)
	for i := first; i < len(html); {
		r, size := utf8.DecodeRune(html[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, html[i])
		case hidden(r):
			out = legible.AppendEscaped(out, r)
		default:
			out = append(out, html[i:i+size]...)
		}
		i += size
	}
	return out
}

func hidden(r rune) bool {
	return r != '\n' && r != '\t' && r != '\r' && (r == utf8.RuneError || legible.Hidden(r))
}
