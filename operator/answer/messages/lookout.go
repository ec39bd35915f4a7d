package messages

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/waits"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// Position is the state of a recipient in the queue, with its reason in a few words.
type Position struct {
	State api.State
	Why   string
	Next  time.Time // when it may be tried next; zero: not known, or under way
}

// Lookout joins the knowledge of queue, dispatcher, delivery and warm-up about some messages. All views of
// recipients take state, reason and next attempt from here.
type Lookout struct {
	m     *Messages
	look  *waits.Look
	where map[envelope.ID]delivery.Whereabouts // of those that delivery has
	lanes map[parking.Line]Position            // what keeps parked mail, by the line that it waits in
	sites map[string]Position                  // the suspension that ends last, by site
}

// askedAtOnce is how many messages delivery is asked about at once, which waits for that.
const askedAtOnce = 200

// LookOut asks delivery for the messages of a page, as far as the queue has handed them out.
func (m *Messages) LookOut(items ...queue.Item) *Lookout {
	k := &Lookout{m: m, look: m.Waits.Look(), where: make(map[envelope.ID]delivery.Whereabouts),
		lanes: make(map[parking.Line]Position), sites: make(map[string]Position)}
	var out []envelope.ID
	for i := range items {
		if slices.ContainsFunc(items[i].Recipients, func(rc queue.ItemRecipient) bool {
			return rc.State == queue.StateLeased
		}) {
			out = append(out, items[i].ID)
		}
	}
	for some := range slices.Chunk(out, askedAtOnce) {
		maps.Copy(k.where, m.Delivery.WhereaboutsOf(some))
	}
	return k
}

// Of returns the position of a recipient. Paused mail waits for the end of the pause, whatever it waited for
// before.
func (k *Lookout) Of(it *queue.Item, rc *queue.ItemRecipient) Position {
	p := k.inQueue(it.ID, rc)
	if p.State == api.StateWaiting {
		if why, until, paused := k.PausedBy(it, rc); paused {
			p.Why, p.Next = why, until
		}
	}
	return p
}

// PausedBy returns the pause that keeps a waiting recipient, and its end.
func (k *Lookout) PausedBy(it *queue.Item, rc *queue.ItemRecipient) (why string, until time.Time, paused bool) {
	pol := k.m.Policy()
	way := WayOf(pol.Config, it, rc)
	provider, _ := k.m.Providers.ProviderOf(rc.Line.Key, way.Domain)
	mail := rules.Mail{Tenant: it.Tenant, Campaign: it.Campaign, Domain: rc.Address.Domain(), Provider: provider}
	return k.m.Rules.Why(cmp.Or(k.m.Rules.Keeps(mail, pol.Config.PoolBy(way)), rc.Line.Key))
}

// WayOf returns the way of a recipient; its domain is the one whose route it takes.
func WayOf(cfg *config.Config, it *queue.Item, rc *queue.ItemRecipient) config.Way {
	w := config.Way{Tenant: it.Tenant, Pool: it.Pool, Sender: it.Sender, Domain: rc.Address.Domain(), Detour: rc.Detour}
	w.Domain = cfg.RouteBy(w)
	return w
}

// RouteOf returns the name of the route that a recipient takes: that of a rule, or its domain.
func (m *Messages) RouteOf(it *queue.Item, rc *queue.ItemRecipient) string {
	mail := rules.Mail{Tenant: it.Tenant, Campaign: it.Campaign, Domain: rc.Address.Domain()}
	if name := m.Rules.RouteOf(mail); name != "" && rc.Detour.Route == "" {
		return name
	}
	return WayOf(m.Policy().Config, it, rc).Domain
}

