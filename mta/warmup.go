package mta

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/destdb/file"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/internal/tiers"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/warmup"
	"example.org/mta/warmup/boltstore"
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
	count   func(source, event string)
	backup  *backup       // the second copy, and what became of a ledger that was lost
	again   chan struct{} // to run: all held mail is to be looked at anew
	ended   atomic.Bool   // run has: nothing is taken up any more

	diverted divertedMail

	taking sync.Mutex // held while mail of a line is tried, one message at a time

	mu    sync.Mutex // guards what follows
	held  map[parking.Key]*heldLines
	pools map[string][]string // with warming sources, by the warm-up's names of those
	trial envelope.ID         // the message that is being tried
	back  bool                // and that waits again
	cfg   *config.Config
}

// ledger is where warm-ups are kept.
type ledger interface {
	warmup.Store
	io.Closer
}

func openBolt(path string) (ledger, error) { return boltstore.Open(path, nil) }

// heldQueue is what the warm-up needs of the queue.
type heldQueue interface {
	Park(id envelope.ID, recipients []int, line parking.Line)
	ParkFirst(id envelope.ID, recipients []int, line parking.Line)
	Take(line parking.Line, n int) []*queue.Lease
	Parked(line parking.Line) int
	ParkedInLines(key parking.Key) int
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
	w := &warming{store: store, queue: r.queue, log: r.log, now: r.now, records: r.recordWarmups(), count: r.meter.Warmup, again: make(chan struct{}, 1)}
	w.backup = openBackup(cfg, store, r.destinations.Values(file.WarmupCopies), r.now, r.log)
	w.handle = func(l *queue.Lease) { r.dispatcher.handle(l) }
	w.pause = func(ctx context.Context) error { return r.dispatcher.pause(ctx) }
	w.ctl = warmup.New(warmup.Config{Node: cfg.NodeID, Store: store, OnRoom: w.room, Waiting: w.waitingFor, Beside: w.beside, OnEvent: w.tell, Recall: w.backup.recall, Log: r.log})
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
	pools := make(map[string][]string)
	for _, p := range cfg.Pools {
		for _, d := range p.Dedicated {
			if d.Plan != "" {
				pools[wiring.WarmupKey(cfg, d)] = append(pools[wiring.WarmupKey(cfg, d)], p.Name)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cfg, w.pools = cfg, pools
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
				plans[wiring.WarmupKey(cfg, d)] = cfg.WarmupPlan(d.Plan)
			}
		}
	}
}

const (
	// heldSweep is how often held mail is looked at although there are no tokens for it: what waited for its
	// source for long enough takes another, and a source may be missing, or be back.
	heldSweep = time.Minute
	// heldLook is the same for pools that divert: their mail waits for an answer of the store, which may
	// have come before the mail was there.
	heldLook = time.Second
	// heldBatch is how many messages are taken up at a time when all are.
	heldBatch = 100
)

// run makes the warm-up work until ctx ends.
func (w *warming) run(ctx context.Context) {
	var stepping sync.WaitGroup
	stepping.Go(func() { w.ctl.Run(ctx) })
	defer stepping.Wait()
	defer w.ended.Store(true)
	tick, copying := time.NewTicker(heldLook), time.NewTicker(copyEvery)
	defer tick.Stop()
	defer copying.Stop()
	var swept time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			full := now.Sub(swept) >= heldSweep
			if full {
				swept = now
			}
			w.sweep(ctx, full)
		case <-copying.C:
			w.backup.save(w.ctl)
		case <-w.again:
			w.takeAll(ctx)
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

// hold lets recipients of a message wait for tokens. Those that were tried, or are back, keep their place.
func (w *warming) hold(m *envelope.Message, recipients []int, c *choice, weight int, back bool) {
	w.mu.Lock()
	if w.held == nil {
		w.held = make(map[parking.Key]*heldLines)
	}
	h := w.held[c.wait]
	if h == nil {
		h = newHeldLines(c.wait)
		w.held[c.wait] = h
	}
	l := h.line(parking.Line{Key: c.wait, Source: c.own, Tenant: m.Tenant, Tier: tiers.Of(m.Tier), Preferred: c.first}, weight)
	if m.ID == w.trial {
		w.back, back = true, true
	}
	if l.until = (time.Time{}); back && c.waits {
		l.until = c.until
	}
	park := w.queue.Park
	if back {
		park = w.queue.ParkFirst
	}
	park(m.ID, recipients, l.line) // under the lock, or the line could be forgotten before there is anything in it
	w.mu.Unlock()
}

// waiting is how much mail waits; for any provider where none is named.
func (w *warming) waiting(at parking.Key) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.held[at]; h != nil {
		return w.queue.ParkedInLines(h.Key)
	}
	if at.Provider != "" {
		return 0
	}
	for other, h := range w.held {
		if other.Name == at.Name {
			n += w.queue.ParkedInLines(h.Key)
		}
	}
	return n
}

