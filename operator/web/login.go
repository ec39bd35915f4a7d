package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/network"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// ticketLife is how long a link that logs in is good.
const ticketLife = time.Minute

// tickets are the links that log in, each once. It is safe for concurrent use.
type tickets struct {
	now func() time.Time

	mu sync.Mutex // guards by
	by map[[sha256.Size]byte]ticket
}

type ticket struct {
	who   Identity
	until time.Time
}

// Ticket gives the path of a link that logs somebody in, once, within a minute.
func (s *Server) Ticket(who Identity) string {
	text := rand.Text()
	s.tickets.add(text, who)
	return pathWith(s.cfg.BasePath, "/login", "ticket", text)
}

func (t *tickets) add(text string, who Identity) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = make(map[[sha256.Size]byte]ticket)
	}
	t.by[sha256.Sum256([]byte(text))] = ticket{who, t.now().Add(ticketLife)}
}

// use takes a ticket out.
func (t *tickets) use(text string) (Identity, bool) {
	key := sha256.Sum256([]byte(text))
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok := t.by[key]
	delete(t.by, key)
	return found.who, ok && t.now().Before(found.until)
}

// onceASecond lets one through a second, and counts the others.
type onceASecond struct {
	mu     sync.Mutex // guards what follows
	last   time.Time
	others int // since then
}

// passes reports whether one is let through, and how many were not since the one before.
func (x *onceASecond) passes(t time.Time) (others int, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.Sub(x.last) < time.Second {
		x.others++
		return 0, false
	}
	others, x.others, x.last = x.others, 0, t
	return others, true
}

// maxLogins is how many passwords of a client are checked at a time, or wait for that.
const maxLogins = 8

// atOnce counts what is under way by a key.
type atOnce[K comparable] struct {
	mu sync.Mutex // guards by
	by map[K]int
}

// begin counts one more of a key; false: there are the most already. end must be called after it.
func (a *atOnce[K]) begin(key K, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = make(map[K]int)
	}
	if a.by[key] == most {
		return false
	}
	a.by[key]++
	return true
}

func (a *atOnce[K]) end(key K) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[key]--; a.by[key] == 0 {
		delete(a.by, key)
	}
}

// tooOften refuses a login that is not put on record: one a second of its kind is. Anybody can send them, and the audit
// has an end, where old lines make space for new ones.
func tooOften() error {
	return &api.Error{Status: http.StatusTooManyRequests, Message: "too many logins are refused",
		Hint: "try again in a second"}
}

// loginPage is the data of the form.
type loginPage struct {
	Passwords bool // there are users; otherwise links are the way in
	User      string
	Next      string
	Problem   string
}

// loginForm shows the form, or takes a ticket.
func (s *Server) loginForm(w http.ResponseWriter, r *request) error {
	if text := r.get("ticket"); text != "" {
		return s.useTicket(w, r, text)
	}
	if r.session != nil {
		http.Redirect(w, r.http, s.next(r), http.StatusSeeOther)
		return nil
	}
	if user, ok := s.byProxy(r.http); ok {
		if _, ok := s.strangers.passes(r.now); !ok {
			return tooOften()
		}
		if err := s.audit(r, Login{User: user, Address: r.client, How: "proxy", Refused: "no role"}); err != nil {
			return err
		}
		return &api.Error{Status: http.StatusForbidden,
			Message: "you are logged in as " + user + ", who has no role here",
			Hint:    "an administrator of the relay gives one: mta console user add " + user + " --role viewer"}
	}
	page := loginPage{Passwords: s.cfg.Logins != nil, Next: r.get("next")}
	if r.silent != 0 {
		page.Problem = notAsked(r.silent)
	}
	return s.show(w, r, http.StatusOK, "login.html", "live", page)
}

func (s *Server) useTicket(w http.ResponseWriter, r *request, text string) error {
	who, ok := s.tickets.use(text)
	if !ok {
		if _, ok := s.guesses.passes(r.now); !ok {
			return tooOften()
		}
		if err := s.audit(r, Login{Address: r.client, How: "link", Refused: "used, too old or made up"}); err != nil {
			return err
		}
		return s.show(w, r, http.StatusForbidden, "login.html", "live",
			loginPage{Problem: "This link is used up or too old: each is good once, for a minute."})
	}
	if err := s.audit(r, Login{User: who.User, Address: r.client, How: "link"}); err != nil {
		return err
	}
	s.logIn(w, r, who)
	http.Redirect(w, r.http, r.url("/"), http.StatusSeeOther)
	return nil
}

