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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/fair"
	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// Settings are those of one milter.
type Settings struct {
	Name             string
	Network, Address string        // "tcp" and "host:port", or "unix" and a path
	Timeout          time.Duration // of the wait for a connection, then of all that a message takes
	Accept           bool          // mail passes where the milter fails; else it gets a 451
	Listeners        []string      // names of listeners and api blocks whose mail it is asked about; none: all
	Tenants          []string      // likewise
}

// Dial connects, as net.Dialer's DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

const (
	// After this many failures in a row with a party's mail a milter is not asked about that for a while: a message of
	// a batch must not wait for its timeout after the one before. Others' mail could be as it should be.
	failuresInRow = 3
	pause         = 10 * time.Second
	// back is when one that was away, whoever's the mail is, is asked again.
	back = time.Second
	// maxFailing bounds the parties whose failures are counted.
	maxFailing = 1000
	// troubled is how long a failure is an alarm, and shown how long mail is that has passed unchecked.
	troubled = 2 * time.Minute
	shown    = time.Hour
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
		srv := &server{Settings: s, dial: m.dial, now: m.now, failing: make(map[fair.Party]*failures),
			faults: faultlog.New(log, m.now, slog.LevelError, "a milter fails", "a milter works again")}
		srv.turns = turns{open: srv.open, now: m.now, made: m.now(), timeout: s.Timeout,
			number: connections, calm: connections, parties: make(map[fair.Party]*party)}
		all = append(all, srv)
	}
	m.all.Store(&all)
}

