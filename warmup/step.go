package warmup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Step does what is due: it answers what was asked, reports to the store what happened, and computes
// each IP once a period. It returns how long the next one can wait. One Claim and one Write carry up to mostRound IPs;
// no lock that TakeAll needs is held meanwhile. A store that has failed is not asked again in the step, and after a
// period the step ends, with the other IPs left to the next one: nobody is answered before it ends.
func (c *Controller) Step(ctx context.Context) time.Duration {
	c.stepping.Lock()
	defer c.stepping.Unlock()
	now := c.cfg.Now()
	end := now.Add(period)
	c.gather(now)
	rest, answers := c.round, true
	for answers && len(rest) > 0 && now.Before(end) {
		n := min(len(rest), mostRound)
		answers = c.work(ctx, rest[:n], now)
		rest, now = rest[n:], c.cfg.Now() // calls of a store elsewhere take their time
	}
	if answers {
		c.postpone(rest)
		c.finishUnsure(ctx, end)
	} else {
		c.abandon(rest, now)
	}
	c.callTokens()
	c.report()
	return c.next(now)
}

// mostRound bounds the IPs of a call: a store that is a database has 3 s for each.
const mostRound = 500

// gather makes the round: the IPs that ask, and those whose time has come.
func (c *Controller) gather(now time.Time) {
	c.askingMu.Lock()
	c.round = append(c.round[:0], c.asking...)
	c.asking = c.asking[:0]
	c.askingMu.Unlock()
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := 0
	for _, a := range c.round { // an IP may have lost its plan
		if c.ips[a.ip] == a {
			c.round[n] = a
			n++
		}
	}
	c.round = c.round[:n]
	if d := now.Sub(c.scanned); d >= 0 && d < c.scanEvery {
		return
	}
	c.scanned, c.soonest = now, now.Add(idlePeriod)
	for _, a := range c.all {
		a.mu.Lock()
		switch {
		case a.queued:
		case a.visit.After(now):
			c.expect(a.visit)
		case !a.due(now, c.waiting):
			a.visit = now.Add(a.period())
			c.expect(a.visit)
		default:
			a.queued = true
			c.round = append(c.round, a)
		}
		a.mu.Unlock()
	}
}

// postpone leaves IPs of the round to the next step, before those that ask meanwhile.
func (c *Controller) postpone(rest []*address) {
	if len(rest) == 0 {
		return
	}
	c.askingMu.Lock()
	c.asking = slices.Insert(c.asking, 0, rest...)
	c.askingMu.Unlock()
	c.poked()
}

// expect notes that an IP wants to be computed then.
func (c *Controller) expect(then time.Time) {
	if then.Before(c.soonest) {
		c.soonest = then
	}
}

// work locks, computes and writes a part of the round. It returns false if the store has failed.
func (c *Controller) work(ctx context.Context, round []*address, now time.Time) bool {
	c.keys = c.keys[:0]
	for _, a := range round {
		c.keys = append(c.keys, Key{a.ip, a.version})
	}
	var t Instant
	var err error
	c.records, t, err = c.cfg.Store.Claim(ctx, c.cfg.Node, lockTTL, c.keys, c.records[:0])
	if err != nil {
		c.lost(err)
		c.abandon(round, now)
		return false
	}
	c.found()
	c.clock.Store(&clock{now, t})
	c.ready, c.changes, c.buf = c.ready[:0], c.changes[:0], c.buf[:0]
	for i, a := range round {
		c.compute(a, &c.records[i], now, t)
	}
	if len(c.changes) > 0 {
		c.written, err = c.cfg.Store.Write(ctx, c.changes, c.written[:0])
		c.settle(err, now)
	}
	return err == nil
}

func (c *Controller) abandon(round []*address, now time.Time) {
	for _, a := range round {
		c.giveUp(a, now)
	}
}

func (c *Controller) lost(err error) {
	if c.down.Swap(&err) == nil {
		c.cfg.Log.Error("warm-up store can't be reached: leases are spent, then mail is diverted or waits", "error",
			err)
		c.events = append(c.events,
			Event{Kind: EventLedgerLost, Why: fmt.Sprintf("the ledger can't be reached: %v", err)})
	}
}

func (c *Controller) found() {
	if c.down.Swap(nil) != nil {
		c.cfg.Log.Info("warm-up store is reached again")
		c.events = append(c.events, Event{Kind: EventLedgerRestored, Why: "the ledger is reached again"})
	}
}

// giveUp answers an IP's asks with no, since the store can't.
func (c *Controller) giveUp(a *address, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queued = false
	c.sayNo(a, now)
}

