package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/network"
	"example.org/mta/operator/api"
)

// Config is what a server works with.
type Config struct {
	// Relay is asked for all that pages show, and does what they ask for.
	Relay *api.Client
	// Logins checks users and their passwords. nil: nobody has a password here, and tickets are the way in.
	Logins Logins
	// Nodes are asked about sessions that began there, by their FromNode. nil: sessions are good here alone.
	Nodes api.Members
	// Audit is called for each login, refused ones too, before it takes effect; an error refuses it.
	// nil: they go to Log alone.
	Audit func(context.Context, Login) error
	Access
	// BasePath is where the console stands at a proxy's: "" or "/mta", without a slash at its end.
	BasePath string
	// ReadOnly lets nobody change anything, or read what messages say.
	ReadOnly bool
	// CookieSuffix keeps consoles apart that a browser reaches by different ports of one host: cookies know
	// no ports.
	CookieSuffix string
	TLS          *tls.Config  // nil: in clear
	Log          *slog.Logger // nil: none
	Now          func() time.Time
}

// Access is how the console is called, and by whom. A running server can get another.
type Access struct {
	// Hosts are the names by which a browser may call the console, without ports: others are refused, since
	// a stranger's name can be made to mean this address.
	Hosts []string
	// TrustedProxies are those whose X-Forwarded-For and X-Forwarded-Proto count, and whose UserHeader names
	// who has logged in there.
	TrustedProxies []netip.Prefix
	UserHeader     string
}

// Server is the console.
type Server struct {
	cfg       Config
	access    atomic.Pointer[Access] // in place of cfg's
	http      http.Server
	mux       *http.ServeMux
	routes    []route
	templates templates
	views     views
	sessions  sessions
	homes     homes
	tickets   tickets
	logins    atOnce[netip.Prefix]
	// The refusals that are on record: of links, of users whom a proxy has logged in and who have no role, of
	// passwords.
	guesses, strangers, wrong onceASecond
	streams                   atOnce[string]
	zippers                   sync.Pool // of *gzip.Writer, which take a megabyte each
	assets                    map[string]*asset
	origins                   *http.CrossOriginProtection
	stopped                   context.Context // ends when the server is about to stop, for streams
}

// New makes a server that serves nothing yet.
func New(cfg Config) (*Server, error) { return newServer(cfg, routes) }

func newServer(cfg Config, table []route) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Server{cfg: cfg, mux: http.NewServeMux(), routes: table, origins: http.NewCrossOriginProtection()}
	s.origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, s.newRequest(r, nil),
			&api.Error{Status: http.StatusForbidden, Message: "the form is another site's",
				Hint: "begin at a page of the console"})
	}))
	s.Set(cfg.Access)
	s.views.now, s.sessions.now, s.tickets.now = cfg.Now, cfg.Now, cfg.Now
	if cfg.Nodes != nil {
		s.sessions.node = cfg.Nodes.Self()
	}
	stopped, stop := context.WithCancel(context.Background())
	s.stopped = stopped
	var err error
	if s.assets, err = readAssets(); err != nil {
		stop()
		return nil, err
	}
	if err := s.parse(); err != nil {
		stop()
		return nil, err
	}
	for i := range s.routes {
		r := &s.routes[i]
		pattern := r.path
		if pattern == "/" {
			pattern = "/{$}"
		}
		s.mux.Handle(r.method+" "+pattern, s.serve(r))
	}
	for _, pattern := range []string{"GET /node/{node}", "GET /node/{node}/", "POST /node/{node}/"} {
		s.mux.HandleFunc(pattern, s.atNode)
	}
	s.mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, s.newRequest(r, nil), noPage(r))
	})
	s.http = http.Server{
		Handler:           s.Handler(),
		TLSConfig:         cfg.TLS,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReceiveBufferPerConnection: 256 << 10,
			MaxReceiveBufferPerStream: 256 << 10},
		ErrorLog:    slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
		ConnState:   noteState,
		ConnContext: withConn,
	}
	s.http.RegisterOnShutdown(stop)
	return s, nil
}

// Set brings another access into force.
func (s *Server) Set(a Access) { s.access.Store(&a) }

// maxConnections bounds those that are open at a time.
const maxConnections = 256

// Serve answers on l until Shutdown. It then returns nil.
func (s *Server) Serve(l net.Listener) error {
	l = limit(l, maxConnections, s.trusted)
	var err error
	if s.cfg.TLS != nil {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown ends streams, waits for the other requests under way, and when ctx ends cuts them off.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
	}
	return err
}

// Handler has all routes behind the checks that every request goes through: the headers that bind the
// browser, the names that the console has, and the origin of what changes something.
func (s *Server) Handler() http.Handler {
	inner := s.origins.Handler(http.StripPrefix(s.cfg.BasePath, s.mux))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bind(w.Header())
		switch {
		case !s.mine(r.Host):
			s.fail(w, s.newRequest(r, nil),
				&api.Error{Status: http.StatusMisdirectedRequest, Message: "this console has no such name: " + r.Host,
					Hint: "open it by one of its names; the setting hosts of the console block lists them"})
		case !strings.HasPrefix(r.URL.Path, s.cfg.BasePath+"/"):
			if r.URL.Path == s.cfg.BasePath {
				http.Redirect(w, r, s.cfg.BasePath+"/", http.StatusPermanentRedirect)
				return
			}
			s.fail(w, s.newRequest(r, nil), noPage(r))
		case !clean(r.URL): // the mux would lead to the clean path, without the prefix
			s.fail(w, s.newRequest(r, nil), noPage(r))
		default:
			inner.ServeHTTP(w, r)
		}
	})
}

