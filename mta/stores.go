package mta

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	submissionhttp "example.org/mta/submission/http"

	"example.org/mta/bounce"
	"example.org/mta/cluster/exchange"
	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/secrets"
	"example.org/mta/destdb"
	"example.org/mta/dispatch/weights"
	"example.org/mta/mta/accept"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/accounting/books"
	"example.org/mta/mta/alarm"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/events"
	"example.org/mta/mta/life"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/replica"
	"example.org/mta/mta/tally"
	"example.org/mta/mta/warming"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/queue/store"
	"example.org/mta/router/resolver"
	"example.org/mta/submission"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

// stores is the first stage: what is kept over restarts, the counts of it, and the sockets, which are open before mail
// goes out since the router must know the relay's addresses.
type stores struct {
	opts   Options
	log    *slog.Logger
	now    func() time.Time
	policy atomic.Pointer[wiring.Policy] // of the configuration in force
	life   life.Life
	files  int // that the process may have open

	alarms       *alarm.Alarms
	data         *datadir.Dir
	http         *httpServer        // nil without an address
	accounting   *accounting.Writer // nil when switched off
	events       *books.Accountant  // into that log
	classes      *bounce.Classifier // of replies
	unknown      bounce.Unknown     // replies
	meter        *tally.Meter
	tally        *tally.Tallies
	queue        *queue.Queue
	store        *accept.Store // the queue, as submission knows it
	resolver     *resolver.Resolver
	streams      *events.Streams // of the accounting log; nil without one
	streamParts  *wiring.StreamParts
	destinations *destdb.File
	learned      *destdb.DB // guarded by delivery
	weights      *weights.Weights
	warm         *warming.Warming
	suppression  *suppression.List
	listed       *boltstore.Store    // of the suppression list
	feeder       *suppression.Feeder // of the list
	listeners    *listen.Listeners
	clustered
}

// clustered is what a node of a cluster has.
type clustered struct {
	cluster *membership.Membership // nil without a block
	known   *exchange.Exchange     // likewise: what all nodes know
	secrets *secrets.Store         // by which all nodes make tokens
	copy    *replica.Replica       // of the queue, in the database; nil for none
	frozen  func() bool            // nothing may be delivered now, since the copy is behind; nil without one
}

func openStores(cfg *config.Config, opts Options, undo *undoer) (*stores, error) {
	r := &stores{
		opts: opts, log: opts.Log, now: opts.now, files: wiring.FileLimit(),
		alarms: alarm.New(opts.Log), classes: new(bounce.Classifier),
	}
	r.life.Started = time.Now()
	r.warn(cfg)
	r.classes.SetRules(wiring.Classify(cfg))
	r.policy.Store(wiring.New(cfg)) // before there is a directory with weights
	return r, openAll(cfg, undo, []step{
		{"", r.openData},
		{"weights", r.openWeights},
		{"accounting log", r.openAccounting},
		{"http", r.openHTTP},
		{"", r.openQueue}, // its errors name it, as those of the suppression list
		{"router", r.openResolver},
		{"streams", r.openStreams},
		{"destinations", r.openDestinations},
		{"cluster", r.openChanges},
		{"cluster", r.openCluster},
		{"warm-up", r.openWarmup},
		{"", r.openSuppression},
		{"listeners", r.openSockets},
	})
}

// warn logs what the file should say otherwise.
func (r *stores) warn(cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		r.log.Warn("configuration should be changed", "what", w)
	}
}

func (r *stores) openData(cfg *config.Config, _ *undoer) (err error) {
	r.data, err = datadir.Open(cfg, datadir.Config{
		Version: r.opts.Version, Places: r.opts.places, InForce: r.inForce, Now: r.now, Log: r.log,
		Mixed: func() string { return r.cluster.Mixed() },
	})
	return err
}

// inForce is the configuration in force.
func (r *stores) inForce() *config.Config { return r.policy.Load().Config }

