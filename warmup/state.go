package warmup

import (
	"math"
	"slices"
)

// maxProviders bounds what one IP keeps count of; further names are counted under Other.
const maxProviders = 64

// Other is the provider of all sites that have none of their own.
const Other = "other"

// State is one IP's position in its plan, its ledger, its pacer and its health. NewState makes
// one; it is copied with CopyFrom.
type State struct {
	Begin      Instant // hours and days are counted from here
	Now        Instant // everything below is as of then
	Hour       int64   // hours since Begin; the day is Hour/24
	Stage      int     // counted from 0
	StageSince Instant
	StageSent  int64 // within the stage
	Caps       Caps  // in force: an hourly cap changes with the hour, a daily one with the day
	Paused     bool  // by an operator
	Warm       bool  // the plan has been passed and lifts all caps
	spent      bool  // the hour and the day in which it is next looked at are taken to be used up
	LastSent   Instant

	Total     Counter
	tokens    bucket // of all providers together
	peak      bucket
	Providers []Provider
	History   []Day

	P       float64  // under PID: the share of the demand that takes this IP
	pid     PIDState // saved with the IP, or the next node would start with a wrong derivative
	steered Instant  // when P was last computed
}

// Provider is the part of a State that belongs to one provider.
type Provider struct {
	Name   string
	Caps   Caps    // in force, Factor included
	Factor float64 // of the stage's caps: 1, .5 or .25
	Count  Counter

	tokens  bucket
	Rate    float64 // of the bucket, per second
	Demand  float64 // recipients offered per second, averaged over a minute
	Waiting int64   // recipients held by all nodes

	behind int  // stages behind the address's, of one with its own stage
	step   step // at the end of the day; not kept

	reports []reported // the newest last

	Today   Outcomes // since the day began
	carried Outcomes // of the days before, which had too few to judge
	block   block

	pace   float64  // of what is usual: 1, .5 or .25; see slow
	usual  int64    // recipients an hour when it was slowed down
	slowed int64    // the hour after that in which it last was
	fresh  Outcomes // today's, since the pace was last cut or the sample was last begun anew
}

// Day is one past day of the warm-up.
type Day struct {
	Stage    int    `json:"stage"` // counted from 0
	Cap      int64  `json:"cap"`
	Sent     int64  `json:"sent"`
	Why      Why    `json:"why"`                // what became of the stage then
	Provider string `json:"provider,omitempty"` // whose outcomes decided
}

// maxHistory is how many days a State remembers.
const maxHistory = 60

// NewState is a warm-up that begins now, on the plan's start stage.
func NewState(p *Plan, now Instant) *State {
	begin := p.dayStart(now)
	s := &State{Begin: begin, Now: now, Hour: int64((now - begin) / p.hour()), Stage: p.StartStage - 1,
		StageSince: now, LastSent: now}
	s.Total.minute = s.minuteIndex(p, now)
	s.openDay(p)
	s.tokens = bucket{1, s.bucketDepth(p, s.Caps.Hourly)}
	s.peak.tokens = s.peak.depth
	return s
}

// CopyFrom makes s a copy of t, using again what s has allocated.
func (s *State) CopyFrom(t *State) {
	providers, history := s.Providers, s.History
	*s = *t
	s.Providers = append(providers[:0], t.Providers...)
	for i := range s.Providers {
		s.Providers[i].reports = slices.Clone(s.Providers[i].reports)
	}
	s.History = append(history[:0], t.History...)
}

// Provider gives the index of a provider, adding it if need be.
func (s *State) Provider(p *Plan, name string) int {
	if i := s.index(name); i >= 0 {
		return i
	}
	if s.full(p, name) {
		return s.Provider(p, Other)
	}
	v := Provider{Name: name, Factor: 1, pace: 1}
	v.Count.minute = s.Total.minute
	s.Providers = append(s.Providers, v)
	i := len(s.Providers) - 1
	s.setCaps(p, &s.Providers[i], true)
	// What was saved up for all may go to a newcomer; no burst comes of it that all could not have.
	depth := s.bucketDepth(p, s.Providers[i].Caps.Hourly)
	s.Providers[i].tokens = bucket{min(depth, max(1, s.tokens.tokens)), depth}
	return i
}

// Find gives the index under which a provider is counted, -1 while it has none.
func (s *State) Find(p *Plan, name string) int {
	if i := s.index(name); i >= 0 || !s.full(p, name) {
		return i
	}
	return s.index(Other)
}

func (s *State) index(name string) int {
	for i := range s.Providers {
		if s.Providers[i].Name == name {
			return i
		}
	}
	return -1
}

// full reports whether a provider that is new must be counted with others. Those with caps of their own
// find room, since these would not hold otherwise.
func (s *State) full(p *Plan, name string) bool {
	return name != Other && s.expected(p, name) >= maxProviders-1
}

