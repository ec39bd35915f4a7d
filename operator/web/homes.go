package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/internal/network"
	"example.org/mta/operator/api"
)

// A session is good at all nodes of a cluster, and is kept by the one where it began, whose number its id has. The
// others ask that node with each request: so a session ends everywhere at once, whatever ends it, and nothing that is
// stored or read elsewhere makes one.

// Bounds of questions about sessions of other nodes.
const (
	askHome     = 2 * time.Second // for an answer
	askAgain    = 5 * time.Second // after a question without one
	lookAgain   = time.Second / 2 // while an answer goes on
	maxQuestion = 1 << 10
)

// strange and strangers are how many ids may be asked about that have not been good lately, of one client and of all:
// anybody can make some up.
var (
	strange   = gcra.Rate{Events: 10, Burst: 100}
	strangers = gcra.Rate{Events: 50, Burst: 500}
)

// mostStrange is how many clients with such ids are known at a time, by their networks, and strangeAtOnce how many
// questions about such ids a node is asked at a time: its Asker has turns for others, too.
const mostStrange, strangeAtOnce = 1000, 4

// question is one of another node about a session of this one.
type question struct {
	ID     string `json:"id"`
	Active bool   `json:"active,omitempty"` // somebody does something
	End    bool   `json:"end,omitempty"`    // log it out
}

// holder is who has a session, as the node where it began answers; zero: there is none.
type holder struct {
	User string `json:"user,omitempty"`
	Role string `json:"role,omitempty"`
}

// homes is what is known of sessions that began at other nodes. It is safe for concurrent use.
type homes struct {
	mu     sync.Mutex          // guards what follows
	silent map[place]time.Time // nodes without an answer, until they are asked again
	good   map[[sha256.Size]byte]time.Time
	pace   gcra.Limiter // of questions about ids that are not in good
	paces  map[netip.Prefix]*gcra.Limiter

	strange atOnce[int] // questions about ids that are not in good, by node
}

// place is a node, for ids that have been good lately or for all others: the latter may be too many for it.
type place struct {
	node int
	used bool
}

// may reports whether a node may be asked about an id that a client has; used: it has been good lately.
func (f *homes) may(node int, id string, client netip.Prefix, now time.Time) (used, may bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	used = now.Sub(f.good[sha256.Sum256([]byte(id))]) < maxIdle
	if used || now.Before(f.silent[place{node, true}]) || now.Before(f.silent[place{node, false}]) {
		return used, used && !now.Before(f.silent[place{node, true}])
	}
	of := f.paces[client]
	if of == nil {
		if len(f.paces) >= mostStrange {
			maps.DeleteFunc(f.paces, func(_ netip.Prefix, l *gcra.Limiter) bool { return l.Paid(now) })
		}
		if of = new(gcra.Limiter); len(f.paces) < mostStrange {
			if f.paces == nil {
				f.paces = make(map[netip.Prefix]*gcra.Limiter)
			}
			f.paces[client] = of
		}
	}
	if of.Next(now, strange, 1).After(now) || f.pace.Next(now, strangers, 1).After(now) {
		return false, false
	}
	of.Take(now, strange, 1)
	f.pace.Take(now, strangers, 1)
	return false, true
}

// answered notes how a question has ended, and reports whether a node has become silent that has a session in use here.
func (f *homes) answered(node int, id string, used, good bool, err error, now time.Time) (fell bool) {
	key := sha256.Sum256([]byte(id))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent == nil {
		f.silent, f.good = make(map[place]time.Time), make(map[[sha256.Size]byte]time.Time)
	}
	if err != nil {
		at := place{node, used}
		fell = used && !now.Before(f.silent[at]) // else anybody could fill the log
		f.silent[at] = now.Add(askAgain)
		return fell
	}
	if delete(f.good, key); !good {
		return false
	}
	if len(f.good) >= maxSessions {
		maps.DeleteFunc(f.good, func(_ [sha256.Size]byte, at time.Time) bool { return now.Sub(at) >= maxIdle })
	}
	if len(f.good) < maxSessions {
		f.good[key] = now
	}
	return false
}

// homeOf returns the node where the session of an id began, 0: this one.
func (s *Server) homeOf(id string) int {
	if s.cfg.Nodes == nil {
		return 0
	}
	number, _, found := strings.Cut(id, ".")
	node, err := strconv.Atoi(number)
	if !found || err != nil || node < 1 || node > 1023 || node == s.cfg.Nodes.Self() {
		return 0
	}
	return node
}

// there gives the session of an id that began at another node, nil when there is none; silent: that can't be asked now.
// Its user needs a role here, too, and the lesser one counts.
func (s *Server) there(r *http.Request, node int, id string, active bool) (found *session, silent bool) {
	if s.cfg.Logins == nil {
		return nil, false
	}
	ctx := r.Context()
	used, may := s.homes.may(node, id, network.Of(s.clientOf(r)), s.cfg.Now())
	if !may {
		return nil, true
	}
	if !used {
		if !s.homes.strange.begin(node, strangeAtOnce) {
			return nil, true
		}
		defer s.homes.strange.end(node)
	}
	who, err := s.ask(ctx, node, question{ID: id, Active: active})
	role := Anyone
	if err == nil && who != (holder{}) {
		role, err = ParseRole(who.Role)
	}
	if ctx.Err() != nil {
		return nil, true // the browser has left
	}
	if s.homes.answered(node, id, used, role > Anyone, err, s.cfg.Now()) {
		s.cfg.Log.Warn("sessions of another node are not good here now", "node", node, "error", err)
	}
	if err != nil || role == Anyone {
		return nil, err != nil
	}
	here, known := s.cfg.Logins.Known(who.User)
	if !known {
		return nil, false
	}
	return &session{id: id, home: node, identity: Identity{User: who.User, Role: min(role, here.Role)}}, false
}

// ask has another node answer a question about a session that began there.
func (s *Server) ask(ctx context.Context, node int, q question) (who holder, err error) {
	ctx, cancel := context.WithTimeout(ctx, askHome)
	defer cancel()
	text, err := json.Marshal(q)
	if err != nil {
		return who, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://node/session", bytes.NewReader(text))
	if err != nil {
		return who, err
	}
	answer, err := s.cfg.Nodes.Ask(ctx, node, r)
	if err != nil {
		return who, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return who, fmt.Errorf("its answer has the status %d", answer.StatusCode)
	}
	return who, json.NewDecoder(answer.Body).Decode(&who)
}

// FromNode answers the question of another node about a session that began here, and never asks a further one.
func (s *Server) FromNode(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion)).Decode(&q); err != nil {
		http.Error(w, "the question can't be read", http.StatusBadRequest)
		return
	}
	var who holder
	if q.End {
		s.sessions.end(q.ID)
	} else if found := s.here(q.ID, q.Active); found != nil {
		who = holder{found.identity.User, found.identity.Role.String()}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(who)
}

// end logs a session out, wherever it began; an error: it may go on there.
func (s *Server) end(ctx context.Context, of *session) error {
	if of.home == 0 {
		s.sessions.end(of.id)
		return nil
	}
	_, err := s.ask(ctx, of.home, question{ID: of.id, End: true})
	return err
}

// notAsked is the form's text when the node where a session began can't be asked.
func notAsked(node int) string {
	return fmt.Sprintf("Node %d, where you logged in, can't be asked now. Log in again.", node)
}

// notEnded is the error of a logout that the node where the session began has not heard of.
func notEnded(node int) error {
	return api.Unavailable("it ends there 30 minutes after its last use at the latest",
		"this browser is logged out, but node %d, where you logged in, can't be asked now: the session may go on there",
		node)
}
