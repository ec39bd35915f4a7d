package warmup

import (
	"math"
	"math/bits"
)

// Outcome is what a provider made of one recipient.
type Outcome uint8

const (
	Delivered     Outcome = iota
	HardBounce            // the address does not exist, and the like
	Deferred              // a temporary failure that is about the sender or its volume
	PolicyRefusal         // a refusal by policy, 4xx or 5xx: the signal of a block
	Complaint             // reported by a feedback loop, after delivery
)

// Outcomes counts them.
type Outcomes struct {
	Delivered, HardBounces, Deferred, Refused, Complaints int64

	recent  uint64 // policy refusals among the last 64, the newest in bit 0
	recentN int
}

// Add counts one outcome.
func (o *Outcomes) Add(x Outcome) {
	bit := uint64(0)
	switch x {
	case Delivered:
		o.Delivered++
	case HardBounce:
		o.HardBounces++
	case Deferred:
		o.Deferred++
	case PolicyRefusal:
		o.Refused++
		bit = 1
	case Complaint:
		o.Complaints++
		return // it says nothing about the attempts of now
	}
	o.recent = o.recent<<1 | bit
	o.recentN = min(64, o.recentN+1)
}

// Sum is the number of attempts that had an outcome.
func (o *Outcomes) Sum() int64 { return o.Delivered + o.HardBounces + o.Deferred + o.Refused }

func (o *Outcomes) merge(x Outcomes) {
	o.Delivered += x.Delivered
	o.HardBounces += x.HardBounces
	o.Deferred += x.Deferred
	o.Refused += x.Refused
	o.Complaints += x.Complaints
}

func (o *Outcomes) empty() bool { return o.Sum() == 0 && o.Complaints == 0 }

// Report takes outcomes of a provider into account.
func (s *State) Report(p *Plan, provider int, x Outcomes) {
	v := &s.Providers[provider]
	v.Today.merge(x)
	for i := x.recentN - 1; i >= 0; i-- {
		v.block.see(p, x.recent>>i&1 == 1, s.Now)
	}
}

// wilson gives the lower bound of the share of k in n, with 97.5 % confidence: what a small
// sample proves at least. One bounce of ten is not 10 %.
func wilson(k, n int64) float64 {
	if n == 0 || k == 0 {
		return 0
	}
	const z = 1.96
	f, m := float64(k)/float64(n), float64(n)
	centre := f + z*z/(2*m)
	spread := z * math.Sqrt(f*(1-f)/m+z*z/(4*m*m))
	return (centre - spread) / (1 + z*z/m)
}

// verdict is what a provider's day says about the next.
type verdict uint8

const (
	unjudged verdict = iota // too few outcomes, and those not bad enough
	good
	middling
	bad
)

// String gives the word of a ProviderStatus.
func (v verdict) String() string { return [...]string{"unjudged", "good", "middling", "bad"}[v] }

// judge looks at a provider's day. A small sample can only condemn, and only when its Wilson
// bound does.
func (h *Health) judge(o *Outcomes) verdict {
	n := o.Sum()
	share := func(k int64) float64 { return float64(k) / float64(n) }
	if n == 0 {
		return unjudged
	}
	small := n < h.MinSample
	if small {
		share = func(k int64) float64 { return wilson(k, n) }
	}
	bounce, deferred, complaint := share(o.HardBounces), share(o.Deferred+o.Refused), share(o.Complaints)
	switch a, r := h.AdvanceBelow, h.RegressAbove; {
	case bounce > r.Bounce || deferred > r.Defer || complaint > r.Complaint:
		return bad
	case small:
		return unjudged
	case bounce < a.Bounce && deferred < a.Defer && complaint < a.Complaint:
		return good
	}
	return middling
}

// Why says what a day did to the stage.
type Why uint8

const (
	Advanced     Why = iota // one stage on
	HeldFill                // too little of the daily cap was sent
	HeldHealth              // outcomes between the limits
	HeldProvider            // one provider was bad: its share is halved and the stage stays
	Regressed               // outcomes over the limits: one stage back
	RegressedIdle
	HeldPaused // by an operator
	HeldLast   // the last stage's caps stay
	Finished   // the last stage is passed and all caps are lifted
	Undecided  // only of a day that goes on: it may yet be filled
)

var whys = []string{"advanced", "held: daily cap not filled", "held: outcomes not good enough to advance",
	"held: one provider is bad", "went back: outcomes over the limits", "went back: idle",
	"held: paused", "held: last stage", "finished", "open: the day may yet be filled"}

// String says it in words.
func (w Why) String() string { return whys[w] }

// MarshalText gives String.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// closeDay judges the day that ends and chooses the next day's stage.
func (s *State) closeDay(p *Plan) {
	day := Day{Stage: s.Stage, Cap: s.Caps.Daily, Sent: s.Total.Day}
	day.Why, day.Provider = s.nextStage(p)
	if len(s.History) == maxHistory {
		s.History = append(s.History[:0], s.History[1:]...)
	}
	s.History = append(s.History, day)
}

