package warmup

import "math"

// minJudged is how many outcomes a verdict takes at least. A provider with fewer in a day is judged
// together with Other.
const minJudged = 20

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

// judgement is what outcomes mean for the next day.
type judgement uint8

const (
	unjudged judgement = iota // too few outcomes, or a small sample that proves nothing bad
	good
	middling
	bad
)

// String gives the word of a ProviderStatus.
func (v judgement) String() string { return [...]string{"unjudged", "good", "middling", "bad"}[v] }

// judge gives the verdict about outcomes. A small sample can only condemn, and only when its Wilson
// bound does.
func (h *Health) judge(o *Outcomes) judgement {
	n := o.Sum()
	switch {
	case n < minJudged:
		return unjudged
	case n < h.MinSample:
		if h.proveBad(o) {
			return bad
		}
		return unjudged
	case h.RegressAbove.exceeded(o, share):
		return bad
	case h.AdvanceBelow.kept(o):
		return good
	}
	return middling
}

// proveBad reports whether outcomes show beyond chance that a share is over its limit.
func (h *Health) proveBad(o *Outcomes) bool { return h.RegressAbove.exceeded(o, wilson) }

// proveGood reports whether outcomes are enough, and all shares below the limits for advancing.
func (h *Health) proveGood(o *Outcomes) bool { return o.Sum() >= enoughToday && h.AdvanceBelow.kept(o) }

func share(k, n int64) float64 { return float64(k) / float64(n) }

// exceeded reports whether a share of outcomes is over its limit.
func (l *Limits) exceeded(o *Outcomes, share func(k, n int64) float64) bool {
	n := o.Sum()
	return share(o.HardBounces, n) > l.Bounce || share(o.Deferred+o.Refused, n) > l.Defer ||
		share(o.Complaints, n) > l.Complaint
}

// kept reports whether all shares of outcomes are below their limits.
func (l *Limits) kept(o *Outcomes) bool {
	n := o.Sum()
	return share(o.HardBounces, n) < l.Bounce && share(o.Deferred+o.Refused, n) < l.Defer &&
		share(o.Complaints, n) < l.Complaint
}

// Why says what a day did to the stage.
type Why uint8

const ( // their numbers are in the ledger
	Advanced       Why = iota // one stage on
	StayedFill                // too little of the daily cap was sent
	StayedHealth              // outcomes between the limits
	StayedProvider            // one provider was bad: its share is halved and the stage stays
	Regressed                 // outcomes over the limits: one stage back
	RegressedIdle
	StayedPaused // by an operator
	StayedLast   // the last stage's caps stay
	Finished     // the last stage is passed and all caps are lifted
	Undecided    // only of a day that goes on: it may yet be filled
	StayedIdle   // nothing was sent
	Eased        // the last stage is passed and its caps double
)

// whys are the words of each, and the event that it makes.
var whys = [...]struct {
	words string
	event EventKind
}{
	Advanced:       {"advanced", EventAdvanced},
	StayedFill:     {"stayed: daily cap not filled", EventStayed},
	StayedHealth:   {"stayed: outcomes not good enough to advance", EventStayed},
	StayedProvider: {"stayed: one provider is bad", EventStayed},
	Regressed:      {"went back: outcomes over the limits", EventBack},
	RegressedIdle:  {"went back: idle", EventBack},
	StayedPaused:   {"stayed: paused", EventStayed},
	StayedLast:     {"stayed: last stage", EventStayed},
	Finished:       {"finished", EventFinished},
	Undecided:      {"open: the day may yet be filled", ""},
	StayedIdle:     {"stayed: nothing was sent", EventStayed},
	Eased:          {"advanced: the last caps double", EventAdvanced},
}

// String says it in words.
func (w Why) String() string { return whys[w].words }

// closeDay judges the day that ends and chooses the next day's stage.
func (s *State) closeDay(p *Plan) {
	day := Day{Stage: s.Stage, Cap: s.Caps.Daily, Sent: s.Total.Day}
	day.Why, day.Provider = s.nextStage(p)
	for i := range s.Providers {
		s.Providers[i].follow(p, day.Stage, s.Stage)
	}
	if len(s.History) == maxHistory {
		s.History = append(s.History[:0], s.History[1:]...)
	}
	s.History = append(s.History, day)
}

// step is what a day does to a provider that has its own stage.
type step int8

const (
	follow   step = iota // as the address
	stepBack             // one less than stay
	stay
	stepOn // one more
)

// follow moves a provider as the address moves, or by its own step.
func (v *Provider) follow(p *Plan, from, to int) {
	if !p.OwnStages[v.Name] {
		v.behind = 0
		return
	}
	own := from - v.behind + int(v.step-stay)
	if v.step == follow {
		own = to - v.behind
	}
	v.behind, v.step = to-min(to, max(0, own)), follow
}

// aside judges a provider that has its own stage: its outcomes move that alone.
func (s *State) aside(p *Plan, g *group) {
	v := g.members[0]
	filled := func(sent, most int64) bool { return float64(sent) >= p.Health.MinFill*float64(most) }
	switch {
	case g.judgement == bad:
		v.step = stepBack
	case g.judgement == middling || !filled(v.Count.Day, v.Caps.Daily) && !filled(s.Total.Day, s.Caps.Daily):
		v.step = stay
	default:
		v.step = stepOn
	}
}

// straggler names a provider that is not where the address is; "": none.
func (s *State) straggler(p *Plan) string {
	for i := range s.Providers {
		if v := &s.Providers[i]; p.OwnStages[v.Name] && (v.behind > 0 || v.step == stepBack) {
			return v.Name
		}
	}
	return ""
}

