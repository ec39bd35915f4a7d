package warmup

import "math"

// bucket holds tokens, one a recipient. It may go below zero when a message is larger than its
// depth: such a message leaves when the bucket is full and the flow then pauses for it.
type bucket struct {
	tokens, depth float64
}

func (b *bucket) fill(n float64) { b.tokens = min(b.depth, b.tokens+n) }

// allows reports whether n tokens may be taken at once.
func (b *bucket) allows(n int64) bool {
	// A millionth of a token is what sums of binary fractions lack.
	return b.tokens+1e-6 >= min(float64(n), b.depth)
}

// whole gives the tokens that can be handed out.
func (b *bucket) whole() int64 { return int64(max(0, b.tokens+1e-6)) }

// wait is how many seconds it takes until there is a token, at a rate of so many a second.
func (b *bucket) wait(rate float64) float64 {
	if b.tokens+1e-6 >= 1 {
		return 0
	}
	return (1 - b.tokens) / rate
}

// waterFill divides amount by weight so that nobody gets above its limit, and adds to share what
// each gets; who reaches its limit leaves the rest to the others. It returns what nobody could
// take.
func waterFill(amount float64, weights, limits, share []float64) float64 {
	for amount > 1e-9 {
		var open float64
		for i, w := range weights {
			if limits[i]-share[i] > 1e-9 {
				open += w
			}
		}
		if open == 0 {
			break
		}
		level, reached := amount/open, false
		for i, w := range weights { // those who would be over their limit are filled first
			if need := limits[i] - share[i]; need > 1e-9 && need <= level*w {
				share[i] += need
				amount -= need
				reached = true
			}
		}
		if reached {
			continue
		}
		for i, w := range weights {
			if limits[i]-share[i] > 1e-9 {
				share[i] += level * w
			}
		}
		return 0
	}
	return amount
}

// steer computes P once a second, where a plan paces by PID. The controller gives the probability that a
// message takes the IP; here it is the share of the demand for which tokens flow, so that the ledger
// clamps it.
func (s *State) steer(p *Plan) {
	if p.Pacing != PID || s.Now-s.steered < second {
		return
	}
	dt := float64(s.Now - s.steered)
	s.steered = s.Now
	if s.left() == 0 {
		s.P = 0
		return
	}
	var u float64
	u, s.pid = s.pid.Step(float64(s.Caps.Hourly-s.Total.Hour), dt)
	s.P = Probability(u)
}

// wanted is how many recipients a second there are for all providers; at least the even pace of the
// cap, so that the first messages of an hour need no estimate.
func (s *State) wanted(p *Plan) float64 {
	var sum float64
	for i := range s.Providers {
		sum += s.Providers[i].demanded(p)
	}
	return max(sum, perSecond(p, s.Caps.Hourly))
}

// wanted is the same of one provider.
func (v *Provider) wanted(p *Plan) float64 { return max(v.demanded(p), perSecond(p, v.Caps.Hourly)) }

// demanded is what comes each second, and what waits, to leave within a minute.
func (v *Provider) demanded(p *Plan) float64 {
	return 1.1*v.Demand + float64(v.Waiting)/(float64(p.minute())/second)
}

func perSecond(p *Plan, hourly int64) float64 { return float64(hourly) / (float64(p.hour()) / second) }

// The published controller (Mailgun's account of its IP warm-up, 2019): the process variable is the number of
// messages sent, the set point is the cap, and the output, as a share of 100, is the probability that the next
// message takes the warming IP. The coefficients are for dt in milliseconds and a cap of 350. It does what its
// authors promise only near the plant it was tuned on; docs/warmup.md shows where. It is here to be compared with.
const pidP, pidI, pidD, pidBias = .42, 1e-6, 1.2, .1

// PIDState is what the controller remembers from step to step; the zero value has not run yet. Whoever locks an IP,
// steps it and saves it, must save this along, or the next one starts with a wrong derivative and no integral.
type PIDState struct {
	Integral float64 // sum of error*dt
	Error    float64 // of the step before; 0 before the first, as published
}

// Step gives the control variable u for an error seen dt after the step before, and the state to save. dt must be
// above 0.
func (s PIDState) Step(err, dt float64) (u float64, next PIDState) {
	next = PIDState{Integral: s.Integral + err*dt, Error: err}
	return pidP*err + pidI*next.Integral + pidD*(err-s.Error)/dt + pidBias, next
}

// Probability makes a probability of u, which the published coefficients place in about [0, 100].
func Probability(u float64) float64 {
	return min(max(u/100, 0), 1)
}

// Within a day that turns out bad the mail to a provider slows down at once: the day's verdict would
// come hours and thousands of messages later.

// enoughToday is how many outcomes it takes to slow a provider down within the day, and to speed it up again.
const enoughToday = 100

// leastPace is the least that a provider's pace is cut to.
const leastPace = .25

// slow halves the pace of a provider whose outcomes of today prove bad; those of providers that have
// few are taken together.
func (s *State) slow(p *Plan, v *Provider) {
	h := &p.Health
	if h.MinSample == 0 || s.Warm {
		return
	}
	if v.fresh.Sum() >= enoughToday {
		if h.proveBad(&v.fresh) {
			s.halve(p, v)
		}
		return
	}
	var few Outcomes
	for i := range s.Providers {
		if u := &s.Providers[i]; u.fresh.Sum() < enoughToday {
			few.merge(u.fresh)
		}
	}
	if few.Sum() < enoughToday || !h.proveBad(&few) {
		return
	}
	for i := range s.Providers {
		if u := &s.Providers[i]; u.fresh.Sum() > 0 && u.fresh.Sum() < enoughToday {
			s.halve(p, u)
		}
	}
}

// halve halves what a provider may have of the rest of this hour and of the next ones. It is half of
// the mail that there is for it: half of a cap that it is far from would slow nothing down.
func (s *State) halve(p *Plan, v *Provider) {
	v.fresh = Outcomes{}
	v.slowed = s.Hour + 1
	if v.pace <= leastPace {
		return
	}
	hour := float64(p.hour()) / 1000
	if v.pace == 1 {
		wanted := 1.1*v.Demand*hour + float64(v.Waiting+v.Count.Hour)
		v.usual = int64(min(float64(v.Caps.Hourly), math.Ceil(wanted)))
	}
	v.pace /= 2
	left := float64(max(0, v.Caps.Hourly-v.Count.Hour))
	left = min(left, float64(v.usual)*v.pace*s.remaining(p)/hour)
	v.Caps.Hourly = min(v.Caps.Hourly, v.Count.Hour+max(1, int64(left)))
	v.tokens.depth = s.bucketDepth(p, v.Caps.Hourly)
	v.tokens.tokens = min(v.tokens.tokens, v.tokens.depth)
	s.setRates(p)
}

// recover doubles the pace of a provider once a sample taken at that pace proves good, and begins a new sample where
// there was enough of one: hours of good mail must not hide a bad one. hour has begun.
func (v *Provider) recover(h *Health, hour int64) {
	if v.pace < 1 && v.slowed < hour && h.proveGood(&v.fresh) {
		if v.pace = min(1, v.pace*2); v.pace == 1 {
			v.usual = 0
		}
	}
	if v.fresh.Sum() >= enoughToday {
		v.fresh = Outcomes{}
	}
}

// paced is an hourly cap at the provider's pace.
func (v *Provider) paced(hourly int64) int64 {
	if v.pace == 1 {
		return hourly
	}
	return min(hourly, max(1, int64(float64(v.usual)*v.pace)))
}
