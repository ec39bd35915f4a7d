package web

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"
)

// Bounds of sessions.
const (
	maxSessions = 1000
	maxIdle     = 30 * time.Minute // refreshes of an open page don't count as use
	maxLife     = 12 * time.Hour
)

// session is somebody who has logged in.
type session struct {
	id       string // "": a proxy names the user with each request
	home     int    // the node of the cluster where it began; 0: this one
	identity Identity
	began    time.Time
	used     time.Time // guarded by sessions.mu
	looked   time.Time // of another node: when that was asked last; of one request
}

// sessions keeps who is logged in: in memory, since the relay's restart may ask for a new login. They are
// found by the hash of their ids, so that the time of a look-up says nothing of an id. It is safe for
// concurrent use.
type sessions struct {
	now  func() time.Time
	node int // of the cluster, in the ids; 0: none

	mu sync.Mutex // guards by
	by map[[sha256.Size]byte]*session
}

// begin logs somebody in. The session that has been idle the longest makes space for one too many.
func (ss *sessions) begin(who Identity) *session {
	now := ss.now()
	s := &session{id: rand.Text(), identity: who, began: now, used: now}
	if ss.node != 0 {
		s.id = fmt.Sprintf("%d.%s", ss.node, s.id)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.by == nil {
		ss.by = make(map[[sha256.Size]byte]*session)
	}
	maps.DeleteFunc(ss.by, func(_ [sha256.Size]byte, s *session) bool { return !s.good(now) })
	if len(ss.by) >= maxSessions {
		ss.dropOldest()
	}
	ss.by[sha256.Sum256([]byte(s.id))] = s
	return s
}

func (ss *sessions) dropOldest() {
	var oldest [sha256.Size]byte
	var at time.Time
	for key, s := range ss.by {
		if at.IsZero() || s.used.Before(at) {
			oldest, at = key, s.used
		}
	}
	delete(ss.by, oldest)
}

// key distinguishes sessions. Users of a proxy have one for each request: theirs are apart by name.
func (s *session) key() string { return cmp.Or(s.id, "user "+s.identity.User) }

func (s *session) good(now time.Time) bool {
	return now.Sub(s.used) < maxIdle && now.Sub(s.began) < maxLife
}

// find gives the session of an id, nil when there is none. active: somebody does something.
func (ss *sessions) find(id string, active bool) *session {
	key, now := sha256.Sum256([]byte(id)), ss.now()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.by[key]
	if s == nil {
		return nil
	}
	if !s.good(now) {
		delete(ss.by, key)
		return nil
	}
	if active {
		s.used = now
	}
	return s
}

// end logs a session out.
func (ss *sessions) end(id string) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.by, sha256.Sum256([]byte(id)))
}

// cookie is the name of the session's cookie. Over TLS no other host and no clear text can set one with this
// prefix (RFC 6265bis, 4.1.3).
func (s *Server) cookie(secure bool) string {
	if secure {
		return "__Host-mta-console"
	}
	return "mta-console" + s.cfg.CookieSuffix
}

// sessionOf gives the session of a request, nil for none: the proxy's user, else that of the cookie. silent is
// the node where it began, if that can't be asked now; 0 otherwise.
func (s *Server) sessionOf(r *http.Request) (found *session, silent int) {
	if user, ok := s.byProxy(r); ok {
		if s.cfg.Logins == nil {
			return nil, 0
		}
		id, known := s.cfg.Logins.Known(user)
		if !known {
			return nil, 0
		}
		return &session{identity: id}, 0
	}
	c, err := r.Cookie(s.cookie(s.secure(r)))
	if err != nil || len(c.Value) > 64 {
		return nil, 0
	}
	active := r.Header.Get("HX-Request") == ""
	home := s.homeOf(c.Value)
	if home == 0 {
		return s.here(c.Value, active), 0
	}
	found, away := s.there(r, home, c.Value, active)
	if away {
		return nil, home
	}
	return found, 0
}

// here gives the session of an id that began at this node, nil when there is none.
func (s *Server) here(id string, active bool) *session {
	found := s.sessions.find(id, active)
	if found != nil && s.cfg.Logins != nil && !s.cfg.Logins.Still(found.identity) {
		s.sessions.end(found.id)
		return nil
	}
	return found
}

// still reports whether the user who has asked r may still see the answer, which goes on for longer than a session may:
// the session hasn't ended, and the user is as they were. It is not called twice at a time.
func (s *Server) still(r *request) bool {
	own := r.session
	switch {
	case own.id == "": // a proxy's user
		if _, ok := s.byProxy(r.http); !ok {
			return false // a reload has taken the header, or the proxy, away
		}
		return s.cfg.Logins == nil || s.cfg.Logins.Still(own.identity)
	case own.home == 0:
		return s.here(own.id, false) != nil
	case s.cfg.Now().Sub(own.looked) < lookAgain:
		return true
	}
	now, _ := s.there(r.http, own.home, own.id, false)
	own.looked = s.cfg.Now()
	return now != nil && now.identity == own.identity
}

// logIn begins a session, and ends the one that the browser had: an id that somebody else knows is worth
// nothing after the login.
func (s *Server) logIn(w http.ResponseWriter, r *request, who Identity) {
	if r.session != nil {
		if err := s.end(r.ctx, r.session); err != nil {
			s.cfg.Log.Warn("the session before a login may go on", "node", r.session.home, "error", err)
		}
	}
	began := s.sessions.begin(who)
	s.setCookie(w, r, began.id, int(maxLife/time.Second))
}

func (s *Server) setCookie(w http.ResponseWriter, r *request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{
		Name: s.cookie(r.secure), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: r.secure, SameSite: http.SameSiteStrictMode,
	})
}
