// Package bench loads a mail server and checks what comes out of it: a generator of load, sites
// to deliver to with a name server for them, and an account that says for every message whether it came
// once, twice or never. It is behind 'mta bench' and behind the measurements in e2e. Nothing beyond
// loopback is touched.
//
// In the order of use: a Scenario says what to do; Open makes its Ground, the far side; StartRelay runs
// a relay of our own, or a Server names one that runs already; Measure loads it and gives a Report. Load
// and Ground also serve by themselves, where a test wants other mail than a Scenario has.
//
// Generator and sites are to be cheap, so that the server is what is measured: a message takes them some
// 30 µs, most of it in system calls, where it takes the relay some 70. A report has both.
//
// Long-lived goroutines: those of the sites' sinks and of the name server, which Ground.Close ends and
// waits for; one for each submitting connection, which Load.Run waits for; one that looks at the server's
// memory, which Measure waits for; one that waits for the relay's process to end (Relay.Close).
package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Server is who is measured.
type Server struct {
	Name    string // for the report
	Address string // where it takes mail, ip:port
	PID     int    // of any process of its group, for processor time and memory; 0 is not known

	// Queued is how many recipients it still has. nil: nobody knows, and a moment is waited.
	Queued func(context.Context) (int64, error)
	// Syncs is how often its journal was synced. nil: nobody knows.
	Syncs func(context.Context) (int64, error)
	// Doubts is how many attempts it has logged as ambiguous, by the id in its 250 to the message. nil:
	// nobody knows, and the sites' own knowledge of replies that they didn't send decides instead.
	Doubts func() (map[string]int, error)
}

// Progress is how far a measurement is.
type Progress struct {
	Elapsed   time.Duration
	Messages  int   // to be submitted
	Accepted  int   // so far
	Expected  int64 // deliveries, of all messages
	Delivered int64
}

const (
	look = 50 * time.Millisecond // how often Measure looks how far things are
	// grace is for what comes late, a second copy or the removal of a queue file, where the server can't
	// tell that it is done.
	grace = 500 * time.Millisecond
)

// ErrStalled says that nothing moved for the scenario's Patience. The report that comes with it holds for
// what came until then.
var ErrStalled = errors.New("nothing was delivered any more")

// Measure loads the server with the scenario's mail for g and waits until all of it has arrived. g must
// be the scenario's own, and fresh. watch, unless nil, is told now and then how far it is.
func Measure(ctx context.Context, s Scenario, g *Ground, server Server, watch func(Progress)) (*Report, error) {
	m := &measurement{scenario: s, ground: g, server: server, load: s.load(g), watch: watch}
	if m.expected = s.expected(g, m.load); m.expected == 0 {
		return nil, errors.New("no message of the scenario has a living recipient")
	}
	before, err := m.reading(ctx)
	if err != nil {
		return nil, err
	}
	memory := watchMemory(server.PID)
	defer memory.stop()
	stalled := m.run(ctx)
	if stalled != nil && !errors.Is(stalled, ErrStalled) {
		return nil, stalled
	}
	after, err := m.reading(ctx)
	if err != nil {
		return nil, err
	}
	r, err := m.report(before, after)
	if err != nil {
		return nil, err
	}
	r.PeakMemory = memory.stop()
	return r, stalled
}

// measurement is one run of Measure.
type measurement struct {
	scenario Scenario
	ground   *Ground
	server   Server
	load     *Load
	expected int64 // deliveries to living domains
	watch    func(Progress)
}

// reading is what the server has used so far.
type reading struct {
	cpu   time.Duration
	own   time.Duration // that this process has used, load and sites
	syncs int64
}

func (m *measurement) reading(ctx context.Context) (r reading, err error) {
	if r.own, err = ownTime(); err != nil {
		return r, err
	}
	if m.server.PID != 0 {
		if r.cpu, err = ProcessorTime(m.server.PID); err != nil {
			return r, err
		}
	}
	if m.server.Syncs != nil {
		r.syncs, err = m.server.Syncs(ctx)
	}
	return r, err
}

// run submits and waits. When it returns, nothing is being submitted any more.
func (m *measurement) run(ctx context.Context) error {
	loading, stop := context.WithCancel(ctx)
	submitted := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { submitted <- m.load.Run(loading, m.server.Address) })
	err := m.wait(ctx, submitted)
	stop()
	running.Wait()
	return err
}

// wait returns when all is submitted, delivered, and settled in the server; ErrStalled when that
// doesn't come to pass; or what went wrong with submitting.
func (m *measurement) wait(ctx context.Context, submitted <-chan error) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	began, moved, before := time.Now(), time.Now(), Progress{}
	var complete time.Time // when everything was with its recipients
	for submitting := true; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-submitted:
			if err != nil {
				return fmt.Errorf("submitting: %w", err)
			}
			submitting, submitted = false, nil
		case <-tick.C:
		}
		now := time.Now()
		p := Progress{Elapsed: now.Sub(began), Messages: m.load.Messages, Accepted: m.load.Accepted(),
			Expected: m.expected, Delivered: m.ground.Taken.Tally().Unique}
		if m.watch != nil {
			m.watch(p)
		}
		if p.Accepted != before.Accepted || p.Delivered != before.Delivered {
			before, moved = p, now
		}
		if !submitting && p.Delivered >= m.expected-m.load.unsureRecipients() {
			if complete.IsZero() {
				complete = now
			}
			if done, err := m.settled(ctx, now.Sub(complete)); done || err != nil {
				return err
			}
		}
		if now.Sub(moved) > m.scenario.Patience {
			return fmt.Errorf("%w for %v: %d of %d messages submitted, %d of %d deliveries made", ErrStalled,
				m.scenario.Patience, p.Accepted, p.Messages, p.Delivered, p.Expected)
		}
	}
}

// settled reports whether the server is done, so long after the last delivery.
func (m *measurement) settled(ctx context.Context, since time.Duration) (bool, error) {
	if m.server.Queued == nil || m.ground.dead() {
		return since >= grace, nil
	}
	n, err := m.server.Queued(ctx)
	return n == 0, err
}
