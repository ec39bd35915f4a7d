// Package ordering has one node of a cluster order a certificate that several have a name for, and gives it to all:
// challenges, certificates and their keys by name.
//
// The rules, each with the failure that it prevents:
//
//   - A node orders only in its turn, a change that counts unless another node's claim came first. When it is known to
//     count, all that was there before it is known, too: so nobody orders what another node has just got.
//   - A turn ends by each node's own clock: for its holder sooner after the claim than for the others after they read
//     it. A holder that has died is replaced; one that works claims again meanwhile.
//   - The certificate that ends last counts, never the row that was written last: what somebody writes back, or a node
//     with an older file shares, replaces nothing. Who has a later one sends that again.
//   - All values are encrypted, under their form, authority and name: nobody makes or reads one by the database.
//   - Certificates are under the URL of their authority: one of a test server does not come to nodes that use another.
//
// What it keeps is in memory: certificates are in files of the node's own, and the rest is read again.
package ordering

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/cluster/changes"
)

const (
	// Lease is for how long other nodes leave a turn to the node that has claimed it and is silent since.
	Lease = 10 * time.Minute
	// margin is by how much sooner the holder's turn ends.
	margin = time.Minute
	// again is when a holder that goes on claims again.
	again = 3 * time.Minute
	// patience with a claim's way to the engine and back.
	patience = 10 * time.Second
	// tokenTime is for how long the answer to a challenge is kept: package autocert orders for 10 minutes at most.
	tokenTime = time.Hour
	// mostTokens are kept.
	mostTokens = 1000
)

// The forms of values, with which their keys begin.
const (
	certificate = "certificate"
	token       = "token"
	turns       = "turn"
)

// Sealer encrypts values under their keys: see secrets.Keys.
type Sealer interface {
	Seal(at string, plain []byte) []byte
	Open(at string, value []byte) ([]byte, error)
}

// Config is what a Store works with.
type Config struct {
	Node      string   // this one's name, that no other has
	Directory string   // URL of the authority
	Names     []string // for which this node needs certificates
	Keys      Sealer
	// Note notes what is about to be changed: see exchange.Exchange. Behind waits until all nodes know what has.
	Note   func(keys []string) (done func(), err error)
	Behind func(context.Context) string
	Now    func() time.Time
	Log    *slog.Logger
}

// Store is what one node knows. It implements changes.Kind, and is safe for concurrent use.
type Store struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	certs   map[string]held
	tokens  map[string]held
	turns   map[string]*turn
	changed chan struct{} // closed when another node's, or a confirmed, change has come
	watch   func(name string)
}

// held is a certificate, or the answer to a challenge, until its end.
type held struct {
	data []byte
	ends time.Time
}

// turn is whose it is to order under a name.
type turn struct {
	claim     string    // this node's newest; "": none
	claimed   time.Time // when it was made
	confirmed string    // the newest that counts
	until     time.Time // when the confirmed one ends
	other     string    // another node's; "": none
	since     time.Time // when that was read
}

// New makes a Store that knows nothing yet.
func New(cfg Config) *Store {
	s := &Store{cfg: cfg, certs: make(map[string]held), tokens: make(map[string]held), turns: make(map[string]*turn),
		changed: make(chan struct{}), watch: func(string) {}}
	for _, name := range cfg.Names {
		s.turns[name] = new(turn)
	}
	return s
}

