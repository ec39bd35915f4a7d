package mta

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/dispatch"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/tally"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/unsubscribe"
)

func newAccounting(cfg *config.Config, log *slog.Logger) (*accounting.Writer, error) {
	if !cfg.Accounting.Enabled {
		return nil, nil
	}
	return accounting.Open(accounting.Config{
		Dir: cfg.Accounting.Path, NodeID: cfg.NodeID, Limits: wiring.Accounting(cfg), Log: log,
		AwaitKeep: true, // openStreams calls it
	})
}

// accountant puts events into the accounting log's words, and has them counted.
type accountant struct {
	log     *accounting.Writer // nil: switched off
	meter   *tally.Meter
	tally   *tally.Tallies
	policy  func() *wiring.Policy
	classes *bounce.Classifier
	unknown *bounce.Unknown // nil: they are not counted
	now     func() time.Time

	mu sync.Mutex // guards unreported
	// unreported are messages on their way into the queue, which may hand one out before the
	// goroutine that committed it gets to say so: whoever is first counts it and writes the Reception.
	unreported map[*envelope.Message]struct{}
}

// listenerEvents counts what a listener takes and refuses, and passes it on.
type listenerEvents struct {
	*accountant
	listener string
}

// Received is called by submission when a message is durable.
func (l listenerEvents) Received(m *envelope.Message, missing intake.Fields) {
	l.tally.Taken(l.listener, m, missing)
	l.accountant.Received(m)
}

// Rejected is called by submission for each refusal.
func (l listenerEvents) Rejected(r intake.Rejection) {
	l.tally.Refused(l.listener, r.Tenant, max(r.Count, 1))
	l.accountant.Rejected(r)
}

// accepted is what the client was told.
func accepted(m *envelope.Message) reply.Reply {
	return reply.Reply{Code: 250, Enhanced: reply.Enhanced{2, 0, 0}, Text: "queued as " + m.ID.String(), Command: "content", Local: true}
}

func (a *accountant) Accepting(m *envelope.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unreported == nil {
		a.unreported = make(map[*envelope.Message]struct{})
	}
	a.unreported[m] = struct{}{}
}

func (a *accountant) Refused(m *envelope.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unreported, m)
}

// Received writes the Reception of a message that has none yet. The lock is held meanwhile, so
// that the record of an attempt can't come before it.
func (a *accountant) Received(m *envelope.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, open := a.unreported[m]; !open {
		return
	}
	delete(a.unreported, m)
	a.tally.Received(m)
	if a.log != nil {
		a.reception(m, func(envelope.Address) bool { return true })
	}
}

// reception writes the Receptions of those recipients that lack theirs, and returns how many these are.
func (a *accountant) reception(m *envelope.Message, lacks func(envelope.Address) bool) (n int) {
	rec := a.record(accounting.Reception, m, m.Received)
	rec.Response = accepted(m)
	rec.Peer = accounting.Peer{Name: m.HeloName, Addr: m.Peer.Addr()}
	rec.Session, rec.ReceptionProtocol = m.Session, m.Protocol
	for i := range m.Recipients {
		if rec.Recipient = m.Recipients[i].Address; !lacks(rec.Recipient) {
			continue
		}
		rec.Queue = queueName(m, rec.Recipient)
		rec.Release = m.ReleaseOf(i)
		a.add(&rec)
		n++
	}
	return n
}

// maxMissing bounds the Receptions that a start writes. A crash takes along those of some milliseconds; more
// are missing only if somebody has deleted the log.
const maxMissing = 200_000

// reportReceptions writes the Receptions that a crash has taken along, of messages that are in the queue. What
// has left the queue has its records.
func (r *Relay) reportReceptions(cfg *config.Config) {
	if r.accounting == nil {
		return
	}
	began := time.Now()
	latest, err := accounting.LatestReceptions(context.Background(), cfg.Accounting.Path, r.now())
	if err != nil {
		r.log.Warn("it is not known which messages have no Reception in the accounting log", "error", err)
		return
	}
	missing := 0
	r.queue.Envelopes(latest.From, func(id envelope.ID) bool {
		return missing < maxMissing && !latest.Has(id)
	}, func(m *envelope.Message) {
		missing += r.events.reception(m, func(to envelope.Address) bool { return !latest.HasOf(m.ID, to) })
	})
	if missing > 0 {
		r.log.Info("accounting records that a crash took along are written", "receptions", missing, "took", time.Since(began).Round(time.Millisecond))
	}
}

