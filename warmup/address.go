package warmup

import (
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"
)

// address is one warming IP on this node.
type address struct {
	ip     string
	offset time.Duration

	mu        sync.Mutex // guards what follows to the next comment; never held across input and output
	plan      *Plan
	lanes     []*lane
	view      view
	state     *State // as last computed; one that could not be written is read again
	acts      []*action
	queued    bool      // in Controller.asking, in the round, or waiting for the outcome of a write
	asked     time.Time // when the oldest unanswered ask came; zero: none
	visit     time.Time // the next
	computed  time.Time // the last time
	rand      *rand.Rand
	before    standing  // of the state before the last step
	replanned bool      // the plan was changed since
	problem   error     // why the stored state can't be used; nil: it can
	busy      time.Time // since when the store has not let this node have it, zero: it has
	why       string    // see Record.Why
	written   uint64    // how often state was written or read

	// Only Step touches these.
	version uint64
	turn    int // of the lane that is answered first
	deltas  []delta
	grants  []grant
	doing   []*action
	change  Change
	created bool
	begun   bool   // created, and not from a copy
	own     *State // newer than what the store had; nil once that is written
}

// view is what the hot path needs of the State.
type view struct {
	known  bool // by the store
	closes Instant
	warm   bool
}

// unlimited reports that mail is counted and takes no tokens.
func (v *view) unlimited() bool { return v.known && v.warm }

// lane is one provider of an address on this node.
type lane struct {
	address *address
	name    string

	lease   int64
	receipt Receipt // of the oldest token
	until   Instant // the lease is void from then on
	used    time.Time
	leased  time.Time

	// Recipients that were let out and have not begun, lately and before that; then they are forgotten.
	out, old int64
	turned   time.Time

	backoff   time.Time // no ask before
	asking    bool      // on behalf of mail that looked; not yet answered
	demand    float64   // of this node, per second
	preferred float64   // recipients of the last hour, about, that go before others
	rate      float64   // this node's part of the rate of the provider's bucket, per second
	ample     bool      // nobody lacks tokens: see State.ample
	told      time.Time // when demand was last reckoned
	waiting   int64     // recipients that wait here, as last told to the store
	toldHour  int64     // of the plan, in which that was

	delta delta
	lag   []lagged
}

// delta is what a lane has to tell at the next step.
type delta struct {
	want, least int64 // recipients that ask, and the smallest message among them
	stats
	unused  int64 // tokens of the lease
	receipt Receipt
	waiting int64 // more, or less, than was told before
}

// stats is what is told late when statistics lag.
type stats struct {
	offered, counted int64
	outcomes         Outcomes
}

type lagged struct {
	at time.Time
	stats
}

// grant is what a lane was given in a step.
type grant struct {
	lane        *lane
	index       int   // in State.Providers
	want, ahead int64 // that there is mail for, and beyond that
	given       int64
	retry       Instant
	receipt     Receipt
}

func (a *address) setPlan(p *Plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replanned = a.replanned || a.plan.Name != p.Name || !reflect.DeepEqual(a.plan, p)
	a.plan = p
}

// period is how often the IP is computed while it has traffic: a second, less where a test's plan
// has short hours.
func (a *address) period() time.Duration {
	return min(period, max(minPeriod, time.Duration(float64(period)*a.plan.Hour.Hours())))
}

// lane finds a provider's lane, adding it if need be. Each provider has one, so that its mail is asked for
// and called under its name; the ledger counts those beyond maxProviders together. Callers hold a.mu.
func (a *address) lane(provider string) *lane {
	for _, l := range a.lanes {
		if l.name == provider {
			return l
		}
	}
	if provider == "" {
		return a.lane(Other)
	}
	l := &lane{address: a, name: provider}
	a.lanes = append(a.lanes, l)
	return l
}

// available is what of the lease can be used at store time t.
func (l *lane) available(t Instant) int64 {
	if t >= l.until {
		return 0
	}
	return l.lease
}

// kept is how many tokens other mail leaves to preferred mail: for what comes of it in a minute.
func (l *lane) kept() int64 {
	if l.preferred < .05 { // three hours after the last
		return 0
	}
	return max(1, int64(math.Ceil(l.preferred/60)))
}

// free is what of the lease is promised to nobody.
func (l *lane) free(t Instant) int64 { return max(0, l.available(t)-l.out-l.old) }

// returned notes that n recipients are out no longer.
func (l *lane) returned(n int64) {
	old := min(n, l.old)
	l.old -= old
	l.out = max(0, l.out-(n-old))
}

// credit adds tokens to the lease.
func (l *lane) credit(g *grant, until Instant, now time.Time) {
	if l.lease == 0 {
		l.receipt, l.leased, l.until = g.receipt, now, until
	}
	l.lease += g.given
	l.used = now
}

