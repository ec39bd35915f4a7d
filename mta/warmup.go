package mta

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mta/internal/envelope"
	"mta/internal/reply"
	"mta/internal/route"
	"mta/mta/accounting"
	"mta/mta/config"
	"mta/queue"
	"mta/warmup"
	"mta/warmup/boltstore"
)

// warming is the warm-up of this relay's sources, and the mail that is held for it.
type warming struct {
	ctl     *warmup.Controller
	store   ledger
	queue   heldQueue
	handle  func(*queue.Lease)          // takes mail up again
	pause   func(context.Context) error // waits while nothing more is to be taken up
	log     *slog.Logger
	now     func() time.Time
	records func(*accounting.Record) // adds to the accounting log
	backup  *backup                  // the second copy, and what became of a ledger that was lost
	again   chan struct{}            // to run: all held mail is to be looked at anew
	ended   atomic.Bool              // run has: nothing is taken up any more

	mu     sync.Mutex // guards what follows
	held   map[string]struct{}
	events map[told]int64 // since the start
	cfg    *config.Config
}

// ledger is where warm-ups are kept.
type ledger interface {
	warmup.Store
	io.Closer
}

func openBolt(path string) (ledger, error) { return boltstore.Open(path, nil) }

// heldQueue is what the warm-up needs of the queue.
type heldQueue interface {
	Park(id envelope.ID, recipients []int, key string)
	Take(key string, n int) []*queue.Lease
	TakeNewest(key string, n int) []*queue.Lease
	Parked(key string) int
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
	w := &warming{store: store, queue: r.queue, log: r.log, now: r.now, records: r.recordWarmups(), again: make(chan struct{}, 1)}
	w.backup = openBackup(cfg, store, r.destinations, r.now, r.log)
	w.handle = func(l *queue.Lease) { r.dispatcher.handle(l) }
	w.pause = func(ctx context.Context) error { return r.dispatcher.pause(ctx) }
	w.ctl = warmup.New(warmup.Config{Node: cfg.NodeID, Store: store, OnRoom: w.room, OnEvent: w.tell, Recall: w.backup.recall, Log: r.log})
	r.warm = w
	r.alarms.set(r.now(), alarmWarmup, w.backup.trouble())
	w.backup.tell = w.tell
	if err := w.assign(cfg); err != nil {
		return err
	}
	if lost := w.backup.lost; lost != nil {
		w.tell(warmup.Event{Kind: warmup.EventLedgerLost, Why: fmt.Sprintf("the ledger was lost: %v", lost)})
	}
	return nil
}

// assign takes over the plans of a configuration. Stages and counters stay.
func (w *warming) assign(cfg *config.Config) error {
	plans := make(map[string]*warmup.Plan)
	plansOf(cfg, plans)
	if err := w.ctl.Assign(plans); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg = cfg
	return nil
}

// prepare takes on the plans of a configuration that is about to come into force, beside those of the
// one that is: an address without a plan has no limits, and mail is chosen by either meanwhile.
func (w *warming) prepare(cfg *config.Config) error {
	w.mu.Lock()
	now := w.cfg
	w.mu.Unlock()
	plans := make(map[string]*warmup.Plan)
	plansOf(now, plans)
	plansOf(cfg, plans)
	return w.ctl.Assign(plans)
}

// plansOf adds the plan of each warming address.
func plansOf(cfg *config.Config, plans map[string]*warmup.Plan) {
	for _, p := range cfg.Pools {
		for _, d := range p.Dedicated {
			if d.Plan != "" {
				plans[warmupKey(cfg, d)] = cfg.WarmupPlan(d.Plan)
			}
		}
	}
}

// How often held mail is looked at although nobody said that there is room, and how many recipients of
// each key then: some, as a second string, since the controller calls room; and of what would leave
// sooner by another source of its pool, so many at most.
const (
	heldSweep  = time.Minute
	heldSample = 4
	heldMoved  = 10_000
	heldBatch  = 100
)

func all(string) int { return math.MaxInt }