// Rejected is called by submission for each refusal, or for a number of them.
func (a *accountant) Rejected(r intake.Rejection) {
	a.meter.Refused(r.Reply, max(r.Count, 1))
	if a.log == nil {
		return
	}
	rec := accounting.Record{
		Type: accounting.Rejection, Sender: r.Sender, Recipient: r.Recipient, Response: r.Reply,
		Peer: accounting.Peer{Name: r.HeloName, Addr: r.Peer.Addr()}, Time: r.Time, User: r.User, Tenant: r.Tenant, Session: r.Session, Count: r.Count,
	}
	if len(r.Recipients) == 0 {
		a.add(&rec)
	}
	for _, rc := range r.Recipients {
		rec.Recipient = rc.Address
		a.add(&rec)
	}
}

// Unsubscribed writes down that a recipient ended a subscription.
func (a *accountant) Unsubscribed(s *unsubscribe.Subscription, session string) {
	if a.log == nil {
		return
	}
	a.log.Add(&accounting.Record{
		Type: accounting.Unsubscribe, Recipient: s.Address, Queue: queueName(&envelope.Message{Tenant: s.Tenant}, s.Address),
		Tenant: s.Tenant, Campaign: s.Campaign, Session: session, Time: a.now(), Created: s.Sent,
	})
}

// Attempted writes down what became of a recipient.
func (a *accountant) Attempted(kind accounting.Type, o *dispatch.Outcomes, at dispatch.Attempt) {
	now := a.now()
	m, r := o.Message, at.Result
	counted := tally.Outcome{Kind: kind, Message: m, Route: o.Route, Site: o.Site(), Result: &r, Class: a.classOf(o, &r, m.ID, now)}
	a.meter.Attempted(&counted, now)
	a.tally.Attempted(&counted, now)
	a.Received(m)
	if a.log == nil {
		return
	}
	rec := a.record(kind, m, now)
	rec.Recipient = m.Recipients[at.Pending.Index].Address
	rec.Queue = queueName(m, rec.Recipient)
	rec.Response, rec.Class = r.Reply, counted.Class.String()
	rec.Attempts = at.Pending.Attempts
	if r.Attempted {
		rec.Attempts++
	}
	if o.Route != nil {
		rec.Site, rec.Provider = o.Route.Site, o.Route.Provider
	}
	if r.Host.Name != "" {
		rec.Peer = accounting.Peer{Name: r.Host.Name, Addr: r.Host.Addr.Addr()}
	}
	rec.EgressPool, rec.EgressSource = a.policy().PoolOf(m, o.Route).Name, r.Source
	rec.Session = r.Session
	addLink(&rec, &r)
	addTimes(&rec, m, &r, now)
	a.add(&rec)
}

// After calls f when the records of all that was attempted before are on stable storage.
func (a *accountant) After(f func()) {
	if a.log == nil {
		f()
		return
	}
	a.log.After(f)
}

// classOf classifies a result. What no rule knows is remembered for the operator.
func (a *accountant) classOf(o *dispatch.Outcomes, r *delivery.Result, id envelope.ID, now time.Time) bounce.Class {
	provider := ""
	if o.Route != nil {
		provider = o.Route.Provider
	}
	class := a.classes.Of(&r.Reply, provider)
	if class == bounce.Uncategorized && r.Attempted && !r.Reply.Local && a.unknown != nil {
		a.unknown.Add(provider, r.Reply, id.String(), now)
	}
	return class
}

// addLink adds over what a recipient went, if it came to a connection.
func addLink(rec *accounting.Record, r *delivery.Result) {
	if r.Link == nil {
		return
	}
	rec.DeliveryProtocol, rec.Local = r.Link.Protocol(r.UTF8), r.Link.Local
	if t := r.Link.TLS; t != (tlspolicy.Facts{}) {
		rec.TLS = accounting.TLS{Version: t.Version, Cipher: t.Cipher, Trust: accounting.Unverified, By: string(t.Verified), Certificate: t.Certificate}
		if t.Verified != tlspolicy.ByNothing {
			rec.TLS.Trust = accounting.Verified
		}
	}
}

