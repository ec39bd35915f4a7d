// Package milter asks programs that speak Sendmail's milter protocol (version 6, and down to 2) about complete
// messages. Whatever such a program does, an answer comes within its timeout and takes bounded memory: a milter that
// hangs, lies or dies costs its own mail, or its check, and delays no other.
package milter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// Settings are those of one milter.
type Settings struct {
	Name             string
	Network, Address string        // "tcp" and "host:port", or "unix" and a path
	Timeout          time.Duration // of all that a message takes
	Accept           bool          // mail passes where the milter fails; else it gets a 451
	Listeners        []string      // names of listeners and api blocks whose mail it is asked about; none: all
	Tenants          []string      // likewise
}

// Dial connects, as net.Dialer's DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

const (
	// connections is how many a milter has at a time. Other messages wait, within their timeout.
	connections = 100
	// After this many failures in a row a milter is left alone for a while: a message of a batch must not wait for its
	// timeout after the one before.
	failuresInRow = 3
	pause         = 10 * time.Second
	// troubled is how long a failure is an alarm.
	troubled = 2 * time.Minute
)

// Milters are those of the configuration in force.
type Milters struct {
	dial Dial
	now  func() time.Time
	log  *slog.Logger
	all  atomic.Pointer[[]*server]
}

// New makes no milters yet.
func New(dial Dial, now func() time.Time, log *slog.Logger) *Milters {
	m := &Milters{dial: dial, now: now, log: log}
	m.all.Store(new([]*server))
	return m
}

// Set brings milters into force, which are asked in this order. Those whose settings are the same stay.
func (m *Milters) Set(settings []Settings) {
	var all []*server
	for _, s := range settings {
		i := slices.IndexFunc(*m.all.Load(), func(old *server) bool { return reflect.DeepEqual(old.Settings, s) })
		if i >= 0 {
			all = append(all, (*m.all.Load())[i])
			continue
		}
		log := m.log.With("milter", s.Name)
		all = append(all, &server{Settings: s, dial: m.dial, now: m.now, slots: make(chan struct{}, connections),
			faults: faultlog.New(log, m.now, slog.LevelError, "a milter fails", "a milter works again")})
	}
	m.all.Store(&all)
}

// Trouble returns which milters fail, "" for none.
func (m *Milters) Trouble() string {
	var failing []string
	for _, s := range *m.all.Load() {
		if s.faults.Lately(troubled) {
			what := "mail is answered 451"
			if s.Accept {
				what = "mail passes unchecked"
			}
			failing = append(failing, fmt.Sprintf("milter %s fails, and %s: %v", s.Name, what, s.last()))
		}
	}
	return faultlog.Few(failing)
}

// Counts are a milter's since the start, or since its settings changed.
type Counts struct {
	Asked, Failed atomic.Int64 // messages
	Stopped       atomic.Int64 // refused, quarantined or discarded
}

// Counts returns those of each milter.
func (m *Milters) Counts() map[string]*Counts {
	all := make(map[string]*Counts)
	for _, s := range *m.all.Load() {
		all[s.Name] = &s.counts
	}
	return all
}

// Of returns the filter of a listener, or api block.
func (m *Milters) Of(listener string) intake.Filter { return filter{m, listener} }

type filter struct {
	*Milters
	listener string
}

func (f filter) For(tenant string) bool {
	return slices.ContainsFunc(*f.all.Load(), func(s *server) bool { return s.isFor(f.listener, tenant) })
}

func (f filter) Filter(ctx context.Context, m *intake.Filtered) (v intake.Verdict) {
	for _, s := range *f.all.Load() {
		if !s.isFor(f.listener, m.Tenant) {
			continue
		}
		answer := s.ask(ctx, f.listener, m)
		if answer.Refused != nil || answer.Discarded {
			return answer
		}
		if answer.Held != nil {
			v = answer
		}
	}
	return v
}

// server is a milter.
type server struct {
	Settings
	dial   Dial
	now    func() time.Time
	slots  chan struct{}
	faults *faultlog.Kind
	counts Counts

	mu       sync.Mutex // guards what follows
	failures int        // in a row
	until    time.Time  // when it is asked again after those
	err      error      // the last
}

func (s *server) isFor(listener, tenant string) bool {
	return (len(s.Listeners) == 0 || slices.Contains(s.Listeners, listener)) &&
		(len(s.Tenants) == 0 || slices.Contains(s.Tenants, tenant))
}

// ask asks about a message.
func (s *server) ask(ctx context.Context, listener string, m *intake.Filtered) (v intake.Verdict) {
	s.counts.Asked.Add(1)
	began := ctx
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	v, err := s.try(ctx, listener, m)
	// What the client or a shutdown cut off, or found no memory, says nothing of the milter.
	if began.Err() == nil && !errors.Is(err, errNoMemory) {
		s.note(err)
	}
	switch {
	case err != nil:
		s.counts.Failed.Add(1)
		if !s.Accept {
			v.Refused = intake.Unfiltered.Refusal()
		}
	case v.Refused != nil || v.Held != nil:
		s.counts.Stopped.Add(1)
	}
	return v
}

// errPaused is why a milter is not asked.
var errPaused = errors.New("it failed several times in a row, and is asked again in a few seconds")

// try asks within ctx.
func (s *server) try(ctx context.Context, listener string, m *intake.Filtered) (v intake.Verdict, _ error) {
	s.mu.Lock()
	paused := s.now().Before(s.until)
	s.mu.Unlock()
	if paused {
		return v, errPaused
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return v, fmt.Errorf("no connection became free: %w", ctx.Err())
	}
	c, err := s.dial(ctx, s.Network, s.Address)
	if err != nil {
		return v, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	answer, changes, err := converse(bound(c, m), listener, m)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer in time: %w", ctx.Err())
		}
		return v, err
	}
	return s.verdict(answer, changes, m)
}

// note notes how it went.
func (s *server) note(err error) {
	if err == nil {
		s.mu.Lock()
		s.failures = 0
		s.mu.Unlock()
		s.faults.Well()
		return
	}
	s.mu.Lock()
	if err != errPaused {
		s.err = err
		if s.failures++; s.failures >= failuresInRow {
			s.until = s.now().Add(pause)
		}
	}
	s.mu.Unlock()
	s.faults.Failed("", "error", err)
}

func (s *server) last() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// local is a reply that the queue keeps of a message that the milter has held or discarded.
func (s *server) local(code int, what, why string) *reply.Reply {
	text := what + " by milter " + s.Name
	if why != "" {
		text += ": " + reply.Printable(why)
	}
	r := reply.Local(code, reply.Enhanced{uint16(code / 100), 7, 1}, "milter", "%s", text)
	return &r
}