// inQueue is Of without regard to pauses.
func (k *Lookout) inQueue(id envelope.ID, rc *queue.ItemRecipient) Position {
	switch rc.State {
	case queue.StateHeld:
		return Position{State: api.StateHeld}
	case queue.StateUnreadable:
		return Position{State: api.StateUnreadable, Why: "its record on disk is damaged"}
	case queue.StateEnding:
		return ending(rc.Asked)
	case queue.StateDeferred:
		if why := Ended(rc); why != "" {
			return Position{State: api.StateEnding, Why: why, Next: rc.Next}
		}
		return k.deferred(rc)
	case queue.StateParked:
		return k.Parked(rc)
	case queue.StateLeased:
		return k.out(id, rc)
	}
	return Position{State: api.StateDue, Next: rc.Next}
}

// deferred is a recipient that waits for its next try, or until its site's suspension ends where that is
// later.
func (k *Lookout) deferred(rc *queue.ItemRecipient) Position {
	suspension, known := k.sites[rc.Line.Site()]
	if !known {
		info, _ := k.m.Delivery.Site(rc.Line.Site())
		for _, a := range info.Actions {
			if a.What == api.SiteSuspended && a.Source == "" && a.End.After(suspension.Next) {
				suspension = Position{State: api.StateDeferred, Why: "suspended: " + a.Reason, Next: a.End}
			}
		}
		k.sites[rc.Line.Site()] = suspension
	}
	if suspension.Next.After(rc.Next) {
		return suspension
	}
	return Position{State: api.StateDeferred, Next: rc.Next}
}

// ending is a recipient that leaves the queue, perhaps since an operator has asked for it.
func ending(asked queue.Action) Position {
	switch asked {
	case queue.Remove, queue.Cancel:
		return Position{State: api.StateEnding, Why: "removed: its record is being written"}
	case queue.Transfer:
		return Position{State: api.StateEnding, Why: "on its way to another relay"}
	}
	return Position{State: api.StateEnding, Why: "given up: the report to its sender is being written"}
}

// Ended returns what became of a recipient that only waits for the report to its sender, "" of any other.
func Ended(rc *queue.ItemRecipient) string {
	switch {
	case rc.Last.OK():
		return "delivered: the report to its sender can't be queued yet"
	case rc.Last.Permanent():
		return "refused for good: the report to its sender can't be queued yet"
	}
	return ""
}

// Parked is a recipient that waits in the queue, in a line.
func (k *Lookout) Parked(rc *queue.ItemRecipient) Position {
	s, known := k.lanes[rc.Line]
	if known {
		return s
	}
	s.State = api.StateWaiting
	if why, until, paused := k.m.Rules.Why(rc.Line.Key); paused {
		s.Why, s.Next = why, until
	} else if why, until, throttled := k.m.Warmups.ThrottledBy(rc.Line); throttled {
		s.Why, s.Next = why, until
	} else if rc.Line.Route {
		s.Why = k.m.LookUp(rc.Line.Name)
	} else {
		info, _ := k.m.Delivery.Site(rc.Line.Site())
		s.Why, s.Next = keptBy(rc.Line, info.Lanes)
	}
	k.lanes[rc.Line] = s
	return s
}

// keptBy is what keeps mail that waits in the queue for its site, given the lanes to the site. Lanes
// from other sources are left out: their obstacles are not its own.
func keptBy(line parking.Line, lanes []delivery.LaneInfo) (why string, until time.Time) {
	if line.Source != "" {
		lanes = slices.DeleteFunc(slices.Clone(lanes), func(l delivery.LaneInfo) bool {
			return l.Source != line.Source
		})
	}
	if why, until = WhyIn(lanes); why == "" {
		return "waits for its turn at " + line.Name, time.Time{}
	}
	return "waits for " + line.Name + ": " + why, until
}

// WhyIn returns what keeps the oldest mail in some lanes, or, if none waits, what would keep any.
func WhyIn(lanes []delivery.LaneInfo) (why string, until time.Time) {
	var oldest time.Time
	for _, l := range lanes {
		if l.Waiting > 0 && (oldest.IsZero() || l.Oldest.Before(oldest)) {
			oldest, why, until = l.Oldest, l.Why, l.Until
		} else if why == "" {
			why, until = l.Why, l.Until
		}
	}
	return why, until
}