// How many periods pass at most before an address is computed to which mail was offered, and any other one.
const (
	offeredPeriods = 2
	idlePeriods    = 5
)

// amplePeriods is how many periods' flow must be saved up for good news to wait, and tokens to be kept.
const amplePeriods = 10

// due reports whether an address must be computed now: it has something to write, may get tokens, or has
// gone without for long. That mail was offered can wait, and so can good news while there is no lack of tokens.
// Callers hold a.mu.
func (a *address) due(now time.Time, waiting func(*lane) int64) bool {
	since := now.Sub(a.computed)
	if since >= idlePeriods*a.period() || len(a.acts) > 0 {
		return true
	}
	late := since >= offeredPeriods*a.period()
	for _, l := range a.lanes {
		d := &l.delta
		if d.want > 0 || d.unused > 0 || len(l.lag) > 0 || waiting(l) != l.waiting {
			return true
		}
		news := l.lease > 0 || d.counted > 0 || !d.outcomes.empty() || late && d.offered > 0
		if news && !(l.ample && d.outcomes.good()) {
			return true
		}
		if want, ahead := l.lacks(now, a.period()); want+ahead > 0 {
			return true
		}
	}
	return false
}

// lacks is how many tokens a lane is short of for mail that waits, and beyond that for the mail of the next period:
// as many as flow to this node in one, or in two where nobody lacks any. As long as there is half of
// that it lacks none.
func (l *lane) lacks(now time.Time, period time.Duration) (want, ahead int64) {
	if l.backoff.After(now) {
		return 0, 0
	}
	have := l.lease - l.out - l.old
	if l.waiting > 0 {
		have -= l.waiting + l.kept()
		want = max(0, -have)
	}
	if l.delta.offered == 0 && now.Sub(l.used) >= 2*period {
		return want, 0
	}
	flow := l.rate * period.Seconds()
	if l.ample {
		flow *= 2
	}
	if most := int64(math.Round(flow)); 2*have < most {
		ahead = most - max(have, 0)
	}
	return want, ahead
}

// outPeriods is how many periods a promise lasts at least: time for a connection to be made.
const outPeriods = 15

// giveBack moves what nobody uses of a lease, or that has become old, to what the next step returns.
func (l *lane) giveBack(now time.Time, t Instant, period time.Duration) {
	if now.Sub(l.turned) >= outPeriods*period {
		l.old, l.out, l.turned = l.out, 0, now
	}
	if l.lease == 0 {
		return
	}
	var kept int64
	if t < l.until && now.Sub(l.leased) < 2*outPeriods*period {
		if now.Sub(l.used) < 2*period || l.ample && now.Sub(l.used) < idlePeriods*period {
			return
		}
		kept = min(l.lease, l.out+l.old)
	}
	if l.delta.unused == 0 {
		l.delta.receipt = l.receipt
	}
	l.delta.unused += l.lease - kept
	l.lease = kept
}

// compute averages the node's own demand over a minute of the plan, as the state does that of all.
func (l *lane) compute(now time.Time) {
	hours := float64(now.Sub(l.told)) / float64(l.address.plan.Hour)
	if !l.told.IsZero() {
		l.demand *= math.Exp(-60 * hours)
		l.preferred *= math.Exp(-hours)
	}
	l.told = now
	l.demand += float64(l.delta.offered) / (l.address.plan.Hour.Seconds() / 60)
}

// collect takes what is to be told now. With a lag, statistics go through a queue.
func (l *lane) collect(now time.Time, lag time.Duration) delta {
	l.compute(now)
	d := l.delta
	l.delta = delta{}
	if lag > 0 {
		if s := d.stats; s.offered > 0 || s.counted > 0 || !s.outcomes.empty() {
			l.lag = append(l.lag, lagged{now.Add(lag), s})
		}
		d.stats = stats{}
		for len(l.lag) > 0 && !l.lag[0].at.After(now) {
			d.stats.merge(l.lag[0].stats)
			l.lag = l.lag[1:]
		}
	}
	return d
}

func (s *stats) merge(t stats) {
	s.offered += t.offered
	s.counted += t.counted
	s.outcomes.merge(t.outcomes)
	n := min(64, t.outcomes.recentN)
	s.outcomes.recent = s.outcomes.recent<<n | t.outcomes.recent
	s.outcomes.recentN = min(64, s.outcomes.recentN+n)
}

// uncollect puts back what could not be told.
func (l *lane) uncollect(d delta) {
	later := l.delta
	l.delta = d
	e := &l.delta
	e.want += later.want
	if later.least > 0 && (e.least == 0 || later.least < e.least) {
		e.least = later.least
	}
	e.stats.merge(later.stats)
	if e.unused == 0 {
		e.receipt = later.receipt
	}
	e.unused += later.unused
	e.waiting += later.waiting
}
