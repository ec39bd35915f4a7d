// Package mta builds, starts, reloads, drains and stops the relay: what lives and dies. Mail is carried
// by package dispatch, settings come from package wiring, and operators are answered by the packages in
// operator/answer.
//
// The order of use: New opens everything or nothing, Run takes and delivers mail until its
// context ends and then stops in named steps, Reload brings another configuration into force.
//
// A relay has four stages: stores, mailOut, mailIn, operators. Each is a struct that embeds the one before it, and its
// functions have that struct as receiver, so that no function of a stage can use what a later stage opens.
//
// Long-lived goroutines, besides those of the parts:
//
//	Run         the caller's; waits for the end, then stops the others in order
//	dispatcher  carries mail, with goroutines of its own: see package dispatch; ended by Run, which waits
//	rules       looks each second which rules are over; ended by Run
//	rates       notes what was counted, each second; ended by Run
//	history     samples figures every 2 s, and saves them: see package history; ended by Run
//	sources     looks twice a minute which addresses this machine has; ended by Run
//	checks      asks the DNS once a day what receivers will think of our mail; ended by Run
//	MTA-STS     renews policies, and writes them down; ended by Run
//	warm-up     the controller; ended by Run
//	cluster     the part in a cluster, when there is one: see package membership; ended by Run
//	mover       moves mail to the other nodes: see package moving; ended by Run
//	adopter     has the mail of a dead node move: see package adopting; ended by Run
//	admission   computes twice a second what to refuse; ended by Run
//	pickup      looks every few seconds what sendmail left in the maildrop; ended by Run
//	alarms      looks at the queue once a minute, at its disk each second; ended by Run
//	upgrade     waits for the day after which an upgrade is finished; ended by Run
//	reporters   write reports to senders into the queue; ended by Run when all jobs are back
//	acme        gets certificates from a certificate authority, when it has names; ended by Run
//	streams     read the accounting log, send events, write cursors: see package events; ended by Run
//	http, control  answer over HTTP and on the unix socket; ended by Run
//	listeners   one for each address at which mail is taken; ended first
package mta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/linelog"
	"example.org/mta/mta/alarm"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/warming"
	"example.org/mta/queue/vfs"
)

// Options are what a relay is given apart from its configuration.
type Options struct {
	Log     *slog.Logger // nil: slog.Default
	Version string
	// ConfigFile is what Reload reads again; "" when the defaults are in force.
	ConfigFile string
	// Env gives the environment to a configuration that is read again. Nil: os.Getenv.
	Env func(string) string
	// Ready is called once when mail is taken. May be nil.
	Ready func(*Relay)
	// Announce is a directory besides data_dir in which the relay writes down where it is, if that
	// directory is there; "" for none.
	Announce string
	// Sockets are open already, for blocks of the configuration. Every one has to be used by its block.
	Sockets []listen.Socket
	// OnReload is called with a configuration that has come into force, for what is not the
	// relay's own, as the level of its log. May be nil.
	OnReload func(*config.Config)

	// openLedger opens the store of warm-ups at a path. Nil: warmup.OpenFile. For tests of one that is lost.
	openLedger func(path string) (warming.Ledger, error)
	// now is the time of day. Nil: time.Now. For tests of a clock that jumps. Delivery has time.Now in any
	// case: what it compares has a monotonic reading too.
	now func() time.Time
	// places lists the stores with the formats that the relay knows. Nil: those of this program. For tests of another
	// version.
	places func(*config.Config) []format.Place
	// Bind tries to use an address of a source. Nil: delivery.Bind. For tests of one that moves.
	Bind func(netip.Addr) error
	// Context ends what New waits for. Nil: nothing does.
	Context context.Context
	// QueueFS is the file system that the queue stands on. Nil: the operating system's. For tests of a full disk, and
	// of a queue in memory.
	QueueFS vfs.FS
	// LogOpen opens the files of the accounting log for appending. Nil: the operating system does. For tests that
	// count.
	LogOpen linelog.Opener
	// Dial connects to hosts and name servers ("tcp", "udp"). Nil: the operating system's network. For tests in memory.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Control is the open control socket. Nil: the one of the configuration is opened. For tests in memory.
	Control net.Listener
	// Chance, in [0, 1), spreads retries over time. Nil: math/rand. For tests that show times.
	Chance func() float64
	// Rand makes the source of a part's other choices. Nil: one with a random seed. For tests in which each run is the
	// same.
	Rand func() *rand.Rand
	// policyTransport gets MTA-STS policies. Nil: HTTPS. For tests of an authority of their own.
	policyTransport http.RoundTripper
}