// sayNo answers all asks of an IP with no. Callers hold a.mu.
func (c *Controller) sayNo(a *address, now time.Time) {
	a.asked = time.Time{}
	a.visit = now.Add(a.period())
	c.expect(a.visit)
	for _, l := range a.lanes {
		if l.delta.want > 0 || l.asking {
			l.delta.want, l.delta.least = 0, 0
			l.backoff = now.Add(a.period())
		}
		c.answered(l)
	}
}

// answered has mail tried again that has asked.
func (c *Controller) answered(l *lane) {
	if l.asking {
		l.asking = false
		c.supplied = append(c.supplied, l)
	}
}

// busy leaves an IP to the node that has it locked, and asks again soon.
func (c *Controller) busy(a *address, why string, now time.Time) {
	a.mu.Lock()
	if a.why = why; a.busy.IsZero() {
		a.busy = now
	}
	late := !a.asked.IsZero() && now.Sub(a.asked) > period
	a.queued = false
	a.visit = now.Add(time.Duration(a.rand.Int64N(int64(scanEvery))))
	c.expect(a.visit)
	a.mu.Unlock()
	if late {
		c.giveUp(a, now)
	}
}

// compute makes an IP's next state and says what of it must be written.
func (c *Controller) compute(a *address, r *Record, now time.Time, t Instant) {
	if r.Busy {
		c.busy(a, r.Why, now)
		return
	}
	if err := a.load(r, t, c.cfg.Recall); err == ErrCorrupt && r.Value != nil {
		c.cfg.Log.Error("warm-up stopped: start it again with an operator's command", "ip", a.ip, "error", err)
	}
	dirty := a.advance(now, t, c.lag(), c.waiting)
	change := Change{Name: a.ip, Fence: r.Fence, Version: r.Version, Release: true}
	if dirty {
		start := len(c.buf)
		c.buf = a.state.Append(c.buf)
		change.Value = c.buf[start:len(c.buf):len(c.buf)]
	}
	a.version = r.Version
	a.change = change
	c.ready = append(c.ready, a)
	c.changes = append(c.changes, change)
}

// load makes the state what the store has. Its error is a.problem.
func (a *address) load(r *Record, t Instant, recall func(string, *Plan, Instant) *State) error {
	if r.Version < a.version && a.problem == nil {
		a.own = &State{}
		a.own.CopyFrom(a.state)
	}
	first := a.first(r, t, recall) // without the lock: recalling reads a file
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy = time.Time{}
	switch {
	case first != nil:
		a.state, a.problem = first, nil
	case r.Version == 0:
		a.state, a.problem = &State{}, errNotBegun
	case r.Value != nil:
		a.written++
		if a.problem = cmp.Or(CheckVersion(a.ip, r.Value), a.state.Decode(r.Value)); a.problem != nil {
			a.view = view{}
		}
	}
	a.regain(r)
	return a.problem
}

// regain takes what this node knew in the place of an earlier state, or none: the store has lost writes, or somebody
// has deleted the record. What other nodes were granted since may be lost, and so the rest of the day counts as sent.
func (a *address) regain(r *Record) {
	if a.own == nil || r.Version > 0 && a.problem != nil {
		return
	}
	if r.Version == 0 || a.state.Now < a.own.Now {
		a.state, a.problem = &State{}, nil
		a.state.CopyFrom(a.own)
	}
	a.state.spent = true
}

// first gives the state of an IP of which the store has no record, nil for one that has one or may
// not begin yet.
func (a *address) first(r *Record, t Instant, recall func(string, *Plan, Instant) *State) (s *State) {
	a.created, a.begun = false, false
	if r.Version > 0 || a.own != nil {
		return nil
	}
	a.mu.Lock()
	p := a.plan
	a.mu.Unlock()
	if t < p.begins() {
		return nil
	}
	if a.created = true; recall != nil {
		s = recall(a.ip, p, t)
	}
	if s == nil {
		s, a.begun = NewState(p, t), true
	}
	return s
}

// advance applies all that happened to the state, grants what was asked, and says whether anything
// must be durable.
func (a *address) advance(now time.Time, t Instant, lag time.Duration, waiting func(*lane) int64) (dirty bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, s := a.plan, a.state
	hour := s.Hour
	a.before.note(s)
	a.doing, a.acts = a.acts, nil
	for _, x := range a.doing {
		x.err = x.do(a, p, t)
		dirty = dirty || x.err == nil
	}
	s = a.state // an action may have replaced it
	a.grants, a.deltas = a.grants[:0], a.deltas[:0]
	if a.problem != nil {
		a.refuseAll()
		return false // there is no state that could be written
	}
	s.Advance(p, t)
	dirty = dirty || a.created || a.own != nil || s.Hour != hour
	a.turn++
	for i := range a.lanes { // each is the first in turn, who gets what there is when all want at once
		l := a.lanes[(a.turn+i)%len(a.lanes)]
		l.giveBack(now, t, a.period())
		before := l.waiting
		l.waiting = waiting(l)
		l.delta.waiting += l.waiting - before
		want, ahead := l.lacks(now, a.period())
		d := l.collect(now, lag)
		if l.toldHour != s.Hour { // with the hour ended what all nodes had told of mail that waits
			d.waiting = l.waiting
		}
		a.deltas = append(a.deltas, d)
		v := s.Provider(p, l.name)
		dirty = a.report(v, &d) || dirty
		a.grants = append(a.grants, grant{lane: l, index: v, want: max(d.want, want), ahead: ahead})
	}
	s.setRates(p)
	return a.grantAll(p) || dirty
}

