// Package warming is the warm-up of a relay's sources: it opens the ledger, and its second copy should that be lost;
// gives the controller the plans of the configuration; and reports what happens to warm-ups in the log, the accounting
// log and the metrics.
//
// In a cluster the ledger is in its database, for all nodes, and the file has what this node knew last.
//
// The order of use: Open, Serve, Run, Close. A reload calls Prepare before a configuration comes into force, and Reload
// once it has.
package warming

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/faultlog"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// Warming is the warm-up of this relay's sources.
type Warming struct {
	c      Config
	ctl    *warmup.Controller
	file   Ledger
	copies *secondCopy // and what became of a ledger that was lost
	mail   Mail
}

// Config is the configuration of a Warming, its plans apart.
type Config struct {
	// Open opens the ledger at a path. Nil: warmup.OpenFile. For tests of one that is lost.
	Open func(path string) (Ledger, error)
	// Shared is the ledger of all nodes of a cluster, nil without one; Close closes it. Node is this node's name there.
	Shared  Ledger
	Node    string
	Copies  Copies // nil: there is no second copy
	Policy  func() *wiring.Policy
	Records func(*accounting.Record)   // adds to the accounting log
	Count   func(source, event string) // for the metrics
	Now     func() time.Time
	Rand    *rand.Rand // nil: one with a random seed
	Log     *slog.Logger
}

// Ledger is where warm-ups are kept.
type Ledger interface {
	warmup.Store
	io.Closer
}

// Mail is the mail in the queue that waits for tokens.
type Mail interface {
	Throttled(key, provider string) int64
	EachThrottled(each func(pool, provider string, recipients int))
	Unthrottle(key, provider string)
}

// none is the mail of a relay that has none yet.
type none struct{}

func (none) Throttled(string, string) int64          { return 0 }
func (none) EachThrottled(func(string, string, int)) {}
func (none) Unthrottle(string, string)               {}

// OpenBolt opens the ledger in a bbolt file.
func OpenBolt(path string) (Ledger, error) {
	store, err := warmup.OpenFile(path, nil)
	if err != nil {
		return nil, err
	}
	if err := store.Each(warmup.CheckVersion); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

// Open opens the ledger. It is there without any plan too: a reload may bring one.
func Open(cfg *config.Config, c Config) (*Warming, error) {
	if c.Open == nil {
		c.Open = OpenBolt
	}
	file, err := c.Open(filepath.Join(cfg.DataDir, "warmup.db"))
	if err != nil {
		return nil, err
	}
	w := &Warming{c: c, file: file, mail: none{}}
	if w.copies, err = openCopies(cfg, file, c.Copies, c.Shared != nil, c.Now, c.Log); err != nil {
		file.Close()
		return nil, err
	}
	store, node := file, cfg.NodeID
	if c.Shared != nil {
		store, node = c.Shared, c.Node
	}
	w.ctl = warmup.New(warmup.Config{
		Node: node, Store: store, Beside: w.beside, OnEvent: w.report, Recall: w.copies.recall,
		Rand: c.Rand, Log: c.Log,
		OnTokens: func(key, provider string) { w.mail.Unthrottle(key, provider) },
		Waiting:  func(key, provider string) int64 { return w.mail.Throttled(key, provider) },
	})
	w.copies.report = w.report
	if err := w.Assign(c.Policy()); err != nil {
		file.Close()
		return nil, err
	}
	if lost := w.copies.lost; lost != nil && c.Shared == nil {
		w.report(warmup.Event{Kind: warmup.EventLedgerLost, Why: fmt.Sprintf("the ledger was lost: %v", lost)})
	}
	return w, nil
}

// Serve has the warm-up serve the mail of a dispatcher. It is called once, before Run.
func (w *Warming) Serve(m Mail) { w.mail = m }

// Controller is what tokens are asked of.
func (w *Warming) Controller() *warmup.Controller { return w.ctl }

// File is the ledger on this relay's disk.
func (w *Warming) File() Ledger { return w.file }

// Assign takes over the plans of a configuration. Stages and counters stay.
func (w *Warming) Assign(pol *wiring.Policy) error { return w.ctl.Assign(pol.Plans()) }

// Prepare takes on the plans of a configuration that is about to come into force, beside those of the
// one that is: an address without a plan has no limits, and mail is chosen by either meanwhile.
func (w *Warming) Prepare(pol *wiring.Policy) error {
	plans := w.c.Policy().Plans()
	maps.Copy(plans, pol.Plans())
	return w.ctl.Assign(plans)
}

// Run makes the warm-up work until ctx ends.
func (w *Warming) Run(ctx context.Context) {
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
			w.copies.save(w.ctl)
		}
	}
}