// Watch has f called with each name for which there is another certificate. f must not use the Store.
func (s *Store) Watch(f func(name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = f
}

// Certificate returns that of a name with its key in PEM form, as a node has put it; nil for none.
func (s *Store) Certificate(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.certs[name].data
}

// Token returns the answer to a challenge, nil for none.
func (s *Store) Token(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[name].data
}

// PutCertificate gives all nodes a certificate with its key in PEM form, unless there is one that ends later, and ends
// this node's turn.
func (s *Store) PutCertificate(name string, data []byte) error {
	ends, err := end(name, data)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ends.After(s.certs[name].ends) {
		return nil
	}
	keys := []string{s.key(certificate, name)}
	t := s.turns[name]
	if t != nil && t.claim != "" {
		keys = append(keys, s.key(turns, name))
	}
	return s.change(keys, func() {
		s.certs[name] = held{data, ends}
		s.watch(name)
		if t != nil {
			t.claim, t.confirmed = "", ""
		}
	})
}

// PutToken gives all nodes the answer to a challenge. It returns when all have it, or in 5 s.
func (s *Store) PutToken(ctx context.Context, name string, data []byte) error {
	err := s.put(name, &held{data, s.cfg.Now().Add(tokenTime)})
	if err == nil {
		if behind := s.cfg.Behind(ctx); behind != "" {
			s.cfg.Log.Warn("not all nodes can answer the certificate authority", "reason", behind)
		}
	}
	return err
}

// DeleteToken takes it from all.
func (s *Store) DeleteToken(name string) error { return s.put(name, nil) }

func (s *Store) put(name string, to *held) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.change([]string{s.key(token, name)}, func() {
		if delete(s.tokens, name); to != nil {
			s.tokens[name] = *to
		}
	})
}

// ErrUndecided is returned while it can't be found out which node orders.
var ErrUndecided = errors.New("the cluster's database has not answered which node orders the certificate")

