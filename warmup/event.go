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
	EventHeld              EventKind = "held"
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

// String says in words what happened, without the name of the source.
func (e Event) String() string {
	stage := fmt.Sprintf("stage %d of %d (%d an hour, %d a day)", e.Stage, e.Stages, e.Caps.Hourly, e.Caps.Daily)
	switch e.Kind {
	case EventBegun:
		return fmt.Sprintf("begins plan %s on %s", e.Plan, stage)
	case EventAdvanced:
		return "advances to " + stage
	case EventHeld:
		return "stays on " + stage + ": " + e.because()
	case EventBack:
		return "goes back to " + stage + ": " + e.because()
	case EventFinished:
		return fmt.Sprintf("has passed plan %s: there are no caps any more", e.Plan)
	case EventPlanChanged:
		return fmt.Sprintf("goes on by a changed plan, %s, on stage %d of %d", e.Plan, e.Stage, e.Stages)
	case EventProviderPaused:
		return fmt.Sprintf("pauses mail to %s until %s: %s", e.Provider, e.Until.Time().Format(time.RFC3339), e.because())
	case EventProviderProbed:
		return "probes " + e.Provider
	case EventProviderReleased:
		return "sends to " + e.Provider + " again"
	case EventProviderHalved:
		return fmt.Sprintf("slows down mail to %s to %.3g %%: its outcomes are bad", e.Provider, 100*e.Share)
	case EventProviderRecovered:
		return fmt.Sprintf("lets mail to %s back up to %.3g %%", e.Provider, 100*e.Share)
	case EventProviderBack:
		return fmt.Sprintf("keeps mail to %s on stage %d of %d, by itself", e.Provider, e.Stage, e.Stages)
	case EventProviderAdvanced:
		return fmt.Sprintf("lets mail to %s catch up to stage %d of %d", e.Provider, e.Stage, e.Stages)
	case EventPaused, EventResumed:
		return fmt.Sprintf("is %s by an operator", e.Kind)
	case EventStageSet, EventRestarted:
		return "is put on " + stage + " by an operator"
	}
	return e.Why
}

// because says why a stage was held or taken back, or a provider was paused.
func (e Event) because() string {
	const refused = "most of the last outcomes there are refusals by policy"
	_, why, _ := strings.Cut(e.Why, ": ")
	switch {
	case e.Kind == EventProviderPaused && e.Network == "":
		return refused
	case e.Kind == EventProviderPaused:
		return cmp.Or(e.Why, refused+"; so do the other sources of its pool in "+e.Network)
	case e.Provider != "":
		return why + " (" + e.Provider + ")"
	}
	return why
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