// Close writes the last reports, and closes the ledger.
func (w *Warming) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.ctl.Step(ctx)
	w.copies.save(w.ctl)
	err := w.file.Close()
	if w.c.Shared != nil {
		err = errors.Join(err, w.c.Shared.Close())
	}
	return err
}

// Status is that of the controller, with what waits here and now: the ledger's count of that is of
// the hour, and still has what was told of before a restart.
func (w *Warming) Status(ip string) (warmup.Status, bool) {
	s, ok := w.ctl.Status(ip)
	for i := range s.Providers {
		s.Providers[i].Waiting = 0
	}
	pools := w.c.Policy().WarmupPools(ip)
	w.mail.EachThrottled(func(pool, provider string, n int) {
		if p := s.Of(provider); p != nil && slices.Contains(pools, pool) {
			p.Waiting += int64(n)
		}
	})
	return s, ok
}

// IPs lists those that have a plan, sorted.
func (w *Warming) IPs() []string { return w.ctl.IPs() }

// Do is an operator's doing; see warmup.Controller.Do.
func (w *Warming) Do(ctx context.Context, ip string, a warmup.Action) error {
	return w.ctl.Do(ctx, ip, a)
}

// Check returns the error with which Do would refuse.
func (w *Warming) Check(ip string, a warmup.Action) error { return w.ctl.Check(ip, a) }

// Complained is suppression.FeederConfig.Complained. What no warm-up wants, or of a day too long ago, is done, and so
// is what may have been.
func (w *Warming) Complained(ctx context.Context, source, provider string, day time.Time, n int64) error {
	key, ok := w.c.Policy().WarmupKeyOf(source)
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
		w.c.Log.Info("complaints are too old for the warm-up", "source", source, "provider", provider, "day",
			day.Format(time.DateOnly), "complaints", n)
		return nil
	case errors.Is(err, warmup.ErrUnknownOutcome): // to repeat it could count them twice
		w.c.Log.Warn("complaints may not count for the warm-up", "source", source, "provider", provider, "day",
			day.Format(time.DateOnly), "complaints", n, "error", err)
		return nil
	case err != nil:
		return err
	}
	w.c.Log.Info("complaints count for the warm-up", "source", source, "provider", provider, "day",
		day.Format(time.DateOnly), "complaints", n)
	return nil
}

// Reload takes over another configuration.
func (w *Warming) Reload(pol *wiring.Policy) {
	if err := w.Assign(pol); err != nil {
		w.c.Log.Error("warm-up plans stay as they were", "error", err) // which were checked with the file
	}
}

// beside is warmup.Config.Beside. A network is what block lists and providers take for one sender: a /24, or
// a /48 of IPv6.
func (w *Warming) beside(ip string) (others []string, network string) {
	prefix, err := networkOf(ip)
	if err != nil {
		return nil, ""
	}
	pol := w.c.Policy()
	shares := func(pool string) bool { return slices.Contains(pol.WarmupPools(ip), pool) }
	for _, other := range pol.WarmupKeys() {
		if at, err := networkOf(other); err == nil && at == prefix && other != ip &&
			slices.ContainsFunc(pol.WarmupPools(other), shares) {
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

// Trouble returns which warm-ups get no tokens on account of their ledger, "" when none does.
func (w *Warming) Trouble() string {
	var all []string
	if lost := w.copies.trouble(); lost != "" {
		all = append(all, lost)
	}
	for _, key := range w.ctl.IPs() {
		if s, _ := w.ctl.Status(key); s.LedgerFailure() != "" {
			all = append(all,
				fmt.Sprintf("the warm-up of %s gets no tokens: %s", w.c.Policy().WarmupSource(key), s.LedgerFailure()))
		}
	}
	return faultlog.Few(all)
}

// Lost returns that the ledger was lost and how warm-ups went on, "" when it was not, or a day ago.
func (w *Warming) Lost() string { return w.copies.trouble() }