// refuseAll drops asks that can't be answered.
func (a *address) refuseAll() {
	for _, l := range a.lanes {
		a.grants = append(a.grants, grant{lane: l, want: l.delta.want, retry: second})
		a.deltas = append(a.deltas, delta{})
		l.delta = delta{}
	}
}

// report applies a lane's delta, without its asks.
func (a *address) report(i int, d *delta) (dirty bool) {
	p, s := a.plan, a.state
	if d.offered > 0 {
		s.Offer(p, i, d.offered)
	}
	s.Providers[i].Waiting = max(0, s.Providers[i].Waiting+d.waiting)
	if d.unused > 0 {
		s.TakeBack(p, i, d.unused, d.receipt)
		dirty = true
	}
	if d.counted > 0 {
		s.Count(&s.Providers[i], d.counted)
		dirty = true
	}
	if !d.outcomes.empty() {
		s.Report(p, i, d.outcomes)
		dirty = true
	}
	return dirty
}

// grantAll answers the asks.
func (a *address) grantAll(p *Plan) (dirty bool) {
	s := a.state
	receipt := s.Receipt()
	for i := range a.grants {
		g := &a.grants[i]
		g.receipt = receipt
		if want := g.want + g.ahead; want > 0 {
			g.given = s.Grant(p, g.index, want, max(1, a.deltas[i].least))
			dirty = dirty || g.given > 0
		}
		g.retry = s.Retry(p, g.index)
		l, v := g.lane, &s.Providers[g.index]
		l.ample = s.ample(p, v, amplePeriods*a.period().Seconds())
		if l.rate = v.Rate; l.demand < v.Demand {
			l.rate *= l.demand / v.Demand
		}
	}
	return dirty
}

// settle makes of a part's writes what the store said.
func (c *Controller) settle(err error, now time.Time) {
	if errors.Is(err, ErrUnknownOutcome) {
		c.cfg.Log.Warn("warm-up store: outcome of a write is unknown, it is repeated", "error", err)
		for _, a := range c.ready {
			a.change.Value = bytes.Clone(a.change.Value)
			c.answerNo(a, true, now)
		}
		c.unsure = append(c.unsure, c.ready...)
		return
	}
	if err != nil {
		c.lost(err)
	}
	for i, a := range c.ready {
		if err == nil && c.written[i] {
			c.commit(a, now)
		} else {
			c.undo(a, now)
		}
	}
}

// finishUnsure repeats writes whose outcome is not known: a part, and others until end. An IP waits with everything
// else until its own is: only then is it known what it has. The round goes first, since a write can fail for ever.
func (c *Controller) finishUnsure(ctx context.Context, end time.Time) {
	now := c.cfg.Now()
	for first := true; len(c.unsure) > 0 && !now.Before(c.repeat) && (first || now.Before(end)); first = false {
		part := c.unsure[:min(len(c.unsure), mostRound)]
		c.changes = c.changes[:0]
		for _, a := range part {
			c.changes = append(c.changes, a.change)
		}
		var err error
		c.written, err = c.cfg.Store.Write(ctx, c.changes, c.written[:0])
		if now = c.cfg.Now(); err != nil {
			c.stillUnsure(err, now)
			return
		}
		c.found()
		for i, a := range part {
			if c.written[i] {
				c.commit(a, now)
			} else {
				// Somebody has locked the IP since. What was granted is lost if it was written and
				// never was if it was not; both keep the caps.
				c.drop(a, now)
			}
		}
		c.unsure = c.unsure[len(part):]
	}
}

// stillUnsure answers those that wait for the outcome of a write, and has it repeated in a period.
func (c *Controller) stillUnsure(err error, now time.Time) {
	if len(c.round) == 0 {
		c.lost(err)
	} else { // others have just written
		c.cfg.Log.Warn("warm-up store: the repeat of a write has failed", "error", err)
	}
	c.repeat = now.Add(period)
	for _, a := range c.unsure {
		c.answerNo(a, true, now)
	}
}