// run makes the warm-up work until ctx ends.
func (w *warming) run(ctx context.Context) {
	var stepping sync.WaitGroup
	stepping.Go(func() { w.ctl.Run(ctx) })
	defer stepping.Wait()
	defer w.ended.Store(true)
	tick, copying := time.NewTicker(heldSweep), time.NewTicker(copyEvery)
	defer tick.Stop()
	defer copying.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.sweep(ctx, w.worthALook)
		case <-copying.C:
			w.backup.save(w.ctl)
		case <-w.again:
			w.sweep(ctx, all)
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

// hold lets recipients of a message wait for their source's warm-up.
func (w *warming) hold(id envelope.ID, recipients []int, c *choice) {
	key := c.waits()
	w.queue.Park(id, recipients, key)
	w.mu.Lock() // after the parking, or a sweep could forget the key before there is anything under it
	if w.held == nil {
		w.held = make(map[string]struct{})
	}
	w.held[key] = struct{}{}
	w.mu.Unlock()
	w.ctl.Parked(c.warm)
}

// room takes up mail that is held under a key, for about n recipients; see warmup.Config.OnRoom.
func (w *warming) room(key string, n int64) (taken int64) {
	for taken < n && !w.ended.Load() {
		leases := w.queue.Take(key, 1)
		if len(leases) == 0 {
			break
		}
		for _, l := range leases {
			taken += int64(len(l.Recipients))
			w.handle(l)
		}
	}
	return taken
}

// worthALook says how many of those that wait under a key are to be chosen for anew.
func (w *warming) worthALook(key string) int {
	if w.queue.Parked(key) <= heldSample {
		return heldSample
	}
	ip, provider, _ := heldFor(key)
	return int(min(heldMoved, max(heldSample, w.ctl.Surplus(ip, provider, w.siblings(ip)))))
}

// siblings gives the warm-ups of the pools that hold mail for one, itself among them.
func (w *warming) siblings(key string) (keys []string) {
	w.mu.Lock()
	cfg := w.cfg
	w.mu.Unlock()
	for _, p := range cfg.Pools {
		if p.Overflow != "hold" && len(p.Shared) > 0 {
			continue
		}
		n := len(keys)
		for _, d := range p.Dedicated {
			if d.Plan != "" {
				keys = append(keys, warmupKey(cfg, d))
			}
		}
		if !slices.Contains(keys[n:], key) {
			keys = keys[:n]
		}
	}
	return keys
}

// sweep takes as many recipients of each key up again as the caller says. Of a part of a line it takes the
// newest: what is held again goes to the end of the line, and the oldest must not lose their place. When
// a batch comes back whole, the rest would as well.
func (w *warming) sweep(ctx context.Context, many func(key string) int) {
	w.mu.Lock()
	keys := slices.Collect(maps.Keys(w.held))
	w.mu.Unlock()
	for _, key := range keys {
		waiting := w.queue.Parked(key)
		if waiting == 0 {
			w.recount(key)
			w.mu.Lock()
			delete(w.held, key)
			w.mu.Unlock()
			// Some may have been parked in between, and their key put down before it was deleted.
			if w.queue.Parked(key) > 0 {
				w.mu.Lock()
				w.held[key] = struct{}{}
				w.mu.Unlock()
			}
			continue
		}
		left := min(many(key), waiting)
		whole := left == waiting
		for left > 0 && w.pause(ctx) == nil {
			before := w.queue.Parked(key)
			leases := w.batch(key, min(left, heldBatch), whole)
			w.recount(key)
			for _, l := range leases {
				left -= len(l.Recipients)
				w.handle(l)
			}
			if len(leases) == 0 || !whole && w.queue.Parked(key) >= before {
				break
			}
		}
	}
}

// batch takes up to n recipients out of a line, in the order in which they came: the oldest of a line that
// is taken whole, else the newest.
func (w *warming) batch(key string, n int, whole bool) []*queue.Lease {
	if whole {
		return w.queue.Take(key, n)
	}
	leases := w.queue.TakeNewest(key, n)
	slices.Reverse(leases)
	return leases
}

// recount tells the warm-up how many recipients wait under a key: those that an operator took away,
// that expired, or that were just taken up here, it knows nothing of.
func (w *warming) recount(key string) {
	if ip, provider, ok := heldFor(key); ok {
		w.ctl.Recount(ip, provider, int64(w.queue.Parked(key)))
	}
}

// Status is that of the controller, with what waits here and now: the ledger's count of that is of
// the hour, and still has what was told of before a restart.
func (w *warming) Status(ip string) (warmup.Status, bool) {
	s, ok := w.ctl.Status(ip)
	for i := range s.Providers {
		p := &s.Providers[i]
		p.Waiting = int64(w.queue.Parked(heldKey(ip, p.Provider)))
	}
	return s, ok
}

// IPs lists those that have a plan, sorted.
func (w *warming) IPs() []string { return w.ctl.IPs() }

// Do is an operator's doing; see warmup.Controller.Do.
func (w *warming) Do(ctx context.Context, ip string, a warmup.Action) error {
	return w.ctl.Do(ctx, ip, a)
}

// reload takes over another configuration. Held mail is looked at anew: what it waits for may be
// there no longer.
func (w *warming) reload(cfg *config.Config) {
	if err := w.assign(cfg); err != nil {
		w.log.Error("warm-up plans stay as they were", "error", err) // which were checked with the file
	}
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// refused takes into account that a host turned a source away; see delivery.Config.OnRefused. It is one
// outcome, however many recipients waited for that connection.
func (w *warming) refused(rt *route.Route, source string, words reply.Reply) {
	if key, ok := w.keyOf(source); ok {
		if x, ok := refusedOutcome(words); ok {
			w.ctl.Report(key, rt.Provider, x)
		}
	}
}

// keyOf gives the warm-up's name of what an operator names: a source with a plan, or its address.
func (w *warming) keyOf(name string) (key string, ok bool) {
	w.mu.Lock()
	cfg := w.cfg
	w.mu.Unlock()
	for _, p := range cfg.Pools {
		for _, d := range p.Dedicated {
			if key := warmupKey(cfg, d); d.Plan != "" && (d.Name == name || key == name) {
				return key, true
			}
		}
	}
	return "", false
}

// sourceOf gives the source of a key, the key itself when there is none any more.
func (w *warming) sourceOf(key string) string {
	w.mu.Lock()
	cfg := w.cfg
	w.mu.Unlock()
	for _, p := range cfg.Pools {
		for _, d := range p.Dedicated {
			if d.Plan != "" && warmupKey(cfg, d) == key {
				return d.Name
			}
		}
	}
	return key
}

// heldPrefix is what the keys begin with that mail is held under for a warm-up.
const heldPrefix = "warmup:"

// heldKey is the key of mail that is held for the warm-up of an address, to go to a provider, "" for none.
func heldKey(ip, provider string) string {
	return heldPrefix + ip + "/" + cmp.Or(provider, warmup.Other)
}

// heldFor gives the warm-up and the provider that mail under a key waits for, and false for a key
// that is none of the warm-up's.
func heldFor(key string) (ip, provider string, ok bool) {
	rest, ok := strings.CutPrefix(key, heldPrefix)
	ip, provider, _ = strings.Cut(rest, "/")
	return ip, provider, ok
}

// why says why mail under a key waits, and until when it does at least. It reports false for a key
// that is none of the warm-up's.
func (w *warming) why(key string) (why string, until time.Time, ok bool) {
	ip, provider, ok := heldFor(key)
	if !ok {
		return "", time.Time{}, false
	}
	s, known := w.Status(ip)
	if !known {
		return fmt.Sprintf("it was held for the warm-up of %s, which has ended: it is taken up within a minute", ip), time.Time{}, true
	}
	why = fmt.Sprintf("it is held for the warm-up of source %s (%s): %s", w.sourceOf(ip), ip, standing(&s))
	lack, until := lacking(&s, provider)
	if lack != "" {
		why += ": " + lack
	}
	return why, until, true
}

// doing says in a few words what why says at length; "" for a key that is none of the warm-up's.
func (w *warming) doing(key string) string {
	ip, provider, ok := heldFor(key)
	if !ok {
		return ""
	}
	text := "held for the warm-up of " + w.sourceOf(ip)
	if provider != warmup.Other {
		text += ", provider " + provider
	}
	return text
}

// ledgerTrouble says in words what a warm-up's state is when its ledger is no help.
var ledgerTrouble = map[string]string{
	"store_down": "its ledger can't be reached",
	"unknown":    "its ledger was not read yet",
	"corrupt":    "its ledger can't be read",
}

// trouble says which warm-ups send nothing on account of their ledger, "" when none does.
func (w *warming) trouble() string {
	var all []string
	if lost := w.backup.trouble(); lost != "" {
		all = append(all, lost)
	}
	for _, key := range w.ctl.IPs() {
		if s, _ := w.ctl.Status(key); ledgerTrouble[s.State] != "" {
			all = append(all, fmt.Sprintf("the warm-up of %s sends nothing: %s", w.sourceOf(key), ledgerTrouble[s.State]))
		}
	}
	const most = 4 // the ledger is one for all: they will be many
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(all, "; ")
}

// lacking says what keeps mail for a provider from a warm-up, "" when nothing does, and until when it
// does at least, where that is known.
func lacking(s *warmup.Status, provider string) (string, time.Time) {
	switch {
	case s.State == "warm":
		return "", time.Time{}
	case s.State == "paused":
		return "paused by an operator", time.Time{}
	case s.State != "normal":
		return ledgerTrouble[s.State], time.Time{}
	case s.SentDay >= s.StageLimit:
		return "the day's cap is used", s.DayEnds
	case s.SentHour >= s.HourlyLimit:
		return "the hour's cap is used", s.HourEnds
	}
	for i := range s.Providers {
		if p := &s.Providers[i]; p.Provider == cmp.Or(provider, warmup.Other) {
			return lackingAt(p, s)
		}
	}
	return "", time.Time{}
}

// lackingAt is lacking for a provider by itself.
func lackingAt(p *warmup.ProviderStatus, s *warmup.Status) (string, time.Time) {
	const spread = "an hour's mail is spread over the hour"
	switch {
	case p.State != "normal":
		until, _ := time.Parse(time.RFC3339, p.Until) // "": not known
		return "provider " + p.Provider + " is " + p.State, until
	case p.DailyLimit > 0 && p.SentDay >= p.DailyLimit:
		return "the day's cap for " + p.Provider + " is used", s.DayEnds
	case p.HourlyLimit > 0 && p.SentHour >= p.HourlyLimit:
		return "the hour's cap for " + p.Provider + " is used", s.HourEnds
	case p.Waiting > 0 && p.Rate > 0:
		return fmt.Sprintf("%s, now %.3g a minute", spread, 60*p.Rate), time.Time{}
	case p.Waiting > 0:
		return spread, time.Time{}
	}
	return "", time.Time{}
}

// standing says where a warm-up stands.
func standing(s *warmup.Status) string {
	return fmt.Sprintf("plan %s, stage %d of %d, %d of %d sent this hour, %d of %d today",
		s.Plan, s.Stage, s.TotalStages, s.SentHour, s.HourlyLimit, s.SentDay, s.StageLimit)
}

// ofSource gives the warm-up of a source; false when it has none.
func (w *warming) ofSource(source string) (warmup.Status, bool) {
	key, ok := w.keyOf(source)
	if !ok {
		return warmup.Status{}, false
	}
	return w.Status(key)
}

// progress says where a warm-up stands, for mail to a provider.
func progress(s *warmup.Status, provider string) string {
	text := standing(s)
	if s.State != "normal" {
		text += ": " + s.State
	}
	for i := range s.Providers {
		p := &s.Providers[i]
		if p.Provider != cmp.Or(provider, warmup.Other) {
			continue
		}
		if p.HourlyLimit > 0 || p.DailyLimit > 0 {
			text += fmt.Sprintf("; of %s %d of %d this hour, %d of %d today", p.Provider, p.SentHour, p.HourlyLimit, p.SentDay, p.DailyLimit)
		}
		if p.State != "normal" {
			text += fmt.Sprintf("; %s is %s", p.Provider, p.State)
		}
		if p.Waiting > 0 {
			text += fmt.Sprintf("; %d held", p.Waiting)
		}
	}
	return text
}
