package warmup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// EventKind is what happened to a warm-up.
type EventKind string

// The kinds of events.
const (
	EventBegun             EventKind = "begun"
	EventAdvanced          EventKind = "advanced"
	EventStayed            EventKind = "stayed"
	EventBack              EventKind = "back"
	EventFinished          EventKind = "finished"
	EventPlanChanged       EventKind = "plan_changed"
	EventProviderPaused    EventKind = "provider_paused"
	EventProviderProbed    EventKind = "provider_probed"
	EventProviderReleased  EventKind = "provider_released"
	EventProviderHalved    EventKind = "provider_halved"
	EventProviderRecovered EventKind = "provider_recovered"
	EventProviderBack      EventKind = "provider_back"
	EventProviderAdvanced  EventKind = "provider_advanced"
	EventPaused            EventKind = "paused" // by an operator, as those below
	EventResumed           EventKind = "resumed"
	EventStageSet          EventKind = "stage_set"
	EventRestarted         EventKind = "restarted"
	EventLedgerLost        EventKind = "ledger_lost"
	EventLedgerRestored    EventKind = "ledger_restored"
)

// Event is something that an operator wants to hear of. What its kind has no use for is zero.
type Event struct {
	Kind     EventKind
	IP       string // "" when it is about all: the ledger
	Plan     string
	Stage    int  // counted from 1
	Stages   int  // of the plan
	Caps     Caps // in force
	Provider string
	Until    Instant // of a provider's pause
	Network  string  // which the provider blocks
	Share    float64 // that a provider has left of its caps or its pace
	Why      string  // what the day did to the stage, or what became of the ledger
}

// sentences say what happened, without the name of the source.
var sentences = map[EventKind]string{
	EventBegun:             "begins plan {plan} on {stage} ({caps})",
	EventAdvanced:          "advances to {stage} ({caps})",
	EventStayed:            "stays on {stage} ({caps}): {why}",
	EventBack:              "goes back to {stage} ({caps}): {why}",
	EventFinished:          "has passed plan {plan}: there are no more caps",
	EventPlanChanged:       "goes on by a changed plan, {plan}, on {stage}",
	EventProviderPaused:    "pauses mail to {provider} until {until}: {why}",
	EventProviderProbed:    "probes {provider}",
	EventProviderReleased:  "sends to {provider} again",
	EventProviderHalved:    "slows down mail to {provider} to {share} %: its outcomes are bad",
	EventProviderRecovered: "lets mail to {provider} back up to {share} %",
	EventProviderBack:      "keeps mail to {provider} on {stage}, by itself",
	EventProviderAdvanced:  "lets mail to {provider} catch up to {stage}",
	EventPaused:            "is paused by an operator",
	EventResumed:           "is resumed by an operator",
	EventStageSet:          "is put on {stage} ({caps}) by an operator",
	EventRestarted:         "is put on {stage} ({caps}) by an operator",
	EventLedgerLost:        "{why}",
	EventLedgerRestored:    "{why}",
}

// String returns in words what happened, without the name of the source.
func (e Event) String() string {
	return strings.NewReplacer("{plan}", e.Plan, "{provider}", e.Provider, "{why}", e.because(),
		"{stage}", fmt.Sprintf("stage %d of %d", e.Stage, e.Stages), "{caps}",
		fmt.Sprintf("%d an hour, %d a day", e.Caps.Hourly, e.Caps.Daily),
		"{until}", e.Until.Time().Format(time.RFC3339), "{share}",
		fmt.Sprintf("%.3g", 100*e.Share)).Replace(sentences[e.Kind])
}

// because returns why a stage was held or taken back, or a provider was paused.
func (e Event) because() string {
	const refused = "most of the last outcomes there are refusals by policy"
	switch {
	case e.Kind == EventProviderPaused && e.Network == "":
		return refused
	case e.Kind == EventProviderPaused:
		return cmp.Or(e.Why, refused+"; so do the other sources of its pool in "+e.Network)
	case e.Kind == EventStayed || e.Kind == EventBack:
		_, why, _ := strings.Cut(e.Why, ": ")
		if e.Provider != "" {
			why += " (" + e.Provider + ")"
		}
		return why
	}
	return e.Why
}