// waitingFor is warmup.Config.Waiting.
func (w *warming) waitingFor(key, provider string) (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.held) == 0 {
		return 0
	}
	for _, pool := range w.pools[key] {
		if h := w.held[tokens(pool, provider)]; h != nil {
			n += int64(w.queue.ParkedInLines(h.Key))
		}
	}
	return n
}

// room is warmup.Config.OnRoom: it tries mail as long as some leaves.
func (w *warming) room(key, provider string) {
	w.mu.Lock()
	source, pools := w.source(key), w.pools[key]
	w.mu.Unlock()
	for _, pool := range pools {
		next := func(h *heldLines) *heldLine { return h.next(source, w.queue.Parked) }
		for w.try(tokens(pool, provider), next) {
		}
	}
}

// try has the first message of a line look for a source. It reports whether that did not wait again.
func (w *warming) try(at parking.Key, next func(*heldLines) *heldLine) bool {
	w.taking.Lock()
	defer w.taking.Unlock()
	w.mu.Lock()
	var l *heldLine
	h := w.held[at]
	if h != nil && !w.ended.Load() {
		l = next(h)
	}
	w.mu.Unlock()
	if l == nil {
		return false
	}
	for _, lease := range w.queue.Take(l.line, 1) {
		w.mu.Lock()
		w.trial, w.back = lease.Message.ID, false
		w.mu.Unlock()
		w.handle(lease)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trial = 0
	if !w.back {
		h.took(l)
	}
	return !w.back
}

// sweep tries mail of each line as long as some leaves; or of pools that divert only.
func (w *warming) sweep(ctx context.Context, full bool) {
	for _, h := range w.heldNow() {
		w.mu.Lock()
		if p := w.cfg.Pool(h.Name); !full && p != nil && (p.Overflow == "hold" || len(p.Shared) == 0) {
			w.mu.Unlock()
			continue
		}
		lines := slices.Collect(maps.Values(h.known))
		w.mu.Unlock()
		for _, l := range lines {
			for (full || w.decidable(l)) && w.queue.Parked(l.line) > 0 && w.pause(ctx) == nil && w.try(h.Key, func(*heldLines) *heldLine { return l }) {
			}
		}
	}
}

// decidable reports whether the first message of a line may not have to wait on.
func (w *warming) decidable(l *heldLine) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.now().Before(l.until)
}

// heldNow lists what waits, and forgets where nothing does.
func (w *warming) heldNow() []*heldLines {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.held, func(_ parking.Key, h *heldLines) bool { return w.queue.ParkedInLines(h.Key) == 0 })
	return slices.Collect(maps.Values(w.held))
}

// takeAll takes up all that waits. What waits again goes to the end of its line: so all keep their order.
func (w *warming) takeAll(ctx context.Context) {
	for _, h := range w.heldNow() {
		w.mu.Lock()
		lines := slices.Collect(maps.Values(h.known))
		w.mu.Unlock()
		for _, l := range lines {
			for left := w.queue.Parked(l.line); left > 0 && w.pause(ctx) == nil; {
				leases := w.queue.Take(l.line, min(left, heldBatch))
				if len(leases) == 0 {
					break
				}
				for _, lease := range leases {
					left -= len(lease.Recipients)
					w.handle(lease)
				}
			}
		}
	}
}

