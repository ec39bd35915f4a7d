package sites

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// Explain gathers what queue, router and delivery know of a domain's mail, or of a message. Each is
// asked in turn, so one answer can be a moment older than the other.
func (d *Sites) Explain(ctx context.Context, q api.ExplainQuery) (api.Explanation, error) {
	if q.ID != "" {
		return d.explainMessage(ctx, q.ID)
	}
	if err := blocks.Check(d.Policy().Config, "tenant", q.Tenant); q.Tenant != "" && err != nil {
		return api.Explanation{}, err
	}
	mail := rules.Mail{Tenant: q.Tenant, Domain: q.Domain}
	var m *envelope.Message
	if t := d.Policy().Config.Tenant(q.Tenant); t != nil {
		m = &envelope.Message{Tenant: t.Name, Tier: uint8(t.Tier)}
	}
	return api.Explanation{Destinations: []api.Destination{d.explainDomain(ctx,
		cmp.Or(d.Messages.Rules.RouteOf(mail), q.Domain), mail,
		d.Policy().Config.PoolBy(config.Way{Tenant: q.Tenant, Domain: q.Domain}), d.queuedByKey(), m)}}, nil
}

func (d *Sites) explainMessage(ctx context.Context, text string) (api.Explanation, error) {
	id, err := envelope.ParseID(text)
	if err != nil {
		return api.Explanation{}, api.Invalid("", "%v", err)
	}
	it, err := d.Queue.Get(id)
	if err != nil {
		return api.Explanation{}, messages.NotQueued(id, err)
	}
	out := api.Explanation{Destinations: []api.Destination{}}
	m := &api.ExplainedMessage{
		ID: text, Sender: string(it.Sender), Tenant: it.Tenant, Received: it.Accepted(),
		Source: d.sourceOf(&it),
	}
	out.Message = m
	shown := it.Recipients[:min(len(it.Recipients), api.MaxExplained)]
	m.More = len(it.Recipients) - len(shown)
	bySite := make(map[string]bool)
	type way struct {
		domain string // whose route it takes, or the name of that
		pool   *config.Pool
	}
	cfg := d.Policy().Config
	wayOf := func(rc *queue.ItemRecipient) way {
		return way{d.Messages.RouteOf(&it, rc), cfg.PoolBy(messages.WayOf(cfg, &it, rc))}
	}
	byWay := make(map[way]*api.Destination)
	queued := d.queuedByKey()
	for i := range shown {
		way := wayOf(&shown[i])
		if way.domain == "" || byWay[way] != nil {
			continue // unreadable: its destination is not known
		}
		dest := d.explainDomain(ctx, way.domain, rules.Mail{Tenant: it.Tenant, Campaign: it.Campaign,
			Domain: shown[i].Address.Domain()}, way.pool, queued, &it.Message)
		dest.OtherPools = nil // a message has its tenant
		byWay[way] = &dest
		if site := dest.Site + " " + way.pool.Name; dest.Site != "" && bySite[site] {
			continue // explained by another domain that it serves
		} else {
			bySite[site] = true
		}
		out.Destinations = append(out.Destinations, dest)
	}
	where, known := d.Delivery.Whereabouts(id)
	// The states are asked last: what is active by now was not parked before.
	if now, err := d.Queue.Get(id); err == nil {
		shown = stillThere(shown, now.Recipients)
	}
	it.Recipients = shown
	k := d.Messages.LookOut(it)
	for i := range shown {
		rc := &shown[i]
		r := recipientCase{rc: rc, status: d.Messages.Recipient(&it, k, rc), destination: byWay[wayOf(rc)],
			where: &where, known: known, relay: d}
		r.lookup = d.Messages.LookUp(wayOf(rc).domain)
		r.suppressed = d.suppressed(&it, rc.Address)
		r.paused, r.pausedUntil, _ = k.PausedBy(&it, rc)
		why, until := r.why()
		if by := r.status.Rerouted; by != nil {
			why += "; it is rerouted " + by.String()
		}
		m.Recipients = append(m.Recipients, api.ExplainedRecipient{Status: r.status, Why: why, Until: until})
	}
	return out, nil
}

// suppressed returns since when and why an address gets no mail, "" if that does not apply to the message.
func (r *Sites) suppressed(it *queue.Item, a envelope.Address) string {
	why, yes := r.Suppressed(it.Tenant, a)
	if !yes || it.Sender.Null() || r.Policy().Config.Suppression.Mode == "off" {
		return ""
	}
	return why
}

// sourceOf is the source that a message takes, as far as that is known: what it had at an attempt
// before, or what its pool leads to. A pool with dedicated sources decides when the message is sent.
func (d *Sites) sourceOf(it *queue.Item) string {
	pol := d.Policy()
	for i := range it.Recipients {
		rc := &it.Recipients[i]
		if via := rc.Via; via != "" &&
			slices.Contains(pol.Config.PoolBy(messages.WayOf(pol.Config, it, rc)).Sources(), via) {
			return via
		}
	}
	way := config.Way{Tenant: it.Tenant, Pool: it.Pool, Sender: it.Sender}
	if len(it.Recipients) > 0 {
		way = messages.WayOf(pol.Config, it, &it.Recipients[0])
	}
	pool := pol.Config.PoolBy(way)
	if len(pool.Dedicated) > 0 {
		return ""
	}
	source, _ := pol.SourceIn(pool, it.ID, nil, "", d.Missing)
	return source
}

// stillThere gives those of shown that are in the queue now, as they are now.
func stillThere(shown, now []queue.ItemRecipient) []queue.ItemRecipient {
	var out []queue.ItemRecipient
	for _, s := range shown {
		if i := slices.IndexFunc(now, func(n queue.ItemRecipient) bool { return n.Index == s.Index }); i >= 0 {
			out = append(out, now[i])
		}
	}
	return out
}

