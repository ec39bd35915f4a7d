package answer

import (
	"cmp"
	"slices"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// position is the state of a recipient in the queue, with its reason in a few words.
type position struct {
	state api.State
	why   string
	next  time.Time // when it may be tried next; zero: not known, or under way
}

// lookout joins the knowledge of queue, dispatcher, delivery and warm-up about some messages. All views of
// recipients take state, reason and next attempt from here.
type lookout struct {
	r     *Relay
	where map[envelope.ID]delivery.Whereabouts // of those that delivery has
	lanes map[parking.Line]position            // what keeps parked mail, by the line that it waits in
	sites map[string]position                  // the suspension that ends last, by site
}

// askedAtOnce is how many messages delivery is asked about at once, which waits for that.
const askedAtOnce = 200

// lookOut asks delivery for the messages of a page, as far as the queue has handed them out.
func (r *Relay) lookOut(items ...queue.Item) *lookout {
	k := &lookout{r: r, where: make(map[envelope.ID]delivery.Whereabouts), lanes: make(map[parking.Line]position), sites: make(map[string]position)}
	var out []envelope.ID
	for i := range items {
		if slices.ContainsFunc(items[i].Recipients, func(rc queue.ItemRecipient) bool { return rc.State == queue.StateLeased }) {
			out = append(out, items[i].ID)
		}
	}
	for some := range slices.Chunk(out, askedAtOnce) {
		for id, w := range r.Delivery.WhereaboutsOf(some) {
			k.where[id] = w
		}
	}
	return k
}

// of returns the position of a recipient. Paused mail waits for the end of the pause, whatever it waited for
// before.
func (k *lookout) of(it *queue.Item, rc *queue.ItemRecipient) position {
	p := k.inQueue(it.ID, rc)
	if p.state == api.StateWaiting {
		if why, until, paused := k.pausedBy(it, rc); paused {
			p.why, p.next = why, until
		}
	}
	return p
}

// pausedBy returns the pause that keeps a waiting recipient, and its end.
func (k *lookout) pausedBy(it *queue.Item, rc *queue.ItemRecipient) (why string, until time.Time, paused bool) {
	key := k.r.Pauses.Keeps(it.Tenant, k.r.Policy().Config.PoolBy(wayOf(k.r.Policy().Config, it, rc)), rc.Address.Domain())
	return k.r.Pauses.Why(cmp.Or(key, rc.Line.Key))
}

// inQueue is of without regard to pauses.
func (k *lookout) inQueue(id envelope.ID, rc *queue.ItemRecipient) position {
	switch rc.State {
	case queue.StateHeld:
		return position{state: api.StateHeld}
	case queue.StateUnreadable:
		return position{state: api.StateUnreadable, why: "its record on disk is damaged"}
	case queue.StateEnding:
		return ending
	case queue.StateDeferred:
		if why := ended(rc); why != "" {
			return position{state: api.StateEnding, why: why, next: rc.Next}
		}
		return k.deferred(rc)
	case queue.StateParked:
		return k.parked(rc)
	case queue.StateLeased:
		return k.out(id, rc)
	}
	return position{state: api.StateDue, next: rc.Next}
}

// deferred is a recipient that waits for its next try, or until its site's suspension ends where that is
// later.
func (k *lookout) deferred(rc *queue.ItemRecipient) position {
	suspension, known := k.sites[rc.Line.Site()]
	if !known {
		info, _ := k.r.Delivery.Site(rc.Line.Site())
		for _, a := range info.Actions {
			if a.What == suspendedAction && a.Source == "" && a.End.After(suspension.next) {
				suspension = position{state: api.StateDeferred, why: "suspended: " + a.Reason, next: a.End}
			}
		}
		k.sites[rc.Line.Site()] = suspension
	}
	if suspension.next.After(rc.Next) {
		return suspension
	}
	return position{state: api.StateDeferred, next: rc.Next}
}

var ending = position{state: api.StateEnding, why: "given up: the report to its sender is being written"}

// ended returns what became of a recipient that only waits for the report to its sender, "" of any other.
func ended(rc *queue.ItemRecipient) string {
	switch {
	case rc.Last.OK():
		return "delivered: the report to its sender can't be queued yet"
	case rc.Last.Permanent():
		return "refused for good: the report to its sender can't be queued yet"
	}
	return ""
}

// parked is a recipient that waits in the queue, in a line.
func (k *lookout) parked(rc *queue.ItemRecipient) position {
	s, known := k.lanes[rc.Line]
	if known {
		return s
	}
	s.state = api.StateWaiting
	if why, until, paused := k.r.Pauses.Why(rc.Line.Key); paused {
		s.why, s.next = why, until
	} else if why, until, throttled := k.r.throttledBy(rc.Line); throttled {
		s.why, s.next = why, until
	} else if rc.Line.Route {
		s.why = k.r.lookupOf(rc.Line.Name)
	} else {
		info, _ := k.r.Delivery.Site(rc.Line.Site())
		s.why, s.next = keptBy(rc.Line, info.Lanes)
	}
	k.lanes[rc.Line] = s
	return s
}

// keptBy is what keeps mail that waits in the queue for its site, given the lanes to the site. Lanes
// from other sources are left out: their obstacles are not its own.
func keptBy(line parking.Line, lanes []delivery.LaneInfo) (why string, until time.Time) {
	if line.Source != "" {
		lanes = slices.DeleteFunc(slices.Clone(lanes), func(l delivery.LaneInfo) bool { return l.Source != line.Source })
	}
	var s site
	if s.addLanes(lanes); s.Why == "" {
		return "waits for its turn at " + line.Name, time.Time{}
	}
	return "waits for " + line.Name + ": " + s.Why, s.Until
}

// out is a recipient that the queue has handed out. It is active when it is on a connection.
func (k *lookout) out(id envelope.ID, rc *queue.ItemRecipient) position {
	if rc.Ending {
		return ending
	}
	if domain := rc.Address.Domain(); k.r.Dispatcher.LookingUp(id, domain, rc.Index) {
		return position{state: api.StateWaiting, why: k.r.lookupOf(domain)}
	}
	where, known := k.where[id]
	if !known && k.r.Dispatcher.Signing(id) {
		return position{state: api.StateWaiting, why: "is being signed"}
	}
	if !known {
		return position{state: api.StateWaiting, why: "its outcome is being written down"}
	}
	for _, p := range where.Waiting {
		if slices.Contains(p.Recipients, rc.Index) {
			why := "waits for a connection to " + p.Site
			if p.Why != "" {
				why = "waits for " + p.Site + ": " + p.Why
			}
			return position{api.StateWaiting, why, p.Until}
		}
	}
	why := inTransit(where.Carriers)
	if rc.Asked != 0 {
		why += "; " + afterwards[rc.Asked]
	}
	return position{state: api.StateActive, why: why}
}

// afterwards is what becomes of a recipient on a connection for which an operator has asked for something.
var afterwards = map[queue.Action]string{
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

// inState makes a filter of the queue select by the state that of gives.
func (r *Relay) inState(f *queue.Filter, s api.State) bool {
	states, ok := queueStates[s]
	if !ok {
		return false
	}
	f.States = states
	if slices.Contains(states, queue.StateLeased) {
		f.Leased = func(id envelope.ID, recipient int, ending bool) bool {
			return r.stateOf(queue.RecipientState{ID: id, Recipient: recipient, State: queue.StateLeased, Ending: ending}) == s
		}
	}
	return true
}

// stateOf returns the state that operators see. Of what the queue has handed out, delivery knows it.
func (r *Relay) stateOf(s queue.RecipientState) api.State {
	switch {
	case s.State != queue.StateLeased:
		return stateWords[s.State]
	case s.Ending:
		return api.StateEnding
	case r.Delivery.OnConnection(s.ID, s.Recipient):
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

// lookupOf describes the state of the look-up of a domain's route.
func (r *Relay) lookupOf(domain string) string {
	if r.Router.LookingUp(domain) {
		return "the route of " + domain + " is being looked up"
	}
	return "the look-up of " + domain + " waits for its turn"
}