// Status is that of the controller, with what waits here and now: the ledger's count of that is of
// the hour, and still has what was told of before a restart.
func (w *warming) Status(ip string) (warmup.Status, bool) {
	s, ok := w.ctl.Status(ip)
	for i := range s.Providers {
		s.Providers[i].Waiting = 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, h := range w.held {
		if p := s.Of(at.Provider); p != nil && slices.Contains(w.pools[ip], at.Name) {
			p.Waiting += int64(w.queue.ParkedInLines(h.Key))
		}
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

// beside is warmup.Config.Beside. A network is what block lists and providers take for one sender: a /24, or
// a /48 of IPv6.
func (w *warming) beside(ip string) (others []string, network string) {
	prefix, err := networkOf(ip)
	if err != nil {
		return nil, ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, pools := range w.pools {
		shares := func(pool string) bool { return slices.Contains(pools, pool) }
		if at, err := networkOf(other); err == nil && at == prefix && other != ip && slices.ContainsFunc(w.pools[ip], shares) {
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

// keyOf gives the warm-up's name of what an operator names: a source with a plan, or its address.
func (w *warming) keyOf(name string) (key string, ok bool) {
	w.mu.Lock()
	cfg := w.cfg
	w.mu.Unlock()
	for _, p := range cfg.Pools {
		for _, d := range p.Dedicated {
			if key := wiring.WarmupKey(cfg, d); d.Plan != "" && (d.Name == name || key == name) {
				return key, true
			}
		}
	}
	return "", false
}

// sourceOf gives the source of a key, the key itself when there is none any more.
func (w *warming) sourceOf(key string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.source(key)
}

// source is sourceOf. w.mu is held.
func (w *warming) source(key string) string {
	for _, p := range w.cfg.Pools {
		for _, d := range p.Dedicated {
			if d.Plan != "" && wiring.WarmupKey(w.cfg, d) == key {
				return d.Name
			}
		}
	}
	return key
}

// awaited gives the warm-up that mail in a line waits for, of several the one that is first to have room
// for it: its source, where it stands, what it lacks and until when.
func (w *warming) awaited(line parking.Line) (source string, s warmup.Status, lack string, until time.Time, known bool) {
	w.mu.Lock()
	cfg := w.cfg
	w.mu.Unlock()
	p := cfg.Pool(line.Name)
	if p == nil {
		return "", s, "", until, false
	}
	for _, d := range p.Dedicated {
		if d.Plan == "" || line.Source != "" && line.Source != d.Name {
			continue
		}
		st, ok := w.Status(wiring.WarmupKey(cfg, d))
		if !ok {
			continue
		}
		l, t := lacking(&st, line.Provider)
		if !known || sooner(l, t, lack, until) {
			source, s, lack, until, known = d.Name, st, l, t, true
		}
	}
	return source, s, lack, until, known
}

// sooner reports whether a warm-up that lacks something until a time, zero when that is not known, has room
// before another.
func sooner(lack string, until time.Time, otherLack string, other time.Time) bool {
	switch {
	case lack == "" || otherLack == "":
		return lack == "" && otherLack != ""
	case until.IsZero() || other.IsZero():
		return other.IsZero() && !until.IsZero()
	}
	return until.Before(other)
}

// why says why mail in a line waits, and until when it does at least. It reports false for a key
// that is none of the warm-up's.
func (w *warming) why(line parking.Line) (why string, until time.Time, ok bool) {
	if line.Kind != parking.Tokens {
		return "", time.Time{}, false
	}
	source, s, lack, until, known := w.awaited(line)
	if !known {
		return fmt.Sprintf("it waited for a warm-up of pool %s, which has ended: it is taken up within a minute", line.Name), time.Time{}, true
	}
	why = fmt.Sprintf("it waits for the warm-up of source %s (%s): %s", source, s.IP, standing(&s))
	if lack != "" {
		why += ": " + lack
	}
	return why, until, true
}

// doing says in a few words what why says at length; false for a key that is none of the warm-up's.
func (w *warming) doing(line parking.Line) (text string, until time.Time, ok bool) {
	if line.Kind != parking.Tokens {
		return "", until, false
	}
	source, _, lack, until, known := w.awaited(line)
	if text = "waits for the warm-up of " + source; !known {
		text = "waits for a warm-up of pool " + line.Name
	}
	if line.Provider != warmup.Other {
		text += ", provider " + line.Provider
	}
	if lack != "" {
		text += ": " + lack
	}
	return text, until, true
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
	return few(all)
}

// lacking says what keeps mail for a provider from a warm-up, "" when nothing does, and until when it
// does at least, where that is known.
func lacking(s *warmup.Status, provider string) (string, time.Time) {
	switch {
	case s.State == "warm":
		return "", time.Time{}
	case s.State == "paused":
		return "paused by an operator", time.Time{}
	case s.State == "scheduled":
		return "it begins later", s.Started
	case s.State != "normal":
		return ledgerTrouble[s.State], time.Time{}
	case s.SentDay >= s.StageLimit:
		return "the day's cap is used", s.DayEnds
	case s.SentHour >= s.HourlyLimit:
		return "the hour's cap is used", s.HourEnds
	}
	if p := s.Of(provider); p != nil {
		return lackingAt(p, s)
	}
	return "", time.Time{}
}

// lackingAt is lacking for a provider by itself.
func lackingAt(p *warmup.ProviderStatus, s *warmup.Status) (string, time.Time) {
	const spread = "an hour's mail is spread over the hour"
	switch {
	case p.State != "normal":
		return "provider " + p.Provider + " is " + p.State, p.Until
	case p.DailyLimit > 0 && p.SentDay >= p.DailyLimit:
		return "the day's cap for " + p.Provider + " is used", s.DayEnds
	case p.HourlyLimit > 0 && p.SentHour >= p.HourlyLimit:
		return "the hour's cap for " + p.Provider + " is used", s.HourEnds
	case p.Waiting > 0 && p.Rate > 0:
		return fmt.Sprintf("%s, now %.3g a minute", spread, 60*p.Rate), p.NextToken
	case p.Waiting > 0:
		return spread, time.Time{}
	}
	return "", time.Time{}
}

// standing says where a warm-up stands.
func standing(s *warmup.Status) string {
	if s.State == "scheduled" {
		return fmt.Sprintf("plan %s, which begins at %s", s.Plan, s.Started.Format(time.RFC3339))
	}
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
	p := s.Of(provider)
	if p == nil {
		return text
	}
	if p.HourlyLimit > 0 || p.DailyLimit > 0 {
		text += fmt.Sprintf("; of %s %d of %d this hour, %d of %d today", p.Provider, p.SentHour, p.HourlyLimit, p.SentDay, p.DailyLimit)
	}
	if p.State != "normal" {
		text += fmt.Sprintf("; %s is %s", p.Provider, p.State)
	}
	if p.Waiting > 0 {
		text += fmt.Sprintf("; %d waiting", p.Waiting)
	}
	return text
}