func (r *stores) openAccounting(cfg *config.Config, undo *undoer) error {
	if cfg.Accounting.Enabled {
		w, err := accounting.Open(accounting.Config{
			Dir: cfg.Accounting.Path, NodeID: cfg.NodeID, Limits: wiring.Accounting(cfg), Log: r.log,
			AwaitKeep: true, // openStreams calls it
			Open:      r.opts.LogOpen,
		})
		if err != nil {
			return err
		}
		r.accounting = w
	}
	r.meter = tally.NewMeter()
	r.tally = tally.New(func() *config.Config { return r.policy.Load().Config })
	r.events = books.New(books.Config{
		Log: r.accounting, Meter: r.meter, Tally: r.tally, Policy: r.policy.Load, Classes: r.classes,
		Unknown: &r.unknown,
		Now:     r.now,
	})
	undo.add(func() { r.accounting.Close() })
	return nil
}

// completeReceptions writes the Receptions that a crash has taken along.
func (r *stores) completeReceptions(cfg *config.Config) {
	if r.accounting == nil {
		return
	}
	began := time.Now()
	latest, err := accounting.LatestReceptions(context.Background(), cfg.Accounting.Path, r.now())
	if err != nil {
		r.log.Warn("it is not known which messages have no Reception in the accounting log", "error", err)
		return
	}
	if n := r.events.Complete(r.queue, latest); n > 0 {
		r.log.Info("accounting records that a crash took along are written",
			"receptions", n, "took", time.Since(began).Round(time.Millisecond))
	}
}

// recordsTrouble returns why accounting records are not written, "" when they are.
func (r *stores) recordsTrouble() string {
	s := r.accounting.Stats()
	if !s.Failing {
		return ""
	}
	return fmt.Sprintf(
		"accounting records can't be written, and are lost when memory for them is full: %d so far; the log says why",
		s.Lost)
}

// flushRecords waits for the outcomes that wait for their records. If those can't be written, that is reported
// when the accounting log is closed.
func (r *stores) flushRecords() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	_ = r.accounting.Flush(ctx)
	return nil
}

// flushPatience is longer than the accounting log holds up any outcome.
const flushPatience = 10 * time.Second

// openWeights reads the weights of sources, and makes the policy by them.
func (r *stores) openWeights(cfg *config.Config, _ *undoer) (err error) {
	if r.weights, err = weights.Read(cfg.DataDir, r.now(), r.log); err == nil {
		r.policy.Store(r.newPolicy(cfg))
	}
	return err
}

// newPolicy makes the policy of a configuration.
func (r *stores) newPolicy(cfg *config.Config) *wiring.Policy {
	pol := wiring.New(cfg)
	pol.Weights = r.weights.In
	if r.cluster != nil {
		pol.Relays = r.cluster.Count
	}
	return pol
}

func (r *stores) openQueue(cfg *config.Config, undo *undoer) error {
	began := time.Now()
	var err error
	if r.copy, err = replica.Of(r.opts.Context, cfg, r.opts.QueueFS, r.now, r.log); err != nil {
		return err
	}
	undo.add(func() { r.copy.Close() })
	q, err := queue.Open(queue.Config{
		Dir:         datadir.Queue(cfg),
		FS:          r.copy.Under(r.opts.QueueFS),
		Log:         r.log,
		Format:      r.data.Number(store.Format),
		SegmentSize: int64(cfg.Queue.SegmentSize),
		LargeBody:   config.LargeBody,
		MinFree:     int64(cfg.Queue.MinFree),

		IdempotencyKeys: cfg.Queue.IdempotencyKeys,
		// The queue knows no domains: the dispatcher gives up what must be given up sooner.
		MaxAge:     func() time.Duration { return r.policy.Load().LongestAge },
		Now:        r.now,
		DelayAfter: func() time.Duration { return r.policy.Load().SoonestDelay },
		OnRemoved:  r.events.Removed,

		OnUnreadable: r.events.Unreadable,
		Frozen:       r.stands(),
	})
	if err != nil {
		return err
	}
	if r.copy != nil {
		r.frozen = q.Frozen
	}
	r.queue, r.store = q, accept.New(q, r.events, r.meter, r.now, r.log)
	undo.add(func() { q.Close() })
	if err := datadir.StillOwn(cfg.DataDir, nil); err != nil { // since the lock is held nobody adopts it
		return err
	}
	r.log.Info("queue is open", "recipients", q.Stats().Queued, "took", time.Since(began).Round(time.Millisecond))
	r.completeReceptions(cfg)
	return nil
}