// Relay is a whole relay. Several can run in one process, on different addresses and data
// directories.
type Relay struct{ *operators }

// complete sets what was left out.
func (o *Options) complete() {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.Rand == nil {
		o.Rand = func() *rand.Rand { return nil } // of which each part makes its own
	}
	if o.Env == nil {
		o.Env = os.Getenv
	}
}

// New opens the queue, the sockets and all else that a relay needs, in four stages: each has the one before, and
// nothing of those that follow. Nothing is taken or delivered before Run. After an error nothing stays open.
func New(cfg *config.Config, opts Options) (*Relay, error) {
	opts.complete()
	var undo undoer
	kept, err := openStores(cfg, opts, &undo)
	if err != nil {
		undo.all()
		return nil, err
	}
	out, err := openMailOut(cfg, kept, &undo)
	if err != nil {
		undo.all()
		return nil, err
	}
	in, err := openMailIn(cfg, out, &undo)
	if err != nil {
		undo.all()
		return nil, err
	}
	o, err := openOperators(cfg, in, &undo)
	if err != nil {
		undo.all()
		return nil, err
	}
	return &Relay{o}, nil
}

// step opens a part of a stage.
type step struct {
	what string // before its error; "": that names the part itself
	open func(*config.Config, *undoer) error
}

// openAll takes steps until one fails.
func openAll(cfg *config.Config, undo *undoer, steps []step) error {
	for _, s := range steps {
		if err := s.open(cfg, undo); err != nil {
			if s.what != "" {
				err = fmt.Errorf("%s: %w", s.what, err)
			}
			return err
		}
	}
	return nil
}

// undoer closes what was opened, the last first, when a later step fails.
type undoer []func()

func (u *undoer) add(f func()) { *u = append(*u, f) }

func (u *undoer) all() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
}

// drainShare is the part of the time for shutting down that open submissions may use; the rest is for deliveries.
func drainShare(total time.Duration) time.Duration { return total / 3 }

// Run takes and delivers mail until ctx ends, and then stops: what is under way may end within
// the configured time. The relay can't be used again.
func (r *Relay) Run(ctx context.Context) error {
	r.announce()
	dispatching, stopDispatching := context.WithCancel(context.Background())
	defer stopDispatching()
	var running sync.WaitGroup
	failed := make(chan error, 2)
	running.Go(func() {
		if err := r.dispatcher.Run(dispatching); err != nil {
			failed <- fmt.Errorf("taking mail from the queue: %w", err)
		}
	})
	if _, err := os.Stat(r.inForce().Cluster.Path); err == nil || r.cluster != nil { // it is, or was, a node
		running.Go(func() {
			if err := r.copy.Watch(dispatching, r.inForce().DataDir, r.cluster.Ousted, r.delivery.Cut); err != nil {
				r.dispatcher.Stop()
				stopDispatching() // at once: another node delivers the same
				failed <- err
			}
		})
	}
	running.Go(func() {
		r.alarms.Run(dispatching, alarm.Sight{
			Queue: r.queue.Stats, Refusing: r.store.Refusing, Sources: r.sources.Names, Blocked: r.standing.Blocked,
			Records: r.recordsTrouble,
			Audit:   r.audit.Trouble, DNS: r.resolver.Stats, Warmups: r.warm.Trouble, Health: r.warm.Health,
			Maildrop: r.pickup.Trouble, Paused: r.rules.Trouble, Logins: r.loginTrouble,
			Milters:      r.milters.Trouble,
			Certificates: r.certificateTrouble,
			Overload:     r.admission.Trouble, Checks: r.checks.Trouble, Flood: r.feeder.Flood, Damaged: r.data.Damaged,
			Log:     r.accounting.Stats,
			Cluster: r.clusterTrouble,
			Streams: func() (string, string, string) {
				return alarm.OfStreams(r.streams, r.now())
			}, Signing: r.dispatcher.SigningTrouble, Waits: r.stuck,
			Subjects: func() alarm.Subjects { return alarm.Mail(r.tally, r.delivery.BySource()) },
		})
	})
	for _, run := range []func(context.Context){r.rules.Run, r.admission.Run, r.sources.Run, r.checks.Run, r.pickup.Run,
		r.data.Run, r.history.Run, r.warm.Run, r.tls.Policies.Run, r.tls.Reports.Run, r.outages.Run, r.acme.Run,
		r.uses.Run, r.adopter.Watch} {
		running.Go(func() { run(dispatching) })
	}
	running.Go(func() { r.rates.Run(dispatching, r.now, r.tally) })
	running.Go(func() { r.control.Serve(r.socket) })
	r.cluster.Describe(r.sums, r.sharedSums)
	r.cluster.Start()
	r.mover.Start()
	if r.console != nil {
		running.Go(r.serveConsole)
	}
	r.streams.Start()
	r.listeners.Serve()
	r.life.Serving.Store(true)
	if r.opts.Ready != nil {
		r.opts.Ready(r)
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		r.life.Failed.Store(true)
		r.log.Error("stopping", "error", err)
	}
	return errors.Join(err, r.shutdown(stopDispatching, &running))
}