// recipientCase is all that is known of why a recipient is still here.
type recipientCase struct {
	rc          *queue.ItemRecipient
	status      api.RecipientStatus
	destination *api.Destination // nil when the address can't be read
	where       *delivery.Whereabouts
	known       bool // to delivery
	relay       *Sites
	paused      string // by whom and why, "" when it is not
	pausedUntil time.Time
	lookup      string // how the look-up of its domain's route stands
	suppressed  string // since when, and why, its address is; "" when it is not
}

// why returns the reason in one sentence, and until when it holds.
func (r *recipientCase) why() (string, time.Time) {
	switch r.rc.State {
	case queue.StateHeld:
		return "it is held until it is released ('mta queue release') or expires", time.Time{}
	case queue.StateUnreadable:
		return "its record on disk is damaged: 'mta queue fsck' shows where, 'mta queue retry' reads it again",
			time.Time{}
	case queue.StateEnding:
		return "it leaves the queue: " + r.status.Doing, time.Time{}
	case queue.StateLeased:
		if r.paused == "" || r.status.State == api.StateActive {
			return r.active()
		}
	}
	why, until := "it is due, and is next after the mail before it", time.Time{}
	switch r.rc.State {
	case queue.StateDeferred:
		why, until = r.deferred()
	case queue.StateParked:
		why, until = r.parked()
	}
	if r.paused != "" && r.status.State == api.StateWaiting {
		why, until = "it waits: "+r.status.Doing, r.pausedUntil
	}
	if r.suppressed != "" {
		why += "; it will then be bounced, since its address is suppressed (" + r.suppressed + ")"
	}
	return why, until
}

func (r *recipientCase) deferred() (string, time.Time) {
	if why := messages.Ended(r.rc); why != "" {
		return "it was " + why, r.rc.Next
	}
	if r.rc.Scheduled {
		return "it is scheduled, and waits for its time ('mta queue retry --scheduled' sends it now)", r.rc.Next
	}
	tries := fmt.Sprintf("%d attempts have failed", r.rc.Attempts)
	switch r.rc.Attempts {
	case 0:
		tries = "no attempt was possible"
	case 1:
		tries = "one attempt has failed"
	}
	return tries + ": it waits for its retry time", r.rc.Next
}

func (r *recipientCase) parked() (string, time.Time) {
	if r.rc.Line.Route {
		return "it has no route yet: " + r.lookup, time.Time{}
	}
	if why, until, ok := r.relay.Messages.Warmups.WhyThrottled(r.rc.Line); ok {
		return why, until
	}
	what := r.rc.Line.Name
	if source := r.rc.Line.Source; source != "" {
		what += " from " + source
	}
	why := fmt.Sprintf("it waits in the queue: delivery already has as much mail as it takes for %s", what)
	switch l := r.busiest(); {
	case l == nil || l.Why == "":
	case l.Waiting == 0:
		return fmt.Sprintf("it waits in the queue, without counting an attempt: no host of %s can be tried now: %s",
			r.rc.Line.Name, l.Why), l.Until
	default:
		return why + ": " + l.Why, l.Until
	}
	return why, time.Time{}
}

// busiest is the lane to the recipient's site in which most waits, of those from the source for which
// it is parked, where it is for one.
func (r *recipientCase) busiest() *api.Lane {
	var most *api.Lane
	if r.destination == nil {
		return nil
	}
	for i := range r.destination.Lanes {
		l := &r.destination.Lanes[i]
		if source := r.rc.Line.Source; source != "" && l.Source != source {
			continue
		}
		if most == nil || l.Waiting > most.Waiting {
			most = l
		}
	}
	return most
}

// active distinguishes the steps of what the queue knows as one attempt: from the look-up of the route to
// the record of the result.
func (r *recipientCase) active() (string, time.Time) {
	if !r.known {
		return "an attempt has just begun: its route is being looked up, or its outcome is being recorded", time.Time{}
	}
	for _, p := range r.where.Waiting {
		if !slices.Contains(p.Recipients, r.rc.Index) {
			continue
		}
		why := fmt.Sprintf("it waits in delivery for its turn at %s from source %s", p.Site, p.Source)
		if p.Why != "" {
			why += ": " + p.Why
		}
		return why, p.Until
	}
	var on []string
	for _, c := range r.where.Carriers {
		if c.Parts > 0 && r.mayGoTo(c.Host) {
			on = append(on, fmt.Sprintf("%s from source %s, session %s, with %s in progress", c.Host, c.Source,
				c.Session, transactions(c.Backlog)))
		}
	}
	why := ""
	switch len(on) {
	case 0:
		return "an attempt has just ended, or its route is being looked up", time.Time{}
	case 1:
		why = "an attempt is in progress on a connection to " + on[0]
	default:
		why = fmt.Sprintf(
			"an attempt is in progress on one of %d connections that have parts of the message, "+
				"the first of them to %s",
			len(on), on[0])
	}
	if then := messages.Afterwards[r.rc.Asked]; then != "" {
		why += "; it is " + then
	}
	return why, time.Time{}
}

func transactions(n int) string {
	if n == 1 {
		return "1 transaction"
	}
	return fmt.Sprintf("%d transactions", n)
}

// mayGoTo reports whether a host is one of the recipient's route.
func (r *recipientCase) mayGoTo(h route.Host) bool {
	return r.destination == nil || slices.ContainsFunc(r.destination.Hosts, func(t api.TierHost) bool {
		return t.Host.Address == h.Addr.String()
	})
}