func (s *State) nextStage(p *Plan) (Why, string) {
	if s.Paused {
		return HeldPaused, ""
	}
	if p.Health.MinSample == 0 {
		return s.advance(p), ""
	}
	if back := s.idleRegress(p); back {
		return RegressedIdle, ""
	}
	if s.Warm {
		return Finished, ""
	}
	worst, bads, judged := s.judgeProviders(p)
	switch {
	case bads > 0 && (bads > 1 || judged == 1):
		s.moveTo(max(0, s.Stage-1))
		return Regressed, worst
	case bads == 1:
		return HeldProvider, worst
	case worst != "":
		return HeldHealth, worst
	case float64(s.Total.Day) < p.Health.MinFill*float64(s.Caps.Daily):
		return HeldFill, ""
	}
	return s.advance(p), ""
}

// judgeProviders counts the providers that could be judged and the bad ones, names the worst, and
// sets factors: a provider that alone is bad gets half of its share, a good one its share back.
func (s *State) judgeProviders(p *Plan) (worst string, bads, judged int) {
	most := good
	var alone *Provider
	for i := range s.Providers {
		v := &s.Providers[i]
		d := p.Health.judge(&v.Today)
		if d == unjudged {
			continue
		}
		judged++
		if d == bad {
			bads++
			alone = v
		}
		if d == good {
			v.Factor = min(1, v.Factor*2)
		}
		if d > most {
			most, worst = d, v.Name
		}
	}
	if bads == 1 && judged > 1 {
		alone.Factor = max(.25, alone.Factor/2)
	}
	return worst, bads, judged
}

func (s *State) advance(p *Plan) Why {
	switch {
	case s.Warm:
		return Finished
	case s.Stage+1 < len(p.Stages):
		s.moveTo(s.Stage + 1)
		return Advanced
	case p.Finish:
		s.Warm = true
		return Finished
	}
	return HeldLast
}

func (s *State) moveTo(stage int) {
	if stage != s.Stage {
		s.Stage, s.StageSince, s.StageSent = stage, s.Now, 0
	}
}

// idleRegress takes a stage back for each full week without mail, and all after 30 days:
// providers forget.
func (s *State) idleRegress(p *Plan) bool {
	idle := int64((s.Now - s.LastSent) / p.day())
	switch {
	case idle >= 30:
		moved := s.Stage > 0 || s.Warm
		s.Warm = false
		s.moveTo(0)
		return moved
	case idle >= 7 && idle%7 == 0:
		if s.Warm { // the caps of the last stage are the step before none
			s.Warm = false
			s.moveTo(len(p.Stages) - 1)
			return true
		}
		moved := s.Stage > 0
		s.moveTo(max(0, s.Stage-1))
		return moved
	}
	return false
}

// blockState is where a provider stands in the cycle of pause and probe.
type blockState uint8

const (
	open blockState = iota
	blocked
	probing
)

// block watches for a provider that refuses by policy, and leaves it alone for a while.
type block struct {
	state     blockState
	until     Instant // end of the pause, or when a probe without outcome is tried again
	pause     Instant // length of the last pause; 0 when the last probe went well
	probeLeft int64   // recipients that may still be tried
	seen, bad int     // outcomes of this probe
	recent    uint64
	recentN   int
}

// see takes in one outcome. While blocked, outcomes are of mail that was already out.
func (b *block) see(p *Plan, refused bool, now Instant) {
	c := &p.Health.Pause
	switch {
	case c.Sample == 0 || b.state == blocked:
	case b.state == probing:
		b.seen++
		if refused {
			b.bad++
		}
		if b.seen < c.Probe {
			return
		}
		if float64(b.bad) >= c.Share*float64(b.seen) {
			b.close(p, now)
		} else {
			*b = block{}
		}
	default:
		b.recent <<= 1
		if refused {
			b.recent |= 1
		}
		b.recentN = min(b.recentN+1, c.Sample)
		n := bits.OnesCount64(b.recent << (64 - c.Sample))
		if b.recentN == c.Sample && float64(n) >= c.Share*float64(c.Sample) {
			b.close(p, now)
		}
	}
}

// close begins a pause, twice as long as the one before if that didn't help.
func (b *block) close(p *Plan, now Instant) {
	first := p.seconds(float64(p.Health.Pause.Seconds))
	pause := min(max(first, 2*b.pause), 16*first)
	*b = block{state: blocked, until: now + pause, pause: pause}
}

// wake ends a pause that is over, and repeats a probe whose outcomes were lost. It says whether a
// probe begins.
func (b *block) wake(p *Plan, now Instant) bool {
	if b.state == open || now < b.until || b.state == probing && b.probeLeft > 0 {
		return false
	}
	b.state, b.until = probing, now+p.seconds(float64(p.Health.Pause.Seconds))
	b.probeLeft, b.seen, b.bad = int64(p.Health.Pause.Probe), 0, 0
	return true
}