// commit hands out what was granted.
func (c *Controller) commit(a *address, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.problem != nil {
		c.refused(a, now)
		return
	}
	if a.change.Value != nil {
		a.version++
		a.written++
	}
	a.see()
	c.events = a.happened(c.events)
	a.own = nil
	// The tokens count in the minute of their grant, which is long ago when the write's outcome was unknown.
	closes := min(a.view.closes, a.state.Now+a.plan.minute())
	for i := range a.grants {
		g := &a.grants[i]
		g.lane.toldHour = a.state.Hour
		c.answer(a, g, closes, now)
	}
	c.rest(a, now)
	a.finish(nil)
}

// refused answers an IP whose state can't be used.
func (c *Controller) refused(a *address, now time.Time) {
	for _, l := range a.lanes {
		c.answered(l)
	}
	c.rest(a, now)
	a.finish(a.problem)
}

// see takes from the state what the hot path needs.
func (a *address) see() {
	s, p := a.state, a.plan
	a.view = view{
		known: true, warm: s.Warm && !s.Paused,
		closes: s.hourEnd(p) - p.closing(),
	}
}

// answer gives a lane what it got: all that there is mail for allows another ask at once, a part of it when the rest
// has flowed, in a period at most, nothing when there will be a token.
func (c *Controller) answer(a *address, g *grant, closes Instant, now time.Time) {
	l := g.lane
	if g.given > 0 {
		l.credit(g, closes, now)
	}
	switch {
	case g.want+g.ahead == 0 || g.given > 0 && g.given >= g.want:
	case g.given > 0:
		wait := min(a.period().Seconds(), float64(g.want-g.given)/l.rate)
		l.backoff = now.Add(max(minPeriod, time.Duration(wait*float64(time.Second))))
	default:
		wait := time.Duration(g.retry) * time.Millisecond
		l.backoff = now.Add(wait + time.Duration(a.rand.Int64N(int64(wait)/5+1)))
	}
	if l.waiting > 0 && (l.lease > 0 || a.view.unlimited()) {
		l.asking = true
	}
	c.answered(l)
}

// rest sets when the IP is looked at next, and computed if it is due then.
func (a *address) rest(now time.Time) {
	a.queued, a.asked = false, time.Time{}
	a.computed = now
	if a.visit.IsZero() {
		a.computed = now.Add(-a.offset)
	}
	a.visit = now.Add(a.period())
}

// rest ends a round for an IP. An action that came after the round's computing begins another at once:
// nobody woke the controller for it, since the IP was queued.
func (c *Controller) rest(a *address, now time.Time) {
	a.rest(now)
	c.expect(a.visit)
	if len(a.acts) > 0 {
		a.queued = true
		c.wake(a)
	}
}

// undo forgets what was computed: the state is read again, and what was to be told is told then.
func (c *Controller) undo(a *address, now time.Time) {
	a.mu.Lock()
	for i := range a.deltas {
		a.deltas[i].want, a.deltas[i].least = 0, 0
		a.grants[i].lane.uncollect(a.deltas[i])
	}
	a.acts = append(slices.DeleteFunc(a.doing, func(w *action) bool { return w.left }), a.acts...)
	a.doing = nil
	a.version = 0 // the record has moved on without us
	a.mu.Unlock()
	c.answerNo(a, false, now)
}

// drop is undo when it is not known whether it was told: it isn't told again.
func (c *Controller) drop(a *address, now time.Time) {
	a.mu.Lock()
	a.version = 0
	a.finish(ErrUnknownOutcome)
	a.mu.Unlock()
	c.answerNo(a, false, now)
}

// answerNo is giveUp for an IP whose asks have been collected already. One that is unsure stays out of rounds.
func (c *Controller) answerNo(a *address, unsure bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.grants {
		if a.grants[i].want > 0 {
			a.grants[i].lane.backoff = now.Add(a.period())
			a.grants[i].want = 0
		}
	}
	a.queued = unsure
	c.sayNo(a, now)
}

// waiting is how many recipients wait for a lane.
func (c *Controller) waiting(l *lane) int64 {
	if c.cfg.Waiting == nil {
		return 0
	}
	return c.cfg.Waiting(l.address.ip, l.name)
}

// callTokens has mail tried again that waits.
func (c *Controller) callTokens() {
	for _, l := range c.supplied {
		if c.cfg.OnTokens != nil {
			c.cfg.OnTokens(l.address.ip, l.name)
		}
	}
	c.supplied = c.supplied[:0]
}

// next is how long the next step can wait.
func (c *Controller) next(now time.Time) time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	wait := c.soonest.Sub(now)
	if len(c.unsure) > 0 { // nothing else may be waiting
		wait = min(wait, period)
	}
	return max(wait, c.scanEvery)
}