// expected is how many providers besides Other are counted by themselves, or will be since they have caps of
// their own, leaving out one that is new.
func (s *State) expected(p *Plan, name string) int {
	n := len(s.Providers)
	if s.index(Other) >= 0 {
		n--
	}
	for named := range p.named() {
		if named != Other && named != name && s.index(named) < 0 {
			n++
		}
	}
	return n
}

// makeSpace counts the providers with the least mail under Other as long as there are too many beside those for
// which a changed plan has caps.
func (s *State) makeSpace(p *Plan) {
	for s.expected(p, "") > maxProviders-1 {
		named, least := p.named(), -1
		for i := range s.Providers {
			v := &s.Providers[i]
			if v.Name != Other && !named[v.Name] && (least < 0 || v.Count.Day < s.Providers[least].Count.Day) {
				least = i
			}
		}
		s.Providers[s.Provider(p, Other)].join(&s.Providers[least])
		s.Providers = slices.Delete(s.Providers, least, least+1)
	}
}

// join counts the mail of another provider with that of v from now on.
func (v *Provider) join(u *Provider) {
	v.Count.Hour += u.Count.Hour
	v.Count.Day += u.Count.Day
	v.Count.Sliding += u.Count.Sliding
	for i, n := range u.Count.minutes {
		v.Count.minutes[i] += n
	}
	v.Demand += u.Demand
	v.Waiting += u.Waiting
	v.Today.merge(u.Today)
	v.carried.merge(u.carried)
	v.fresh.merge(u.fresh)
	if u.block.state == blocked && v.block.state == open {
		v.block = u.block
	}
}

// hourEnd is when the hour in progress ends.
func (s *State) hourEnd(p *Plan) Instant { return s.Begin + Instant(s.Hour+1)*p.hour() }

func (s *State) dayEnd(p *Plan) Instant { return s.Begin + Instant(s.Hour/24+1)*p.day() }

// minuteIndex counts sixtieths of an hour from the begin; windows shorter than 60 ms don't exist.
func (s *State) minuteIndex(p *Plan, t Instant) int64 { return int64((t - s.Begin) * 60 / p.hour()) }

// Advance brings s to now: windows open and close, the day's health is judged, pauses end,
// tokens flow. A now before s.Now changes nothing.
func (s *State) Advance(p *Plan, now Instant) {
	for end := s.hourEnd(p); now >= end; end = s.hourEnd(p) {
		s.flow(p, end)
		s.Hour++
		if s.Hour%24 == 0 {
			s.closeDay(p)
			s.stepInside(p)
			s.openDay(p)
		} else {
			s.stepInside(p)
			s.openHour(p)
		}
	}
	if now > s.Now {
		s.flow(p, now)
	}
	if s.spent {
		s.useUp()
	}
	s.steer(p)
}

// stepInside takes back a stage behind the last of a plan that has become shorter: its caps are eased out from
// those in force, which at most double.
func (s *State) stepInside(p *Plan) {
	for p.easing() > 0 && s.Stage >= len(p.Stages) && p.stage(s.Stage).Daily > 2*s.Caps.Daily {
		s.moveTo(s.Stage - 1)
	}
}

// openDay starts a day on the stage that was chosen.
func (s *State) openDay(p *Plan) {
	s.Total.Day = 0
	s.Caps.Daily = p.stage(s.Stage).Daily
	for i := range s.Providers {
		v := &s.Providers[i]
		v.Count.Day, v.Today = 0, Outcomes{}
		for i := range v.reports {
			v.reports[i].today = false
		}
		v.fresh, v.pace, v.usual, v.slowed = Outcomes{}, 1, 0, 0 // the day's verdict takes over
		s.setCaps(p, v, true)
	}
	s.openHour(p)
}

// openHour starts an hour. What was saved up is not carried over, so that no hour begins with a
// burst.
func (s *State) openHour(p *Plan) {
	s.Total.Hour = 0
	s.makeSpace(p)
	s.Caps.Hourly = s.hourlyCap(p)
	s.pid, s.P, s.steered = PIDState{}, 0, s.Now-second
	s.setDepths(p)
	s.tokens.tokens = min(1, s.tokens.tokens)
	for i := range s.Providers {
		v := &s.Providers[i]
		v.Count.Hour, v.Waiting = 0, 0
		v.recover(&p.Health, s.Hour)
		s.setCaps(p, v, false)
		v.tokens.depth = s.bucketDepth(p, v.Caps.Hourly)
		v.tokens.tokens = min(1, v.tokens.tokens)
	}
}

func (s *State) setDepths(p *Plan) {
	s.tokens.depth = s.bucketDepth(p, s.Caps.Hourly)
	s.peak.depth = max(2, 1.5*p.Peak*float64(s.Caps.Hourly)/3600)
	s.peak.tokens = min(s.peak.tokens, s.peak.depth)
}

func (s *State) bucketDepth(p *Plan, hourly int64) float64 {
	return max(2, p.BucketSeconds*float64(hourly)/3600)
}