// out is a recipient that the queue has handed out. It is active when it is on a connection.
func (k *Lookout) out(id envelope.ID, rc *queue.ItemRecipient) Position {
	if rc.Ending {
		return ending(0)
	}
	if domain := rc.Address.Domain(); k.m.Dispatcher.LookingUp(id, domain, rc.Index) {
		return Position{State: api.StateWaiting, Why: k.m.LookUp(domain)}
	}
	where, known := k.where[id]
	if !known && k.m.Dispatcher.Signing(id) {
		return Position{State: api.StateWaiting, Why: "is being signed"}
	}
	if !known {
		return Position{State: api.StateWaiting, Why: "its outcome is being written down"}
	}
	for _, p := range where.Waiting {
		if slices.Contains(p.Recipients, rc.Index) {
			why := "waits for a connection to " + p.Site
			if p.Why != "" {
				why = "waits for " + p.Site + ": " + p.Why
			}
			return Position{api.StateWaiting, why, p.Until}
		}
	}
	why := inTransit(where.Carriers)
	if rc.Asked != 0 {
		why += "; " + Afterwards[rc.Asked]
	}
	return Position{State: api.StateActive, Why: why}
}

// Afterwards is what becomes of a recipient on a connection for which an operator has asked for something.
var Afterwards = map[queue.Action]string{
	queue.Hold:     "held when this attempt ends, unless it delivers",
	queue.Bounce:   "bounced when this attempt ends, unless it delivers",
	queue.Remove:   "removed when this attempt ends",
	queue.Transfer: "moved when this attempt ends",
	queue.RetryNow: "tried again at once if this attempt fails",
}

// inTransit names the connection that has a recipient.
func inTransit(carriers []delivery.Carrier) string {
	carriers = slices.DeleteFunc(slices.Clone(carriers), func(c delivery.Carrier) bool { return c.Parts == 0 })
	switch len(carriers) {
	case 0:
		return "its attempt has just ended"
	case 1:
		return "in transit to " + carriers[0].Host.String()
	}
	return "in transit, over one of several connections"
}

// inState makes a filter of the queue select by the state that Of gives.
func (m *Messages) inState(f *queue.Filter, s api.State) bool {
	states, ok := queueStates[s]
	if !ok {
		return false
	}
	f.States = states
	if slices.Contains(states, queue.StateLeased) {
		f.Leased = func(id envelope.ID, recipient int, ending bool) bool {
			return m.stateOf(queue.RecipientState{ID: id, Recipient: recipient, State: queue.StateLeased,
				Ending: ending}) == s
		}
	}
	return true
}

// stateOf returns the state that operators see. Of what the queue has handed out, delivery knows it.
func (m *Messages) stateOf(s queue.RecipientState) api.State {
	switch {
	case s.State != queue.StateLeased:
		return stateWords[s.State]
	case s.Ending:
		return api.StateEnding
	case m.Delivery.OnConnection(s.ID, s.Recipient):
		return api.StateActive
	}
	return api.StateWaiting
}

// queueStates are the queue's states in which a recipient can be that an operator finds in a state.
var queueStates = map[api.State][]queue.State{
	api.StateDue:        {queue.StateDue},
	api.StateWaiting:    {queue.StateParked, queue.StateLeased},
	api.StateActive:     {queue.StateLeased},
	api.StateDeferred:   {queue.StateDeferred},
	api.StateHeld:       {queue.StateHeld},
	api.StateEnding:     {queue.StateEnding, queue.StateLeased},
	api.StateUnreadable: {queue.StateUnreadable},
}

// LookUp describes the state of the look-up of a domain's route.
func (m *Messages) LookUp(domain string) string {
	if m.Router.LookingUp(domain) {
		return "the route of " + domain + " is being looked up"
	}
	return "the look-up of " + domain + " waits for its turn"
}