func (s *State) nextStage(p *Plan) (Why, string) {
	switch {
	case s.idleRegress(p): // a pause is idle time as any other: providers don't know why no mail comes
		return RegressedIdle, ""
	case s.Paused:
		return StayedPaused, ""
	case s.Warm:
		return Finished, ""
	case p.Health.MinSample == 0 && s.Total.Day == 0:
		return StayedIdle, ""
	case p.Health.MinSample == 0:
		return s.advance(p), ""
	}
	worst, bads, judged := s.judgeProviders(p)
	switch {
	case bads > 0 && (bads > 1 || judged == 1):
		s.moveTo(max(0, s.Stage-1))
		return Regressed, worst
	case bads == 1:
		return StayedProvider, worst
	case worst != "":
		return StayedHealth, worst
	case s.Stage < len(p.Stages) && float64(s.Total.Day) < p.Health.MinFill*float64(s.Caps.Daily):
		return StayedFill, "" // more than there is to send is no reason to wait for while caps are eased out
	case s.Total.Day == 0:
		return StayedIdle, ""
	}
	if p.Finish && s.Stage+1 == len(p.Stages)+p.easing() { // for all, caps are lifted
		if name := s.straggler(p); name != "" {
			return StayedProvider, name
		}
	}
	return s.advance(p), ""
}

// group is a provider, or several that are judged together since each has too few outcomes.
type group struct {
	name      string
	members   []*Provider
	outcomes  Outcomes
	sent      int64
	judgement judgement
}

func (g *group) add(v *Provider) {
	g.members = append(g.members, v)
	g.outcomes.merge(v.Today)
	g.outcomes.merge(v.carried)
	g.outcomes.Complaints += v.told()
	g.sent += v.Count.Day
}

// groups divides the providers by what they can be judged on: each by itself, but those with few
// outcomes together with Other.
func (s *State) groups(p *Plan) []*group {
	rest := &group{name: Other}
	all := []*group{rest}
	for i := range s.Providers {
		v := &s.Providers[i]
		if v.Name == Other || v.Today.Sum()+v.carried.Sum() < minJudged && !p.OwnStages[v.Name] {
			rest.add(v)
			continue
		}
		g := &group{name: v.Name}
		g.add(v)
		all = append(all, g)
	}
	if len(rest.members) == 1 {
		rest.name = rest.members[0].Name
	}
	return all
}

// judgeProviders counts the providers that could be judged and the bad ones, names the worst, and
// sets factors: a bad provider gets half of its share while the stage doesn't go back for it, a good
// one its share back. Those with less than a tenth of the day's mail lose their share and have no
// say; only where several of them are bad, and have a tenth together, they count as one.
func (s *State) judgeProviders(p *Plan) (worst string, bads, judged int) {
	var all []*group // that have a say
	small, smallBad := &group{judgement: bad}, 0
	for _, g := range s.groups(p) {
		g.judge(&p.Health)
		switch {
		case p.OwnStages[g.name] && g.name == g.members[0].Name:
			s.aside(p, g)
		case g.judgement == unjudged:
		case 10*g.sent >= s.Total.Day:
			all = append(all, g)
		case g.judgement == bad:
			smallBad++
			small.name, small.sent = g.name, small.sent+g.sent
			g.halve()
		}
	}
	if smallBad > 1 && 10*small.sent >= s.Total.Day {
		all = append(all, small)
	}
	most, alone := good, small
	for _, g := range all {
		if g.judgement == bad {
			bads++
			alone = g
		}
		if g.judgement > most {
			most, worst = g.judgement, g.name
		}
	}
	if bads == 1 && len(all) > 1 {
		alone.halve() // which does nothing to the small ones: they were
	}
	return worst, bads, len(all)
}

// judge judges a group's day. Too few outcomes are kept for the days to come; a good day gives
// shares back.
func (g *group) judge(h *Health) {
	g.judgement = h.judge(&g.outcomes)
	for _, v := range g.members {
		if g.outcomes.Sum() < minJudged {
			v.carried.merge(v.Today)
			continue
		}
		v.carried = Outcomes{}
		if g.judgement == good {
			v.Factor = min(1, v.Factor*2)
		}
	}
}

// halve takes half of their shares from the members.
func (g *group) halve() {
	for _, v := range g.members {
		v.Factor = max(.25, v.Factor/2)
	}
}

func (s *State) advance(p *Plan) Why {
	switch {
	case s.Warm:
		return Finished
	case s.Stage+1 < len(p.Stages):
		s.moveTo(s.Stage + 1)
		return Advanced
	case s.Stage+1 < len(p.Stages)+p.easing():
		s.moveTo(s.Stage + 1)
		return Eased
	case p.Finish:
		s.Warm = true
		return Finished
	}
	return StayedLast
}

func (s *State) moveTo(stage int) {
	if stage != s.Stage {
		s.Stage, s.StageSince, s.StageSent = stage, s.Now, 0
	}
}

// idleRegress takes a stage back for each full week without mail, and all after 30 days:
// providers forget.
func (s *State) idleRegress(p *Plan) bool {
	from := s.Stage
	if s.Warm { // the caps of the last stage are the step before none
		from = len(p.Stages)
	}
	to := from
	switch idle := int64((s.Now - s.LastSent) / p.day()); {
	case idle >= 30:
		to = 0
	case idle >= 7 && idle%7 == 0:
		to = max(0, from-1)
	}
	if to == from {
		return false
	}
	s.Warm = false
	s.moveTo(to)
	return true
}
