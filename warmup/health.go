package warmup

import "math/bits"

// Outcome is what a provider made of one recipient.
type Outcome uint8

const (
	Delivered     Outcome = iota
	HardBounce            // the address does not exist, and the like
	Deferred              // a temporary failure that is about the sender or its volume
	PolicyRefusal         // a refusal by policy, 4xx or 5xx: the signal of a block
	Complaint             // reported by a feedback loop, after delivery

	// What follows counts for no day.

	RefusedAgain // a PolicyRefusal of a retry, whose recipient was counted before
	NotAboutUs   // a failure that shows nothing but that the provider is no longer blocking: a full mailbox
)

// Outcomes counts them.
type Outcomes struct {
	Delivered, HardBounces, Deferred, Refused, Complaints int64

	recent  uint64 // policy refusals among the last 64, the newest in bit 0
	recentN int
}

// counts returns the counter of each Outcome.
func (o *Outcomes) counts() [Complaint + 1]*int64 {
	return [...]*int64{Delivered: &o.Delivered, HardBounce: &o.HardBounces, Deferred: &o.Deferred,
		PolicyRefusal: &o.Refused, Complaint: &o.Complaints}
}

// Add counts one outcome.
func (o *Outcomes) Add(x Outcome) {
	if x <= Complaint {
		*o.counts()[x]++
	}
	if x == Complaint {
		return // it shows nothing about the attempts of now
	}
	o.recent <<= 1
	if x == PolicyRefusal || x == RefusedAgain {
		o.recent |= 1
	}
	o.recentN = min(64, o.recentN+1)
}

// Sum is the number of attempts that had an outcome.
func (o *Outcomes) Sum() int64 { return o.Delivered + o.HardBounces + o.Deferred + o.Refused }

func (o *Outcomes) merge(x Outcomes) {
	all := o.counts()
	for i, n := range x.counts() {
		*all[i] += *n
	}
}

// good reports whether nothing speaks against the sender.
func (o *Outcomes) good() bool { return o.Delivered == o.Sum() && o.Complaints == 0 && o.recent == 0 }

func (o *Outcomes) empty() bool { return o.Sum() == 0 && o.Complaints == 0 && o.recentN == 0 }

// Report takes outcomes of a provider into account.
func (s *State) Report(p *Plan, provider int, x Outcomes) {
	v := &s.Providers[provider]
	v.Today.merge(x)
	v.fresh.merge(x)
	for i := x.recentN - 1; i >= 0; i-- {
		v.block.see(p, x.recent>>i&1 == 1, s.Now)
	}
	s.slow(p, v)
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
	network   string // whose other IP the provider blocks; "": this one
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

// wake ends a pause that is over, or that the plan has no more, and repeats a probe whose outcomes were lost. It says
// whether a probe begins.
func (b *block) wake(p *Plan, now Instant) bool {
	if p.Health.Pause.Sample == 0 && b.state != open {
		*b = block{}
	}
	if b.state == open || now < b.until || b.state == probing && b.probeLeft > 0 {
		return false
	}
	b.state, b.until = probing, now+p.seconds(float64(p.Health.Pause.Seconds))
	b.network = ""
	b.probeLeft, b.seen, b.bad = int64(p.Health.Pause.Probe), 0, 0
	return true
}
