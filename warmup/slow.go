package warmup

import "math"

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
