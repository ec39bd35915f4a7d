// Package books writes down what happens to mail: Accountant for mail on its way, Reports for what comes back about it.
// Both put events into the words of the accounting log, and pass them to those that count or draw conclusions.
package books

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/dispatch"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/tally"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/submission/intake"
	"example.org/mta/suppression"
)

// Config is what an Accountant works with.
type Config struct {
	Log     *accounting.Writer // nil: switched off
	Meter   *tally.Meter
	Tally   *tally.Tallies
	Policy  func() *wiring.Policy
	Classes *bounce.Classifier
	Unknown *bounce.Unknown // nil: replies that no rule knows are not counted
	Now     func() time.Time
}

// Accountant puts events into the accounting log's words, and has them counted. It is safe for use by many goroutines.
type Accountant struct {
	Config

	mu sync.Mutex // guards unreported
	// unreported are messages on their way into the queue, which may hand one out before the goroutine that committed
	// it reports that: whichever comes first counts it and writes the Reception.
	unreported map[*envelope.Message]struct{}
	moving     map[envelope.ID]string // where messages go that another relay has
	moved      map[string]bool        // whose mail was removed since Moving
}

// maxMoving bounds what is kept for messages that were on a connection when they were moved.
const maxMoving = 10_000

// Moving notes where messages go, for the records of their removal: until Moved.
func (a *Accountant) Moving(where map[envelope.ID]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.moving == nil || len(a.moving) > maxMoving {
		a.moving = make(map[envelope.ID]string)
	}
	maps.Copy(a.moving, where)
	a.moved = make(map[string]bool)
}

// Moved forgets where messages have gone, but of those whose last attempt is under way. It returns the tenants of those
// that were removed since Moving.
func (a *Accountant) Moved(later map[envelope.ID]bool) (tenants []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.moving, func(id envelope.ID, _ string) bool { return !later[id] })
	return slices.Collect(maps.Keys(a.moved))
}

// whereMoved returns where a message goes; "" for nowhere that is known.
func (a *Accountant) whereMoved(it *queue.Item) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	where := a.moving[it.ID]
	if where != "" {
		a.moved[it.Tenant] = true
	}
	return where
}

// New returns an Accountant.
func New(cfg Config) *Accountant {
	return &Accountant{Config: cfg, unreported: make(map[*envelope.Message]struct{})}
}

// Listener returns the Accountant as a listener's messages know it.
func (a *Accountant) Listener(name string) intake.Events { return listenerEvents{a, name} }

// listenerEvents counts what a listener takes and refuses, and passes it on.
type listenerEvents struct {
	*Accountant
	listener string
}

// Received is called by submission when a message is durable.
func (l listenerEvents) Received(m *envelope.Message, missing intake.Fields) {
	l.Tally.Taken(l.listener, m, missing)
	l.Accountant.Received(m)
}

// Rejected is called by submission for each refusal.
func (l listenerEvents) Rejected(r intake.Rejection) {
	l.Tally.Refused(l.listener, r.Tenant, max(r.Count, 1))
	l.Accountant.Rejected(r)
}

// accepted is the reply that the client got.
func accepted(m *envelope.Message) reply.Reply {
	return reply.Reply{Code: 250, Enhanced: reply.Enhanced{2, 0, 0}, Text: "queued as " + m.ID.String(),
		Command: "content", Local: true}
}

// Accepting notes a message that is about to be committed: Received or Refused follows.
func (a *Accountant) Accepting(m *envelope.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unreported[m] = struct{}{}
}

// Refused notes that a message was not committed.
func (a *Accountant) Refused(m *envelope.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unreported, m)
}

// Received writes the Reception of a message that has none yet. The lock is held meanwhile, so
// that the record of an attempt can't come before it.
func (a *Accountant) Received(m *envelope.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, open := a.unreported[m]; !open {
		return
	}
	delete(a.unreported, m)
	a.Tally.Received(m)
	if a.Log != nil {
		a.reception(m, func(envelope.Address) bool { return true })
	}
}

// reception writes the Receptions of those recipients that lack theirs, and returns how many these are.
func (a *Accountant) reception(m *envelope.Message, lacks func(envelope.Address) bool) (n int) {
	rec := a.record(accounting.Reception, m, m.Received)
	rec.Response = accepted(m)
	rec.Peer = accounting.Peer{Name: m.HeloName, Addr: m.Peer.Addr()}
	rec.Session, rec.ReceptionProtocol = m.Session, m.Protocol
	for i := range m.Recipients {
		if rec.Recipient = m.Recipients[i].Address; !lacks(rec.Recipient) {
			continue
		}
		rec.Queue = queueName(m.Tenant, rec.Recipient)
		rec.Release = m.ReleaseOf(i)
		a.add(&rec)
		n++
	}
	return n
}

