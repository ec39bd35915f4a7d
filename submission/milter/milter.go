// Package milter asks programs that speak Sendmail's milter protocol (version 6, and down to 2) about complete
// messages. Whatever such a program does, an answer comes within its timeout and takes bounded memory: a milter that
// hangs, lies or dies costs its own mail, or its check, and delays no other.
package milter

import (
	"cmp"
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
	"syscall"
	"time"

	"github.com/emersion/go-milter"

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
	// connections is how many a milter has at a time, in shares: other messages wait.
	connections = 100
	// openings is how many of them may be such that the milter doesn't answer yet, in shares: the backlog of a milter
	// that takes few at a time is short, and one tenant's mail in it would be in front of all others'.
	openings = 8
	// again is when a connection is tried again for which something was lacking.
	again = 20 * time.Millisecond
	// After this many failures in a row with a party's mail a milter is not asked about that for a while: a message of
	// a batch must not wait for its timeout after the one before. Others' mail could be as it should be.
	failuresInRow = 3
	pause         = 10 * time.Second
	// maxFailing bounds the parties whose failures are counted.
	maxFailing = 1000
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
		all = append(all, &server{Settings: s, dial: m.dial, now: m.now, slots: fair.NewSlots(connections),
			openings: fair.NewSlots(openings),
			failing:  make(map[fair.Party]*failures),
			faults:   faultlog.New(log, m.now, slog.LevelError, "a milter fails", "a milter works again")})
	}
	m.all.Store(&all)
}

// Trouble returns which milters fail, "" for none.
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
	dial     Dial
	now      func() time.Time
	slots    *fair.Slots
	openings *fair.Slots
	faults   *faultlog.Kind
	counts   Counts

	mu      sync.Mutex // guards what follows
	decided time.Time  // when it last did
	gone    failures   // there is no connection, whoever's the mail is
	failing map[fair.Party]*failures
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
	v, err := s.try(ctx, listener, who, m)
	var unfit misfit
	switch {
	case errors.As(err, &unfit):
		s.counts.Stopped.Add(1)
		return intake.Verdict{Refused: intake.FilterMisfit.Refusal(s.Name, string(unfit))}
	case errors.Is(err, errNoMemory): // what this relay or the client lacks says nothing of the milter
		return intake.Verdict{Refused: intake.MemoryFull.Refusal()}
	case errors.Is(err, errBusy) || err != nil && ctx.Err() != nil:
		return intake.Verdict{Refused: intake.FilterBusy.Refusal(s.Name)}
	}
	s.note(who, m.Tenant, err)
	switch {
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

// unready is why there is no verdict although the milter could be as it should be: the relay lacks something, or there
// is more mail than the milter can check. That mail is answered 451 whatever Accept is.
type unready struct{ error }

// misfit is why a message, which is large, can't be what a milter makes of it. The milter is not at fault.
type misfit string

func (m misfit) Error() string { return string(m) }

// away is why there is no connection, whoever's the message is.
type away struct{ error }

// try asks once there is a connection.
func (s *server) try(ctx context.Context, listener string, who fair.Party,
	m *intake.Filtered) (v intake.Verdict, _ error) {
	if s.paused(who) {
		return v, errPaused
	}
	wait, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	give, err := s.slots.Take(wait, who)
	if err != nil {
		return v, errBusy
	}
	defer give()
	if s.paused(who) {
		return v, errPaused
	}
	session, c, err := s.open(wait, who, m)
	if err != nil {
		return v, err
	}
	defer c.Close()
	ctx, cancel = context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	answer, changes, err := converse(session, listener, m)
	switch {
	case err == nil:
		return s.verdict(answer, changes, m)
	case ctx.Err() == nil:
		return v, err
	case s.works():
		return v, unready{errors.New("no answer in time, while it decides on other mail")}
	}
	return v, late(ctx.Err())
}

// open waits for a connection on which the milter answers. What the relay lacks for one, or a place in the milter's
// backlog, can come.
func (s *server) open(ctx context.Context, who fair.Party, m *intake.Filtered) (_ *milter.ClientSession, c net.Conn,
	err error) {
	defer func() {
		switch full := !lacking(err) || errors.Is(err, syscall.EAGAIN); {
		case err == nil, errors.As(err, new(away)), errors.As(err, new(unready)), errors.Is(err, errNoMemory):
		case full && s.works():
			err = errBusy
		case lacking(err):
			err = unready{err}
		}
	}()
	give, err := s.openings.Take(ctx, who)
	if err != nil {
		return nil, nil, late(err)
	}
	defer give()
	for lack := error(nil); ; {
		var timeout net.Error
		switch c, err = s.dial(ctx, s.Network, s.Address); {
		case err == nil:
			stop := context.AfterFunc(ctx, func() { c.Close() })
			session, err := negotiate(bound(c, m))
			if !stop() {
				err = late(ctx.Err())
			}
			if err != nil {
				c.Close()
			}
			return session, c, err
		case errors.As(err, new(*net.DNSError)): // which hides what the relay lacks
			return nil, nil, unready{err}
		case lacking(err):
			lack = err
		case ctx.Err() == nil && !(errors.As(err, &timeout) && timeout.Timeout()):
			return nil, nil, away{err}
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return nil, nil, cmp.Or(lack, late(ctx.Err()))
		}
	}
}

func late(err error) error { return fmt.Errorf("no answer in time: %w", err) }

// lacks are what this relay lacks for a connection. EAGAIN is a full backlog of a socket on this machine.
var lacks = []error{syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS,
	syscall.ENOMEM}

func lacking(err error) bool {
	return slices.ContainsFunc(lacks, func(lack error) bool { return errors.Is(err, lack) })
}

// works reports whether it has decided on mail within its timeout. If so it is slow, or has too many connections.
func (s *server) works() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Sub(s.decided) <= s.Timeout
}

// paused reports whether it is not asked about a party's mail for now.
func (s *server) paused(who fair.Party) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failing[who]
	return s.now().Before(s.gone.until) || f != nil && s.now().Before(f.until)
}

// note notes how it went with a party's mail.
func (s *server) note(who fair.Party, tenant string, err error) {
	if err == nil {
		s.mu.Lock()
		s.decided, s.gone = s.now(), failures{}
		delete(s.failing, who)
		s.mu.Unlock()
		s.faults.Well()
		return
	}
	s.faults.Failed("", "tenant", tenant, "error", err)
	if err == errPaused {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failing[who]
	switch {
	case errors.As(err, new(away)):
		f = &s.gone
	case f == nil:
		if len(s.failing) >= maxFailing {
			clear(s.failing)
		}
		f = new(failures)
		s.failing[who] = f
	}
	f.err, f.last = err, s.now()
	if errors.As(err, new(unready)) {
		return
	}
	if f.inRow++; f.inRow >= failuresInRow {
		f.until = f.last.Add(pause)
	}
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