// standing is what of a state events are about.
type standing struct {
	hour      int64
	warm      bool
	providers []providerStanding
}

type providerStanding struct {
	name   string
	state  blockState
	share  float64 // that is left of its caps or its pace
	behind int
}

func (v *Provider) standing() providerStanding {
	return providerStanding{v.Name, v.block.state, v.pace * v.Factor, v.behind}
}

// note takes down how s stands, using again what x has allocated.
func (x *standing) note(s *State) {
	*x = standing{s.Hour, s.Warm, x.providers[:0]}
	for i := range s.Providers {
		x.providers = append(x.providers, s.Providers[i].standing())
	}
}

// happened appends what has happened since a.before was noted. Callers hold a.mu.
func (a *address) happened(events []Event) []Event {
	s, p, was := a.state, a.plan, &a.before
	e := Event{IP: a.ip, Plan: p.Name, Stage: min(s.Stage+1, len(p.Stages)), Stages: len(p.Stages), Caps: s.Caps}
	add := func(k EventKind) { e.Kind = k; events = append(events, e) }
	if a.replanned {
		a.replanned = false
		add(EventPlanChanged)
	}
	if a.begun {
		add(EventBegun)
	}
	if a.created {
		return events
	}
	if a.own != nil {
		e.Why = fmt.Sprintf("the ledger had lost the newest state of %s: it goes on at stage %d, and the rest of the "+
			"day counts as sent", a.ip, e.Stage)
		add(EventLedgerRestored)
		e.Why = ""
	}
	for _, x := range a.doing {
		if x.err == nil && x.event != "" {
			add(x.event)
		}
	}
	ended := min(int(s.Hour/24-was.hour/24), len(s.History))
	warm := was.warm
	for _, d := range s.History[len(s.History)-max(ended, 0):] {
		if e.Why, e.Provider = d.Why.String(), d.Provider; !warm || d.Why != Finished {
			add(whys[d.Why].event)
		}
		warm = d.Why == Finished
	}
	for i := range s.Providers {
		v := &s.Providers[i]
		before := providerStanding{share: 1}
		if j := slices.IndexFunc(was.providers, func(x providerStanding) bool { return x.name == v.Name }); j >= 0 {
			before = was.providers[j]
		}
		events = v.happened(events, e, before)
	}
	return events
}

// happened appends what has happened to a provider. e is an event of its address.
func (v *Provider) happened(events []Event, e Event, was providerStanding) []Event {
	now := v.standing()
	e.Provider, e.Why, e.Share = v.Name, "", now.share
	add := func(k EventKind) { e.Kind = k; events = append(events, e) }
	switch {
	case now.state == was.state:
	case now.state == blocked:
		if e.Until, e.Network = v.block.until, v.block.network; e.Network != "" {
			e.Why = "it blocks another source of the pool in " + e.Network
		}
		add(EventProviderPaused)
		e.Network, e.Why = "", ""
	case now.state == probing:
		add(EventProviderProbed)
	default:
		add(EventProviderReleased)
	}
	switch {
	case now.share < was.share:
		add(EventProviderHalved)
	case now.share > was.share:
		add(EventProviderRecovered)
	}
	e.Stage = max(1, e.Stage-now.behind)
	switch {
	case now.behind > was.behind:
		add(EventProviderBack)
	case now.behind < was.behind:
		add(EventProviderAdvanced)
	}
	return events
}

// report passes on what has happened. No lock is held.
func (c *Controller) report() {
	events := c.events
	c.events = c.events[:0]
	for _, e := range events {
		if e.Kind == EventProviderPaused && e.Network == "" {
			e.Network = c.pauseBeside(&e)
		}
		c.cfg.OnEvent(e)
	}
}

// pauseBeside pauses a provider for the IPs beside one that it blocks, and names their network.
func (c *Controller) pauseBeside(e *Event) (network string) {
	others, network := c.cfg.Beside(e.IP)
	for _, ip := range others {
		if a := c.address(ip); a != nil {
			a.do(c, blockedBeside(e.Provider, e.Until, network))
		}
	}
	if len(others) == 0 {
		return ""
	}
	return network
}