// maxMissing bounds the Receptions that a start writes. A crash takes along those of some milliseconds; more
// are missing only if somebody has deleted the log.
const maxMissing = 200_000

// Queue has the messages whose Receptions may be missing.
type Queue interface {
	// Envelopes calls each with the messages from an id on that wanted selects.
	Envelopes(from envelope.ID, wanted func(envelope.ID) bool, each func(*envelope.Message))
}

// Complete writes the Receptions that a crash has taken along, of messages that are in the queue, and returns how many
// these are. What has left the queue has its records.
func (a *Accountant) Complete(q Queue, latest *accounting.Receptions) (missing int) {
	q.Envelopes(latest.From, func(id envelope.ID) bool {
		return missing < maxMissing && !latest.Has(id)
	}, func(m *envelope.Message) {
		missing += a.reception(m, func(to envelope.Address) bool { return !latest.HasOf(m.ID, to) })
	})
	return missing
}

// Rejected is called by submission for each refusal, or for a number of them.
func (a *Accountant) Rejected(r intake.Rejection) {
	a.Meter.Refused(r.Reply, max(r.Count, 1))
	if a.Log == nil {
		return
	}
	rec := accounting.Record{
		Type: accounting.Rejection, Message: accounting.Message{Sender: r.Sender, User: r.User, Tenant: r.Tenant},
		Recipient: r.Recipient, Response: r.Reply, Peer: accounting.Peer{Name: r.HeloName, Addr: r.Peer.Addr()},
		Time: r.Time, Session: r.Session, Count: r.Count,
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
func (a *Accountant) Unsubscribed(s *suppression.Subscription, session string) {
	a.Log.Add(&accounting.Record{
		Type: accounting.Unsubscribe, Recipient: s.Address, Session: session, Time: a.Now(),
		Message: accounting.Message{Tenant: s.Tenant, Campaign: s.Campaign, Created: s.Sent},
		Queue:   queueName(s.Tenant, s.Address),
	})
}

// Attempted writes down what became of recipients. Those of a job mostly fare alike: what they share is looked up once.
func (a *Accountant) Attempted(kind accounting.Type, o *dispatch.Outcomes, as []dispatch.Attempt) {
	now, m := a.Now(), o.Message
	a.Received(m)
	var counted tally.Outcome
	var common, rec accounting.Record
	if a.Log != nil {
		common = a.record(kind, m, now)
		common.EgressPool = a.Policy().PoolOf(m, o.Route).Name
		if o.Route != nil {
			common.Site, common.Provider = o.Route.Site, o.Route.Provider
		}
	}
	for i := range as {
		r := &as[i].Result
		class := a.classOf(o, r, m.ID, now)
		if i == 0 || class != counted.Class || !counted.Covers(r) {
			a.count(&counted, now)
			counted = tally.Outcome{Kind: kind, Message: m, Route: o.Route, Site: o.Site(), Result: r, Class: class}
		}
		counted.Recipients++
		if a.Log != nil {
			rec = common
			rec.Class = class.String()
			describe(&rec, m, &as[i], now)
			a.add(&rec)
		}
	}
	a.count(&counted, now)
}

// count counts an outcome that has recipients.
func (a *Accountant) count(o *tally.Outcome, now time.Time) {
	if o.Recipients > 0 {
		a.Meter.Attempted(o, now)
		a.Tally.Attempted(o, now)
	}
}

// describe adds what an attempt has of its own.
func describe(rec *accounting.Record, m *envelope.Message, at *dispatch.Attempt, now time.Time) {
	r := &at.Result
	rec.Recipient = m.Recipients[at.Pending.Index].Address
	rec.Queue = queueName(m.Tenant, rec.Recipient)
	rec.Response, rec.Session, rec.EgressSource = r.Reply, r.Session, r.Source
	rec.Attempts = at.Pending.Attempts
	if r.Attempted {
		rec.Attempts++
	}
	addLink(rec, r)
	addTimes(rec, m, r, now)
	if r.Host.Inside() { // no host has the mail
		rec.Peer, rec.DeliveryProtocol = accounting.Peer{Name: r.Host.Name}, "discard"
	} else if r.Host.Name != "" {
		rec.Peer = accounting.Peer{Name: r.Host.Name, Addr: r.Host.Addr.Addr()}
	}
}

// After calls f when the records of all that was attempted before are on stable storage.
func (a *Accountant) After(f func()) {
	if a.Log == nil {
		f()
		return
	}
	a.Log.After(f)
}

// classOf classifies a result. What no rule knows is remembered for the operator.
func (a *Accountant) classOf(o *dispatch.Outcomes, r *delivery.Result, id envelope.ID, now time.Time) bounce.Class {
	provider := ""
	if o.Route != nil {
		provider = o.Route.Provider
	}
	class := a.Classes.Of(&r.Reply, provider)
	if class == bounce.Uncategorized && r.Attempted && !r.Reply.Local && a.Unknown != nil {
		a.Unknown.Add(provider, r.Reply, id.String(), now)
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
		rec.TLS = accounting.TLS{Version: t.Version, Cipher: t.Cipher, Trust: accounting.Unverified,
			By: string(t.Verified), Certificate: t.Certificate}
		if t.Verified != tlspolicy.ByNothing {
			rec.TLS.Trust = accounting.Verified
		}
	}
}

// addTimes adds what took how long. The queue's time is what is left of the message's age.
func addTimes(rec *accounting.Record, m *envelope.Message, r *delivery.Result, now time.Time) {
	t := &r.Times
	rec.Phases = accounting.Phases(*t)
	rec.Queued = max(0, now.Sub(m.Start())-(t.Wait+t.Connect+t.Handshake+t.Turn+t.Send+t.Reply))
}

// Removed writes down what an operator has removed or moved, or its sender cancelled, without a report. It calls
// recorded when that is on stable storage.
func (a *Accountant) Removed(items []queue.Item, recorded func()) {
	if a.Log != nil {
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
	queue.Remove: {accounting.AdminBounce,
		reply.Local(554, reply.Enhanced{5, 7, 0}, "queue", "removed by the administrator of this relay")},
	queue.Cancel: {accounting.Cancellation,
		reply.Local(554, reply.Enhanced{5, 7, 0}, "queue", "cancelled by its sender")},
	queue.Transfer: {accounting.Transfer,
		reply.Local(250, reply.Enhanced{2, 0, 0}, "queue", "moved")}, // to where is added
}

func (a *Accountant) removal(it *queue.Item) {
	rec := a.record(accounting.AdminBounce, &it.Message, a.Now())
	for _, rc := range it.Recipients {
		if rc.Last.OK() { // it has the record of its delivery: only the report to its sender was outstanding
			continue
		}
		end, known := removals[rc.Asked]
		if !known {
			end = removals[queue.Remove]
		}
		rec.Type, rec.Response, rec.Class = end.kind, end.response, ""
		if end.kind == accounting.Transfer {
			rec.Response.Text = "moved to " + cmp.Or(a.whereMoved(it), "another relay or an archive")
		}
		if rc.Last.Command == "milter" && rc.Last.Permanent() {
			rec.Response = rc.Last // it was discarded
		}
		rec.Recipient, rec.Site, rec.Attempts = rc.Address, rc.Line.Site(), rc.Attempts
		rec.Queue = queueName(it.Tenant, rc.Address)
		a.add(&rec)
	}
}

// Unreadable writes down that a message in the queue can't be read: not even its sender is known.
func (a *Accountant) Unreadable(id envelope.ID, _ int, err error) {
	rec := a.record(accounting.Damage, &envelope.Message{ID: id}, a.Now())
	rec.Response = reply.Local(451, reply.Enhanced{4, 3, 0}, "queue",
		"the envelope of the message was damaged on this relay's disk: %v", err)
	a.add(&rec)
}

// add adds a record with the class of its response, which a success has none of.
func (a *Accountant) add(rec *accounting.Record) {
	if rec.Class == "" && rec.Response.Code != 0 {
		rec.Class = a.Classes.Of(&rec.Response, rec.Provider).String()
	}
	a.Log.Add(rec)
}

func (a *Accountant) record(kind accounting.Type, m *envelope.Message, t time.Time) accounting.Record {
	return accounting.Record{Type: kind, Time: t, Message: accounting.Message{
		ID: m.ID, Sender: m.Sender, Size: m.Size, Created: m.Accepted(), User: m.User, Key: m.APIKey, Tenant: m.Tenant,
		Campaign: m.Campaign, Tags: m.Tags, Meta: accounting.Object(m.Meta), Headers: accounting.Object(m.Headers),
		TraceID: m.TraceID, MovedFrom: m.MovedFrom(),
	}}
}

// queueName is the tenant and the recipient's domain, as "acme@example.com".
func queueName(tenant string, to envelope.Address) string {
	if tenant == "" {
		return to.Domain()
	}
	return tenant + "@" + to.Domain()
}
