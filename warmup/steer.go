package warmup

import "example.org/mta/internal/pid"

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
	u, s.pid = pid.Published.Step(s.pid, float64(s.Caps.Hourly-s.Total.Hour), dt)
	s.P = pid.Probability(u)
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
