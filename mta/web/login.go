package web

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"example.org/mta/mta/control"
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
	return s.url("/login", "ticket", text)
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

// onceASecond lets one through a second.
type onceASecond struct {
	mu   sync.Mutex // guards last
	last time.Time
}

func (x *onceASecond) passes(t time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.Sub(x.last) < time.Second {
		return false
	}
	x.last = t
	return true
}

// tooOften refuses a login that is not put on record: one a second of its kind is. Anybody can send them, and the audit has
// an end, where old lines make room for new ones.
func tooOften() error {
	return &control.Error{Status: http.StatusTooManyRequests, Message: "too many logins are refused", Hint: "try again in a second"}
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
		if !s.strangers.passes(r.now) {
			return tooOften()
		}
		if err := s.audit(r, Login{User: user, Address: r.client, How: "proxy", Refused: "no role"}); err != nil {
			return err
		}
		return &control.Error{Status: http.StatusForbidden, Message: "you are logged in as " + user + ", who has no role here",
			Hint: "an administrator of the relay gives one: mta console user add " + user + " --role viewer"}
	}
	return s.showLogin(w, r, http.StatusOK, loginPage{Passwords: s.cfg.Logins != nil, Next: r.get("next")})
}

func (s *Server) useTicket(w http.ResponseWriter, r *request, text string) error {
	who, ok := s.tickets.use(text)
	if !ok && !s.guesses.passes(r.now) {
		return tooOften()
	}
	if !ok {
		if err := s.audit(r, Login{Address: r.client, How: "link", Refused: "used, too old or made up"}); err != nil {
			return err
		}
		return s.showLogin(w, r, http.StatusForbidden, loginPage{Problem: "This link is used up or too old: each is good once, for a minute."})
	}
	if err := s.audit(r, Login{User: who.User, Address: r.client, How: "link"}); err != nil {
		return err
	}
	s.logIn(w, r, who)
	http.Redirect(w, r.http, s.url("/"), http.StatusSeeOther)
	return nil
}

// login checks the form.
func (s *Server) login(w http.ResponseWriter, r *request) error {
	if s.cfg.Logins == nil {
		return control.NotFound("open the link that 'mta console' prints", "nobody has a password here")
	}
	user := r.get("user")
	who, err := s.cfg.Logins.Login(r.ctx, r.client, user, r.get("password"))
	if err != nil {
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		// A wrong name is not written down: people type their password there.
		known, code := "", http.StatusForbidden
		if _, ok := s.cfg.Logins.Known(user); ok {
			known = user
		}
		if audited := s.audit(r, Login{User: known, Address: r.client, How: "password", Refused: err.Error()}); audited != nil {
			return audited
		}
		if e := (*control.Error)(nil); errors.As(err, &e) && e.Status != 0 {
			code = e.Status
		}
		return s.showLogin(w, r, code, loginPage{Passwords: true, User: user, Next: r.get("next"), Problem: capital(err.Error()) + "."})
	}
	if err := s.audit(r, Login{User: who.User, Address: r.client, How: "password"}); err != nil {
		return err
	}
	s.logIn(w, r, who)
	http.Redirect(w, r.http, s.next(r), http.StatusSeeOther)
	return nil
}

// next gives the page that somebody wanted before the login.
func (s *Server) next(r *request) string {
	to := local(r.get("next"))
	if u, err := url.Parse(to); to == "" || err != nil || u.Path == "/login" || u.Path == "/logout" {
		return s.url("/")
	}
	return s.cfg.BasePath + to
}

func (s *Server) logout(w http.ResponseWriter, r *request) error {
	s.sessions.end(r.session.id)
	s.setCookie(w, r, "", -1)
	http.Redirect(w, r.http, s.url("/login"), http.StatusSeeOther)
	return nil
}

func (s *Server) showLogin(w http.ResponseWriter, r *request, code int, page loginPage) error {
	html, err := s.render(Anyone, "login.html", "live", page)
	if err != nil {
		return err
	}
	return s.layout(w, r, code, nil, html)
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
		return control.Unavailable("see the relay's log", "the login can't be written to the audit, so it is refused: %v", err)
	}
	return nil
}