// hourlyCap is the stage's, or less where the plan spreads the day's volume: half as much again
// as an even share of what is left.
func (s *State) hourlyCap(p *Plan) int64 {
	h := p.stage(s.Stage).Hourly
	if !p.SpreadEven {
		return h
	}
	left := float64(max(0, s.Caps.Daily-s.Total.Day)) / float64(24-s.Hour%24)
	return min(h, int64(math.Ceil(1.5*left)))
}

// setCaps puts a provider's caps in force: its own or the stage's, times its factor, the hourly one at
// its pace.
func (s *State) setCaps(p *Plan, v *Provider, daily bool) {
	own := p.own(max(0, s.Stage-v.behind), v.Name)
	v.Caps.Hourly = v.paced(factored(own.Hourly, s.Caps.Hourly, v.Factor))
	if daily {
		v.Caps.Daily = factored(own.Daily, s.Caps.Daily, v.Factor)
	}
}

func factored(own, stage int64, factor float64) int64 {
	if own == 0 || own > stage {
		own = stage
	}
	if factor == 1 {
		return own
	}
	return max(1, int64(float64(own)*factor))
}

// flow lets tokens flow until to, which is in the hour in progress or its end.
func (s *State) flow(p *Plan, to Instant) {
	dt := float64(to-s.Now) / 1000
	minute := s.minuteIndex(p, to)
	s.Total.roll(minute)
	decay := math.Exp(-dt / (float64(p.hour()) / 60_000))
	for i := range s.Providers {
		v := &s.Providers[i]
		v.Count.roll(minute)
		v.Demand *= decay
		if v.block.wake(p, to) { // the probe goes at once, as far as the bucket is deep
			v.tokens.tokens = max(v.tokens.tokens, min(v.tokens.depth, float64(v.block.probeLeft)))
		}
	}
	s.Now = to
	s.setRates(p)
	s.peak.fill(p.Peak * perSecond(p, s.Caps.Hourly) * dt)
	s.tokens.fill(s.totalRate(p) * dt)
	for i := range s.Providers {
		s.Providers[i].tokens.fill(s.Providers[i].Rate * dt)
	}
}

// left is what may still be authorised in this hour and day, for all providers.
func (s *State) left() int64 {
	if s.Paused {
		return 0
	}
	return max(0, min(s.Caps.Hourly-s.Total.Hour, s.Caps.Daily-s.Total.Day))
}

// leftFor is the same with a provider's own caps.
func (s *State) leftFor(v *Provider) int64 {
	if v.block.state == blocked {
		return 0
	}
	return max(0, min(v.Caps.Hourly-v.Count.Hour, v.Caps.Daily-v.Count.Day, s.left()))
}

// remaining is the time left in the hour, in seconds. It has a floor, lest the rate run away at
// the hour's end.
func (s *State) remaining(p *Plan) float64 {
	left := s.hourEnd(p) - p.closing() - s.Now
	return max(float64(p.hour())/120_000, float64(left)/1000)
}

func (s *State) totalRate(p *Plan) float64 {
	if p.Pacing == PID {
		return s.P * s.wanted(p)
	}
	return min(p.Burst*perSecond(p, s.Caps.Hourly), float64(s.left())/s.remaining(p))
}

// setRates divides what is left by what is left of the hour, among the providers: first by
// weight as far as there is demand, then the rest by weight. Demand shapes the shares and never
// the caps, so stale numbers do no harm.
func (s *State) setRates(p *Plan) {
	var buf [4 * maxProviders]float64
	n := len(s.Providers)
	weights, limits, shares, room := buf[:n], buf[maxProviders:maxProviders+n], buf[2*maxProviders:2*maxProviders+n],
		buf[3*maxProviders:3*maxProviders+n]
	tau := s.remaining(p)
	for i := range s.Providers {
		v := &s.Providers[i]
		weights[i] = p.weight(v.Name)
		room[i] = float64(s.leftFor(v))
		limits[i] = min(room[i], 1.1*v.Demand*tau+float64(v.Waiting)+1)
	}
	rest := waterFill(float64(s.left()), weights, limits, shares)
	waterFill(rest, weights, room, shares)
	for i := range s.Providers {
		v := &s.Providers[i]
		v.Rate = min(p.Burst*perSecond(p, v.Caps.Hourly), shares[i]/tau)
		if p.Pacing == PID {
			v.Rate = s.P * v.wanted(p)
		}
	}
}

// Offer notes that n recipients of a provider were there to be sent, whatever became of them.
func (s *State) Offer(p *Plan, provider int, n int64) {
	s.Providers[provider].Demand += float64(n) / (float64(p.hour()) / 60_000)
}

// Throttle is the share of the demand that the pacer lets through, from 0 to 1: Mailgun's
// "throttle".
func (s *State) Throttle(p *Plan) float64 {
	switch {
	case s.Warm:
		return 1
	case s.left() == 0:
		return 0
	case p.Pacing == PID:
		return s.P
	}
	var demand, rate float64
	for i := range s.Providers {
		demand += s.Providers[i].Demand
		rate += s.Providers[i].Rate
	}
	rate = min(rate, s.totalRate(p))
	if demand <= rate {
		return 1
	}
	return rate / demand
}
