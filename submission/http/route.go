package http

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"example.org/mta/submission/auth"
)

// Route is a resource, a method, and who may use it.
type Route struct {
	Method  string
	Pattern string // a path as net/http's ServeMux has it: "/v1/messages/{id}"
	// Scope is what the key must be allowed. 0: any key will do.
	Scope auth.Scopes
	Open  bool // no key is needed
	// Mail says that the request brings messages: admission is asked before its body is read.
	Mail bool
	// Streamed reports whether the handler takes the body of a request in bounded memory, and doesn't
	// keep it as a whole. Nil: of none.
	Streamed func(*http.Request) bool
	Handle   Handler
}

// Handler answers a request that has passed all checks. An error becomes the answer, see [Problem]; it
// must not be returned after something was written.
type Handler func(c *Call) error

// name is the route's in metrics and in the log.
func (r *Route) name() string { return r.Method + " " + r.Pattern }

// routes are those of this package, a group for each file.
func (s *Server) routes() []Route {
	return slices.Concat(
		s.documentRoutes(),
		s.statusRoutes(),
		s.eventRoutes(),
		s.suppressionRoutes(),
		s.messageRoutes(),
		s.unsubscribeRoutes(),
		s.config.Routes,
	)
}

// table finds the route of a request.
type table struct {
	mux     *http.ServeMux
	methods []string // that any route has
}

// newTable has serve called for requests with a route, which it is given with the call.
func newTable(routes []Route, serve Handler) *table {
	t := &table{mux: http.NewServeMux()}
	for i := range routes {
		r := &routes[i]
		t.mux.HandleFunc(r.name(), func(w http.ResponseWriter, _ *http.Request) {
			c := w.(*answer).call
			c.Route = r
			if err := serve(c); err != nil {
				c.fail(err)
			}
		})
		if !slices.Contains(t.methods, r.Method) {
			t.methods = append(t.methods, r.Method)
		}
	}
	slices.Sort(t.methods)
	t.mux.HandleFunc(everything, func(w http.ResponseWriter, _ *http.Request) {
		c := w.(*answer).call
		if err := t.missing(c); err != nil {
			c.fail(err)
		}
	})
	return t
}

// everything is the pattern of requests that no route is for.
const everything = "/"

// pattern is that of the request's path and a method, "" where there is no route.
func (t *table) pattern(req *http.Request, method string) string {
	if req.URL.Path != cleaned(req.URL.Path) { // the mux would redirect, and clients that follow lose their body
		return ""
	}
	probe := &http.Request{Method: method, URL: req.URL, Host: req.Host}
	_, pattern := t.mux.Handler(probe)
	if pattern == everything {
		return ""
	}
	_, path, _ := strings.Cut(pattern, " ")
	return path
}

// cleaned is the path without "." and "..", and with no more than one slash in a row.
func cleaned(p string) string {
	if !strings.HasPrefix(p, "/") {
		return ""
	}
	if c := path.Clean(p); c == "/" || !strings.HasSuffix(p, "/") {
		return c
	}
	return path.Clean(p) + "/"
}

// allowed lists the methods that the resource has.
func (t *table) allowed(req *http.Request) (methods []string) {
	// A resource with a name of its own, as /v1/messages/cancel, has none of the methods of /v1/messages/{id}.
	named := slices.ContainsFunc(t.methods, func(m string) bool { return t.pattern(req, m) == req.URL.Path })
	for _, m := range t.methods {
		if p := t.pattern(req, m); p != "" && (p == req.URL.Path || !named) {
			methods = append(methods, m)
			if m == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
	}
	if len(methods) > 0 {
		methods = append(methods, http.MethodOptions)
	}
	return methods
}

// missing answers a request that no route is for.
func (t *table) missing(c *Call) error {
	req, w := c.Request, c.Writer
	methods := t.allowed(req)
	if len(methods) == 0 {
		return Problemf(http.StatusNotFound, "there is nothing at %s: /openapi.json lists the routes",
			shortened(req.URL.Path))
	}
	allow := strings.Join(methods, ", ")
	if req.Method == http.MethodOptions {
		w.Header().Set("Allow", allow) // RFC 9110, 9.3.7
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	p := Problemf(http.StatusMethodNotAllowed, "use %s", allow)
	p.Header = http.Header{"Allow": {allow}} // RFC 9110, 15.5.6
	return p
}

// shortened bounds what is repeated of a request.
func shortened(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