// Trouble returns which milters fail, or have let mail pass unchecked within the hour, "" for none.
func (m *Milters) Trouble() string {
	var failing []string
	for _, s := range *m.all.Load() {
		if f, of := s.worst(); f != nil {
			what := "is answered 451"
			if s.Accept && !errors.As(f.err, new(unready)) {
				what = "passes unchecked"
			}
			failing = append(failing, fmt.Sprintf("milter %s fails, and mail%s %s: %v", s.Name, of, what, f.err))
		}
		if n, last := s.passed(); n > 0 {
			failing = append(failing, fmt.Sprintf("%d messages have passed milter %s unchecked, the last at %s",
				n, s.Name, last.UTC().Format(time.RFC3339)))
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
	turns  turns
	faults *faultlog.Kind
	counts Counts

	mu        sync.Mutex // guards what follows
	decided   time.Time  // when it last did
	gone      failures   // whoever's the mail is
	failing   map[fair.Party]*failures
	unchecked int // messages, until none has passed for a while
	last      time.Time
}

// failures are those since it went well.
type failures struct {
	inRow int
	last  time.Time
	until time.Time // when it is asked again
	err   error     // the last
}

func (s *server) isFor(listener, tenant string) bool {
	return (len(s.Listeners) == 0 || slices.Contains(s.Listeners, listener)) &&
		(len(s.Tenants) == 0 || slices.Contains(s.Tenants, tenant))
}

// ask asks about a message.
func (s *server) ask(ctx context.Context, listener string, m *intake.Filtered) intake.Verdict {
	s.counts.Asked.Add(1)
	who := fair.PartyOf(m.Tenant, m.Client.Network)
	paused, probe := s.paused(who)
	v, err := intake.Verdict{}, error(errPaused)
	if !paused {
		v, err = s.try(ctx, listener, who, probe, m)
	}
	s.note(who, m.Tenant, probe, err)
	var unfit misfit
	switch {
	case errors.As(err, &unfit):
		s.counts.Stopped.Add(1)
		return intake.Verdict{Refused: intake.FilterMisfit.Refusal(s.Name, string(unfit))}
	case errors.Is(err, errNoMemory): // what this relay or the client lacks says nothing of the milter
		return intake.Verdict{Refused: intake.MemoryFull.Refusal()}
	case errors.Is(err, errBusy):
		return intake.Verdict{Refused: intake.FilterBusy.Refusal(s.Name)}
	case err != nil:
		s.counts.Failed.Add(1)
		if !s.Accept || errors.As(err, new(unready)) {
			v.Refused = intake.Unfiltered.Refusal(s.Name)
		}
	case v.Refused != nil || v.Held != nil:
		s.counts.Stopped.Add(1)
	}
	return v
}

var (
	// errPaused is why a milter is not asked.
	errPaused = errors.New("it failed several times in a row, and is asked again in a few seconds")
	errBusy   = errors.New("no connection became free")
)

// unready is why there is no verdict although the milter could be as it should be: the relay lacks something, or the
// milter has more mail than it can check in time. That mail is answered 451 whatever Accept is.
type unready struct{ error }

// misfit is why a message, which is large, can't be what a milter makes of it. The milter is not at fault.
type misfit string

func (m misfit) Error() string { return string(m) }

// away is why there is no connection, whoever's the message is.
type away struct{ error }

func (a away) Unwrap() error { return a.error }

// mute is why there is no answer to a message that the milter had alone.
type mute struct{ error }

// try asks once there is a connection. A probe is asked about although the milter has failed.
func (s *server) try(ctx context.Context, listener string, who fair.Party, probe bool,
	m *intake.Filtered) (v intake.Verdict, _ error) {
	began := s.now()
	wait, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	l, err := s.turns.take(wait, who)
	switch {
	case l == nil && err == nil && ctx.Err() != nil:
		return v, errBusy
	case l == nil:
		return v, s.turns.unserved(began, err)
	}
	if paused, _ := s.paused(who); paused && !probe {
		s.turns.end(l, left)
		return v, errPaused
	}
	l.conn.serve(m)
	within, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	stop := context.AfterFunc(within, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	answer, changes, err := converse(l.session, listener, m)
	stop()
	switch {
	case err == nil:
		s.turns.end(l, decided)
		return s.verdict(answer, changes, m)
	case ctx.Err() != nil:
		s.turns.linger(l)
		return v, errBusy
	case !l.conn.broken:
		s.turns.end(l, failed)
		return v, err
	case within.Err() != nil:
		err = late(within.Err())
	}
	if !s.turns.end(l, silent) {
		return v, unready{fmt.Errorf("it has too much to do: %w", err)}
	}
	return v, mute{err}
}

func late(err error) error { return fmt.Errorf("no answer in time: %w", err) }

// open opens a connection, and waits until the milter answers on it.
func (s *server) open(ctx context.Context) (*link, error) {
	c, err := s.dial(ctx, s.Network, s.Address)
	if err != nil {
		return nil, away{err}
	}
	l := &link{conn: &bounded{Conn: c, left: answers}}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	if l.session, err = negotiate(l.conn); !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return l, nil
}

// paused reports whether the milter is not asked about a party's mail for now, and if it is, whether the message is a
// probe: there is one at a time while it fails.
func (s *server) paused(who fair.Party) (paused, probe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, now := s.failing[who], s.now()
	switch {
	case s.gone.inRow < failuresInRow && (f == nil || f.inRow < failuresInRow):
		return false, false
	case now.Before(s.gone.until) || f != nil && now.Before(f.until):
		return true, false
	}
	s.of(who).until = now.Add(2 * s.Timeout)
	return false, true
}

// of returns the failures of a party. mu is held.
func (s *server) of(who fair.Party) *failures {
	f := s.failing[who]
	if f == nil {
		if len(s.failing) >= maxFailing {
			clear(s.failing)
		}
		f = new(failures)
		s.failing[who] = f
	}
	return f
}

// note notes how it went with a party's mail.
func (s *server) note(who fair.Party, tenant string, probe bool, err error) {
	nothing := errors.Is(err, errBusy) || errors.Is(err, errNoMemory) || errors.As(err, new(misfit))
	switch {
	case err == nil:
		s.faults.Well()
	case !nothing:
		s.faults.Failed("", "tenant", tenant, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if err == nil {
		s.decided, s.gone = now, failures{}
		delete(s.failing, who)
		return
	}
	if probe {
		s.of(who).until = now
	}
	if nothing {
		return
	}
	if s.Accept && !errors.As(err, new(unready)) {
		if now.Sub(s.last) >= shown {
			s.unchecked = 0
		}
		s.unchecked++
		s.last = now
	}
	f := s.of(who)
	switch {
	case err == errPaused:
	case errors.As(err, new(unready)):
		f.err, f.last = err, now
	case errors.As(err, new(away)):
		s.gone.fail(now, back, err)
	default:
		f.fail(now, pause, err)
		if errors.As(err, new(mute)) && s.silences() >= failuresInRow {
			s.gone = failures{inRow: failuresInRow, last: now, until: now.Add(back), err: err}
		}
	}
}

// fail notes a failure.
func (f *failures) fail(now time.Time, pause time.Duration, err error) {
	f.err, f.last = err, now
	if f.inRow++; f.inRow >= failuresInRow {
		f.until = now.Add(pause)
	}
}

// silences returns of how many parties it gave no answer since it decided last. mu is held.
func (s *server) silences() (n int) {
	for _, f := range s.failing {
		if f.last.After(s.decided) && errors.As(f.err, new(mute)) {
			n++
		}
	}
	return n
}

// passed returns how many messages have passed unchecked lately, and when the last did.
func (s *server) passed() (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Sub(s.last) >= shown {
		return 0, s.last
	}
	return s.unchecked, s.last
}

// worst returns the last failure that it has not gone well since, nil if there was none lately, and of whose mail.
func (s *server) worst() (last *failures, of string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lately := func(f *failures) bool { return f.err != nil && s.now().Sub(f.last) < troubled }
	if gone := s.gone; lately(&gone) {
		return &gone, ""
	}
	var whose []string
	for who, f := range s.failing {
		if !lately(f) {
			continue
		}
		if last == nil || f.last.After(last.last) {
			last = new(*f)
		}
		switch {
		case who.Tenant != "":
			whose = append(whose, "tenant "+who.Tenant)
		case who.Network.IsValid():
			whose = append(whose, "clients at "+who.Network.String())
		default:
			whose = append(whose, "local programs")
		}
	}
	slices.Sort(whose)
	return last, " of " + strings.ReplaceAll(faultlog.Few(whose), ";", ",")
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
