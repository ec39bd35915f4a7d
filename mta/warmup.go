package mta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"example.org/mta/destdb/file"
	"example.org/mta/internal/trouble"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
	"example.org/mta/warmup/boltstore"
)

// warming is the warm-up of this relay's sources.
type warming struct {
	ctl     *warmup.Controller
	store   ledger
	policy  func() *wiring.Policy
	waiting func(each func(pool, provider string, recipients int)) // for tokens, in the queue
	log     *slog.Logger
	now     func() time.Time
	records func(*accounting.Record) // adds to the accounting log
	count   func(source, event string)
	backup  *secondCopy // the second copy, and what became of a ledger that was lost
}

// ledger is where warm-ups are kept.
type ledger interface {
	warmup.Store
	io.Closer
}

func openBolt(path string) (ledger, error) {
	store, err := boltstore.Open(path, nil)
	if err != nil {
		return nil, err
	}
	if err := store.Each(warmup.CheckVersion); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

// openWarmup opens the warm-up's ledger. It is there without any plan too: a reload may bring one.
func (r *Relay) openWarmup(cfg *config.Config, undo *undoer) error {
	path := filepath.Join(cfg.DataDir, "warmup.db")
	open := r.opts.openLedger
	if open == nil {
		open = openBolt
	}
	store, err := open(path)
	if err != nil {
		return err
	}
	undo.add(func() { store.Close() })
	w := &warming{
		store: store, policy: r.policy.Load, log: r.log, now: r.now, records: r.recordWarmups(), count: r.meter.Warmup,
		waiting: func(each func(pool, provider string, recipients int)) { r.dispatcher.EachThrottled(each) },
	}
	w.backup = openBackup(cfg, store, r.destinations.Values(file.WarmupCopies), r.now, r.log)
	w.ctl = warmup.New(warmup.Config{
		Node: cfg.NodeID, Store: store, Beside: w.beside, OnEvent: w.report, Recall: w.backup.recall, Rand: r.opts.Rand(), Log: r.log,
		OnRoom:  func(key, provider string) { r.dispatcher.Unthrottle(key, provider) },
		Waiting: func(key, provider string) int64 { return r.dispatcher.Throttled(key, provider) },
	})
	r.warm = w
	r.alarms.set(r.now(), alarmWarmup, w.backup.trouble())
	w.backup.report = w.report
	if err := w.assign(r.policy.Load()); err != nil {
		return err
	}
	if lost := w.backup.lost; lost != nil {
		w.report(warmup.Event{Kind: warmup.EventLedgerLost, Why: fmt.Sprintf("the ledger was lost: %v", lost)})
	}
	return nil
}

// assign takes over the plans of a configuration. Stages and counters stay.
func (w *warming) assign(pol *wiring.Policy) error { return w.ctl.Assign(pol.Plans()) }

// prepare takes on the plans of a configuration that is about to come into force, beside those of the
// one that is: an address without a plan has no limits, and mail is chosen by either meanwhile.
func (w *warming) prepare(pol *wiring.Policy) error {
	plans := w.policy().Plans()
	maps.Copy(plans, pol.Plans())
	return w.ctl.Assign(plans)
}

// run makes the warm-up work until ctx ends.
func (w *warming) run(ctx context.Context) {
	var stepping sync.WaitGroup
	stepping.Go(func() { w.ctl.Run(ctx) })
	defer stepping.Wait()
	copying := time.NewTicker(copyEvery)
	defer copying.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-copying.C:
			w.backup.save(w.ctl)
		}
	}
}

// close writes down what the last deliveries were reported as.
func (w *warming) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.ctl.Step(ctx)
	w.backup.save(w.ctl)
	return w.store.Close()
}

// Status is that of the controller, with what waits here and now: the ledger's count of that is of
// the hour, and still has what was told of before a restart.
func (w *warming) Status(ip string) (warmup.Status, bool) {
	s, ok := w.ctl.Status(ip)
	for i := range s.Providers {
		s.Providers[i].Waiting = 0
	}
	pools := w.policy().WarmupPools(ip)
	w.waiting(func(pool, provider string, n int) {
		if p := s.Of(provider); p != nil && slices.Contains(pools, pool) {
			p.Waiting += int64(n)
		}
	})
	return s, ok
}

// IPs lists those that have a plan, sorted.
func (w *warming) IPs() []string { return w.ctl.IPs() }

// Do is an operator's doing; see warmup.Controller.Do.
func (w *warming) Do(ctx context.Context, ip string, a warmup.Action) error {
	return w.ctl.Do(ctx, ip, a)
}

// Check returns the error with which Do would refuse.
func (w *warming) Check(ip string, a warmup.Action) error { return w.ctl.Check(ip, a) }

// complained is feed.Config.Complained. What no warm-up wants, or of a day too long ago, is done.
func (w *warming) complained(ctx context.Context, source, provider string, day time.Time, n int64) error {
	key, ok := w.policy().WarmupKeyOf(source)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := w.ctl.Do(ctx, key, warmup.Complained(provider, day, n))
	switch {
	case errors.Is(err, warmup.ErrNotWarming):
		return nil
	case errors.Is(err, warmup.ErrReport):
		w.log.Info("complaints are too old for the warm-up", "source", source, "provider", provider, "day", day.Format(time.DateOnly), "complaints", n)
		return nil
	case err != nil:
		return err
	}
	w.log.Info("complaints count for the warm-up", "source", source, "provider", provider, "day", day.Format(time.DateOnly), "complaints", n)
	return nil
}

// reload takes over another configuration.
func (w *warming) reload(pol *wiring.Policy) {
	if err := w.assign(pol); err != nil {
		w.log.Error("warm-up plans stay as they were", "error", err) // which were checked with the file
	}
}

// beside is warmup.Config.Beside. A network is what block lists and providers take for one sender: a /24, or
// a /48 of IPv6.
func (w *warming) beside(ip string) (others []string, network string) {
	prefix, err := networkOf(ip)
	if err != nil {
		return nil, ""
	}
	pol := w.policy()
	shares := func(pool string) bool { return slices.Contains(pol.WarmupPools(ip), pool) }
	for _, other := range pol.WarmupKeys() {
		if at, err := networkOf(other); err == nil && at == prefix && other != ip && slices.ContainsFunc(pol.WarmupPools(other), shares) {
			others = append(others, other)
		}
	}
	return others, prefix.String()
}

func networkOf(ip string) (netip.Prefix, error) {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return netip.Prefix{}, err
	}
	if a.Is4() {
		return a.Prefix(24)
	}
	return a.Prefix(48)
}

// trouble returns which warm-ups send nothing on account of their ledger, "" when none does.
func (w *warming) trouble() string {
	var all []string
	if lost := w.backup.trouble(); lost != "" {
		all = append(all, lost)
	}
	for _, key := range w.ctl.IPs() {
		if s, _ := w.ctl.Status(key); s.LedgerTrouble() != "" {
			all = append(all, fmt.Sprintf("the warm-up of %s sends nothing: %s", w.policy().WarmupSource(key), s.LedgerTrouble()))
		}
	}
	return trouble.Few(all)
}
