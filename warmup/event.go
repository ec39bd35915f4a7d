package warmup

import (
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
	case EventHeld, EventBack:
		verb := "stays on "
		if e.Kind == EventBack {
			verb = "goes back to "
		}
		return verb + stage + ": " + e.because()
	case EventFinished:
		return fmt.Sprintf("has passed plan %s: there are no caps any more", e.Plan)
	case EventPlanChanged:
		return fmt.Sprintf("goes on by a changed plan, %s, on stage %d of %d", e.Plan, e.Stage, e.Stages)
	case EventProviderPaused:
		until, network := e.Until.Time().Format(time.RFC3339), ""
		if e.Why != "" {
			return fmt.Sprintf("pauses mail to %s until %s: %s", e.Provider, until, e.Why)
		}
		if e.Network != "" {
			network = fmt.Sprintf("; so do the other sources of its pool in %s", e.Network)
		}
		return fmt.Sprintf("pauses mail to %s until %s: most of the last outcomes there are refusals by policy%s", e.Provider, until, network)
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

func (e Event) because() string {
	_, why, _ := strings.Cut(e.Why, ": ")
	if e.Provider != "" {
		return why + " (" + e.Provider + ")"
	}
	return why
}

// standing is what of a state events are about.
type standing struct {
	hour         int64
	warm, paused bool
	providers    []providerStanding
}

type providerStanding struct {
	name         string
	state        blockState
	pace, factor float64
	behind       int
}

// note takes down how s stands, using again what x has allocated.
func (x *standing) note(s *State) {
	providers := x.providers[:0]
	for i := range s.Providers {
		v := &s.Providers[i]
		providers = append(providers, providerStanding{v.Name, v.block.state, v.pace, v.Factor, v.behind})
	}
	*x = standing{s.Hour, s.Warm, s.Paused, providers}
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
		if x.err == nil && int(x.kind) < len(actionEvents) { // the others are the providers' to tell
			add(actionEvents[x.kind])
		}
	}
	events = a.days(events, e)
	for i := range s.Providers {
		v := &s.Providers[i]
		before := providerStanding{v.Name, open, 1, 1, 0}
		if j := slices.IndexFunc(was.providers, func(x providerStanding) bool { return x.name == v.Name }); j >= 0 {
			before = was.providers[j]
		}
		events = v.happened(events, e, before)
	}
	return events
}

var actionEvents = [...]EventKind{actPause: EventPaused, actResume: EventResumed, actSetStage: EventStageSet, actStart: EventRestarted}

// days appends what the days did to the stage that have ended.
func (a *address) days(events []Event, e Event) []Event {
	s, was := a.state, &a.before
	ended := min(int(s.Hour/24-was.hour/24), len(s.History))
	warm := was.warm
	for _, d := range s.History[len(s.History)-max(ended, 0):] {
		if warm && d.Why == Finished {
			continue
		}
		warm = d.Why == Finished
		e.Kind, e.Why, e.Provider = dayEvents[d.Why], d.Why.String(), d.Provider
		events = append(events, e)
	}
	return events
}

var dayEvents = [...]EventKind{Advanced: EventAdvanced, HeldFill: EventHeld, HeldHealth: EventHeld, HeldProvider: EventHeld,
	Regressed: EventBack, RegressedIdle: EventBack, HeldPaused: EventHeld, HeldLast: EventHeld, Finished: EventFinished, HeldIdle: EventHeld, Eased: EventAdvanced}

func (v *Provider) happened(events []Event, e Event, was providerStanding) []Event {
	e.Provider = v.Name
	now := v.block.state
	switch {
	case now == was.state:
	case now == blocked:
		e.Kind, e.Until = EventProviderPaused, v.block.until
		if v.block.network != "" {
			e.Network, e.Why = v.block.network, "it blocks another source of the pool in "+v.block.network
		}
		events = append(events, e)
		e.Network, e.Why = "", ""
	case now == probing:
		e.Kind = EventProviderProbed
		events = append(events, e)
	default:
		e.Kind = EventProviderReleased
		events = append(events, e)
	}
	share, before := v.pace*v.Factor, was.pace*was.factor
	if e.Share = share; share < before {
		e.Kind = EventProviderHalved
		events = append(events, e)
	} else if share > before {
		e.Kind = EventProviderRecovered
		events = append(events, e)
	}
	if v.behind != was.behind {
		e.Kind, e.Stage = EventProviderBack, max(1, e.Stage-v.behind)
		if v.behind < was.behind {
			e.Kind = EventProviderAdvanced
		}
		events = append(events, e)
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
			a.do(c, Action{kind: actBlock, provider: e.Provider, until: e.Until, network: network})
		}
	}
	if len(others) == 0 {
		return ""
	}
	return network
}