// clean reports whether the path has neither empty parts nor dots nor hidden slashes, at its end a slash at most.
func clean(u *url.URL) bool {
	c := path.Clean(u.Path)
	return (c == u.Path || c+"/" == u.Path) && !strings.Contains(strings.ToLower(u.RawPath), "%2f")
}

func noPage(r *http.Request) error {
	return api.NotFound("", "there is no page %s", r.URL.Path)
}

// policy is the Content-Security-Policy: nothing but what comes from here, nothing inline, no frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// bind sets the headers of all answers. There is no Strict-Transport-Security: it would bind the host's other ports,
// too.
func bind(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

// mine reports whether the console may be called by a host's name: one of the configuration's, or an address of
// loopback where nobody has named any.
func (s *Server) mine(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(name), "["), "]")
	hosts := s.access.Load().Hosts
	for _, h := range hosts {
		if strings.EqualFold(strings.Trim(h, "[]"), name) {
			return true
		}
	}
	ip, err := netip.ParseAddr(name)
	return len(hosts) == 0 && (name == "localhost" || err == nil && ip.IsLoopback())
}

// secure reports whether a request came to us, or to a proxy that we trust, by TLS.
func (s *Server) secure(r *http.Request) bool {
	by := network.Elements(r.Header.Values("X-Forwarded-Proto")) // the last is the nearest proxy's
	return r.TLS != nil || s.trusted(peer(r)) && len(by) > 0 && strings.EqualFold(by[len(by)-1], "https")
}

func (s *Server) routeOf(method, path string) *route {
	for i := range s.routes {
		if s.routes[i].method == method && s.routes[i].path == path {
			return &s.routes[i]
		}
	}
	return nil
}

func (s *Server) newRequest(r *http.Request, rt *route) *request {
	if rt == nil {
		rt = &route{}
	}
	req := &request{ctx: r.Context(), relay: s.cfg.Relay, now: s.cfg.Now(), http: r, route: rt,
		values: url.Values{}, most: Admin}
	req.node, _ = r.Context().Value(nodeKey{}).(int)
	if req.base = s.cfg.BasePath; req.node != 0 {
		req.base += nodePath(req.node)
	}
	if s.cfg.ReadOnly {
		req.most = Viewer
	}
	req.client, req.secure = s.clientOf(r), s.secure(r)
	req.session, req.silent = s.sessionOf(r)
	return req
}

// Bounds of a form, in octets; maxLogin is that of clients that have not logged in.
const (
	maxBody  = 1 << 20
	maxLogin = 16 << 10
)

// serve is the way of each request: who asks, may they, what do they ask.
func (s *Server) serve(rt *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		r := s.newRequest(hr, rt)
		noteSession(r)
		if r.role() < rt.role {
			s.keepOut(w, r)
			return
		}
		if rt.own && foreign(hr) {
			s.fail(w, r, &api.Error{Status: http.StatusForbidden, Message: "a page of another site asks for this",
				Hint: "open it in the console"})
			return
		}
		err := s.read(w, r)
		if err == nil {
			r.ctx = s.named(r)
			err = s.answer(w, r)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	})
}

// foreign reports whether a page of another site has made the browser ask. Such a page gets no answer to read, but the
// audit log would have a line that somebody has read a message, or the user's streams would be taken: its cookies, or
// those of a proxy that logs users in, may come along. Browsers that don't send the header send our cookie to our pages
// only (SameSite).
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// keepOut answers who may not: a client that has not logged in can, the others can't.
func (s *Server) keepOut(w http.ResponseWriter, r *request) {
	if r.session != nil {
		s.fail(w, r, &api.Error{Status: http.StatusForbidden,
			Message: "this takes the role " + r.route.role.String() + ", and you have the role " + r.role().String(),
			Hint:    "ask an administrator of the relay for the role"})
		return
	}
	login := r.url("/login")
	if r.http.Method == http.MethodGet && r.http.URL.RequestURI() != "/" {
		login = r.url("/login", "next", r.http.URL.RequestURI())
	}
	if r.http.Header.Get("HX-Request") != "" { // the part of a page: the whole has to go
		w.Header().Set("HX-Redirect", r.url("/login"))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r.http, login, http.StatusSeeOther)
}

// read takes in the query or the form.
func (s *Server) read(w http.ResponseWriter, r *request) error {
	query, err := url.ParseQuery(r.http.URL.RawQuery)
	if err != nil {
		return api.Invalid("", "query: %v", err)
	}
	r.values = query
	if r.http.Method == http.MethodPost {
		most := int64(maxBody)
		if r.route.role == Anyone {
			most = maxLogin
		}
		r.http.Body = http.MaxBytesReader(w, r.http.Body, most)
		if err := r.http.ParseForm(); err != nil {
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				return &api.Error{Status: http.StatusRequestEntityTooLarge,
					Message: fmt.Sprintf("the form is larger than %d KiB", most>>10),
					Hint:    "tick less, or use a filter"}
			}
			return api.Invalid("", "form: %v", err)
		}
		r.values = r.http.PostForm
	}
	if r.route.action != nil {
		return r.known(actionParams...)
	}
	return r.known()
}

// named gives the context of what is asked of the relay: the audit names who has asked, and it is bounded by the role.
func (s *Server) named(r *request) context.Context {
	a := api.Actor{Kind: api.ByConsole, Address: r.client.String()}
	if r.session != nil {
		a.User = r.session.identity.User
	}
	return api.AtNode(api.WithRole(api.WithActor(r.http.Context(), a), r.role()), r.node)
}

func (s *Server) answer(w http.ResponseWriter, r *request) error {
	switch {
	case r.route.page != nil:
		return s.showPage(w, r)
	case r.route.action != nil:
		return s.doAction(w, r)
	}
	return r.route.serve(s, w, r)
}