// shutdown stops the relay in steps; what one waits for is logged when that takes long. The order
// follows the way of a message, so that nothing is handed to a part that has stopped.
func (r *Relay) shutdown(stopDispatching func(), running *sync.WaitGroup) error {
	total, start := r.policy.Load().Config.Shutdown.Drain, time.Now()
	r.reload.Lock() // one that is under way would start servers behind the back of those that end them
	r.life.Stop()
	r.reload.Unlock()
	r.log.Info("shutting down", "within", total, "queued", r.queue.Stats().Queued)
	drained, cancel := context.WithTimeout(context.Background(), total)
	defer cancel()

	submitted, cancelSubmitted := context.WithTimeout(drained, drainShare(total))
	defer cancelSubmitted()
	var errs []error
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"submissions under way", func() error { return r.listeners.Shutdown(submitted) }},
		{"call-outs", func() error { r.callouts.Close(); return nil }},
		{"the dispatcher", func() error { r.dispatcher.Stop(); stopDispatching(); return nil }},
		{"deliveries under way", func() error { return r.delivery.Drain(drained) }},
		{"connections", func() error { r.delivery.Close(); return nil }},
		{"the mail of a dead node", r.adopter.Close},
		{"moves to other nodes", r.mover.Close},
		{"the cluster", r.cluster.Close},
		{"look-ups", func() error { r.router.Close(); return nil }},
		{"records of outcomes", r.flushRecords}, // some of which are reported to senders
		{"reports to senders", func() error { r.reporter.Close(); return nil }},
		{"http", func() error { return r.closeHTTP(drained) }},
		{"console", func() error { return r.closeConsole(drained) }},
		{"control socket", func() error { return r.control.Shutdown(drained) }},
		{"the dispatcher and the servers", func() error { running.Wait(); return nil }},
		{"signatures", r.dispatcher.Close},
		{"what feeds the suppression list", r.feeder.Close},
		{"warm-up", r.warm.Close},
		{"MTA-STS policies", r.tls.Close},
		{"destination database", r.destinations.Close},
		{"suppression list", r.suppression.Close},
		{"what the cluster knows", r.known.Close},
		{"users file", func() error { r.logins.Load().Close(); return nil }},
		{"API keys", func() error { r.keys.Load().Close(); return nil }},
		{"records of outcomes", r.flushRecords}, // those of reports
		{"queue", r.queue.Close},
		{"the copy of the queue", r.copy.Close},
		{"events of tenants", func() error { r.puller.Close(); return nil }},
		{"streams", r.closeStreams},
		{"accounting log", r.accounting.Close},
		{"audit log", r.audit.Close},
	} {
		began := time.Now()
		slow := time.AfterFunc(time.Second, func() { r.log.Info("waiting for " + step.what) })
		err := step.do()
		slow.Stop()
		if took := time.Since(began); took > time.Second {
			r.log.Info("waited for "+step.what, "took", took.Round(time.Millisecond))
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			// Cut off, as said at the start: what was cut stays queued.
			r.log.Warn(step.what+" did not end in time and were cut", "error", err)
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
		}
	}
	r.log.Info("stopped", "took", time.Since(start).Round(time.Millisecond))
	return errors.Join(errs...)
}