// login checks the form.
func (s *Server) login(w http.ResponseWriter, r *request) error {
	if s.cfg.Logins == nil {
		return api.NotFound("open the link that 'mta console' prints", "nobody has a password here")
	}
	client := network.Of(r.client)
	if !s.logins.begin(client, maxLogins) {
		return tooOften()
	}
	defer s.logins.end(client)
	user := r.get("user")
	who, err := s.cfg.Logins.Login(r.ctx, r.client, user, r.get("password"))
	if err != nil {
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		if audited := s.auditWrong(r, user, err); audited != nil {
			return audited
		}
		code := http.StatusForbidden
		if e := (*api.Error)(nil); errors.As(err, &e) && e.Status != 0 {
			code = e.Status
		}
		return s.show(w, r, code, "login.html", "live",
			loginPage{Passwords: true, User: user, Next: r.get("next"), Problem: capital(err.Error()) + "."})
	}
	if err := s.audit(r, Login{User: who.User, Address: r.client, How: "password"}); err != nil {
		return err
	}
	s.logIn(w, r, who)
	http.Redirect(w, r.http, s.next(r), http.StatusSeeOther)
	return nil
}

// auditWrong writes a refused password down, one a second: guessers could fill the audit, where old lines make
// space for new ones. The line has the number of the others. Users who are known and users who aren't are in one count,
// or the time that an answer takes would distinguish them.
func (s *Server) auditWrong(r *request, user string, why error) error {
	others, ok := s.wrong.passes(s.cfg.Now())
	if !ok {
		return nil
	}
	l := Login{Address: r.client, How: "password", Refused: why.Error()}
	// A wrong name is not written down: people type their password there.
	if _, known := s.cfg.Logins.Known(user); known {
		l.User = user
	}
	if others > 0 {
		l.Refused += "; " + plural(others, "login") + " refused before it: see the relay's log"
	}
	return s.audit(r, l)
}

// next gives the page that somebody wanted before the login.
func (s *Server) next(r *request) string {
	to := local(r.get("next"))
	if u, err := url.Parse(to); to == "" || err != nil || u.Path == "/login" || u.Path == "/logout" {
		return r.url("/")
	}
	return r.base + to
}

func (s *Server) logout(w http.ResponseWriter, r *request) error {
	at := r.silent
	if r.session != nil && s.end(r.ctx, r.session) != nil {
		at = r.session.home
	}
	s.setCookie(w, r, "", -1)
	if at != 0 {
		return notEnded(at)
	}
	http.Redirect(w, r.http, r.url("/login"), http.StatusSeeOther)
	return nil
}

// audit writes a login down before it counts.
func (s *Server) audit(r *request, l Login) error {
	log := s.cfg.Log.With("user", l.User, "address", l.Address, "how", l.How)
	if l.Refused == "" {
		log.Info("login at the console")
	} else {
		log.Warn("login at the console refused", "reason", l.Refused)
	}
	if s.cfg.Audit == nil {
		return nil
	}
	if err := s.cfg.Audit(r.ctx, l); err != nil {
		return api.Unavailable("see the relay's log",
			"the login can't be written to the audit, so it is refused: %v", err)
	}
	return nil
}

// Identity is who uses the console.
type Identity struct {
	User string
	Role Role
	// Stamp is what Logins.Still goes by: only Logins knows what it is.
	Stamp any
}

// Logins knows the users. Package mta makes it from the users file.
type Logins interface {
	// Login checks a password. It takes its time, more after failures, and fails alike for a wrong password and
	// an unknown user. The error is for the form; *control.Error where it is more than that.
	Login(ctx context.Context, from netip.Addr, user, password string) (Identity, error)
	// Known gives a user whom a proxy has let in. ok is false for one without a role.
	Known(user string) (id Identity, ok bool)
	// Still reports whether an identity is as it was.
	Still(Identity) bool
}

// Login is one that was let in or refused, for the audit.
type Login struct {
	User    string
	Address netip.Addr
	How     string // "password", "link", "proxy"
	Refused string // why; "": let in
}

// peer is the address of the other end of the connection.
func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// trusted reports whether an address is a proxy's that we trust.
func (s *Server) trusted(a netip.Addr) bool {
	return network.Contain(s.access.Load().TrustedProxies, a)
}

// clientOf gives the address of who asks: behind trusted proxies, as they name it in X-Forwarded-For.
func (s *Server) clientOf(r *http.Request) netip.Addr {
	hops := network.Elements(r.Header.Values("X-Forwarded-For"))
	return network.Client(netip.AddrPortFrom(peer(r), 0), hops, s.access.Load().TrustedProxies).Addr()
}

// byProxy gives who has logged in at the proxy that a request came from; only what a trusted one says counts.
func (s *Server) byProxy(r *http.Request) (user string, ok bool) {
	name := s.access.Load().UserHeader
	if name == "" || !s.trusted(peer(r)) {
		return "", false
	}
	values := r.Header.Values(name)
	if len(values) != 1 || values[0] == "" {
		return "", false // two say that one is somebody else's
	}
	return values[0], true
}

// Role is what somebody may do.
type Role = auth.Role

// The roles, from the least.
const (
	Anyone   = auth.Anyone
	Viewer   = auth.Viewer
	Operator = auth.Operator
	Admin    = auth.Admin
)

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, error) {
	i := slices.Index(auth.Roles, name)
	if i < 0 {
		return Anyone, fmt.Errorf("there is no role %q", name)
	}
	return Viewer + Role(i), nil
}