// Turn reports whether this node is the one that orders a certificate now. It waits for up to 10 s, or until another
// node's certificate has come.
func (s *Store) Turn(ctx context.Context, name string) (mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.turns[name], s.cfg.Now()
	switch {
	case t == nil:
		return false, fmt.Errorf("this node does not have the name %s", name)
	case t.confirmed != "" && now.Before(t.until) && now.Sub(t.claimed) < again:
		return true, nil
	case t.other != "" && now.Sub(t.since) < Lease:
		return false, nil
	}
	if err := s.change([]string{s.key(turns, name)}, func() {
		t.claim, t.claimed, t.other = s.cfg.Node+" "+rand.Text(), now, ""
	}); err != nil {
		return false, err
	}
	claim, had := t.claim, s.certs[name].ends
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for t.confirmed != claim && t.other == "" && s.certs[name].ends.Equal(had) && ctx.Err() == nil {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	switch {
	case t.other != "":
		return false, nil
	case !s.certs[name].ends.Equal(had):
		return false, s.withdraw(name, t)
	case t.confirmed != "" && s.cfg.Now().Before(t.until):
		return true, nil
	}
	return false, ErrUndecided
}

// withdraw takes this node's claim back: it would keep the others from ordering after their next start. The caller has
// mu.
func (s *Store) withdraw(name string, t *turn) error {
	if t.claim == "" {
		return nil
	}
	return s.change([]string{s.key(turns, name)}, func() { t.claim, t.confirmed = "", "" })
}

// key is that of a value: its form, the authority, and a name.
func (s *Store) key(form, name string) string { return form + " " + s.cfg.Directory + " " + name }

func cut(key string) (form, directory, name string) {
	form, rest, _ := strings.Cut(key, " ")
	directory, name, _ = strings.Cut(rest, " ")
	return form, directory, name
}

// at is what a value is bound to.
func at(key string) string { return "acme " + key }

// change notes keys and changes them. The caller has mu.
func (s *Store) change(keys []string, change func()) error {
	done, err := s.cfg.Note(keys)
	if err != nil {
		return err
	}
	defer done()
	change()
	return nil
}

// end returns when a certificate ends, and an error if it is not of a name or not with its key.
func end(name string, data []byte) (time.Time, error) {
	c, err := tls.X509KeyPair(data, data)
	if err == nil {
		err = c.Leaf.VerifyHostname(name)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("the certificate or its key is not good for %s: %w", name, err)
	}
	return c.Leaf.NotAfter, nil
}

// All implements changes.Kind. Certificates are put when they are read from their files, and answers when their node
// has its turn.
func (s *Store) All(_ context.Context, each func(keys []string) error) error {
	s.mu.Lock()
	var keys []string
	for name := range s.certs {
		keys = append(keys, s.key(certificate, name))
	}
	for name, t := range s.turns {
		if t.claim != "" {
			keys = append(keys, s.key(turns, name))
		}
	}
	s.mu.Unlock()
	slices.Sort(keys)
	return each(keys)
}

// Get implements changes.Kind.
func (s *Store) Get(_ context.Context, keys []string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := make(map[string][]byte)
	for _, key := range keys {
		form, directory, name := cut(key)
		var plain []byte
		switch t := s.turns[name]; {
		case directory != s.cfg.Directory: // of before a change of the authority
		case form == certificate:
			plain = s.certs[name].data
		case form == token && s.tokens[name].data != nil:
			h := s.tokens[name]
			plain = append(binary.BigEndian.AppendUint64(nil, uint64(h.ends.Unix())), h.data...)
		case form == turns && t != nil:
			plain = []byte(t.claim)
		}
		if len(plain) > 0 {
			values[key] = s.cfg.Keys.Seal(at(key), plain)
		}
	}
	return values, nil
}

// Look implements changes.Kind. A certificate that ends later has a higher rank.
func (s *Store) Look(key string, value []byte) (rank int, until time.Time, err error) {
	plain, err := s.cfg.Keys.Open(at(key), value)
	if err != nil {
		return 0, until, err
	}
	switch form, _, name := cut(key); {
	case form == certificate:
		until, err = end(name, plain)
		return int(until.Unix() / 3600), until, err
	case form == token && len(plain) > 8:
		return 1, time.Unix(int64(binary.BigEndian.Uint64(plain)), 0), nil
	case form == turns:
		return 1, until, nil
	}
	return 0, until, errors.New("it has an unknown form")
}

// Apply implements changes.Kind.
func (s *Store) Apply(_ context.Context, values map[string][]byte, stays func(key string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var older []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		form, directory, name := cut(key)
		if directory != s.cfg.Directory || len(s.cfg.Names) == 0 || stays(key) {
			continue
		}
		var plain []byte
		if value := values[key]; value != nil {
			var err error
			if plain, err = s.cfg.Keys.Open(at(key), value); err != nil {
				return err
			}
		}
		switch t := s.turns[name]; {
		case form == token:
			s.hear(name, plain)
		case t == nil: // none of this node's names
		case form == turns:
			t.read(string(plain), s.cfg.Node, s.cfg.Now())
		case form == certificate:
			mine := s.certs[name].ends
			ends, err := end(name, plain)
			if err != nil || ends.Before(mine) {
				if !mine.IsZero() {
					older = append(older, key)
				}
				continue
			}
			if !bytes.Equal(plain, s.certs[name].data) {
				s.certs[name] = held{plain, ends}
				s.watch(name)
			}
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
	if len(older) == 0 {
		return nil
	}
	return s.change(older, func() {})
}

// hear takes the answer to a challenge from a row, or its removal. The caller has mu.
func (s *Store) hear(name string, plain []byte) {
	now := s.cfg.Now()
	maps.DeleteFunc(s.tokens, func(_ string, h held) bool { return now.After(h.ends) })
	delete(s.tokens, name)
	if len(plain) <= 8 {
		return
	}
	if len(s.tokens) >= mostTokens { // the soonest end goes
		delete(s.tokens, slices.MinFunc(slices.Collect(maps.Keys(s.tokens)), func(a, b string) int {
			return cmp.Or(s.tokens[a].ends.Compare(s.tokens[b].ends), strings.Compare(a, b))
		}))
	}
	s.tokens[name] = held{plain[8:], now.Add(tokenTime)}
}

// read takes a claim from the row of a turn; "" if there is none any more.
func (t *turn) read(claim, node string, now time.Time) {
	switch of, _, _ := strings.Cut(claim, " "); {
	case claim == "":
		t.other = ""
	case claim == t.claim:
		t.confirmed, t.until, t.other = claim, t.claimed.Add(Lease-margin), ""
	case of == node: // an earlier one, or of an earlier process
		t.other = ""
	case claim != t.other:
		t.claim, t.confirmed, t.other, t.since = "", "", claim, now
	}
}

var _ changes.Kind = (*Store)(nil)