// stands returns a function that reports whether nothing may be delivered now: the copy is behind, or the queue was
// restored into an empty directory, and this node does not know yet what all nodes do, such as suppressions.
func (r *stores) stands() func() bool {
	behind := r.copy.Frozen()
	if behind == nil {
		return nil
	}
	return func() bool { return behind() || !r.known.Whole() }
}

func (r *stores) openResolver(cfg *config.Config, _ *undoer) error {
	rc, err := wiring.Resolver(cfg.Resolver)
	if err != nil {
		return err
	}
	rc.Dial = r.opts.Dial
	r.resolver = resolver.New(rc)
	return nil
}

func (r *stores) openChanges(cfg *config.Config, undo *undoer) (err error) {
	r.known, err = wiring.Changes(cfg, r.now, r.log)
	undo.add(func() { r.known.Close() })
	if err == nil {
		r.secrets, err = wiring.Secrets(cfg, r.known, r.now, r.log)
	}
	return err
}

func (r *stores) openCluster(cfg *config.Config, undo *undoer) (err error) {
	r.cluster, err = wiring.Cluster(cfg, r.opts.Version, r.known, r.now, r.log)
	undo.add(func() { r.cluster.Close() })
	if r.cluster != nil {
		r.policy.Store(r.newPolicy(cfg))
		r.queue.OfNode(r.cluster.Status().Number)
	}
	return err
}

// openSockets opens the sockets at which mail will be taken.
func (r *stores) openSockets(cfg *config.Config, undo *undoer) (err error) {
	wiring.ShareDescriptors(r.files, cfg).Warn(r.log, cfg)
	r.listeners, err = listen.Open(entrancesOf(cfg), r.opts.Sockets, r.log)
	if err == nil {
		undo.add(r.listeners.Close)
	}
	return err
}

// entrancesOf lists the blocks of a configuration at which mail comes in, without their servers.
func entrancesOf(cfg *config.Config) (all []listen.Entrance) {
	for _, l := range cfg.Listeners {
		all = append(all, listen.Entrance{Kind: listen.SMTP, Name: l.Name, Address: l.Address,
			Ended: submission.ErrServerClosed})
	}
	for _, a := range cfg.APIs {
		all = append(all, listen.Entrance{Kind: listen.HTTP, Name: a.Name, Address: a.Address,
			Ended: submissionhttp.ErrServerClosed})
	}
	return all
}

// addressesOf returns the addresses of a listener block.
func (r *stores) addressesOf(l *config.Listener) []string {
	return r.listeners.AddressesOf(listen.SMTP, l.Name)
}

// openDestinations brings back what was learned of destinations. The warm-up has its second copy there,
// and so it is opened before that.
func (r *stores) openDestinations(cfg *config.Config, undo *undoer) error {
	store, db, err := destdb.OpenDB(filepath.Join(cfg.DataDir, "destdb"), r.now(), r.log)
	if err != nil {
		return err
	}
	r.destinations, r.learned = store, db
	undo.add(func() { store.Close() })
	return nil
}

func (r *stores) openWarmup(cfg *config.Config, undo *undoer) (err error) {
	c := warming.Config{
		Open: r.opts.openLedger, Copies: r.destinations.Values(destdb.WarmupCopies), Policy: r.policy.Load,
		Records: r.accounting.Add,
		Count:   r.meter.Warmup, Now: r.now, Rand: r.opts.Rand(), Log: r.log,
	}
	if r.cluster != nil {
		shared, err := wiring.SharedWarmups(cfg, r.cluster)
		if err != nil {
			return err
		}
		c.Shared, c.Node = shared, fmt.Sprint(r.cluster.Status().Number)
	}
	r.warm, err = warming.Open(cfg, c)
	if err != nil {
		if c.Shared != nil {
			c.Shared.Close()
		}
		return err
	}
	undo.add(func() { r.warm.Close() })
	r.alarms.Set(r.now(), alarm.Warmup, r.warm.Lost())
	return nil
}