// addTimes adds what took how long. The queue's time is what is left of the message's age.
func addTimes(rec *accounting.Record, m *envelope.Message, r *delivery.Result, now time.Time) {
	t := &r.Times
	rec.Phases = accounting.Phases{Wait: t.Wait, Connect: t.Connect, Handshake: t.Handshake, Turn: t.Turn, Send: t.Send, Reply: t.Reply}
	rec.Queued = max(0, now.Sub(m.Start())-(t.Wait+t.Connect+t.Handshake+t.Turn+t.Send+t.Reply))
}

// removed writes down what an operator has removed or moved, or its sender cancelled, without a report. It calls
// recorded when that is on stable storage.
func (a *accountant) removed(items []queue.Item, recorded func()) {
	if a.log != nil {
		for i := range items {
			a.removal(&items[i])
		}
	}
	a.After(recorded)
}

// removals are the records of what leaves the queue without a report.
var removals = map[queue.Action]struct {
	kind     accounting.Type
	response reply.Reply
}{
	queue.Remove:   {accounting.AdminBounce, reply.Local(554, reply.Enhanced{5, 7, 0}, "queue", "removed by the administrator of this relay")},
	queue.Cancel:   {accounting.Cancellation, reply.Local(554, reply.Enhanced{5, 7, 0}, "queue", "cancelled by its sender")},
	queue.Transfer: {accounting.Transfer, reply.Local(250, reply.Enhanced{2, 0, 0}, "queue", "moved to another relay or an archive")},
}

func (a *accountant) removal(it *queue.Item) {
	m := &envelope.Message{ID: it.ID, Sender: it.Sender, Size: it.Size, Received: it.Received,
		User: it.User, APIKey: it.APIKey, Tenant: it.Tenant, Campaign: it.Campaign, Tags: it.Tags, Meta: it.Meta, Headers: it.Headers, TraceID: it.TraceID,
	}
	rec := a.record(accounting.AdminBounce, m, a.now())
	for _, rc := range it.Recipients {
		if rc.Last.OK() { // it has the record of its delivery: only the report to its sender was outstanding
			continue
		}
		end, known := removals[rc.Asked]
		if !known {
			end = removals[queue.Remove]
		}
		rec.Type, rec.Response, rec.Class = end.kind, end.response, ""
		rec.Recipient, rec.Site, rec.Attempts = rc.Address, rc.Line.Site(), rc.Attempts
		rec.Queue = queueName(m, rc.Address)
		a.add(&rec)
	}
}

// unreadable writes down that a message in the queue can't be read: not even its sender is known.
func (a *accountant) unreadable(id envelope.ID, _ int, err error) {
	if a.log == nil {
		return
	}
	rec := a.record(accounting.Damage, &envelope.Message{ID: id}, a.now())
	rec.Response = reply.Local(451, reply.Enhanced{4, 3, 0}, "queue", "the envelope of the message was damaged on this relay's disk: %v", err)
	a.add(&rec)
}

// add adds a record with the class of its response, which a success has none of.
func (a *accountant) add(rec *accounting.Record) {
	if rec.Class == "" && rec.Response.Code != 0 {
		rec.Class = a.classes.Of(&rec.Response, rec.Provider).String()
	}
	a.log.Add(rec)
}

func (a *accountant) record(kind accounting.Type, m *envelope.Message, t time.Time) accounting.Record {
	return accounting.Record{
		Type: kind, ID: m.ID, Sender: m.Sender, Size: m.Size, Time: t, Created: m.Received,
		User: m.User, Key: m.APIKey, Tenant: m.Tenant, Campaign: m.Campaign, Tags: m.Tags, Meta: m.Meta, Headers: m.Headers, TraceID: m.TraceID,
	}
}

// queueName is the tenant and the recipient's domain, as "acme@example.com".
func queueName(m *envelope.Message, to envelope.Address) string {
	if m.Tenant == "" {
		return to.Domain()
	}
	return fmt.Sprintf("%s@%s", m.Tenant, to.Domain())
}
