// Package dispatch carries mail between queue, router and delivery, and the results back. It is the only
// package that knows the three.
//
// A message passes these files in order:
//
//	dispatch.go    a lease from the queue; its domains' routes; a job for delivery
//	lookups.go     recipients whose route is not known wait for it
//	suppressed.go  recipients on the suppression list are bounced
//	ruled.go       what operators' rules bounce, hold or suspend ends, or waits in the queue
//	split.go       the choice of a source
//	throttled.go   mail for which no source has tokens waits in the queue
//	paced.go       mail beyond the pace of its campaign likewise
//	return_path.go the address to which reports come back
//	signing.go     DKIM
//	charge.go      a token is charged when a transaction begins
//	refill.go      parked mail is taken up when delivery has space, a route is found, a rule has ended
//	outcome.go     results are reported and settled in the queue
//	postpone.go    mail without a route, a source or a signature is deferred
//	retry.go       a temporary failure becomes a later attempt
//	notify.go      senders are notified, by report.go
//	mailbox.go     hosts are asked whether a mailbox exists, by a job without a message of the queue
//
// Long-lived goroutines, all of [Dispatcher.Run], which waits for them: the dispatcher, which takes leases;
// three refillers; the sweeps of throttled and of paced mail. Besides, the workers of a [Reporter], ended by its
// Close, and signers while there is something to sign.
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/delivery"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/router"
	"example.org/mta/suppression"
	"example.org/mta/warmup"
)

// Queue is what the dispatcher needs of the queue.
type Queue interface {
	Next(ctx context.Context) (*queue.Lease, error)
	Writable(ctx context.Context) error
	Hold(id envelope.ID, recipients []int, last queue.Attempt) error
	Park(id envelope.ID, recipients []int, line parking.Line, until time.Time)
	File(id envelope.ID, recipients []int, line parking.Line) (asked bool)
	Parked(line parking.Line) int
	ParkFirst(id envelope.ID, recipients []int, line parking.Line, until time.Time)
	ParkedInLines(key parking.Key) int
	Take(line parking.Line, n int) []*queue.Lease
	TakeNewest(line parking.Line, n int) []*queue.Lease
	Return(id envelope.ID, recipients []int)
	Settle(id envelope.ID, recipients []int, o queue.Outcome) error
	Defer(id envelope.ID, recipients []int, until time.Time, last queue.Attempt, key parking.Key) error
	Warned(id envelope.ID, recipients []int)
	WarnLater(id envelope.ID, recipients []int, at time.Time)
	WarnAt(id envelope.ID, recipients []int, at time.Time)
	NotifyAt(id envelope.ID, recipients []int, at time.Time)
	Body(id envelope.ID) (io.ReadCloser, error)
	NothingExpiresBefore() time.Time
}

// Delivery is what the dispatcher needs of delivery.
type Delivery interface {
	Reserve(*delivery.Job) bool
	Submit(*delivery.Job)
	Release(*delivery.Job)
	Cancel(id envelope.ID) int
	Space(delivery.Flow) int
	Draining(delivery.Flow) bool
	Blocked(site string) (reply.Reply, bool)
	Suspended(site, source string) bool
}

// Router is what the dispatcher needs of the router.
type Router interface {
	Known(domain string) (*route.Route, *reply.Reply, bool)
	Submit(router.Request)
}

// Notifier notifies senders of what became of their mail.
type Notifier interface {
	// notify writes a report into the queue and calls done with whether it is durable. It
	// doesn't block.
	notify(n Notification, done func(error))
}

// Config is what a dispatcher joins, and what it asks.
type Config struct {
	Queue    Queue
	Router   Router
	Delivery Delivery
	Notifier Notifier
	Events   Events
	Sites    *Sites
	Policy   func() *wiring.Policy // in force
	// Missing reports whether nothing can or may leave from a source. Nil: it can from all.
	Missing     func(source string) bool
	Warmup      *warmup.Controller
	Rules       *rules.Rules        // nil: there are none
	Suppression *suppression.List   // nil: no address is suppressed
	Feeder      *suppression.Feeder // nil: what hosts say of recipients suppresses nobody
	Classes     *bounce.Classifier  // of replies; nil: by the built-in rules
	// Token makes the token of a message, and of one of its recipients, by its number among the message's different
	// addresses, or returnpath.NoRecipient, that stands in its return path. Nil: the return paths are the senders.
	Token func(returnpath.Purpose, *envelope.Message, int) string
	Now   func() time.Time
	// Frozen reports whether no transaction may begin now, as the queue could not keep what becomes of it. Nil: one may
	// always.
	Frozen func() bool
	// MayEnd reports whether the content of a message may still be ended: no other relay can deliver it, too. Nil: it
	// may always.
	MayEnd func() bool
	// Chance is in [0, 1), and safe for concurrent use. Nil: math/rand.
	Chance func() float64
	Log    *slog.Logger
}

// Dispatcher carries leases from the queue through the router to delivery, and the results
// back. It is the only place where the three meet.
//
// What it starts by callback runs on the goroutines of router, delivery and notifier. Nothing here
// waits for a disk.
type Dispatcher struct {
	Config
	split *splitter

	space  *refiller[delivery.Flow] // when delivery has space for a flow
	found  *refiller[string]        // when the route of a domain is found
	ended  *refiller[parking.Key]   // when a rule has ended
	refill func(delivery.Flow)      // has unpark called soon, until there is no more
	takeUp func(domain string)      // the same of unparkRouted

	reports   *faultlog.Kind // that could not be queued
	lookups   *lookups       // mail whose route is not known
	throttled *throttled     // mail that waits for tokens
	paced     *paced         // mail that waits for the pace of its campaign
	reporting budget         // recipients that are with the notifier
	signing   *signing       // mail on its way to delivery
	diverted  divertedMail
	stopping  atomic.Bool // nobody is to wait for a later attempt because of our own stop
	resumed   struct {
		sync.Mutex
		left map[parking.Key]int // recipients of a rule in force that are yet to be looked at, by what they wait for
	}
}

// maxReporting bounds the memory of a burst of mail that expires or is given up at once.
const maxReporting = 10_000

// New makes a dispatcher. It does nothing before Run.
func New(c Config) *Dispatcher {
	if c.Missing == nil {
		c.Missing = func(string) bool { return false }
	}
	if c.Chance == nil {
		c.Chance = rand.Float64
	}
	d := &Dispatcher{Config: c}
	d.space = newRefiller(d.unpark, d.pause)
	d.found = newRefiller(d.unparkRouted, d.pause)
	d.ended = newRefiller(d.unparkSuspended, d.pause)
	d.refill, d.takeUp = d.space.call, d.found.call
	d.throttled, d.paced = newThrottled(d), newPaced(d)
	d.split = &splitter{warm: c.Warmup, missing: c.Missing, now: c.Now, suspended: c.Delivery.Suspended,
		waiting: d.throttled.waiting}
	d.signing = newSigning(c.Queue.Body, c.Now, c.Log)
	d.lookups = newLookups(c.Queue.Parked)
	d.reporting.limit = maxReporting
	d.resumed.left = make(map[parking.Key]int)
	d.reports = faultlog.New(c.Log, c.Now, slog.LevelError,
		"reports to senders can't be queued; recipients that have failed stay queued until they can",
		"reports to senders are queued again")
	return d
}

// Run carries mail until ctx ends, with goroutines for what waits for space, a route, the end of a
// rule, or tokens. What is out by then comes back by itself.
func (d *Dispatcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	for _, run := range []func(context.Context){d.space.run, d.found.run, d.ended.run, d.throttled.run, d.paced.run} {
		waiting.Go(func() { run(ctx) })
	}
	err := d.run(ctx)
	cancel()
	waiting.Wait()
	return err
}

// Refill takes up mail of a flow for which delivery has space. It doesn't block.
func (d *Dispatcher) Refill(f delivery.Flow) { d.refill(f) }

// Resume takes up mail that waited for the end of a rule. Of a rule that is in force it takes up what waits now:
// another source may be free for it. Of a pace, it takes up the mail of all. It doesn't block.
func (d *Dispatcher) Resume(key parking.Key) {
	if key.Kind == parking.Pace {
		d.paced.lookAgain()
		return
	}
	d.resumed.Lock()
	d.resumed.left[key] = d.Queue.Parked(parking.Line{Key: key})
	d.resumed.Unlock()
	d.ended.call(key)
}

// Reload has all mail that waits for tokens decided anew, by the policy in force.
func (d *Dispatcher) Reload() { d.throttled.lookAgain() }

// Stop has nothing wait for a later attempt on account of the relay's own stop.
func (d *Dispatcher) Stop() { d.stopping.Store(true) }

// Close waits for what is being signed. Nothing may be handed out any more.
func (d *Dispatcher) Close() error { return d.signing.wait() }

// LookingUp reports whether a recipient of a message waits in memory for the route of its domain.
func (d *Dispatcher) LookingUp(id envelope.ID, domain string, recipient int) bool {
	return d.lookups.has(id, domain, recipient)
}

// Signing reports whether a message is being signed.
func (d *Dispatcher) Signing(id envelope.ID) bool { return d.signing.has(id) }

// SigningTrouble returns which mail waits for its signature, and which has left unsigned since no dkim block may sign
// its tenant's mail; "" when there is none.
func (d *Dispatcher) SigningTrouble() (waits, withheld string) { return d.signing.trouble() }

// SigningCounts counts messages that were signed, and that could not be.
func (d *Dispatcher) SigningCounts() *SigningCounts { return &d.signing.counts }

// Unthrottle tries mail that waits for tokens: see warmup.Config.OnTokens.
func (d *Dispatcher) Unthrottle(key, provider string) { d.throttled.tryAll(key, provider) }

// Throttled returns how many recipients wait for tokens of a warm-up: see warmup.Config.Waiting.
func (d *Dispatcher) Throttled(key, provider string) int64 {
	return d.throttled.waitingFor(key, provider)
}

// EachThrottled calls f with how many recipients wait for tokens, by pool and provider.
func (d *Dispatcher) EachThrottled(f func(pool, provider string, recipients int)) {
	d.throttled.each(f)
}

// run hands out what is due until ctx ends. What is out by then comes back by itself.
func (d *Dispatcher) run(ctx context.Context) error {
	for {
		if err := d.pause(ctx); err != nil {
			return nil
		}
		d.reports.Check()
		l, err := d.Queue.Next(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, queue.ErrClosed) {
				return nil
			}
			return err
		}
		d.handle(l)
	}
}

// pause waits while as much is being reported or signed as may be, or outcomes can't be written down. It never
// waits for a remote host or a name server: mail that others don't keep waiting goes on.
func (d *Dispatcher) pause(ctx context.Context) error {
	if err := d.reporting.wait(ctx); err != nil {
		return err
	}
	if err := d.signing.pending.wait(ctx); err != nil {
		return err
	}
	return d.Queue.Writable(ctx)
}

func (d *Dispatcher) handle(l *queue.Lease) {
	if l.Why != queue.DelayWarning {
		if l = d.withoutEnded(l); l == nil {
			return
		}
	}
	switch l.Why {
	case queue.Due:
		if by := l.Message.By(); by.Notifies() {
			d.Queue.NotifyAt(l.Message.ID, indexes(l.Recipients), by.At)
		}
		d.route(l, delivery.Flow{})
	case queue.Expired:
		d.expire(l.Message, nil, l.Recipients)
	case queue.BounceAsked:
		d.bounceForOperator(l)
	case queue.DelayWarning:
		d.warn(l)
	case queue.Damaged:
		d.bounceDamaged(l)
	}
}

// route finds where the lease's recipients go. Domains whose routes are known become jobs together, so
// that one message to many domains of one site is one job; those that need a look-up follow one by one,
// so that a slow name server holds up nobody else. Called is the flow for which delivery
// has called, if any.
func (d *Dispatcher) route(l *queue.Lease, called delivery.Flow) {
	if l = d.suppressed(l); l == nil {
		return
	}
	pol := d.Policy()
	var known ways
	var unknown map[string][]queue.Pending
	byRoute := func(p *queue.Pending) string { return d.routeOf(pol.Config, l.Message, *p) }
	for domain, recipients := range groups(l.Recipients, byRoute) {
		switch rt, failed, ok := d.Router.Known(domain); {
		case !ok && unknown == nil:
			unknown = make(map[string][]queue.Pending)
			fallthrough
		case !ok:
			unknown[domain] = recipients
		case failed != nil:
			d.unroutable(l.Message, recipients, domain, *failed)
		default:
			w := way{rt.Site, pol.Traffic(domain, rt), rt.STS, rt.Secure, nil}
			if pol.Config.PoolsDiffer() {
				w.pool = pol.PoolOf(l.Message, rt)
			}
			known.add(w, rt, recipients)
		}
	}
	for _, r := range known.all {
		d.submit(l.Message, r.route, r.recipients, called)
	}
	if len(unknown) > 0 {
		d.lookUp(l.Message, unknown)
	}
}

// routeOf returns the name of the route that a recipient takes, that of an operator's rule before others. One that was
// rerouted by itself has that route.
func (d *Dispatcher) routeOf(cfg *config.Config, m *envelope.Message, p queue.Pending) string {
	if d.Rules.Current() != nil && p.Detour.Route == "" {
		if name := d.Rules.RouteOf(rules.MailOf(m, m.Recipients[p.Index].Address.Domain(), nil, nil)); name != "" {
			return name
		}
	}
	return routeOf(cfg, m, p)
}

// routeOf returns the domain whose route a recipient takes by the configuration.
func routeOf(cfg *config.Config, m *envelope.Message, p queue.Pending) string {
	return cfg.RouteBy(config.Way{Sender: m.Sender, Domain: m.Recipients[p.Index].Address.Domain(), Detour: p.Detour})
}

// way is what the recipients of a job have in common. Two domains of one site can differ in their
// settings: one may demand TLS, or give up sooner.
type way struct {
	site     string
	settings *config.Traffic // shared by all domains for which the same blocks count
	sts      route.STS
	secure   bool
	pool     *config.Pool // where it depends on the domain
}

// routed is recipients that go the same way.
type routed struct {
	way
	route      *route.Route
	recipients []queue.Pending
}

// ways are the ways that the recipients of a message go. Most go one way: further ones have an index.
type ways struct {
	all     []routed
	further map[way]int
}

// add adds recipients to those that go the same way.
func (k *ways) add(w way, rt *route.Route, recipients []queue.Pending) {
	i, known := k.further[w]
	if known || len(k.all) > 0 && k.all[0].way == w {
		k.all[i].recipients = append(k.all[i].recipients, recipients...)
		return
	}
	if len(k.all) == 1 {
		k.further = make(map[way]int)
	}
	if len(k.all) > 0 {
		k.further[w] = len(k.all)
	}
	k.all = append(k.all, routed{w, rt, recipients})
}

// submit makes jobs of recipients with one route. Called is the flow for which delivery has
// called, if any.
func (d *Dispatcher) submit(m *envelope.Message, rt *route.Route, recipients []queue.Pending, called delivery.Flow) {
	for way, group := range groups(recipients, detour) {
		by := m
		if !way.IsZero() {
			own := *m
			by, own.Detour = &own, way
		}
		d.submitBy(by, rt, group, called)
	}
}

// submitBy is submit for recipients with one detour, which m has.
func (d *Dispatcher) submitBy(m *envelope.Message, rt *route.Route, recipients []queue.Pending, called delivery.Flow) {
	pol, ruled := d.Policy(), d.Rules.Current()
	d.Sites.remember(rt)
	expires := d.given(pol.Expires(m, rt.Domain, rt))
	if !d.Now().Before(expires) {
		d.expire(m, rt, recipients)
		return
	}
	if recipients = d.withoutStopped(m, rt, recipients, expires); len(recipients) == 0 {
		return
	}
	if key := d.Rules.Shut(m); key != (parking.Key{}) {
		d.parkSuspended(m, recipients, key, expires)
		return
	}
	var pace *rules.Pace
	if p := d.Rules.Pace(m); !p.IsZero() {
		own := p // p stays on the stack
		if pace, recipients = &own, d.withoutPaced(m, recipients, &own, expires); len(recipients) == 0 {
			return
		}
	}
	handed := 0
	for via, group := range groups(recipients, via) {
		turn := group[0].Key.Kind == parking.Tokens
		c := d.split.choose(pol, mail{m, rt, via, called.Source, len(group), turn, expires.Sub(m.Start())})
		c.expires, c.pace = expires, pace
		if c.none {
			if key := d.Rules.SourceOf(pol.PoolOf(m, rt)); key != (parking.Key{}) {
				d.parkSuspended(m, group, key, expires)
			} else {
				d.postpone(m, rt, group, pol.NoSource(m, rt))
			}
			continue
		}
		if c.source != "" {
			c.by, c.called = basis{pol, ruled}, delivery.FlowOf(m, rt.Site, c.source) == called
			handed += d.send(m, rt, group[:c.n:c.n], c)
			group = group[c.n:]
		}
		if len(group) > 0 {
			d.throttled.park(m, indexes(group), &c, d.Policy().Weight(m.Tenant), false)
		}
	}
	if pace != nil && handed < len(recipients) {
		d.Rules.Untake(pace, len(recipients)-handed)
	}
	d.recall(m, basis{pol, ruled})
}

// basis is what choices follow from.
type basis struct {
	policy *wiring.Policy
	rules  *rules.Set
}

// recall takes back what was chosen by a configuration, or by rules, that are in force no longer: it was
// perhaps not there yet when the reload, or the rule, looked through what waits.
func (d *Dispatcher) recall(m *envelope.Message, by basis) {
	if d.Policy() != by.policy || d.Rules.Current() != by.rules {
		d.Delivery.Cancel(m.ID)
	}
}

// send hands recipients to delivery, to leave from the source of c: together, or each by itself where it has a return
// path of its own. Without space there, they wait in the queue, in a line for their flow. It returns how many were
// handed over.
func (d *Dispatcher) send(m *envelope.Message, rt *route.Route, recipients []queue.Pending, c choice) (handed int) {
	slices.SortFunc(recipients, func(a, b queue.Pending) int { return cmp.Compare(a.Index, b.Index) })
	path := d.returnPath(c.by.policy, m)
	size := path.perJob(len(recipients))
	for ; len(recipients) > 0; recipients = recipients[size:] {
		part := &c
		if size < len(recipients) {
			part = c.cut(size)
		}
		if !d.sendJob(m, rt, recipients[:size:size], path, part) {
			if part != &c {
				d.promise(&c, rt)
				c.drop()
			}
			d.park(m, recipients, delivery.FlowOf(m, rt.Site, c.source), c.expires)
			return handed
		}
		handed += size
	}
	return handed
}

// sendJob hands a job to delivery: at once, or when the message is signed. It reports false without space there.
func (d *Dispatcher) sendJob(m *envelope.Message, rt *route.Route, recipients []queue.Pending, path *returnPath,
	c *choice) bool {
	job := &delivery.Job{
		Message:    m,
		Recipients: indexes(recipients),
		Route:      rt,
		Source:     c.source,
		Demand:     d.Policy().Demand(m, rt),
		Expires:    c.expires,
		Weight:     d.Policy().Weight(m.Tenant),
		Called:     c.called,
		Body:       func() (io.ReadCloser, error) { return d.body(m.ID) },
		Done: func(j *delivery.Job, results []delivery.Result) {
			d.done(j, recipients, d.account(m, c, recipients, results))
		},
	}
	if d.promise(c, rt); c.paid != nil {
		job.MayBegin = c.paid.begin
	}
	if then := job.MayBegin; c.pace != nil || c.by.policy.Window(m) != nil {
		job.MayBegin = func(recipients int) bool { return d.Rules.May(m, recipients, then) }
	}
	if then := job.MayBegin; d.Frozen != nil {
		job.MayBegin = func(recipients int) bool { return !d.Frozen() && (then == nil || then(recipients)) }
	}
	if !d.Delivery.Reserve(job) {
		c.drop()
		return false
	}
	var top top
	job.ReturnPath, top = path.put(job.Recipients)
	if d.Policy().Config.Signs(m.Tenant) || len(top.unsubscribe) > 0 {
		d.sign(m, job, recipients, top, c)
		return true
	}
	if len(top.fields) > 0 {
		(&signature{fields: top.fields}).addTo(job)
	}
	d.hand(m, job)
	return true
}

// body opens the content of a message, whose end is an error if it may not be ended.
func (d *Dispatcher) body(id envelope.ID) (io.ReadCloser, error) {
	content, err := d.Queue.Body(id)
	if err != nil || d.MayEnd == nil {
		return content, err
	}
	return endless{content, d.MayEnd}, nil
}

// endless is a content that has an end only while it may.
type endless struct {
	io.ReadCloser
	may func() bool
}

func (e endless) Read(p []byte) (n int, err error) {
	if n, err = e.ReadCloser.Read(p); errors.Is(err, io.EOF) && !e.may() {
		err = &noEnd
	}
	return n, err
}

var noEnd = reply.Local(451, reply.Enhanced{4, 3, 0}, "content", "the message was not sent to its end: another relay "+
	"may have it by now")

// hand gives a job to delivery, which has space for it.
func (d *Dispatcher) hand(m *envelope.Message, job *delivery.Job) {
	d.Delivery.Submit(job)
	// What an operator asked for on the way here found nothing in delivery to take back.
	line := parking.Line{Key: parking.Key{Name: job.Route.Site}, Source: job.Source}
	if asked := d.Queue.File(m.ID, job.Recipients, line); asked {
		d.Delivery.Cancel(m.ID)
	}
}

// account has the warm-up hear of what became of a job, and gives the results of those who don't wait on for tokens.
func (d *Dispatcher) account(m *envelope.Message, c *choice, recipients []queue.Pending,
	results []delivery.Result) []delivery.Result {
	if pool := c.wait.Name; pool != "" {
		d.diverted.add(pool, c.why, firstAttempts(recipients, results), d.Now())
	}
	if c.paid == nil {
		return results
	}
	c.paid.end(recipients, results)
	if c.waits && c.paid.refused.Load() {
		return d.holdWithdrawn(m, c, results)
	}
	return results
}

// holdWithdrawn has recipients wait on, in their place, for whom there were no tokens when they were to
// leave. It gives the results of the others.
func (d *Dispatcher) holdWithdrawn(m *envelope.Message, c *choice, results []delivery.Result) []delivery.Result {
	var again []int
	results = slices.DeleteFunc(results, func(r delivery.Result) bool {
		if r.Withdrawn {
			again = append(again, r.Recipient)
		}
		return r.Withdrawn
	})
	if len(again) > 0 {
		c.asked = "" // that was answered when they were sent
		d.throttled.park(m, again, c, d.Policy().Weight(m.Tenant), true)
	}
	return results
}

// park lets recipients wait in the queue until delivery has space for a flow.
func (d *Dispatcher) park(m *envelope.Message, recipients []queue.Pending, f delivery.Flow, expires time.Time) {
	d.Queue.Park(m.ID, indexes(recipients), lineOf(f), expires)
	// Delivery may have got space before the mail was parked, and would not call again.
	if d.Delivery.Space(f) > 0 {
		d.refill(f)
	}
}

// groups gives recipients, or attempts, by what they have in common, in the order in which they come. Most often that
// is one for all.
func groups[T any, K comparable](all []T, of func(*T) K) iter.Seq2[K, []T] {
	return func(yield func(K, []T) bool) {
		if len(all) == 0 {
			return
		}
		first := of(&all[0])
		same := 1
		for same < len(all) && of(&all[same]) == first {
			same++
		}
		if same == len(all) {
			yield(first, all)
			return
		}
		numbers, order := map[K]int{first: 0}, []K{first}
		sizes, number := []int{same}, make([]int, len(all))
		for i := same; i < len(all); i++ {
			k := of(&all[i])
			n, known := numbers[k]
			if !known {
				n = len(order)
				numbers[k], order, sizes = n, append(order, k), append(sizes, 0)
			}
			number[i] = n
			sizes[n]++
		}
		sorted, by := make([]T, len(all)), make([][]T, len(order))
		for n, size := range sizes {
			by[n], sorted = sorted[:0:size], sorted[size:]
		}
		for i, n := range number {
			by[n] = append(by[n], all[i])
		}
		for n, k := range order {
			if !yield(k, by[n]) {
				return
			}
		}
	}
}

// via is the source that a recipient had at the attempt before, "" for none: it keeps it.
func via(p *queue.Pending) string { return p.Via }

// detour is the way that an operator has chosen for a recipient.
func detour(p *queue.Pending) envelope.Detour { return p.Detour }

// unpark takes as much mail of a flow out of the queue as delivery has space for. It reports whether
// there may be more to be taken: a flow whose mail leaves as fast as it is read always has space.
func (d *Dispatcher) unpark(f delivery.Flow) (more bool) {
	n := d.Delivery.Space(f)
	if n == 0 {
		return false
	}
	leases := d.take(f, n)
	for _, l := range leases {
		if l.Why == queue.Due {
			d.route(l, f)
		} else {
			d.handle(l)
		}
	}
	return len(leases) > 0
}

// take gives n messages that wait for a flow. Of a backlog that drains after an outage, what is
// newest is worth most: it goes first, but for every fifth message (docs/control.md, Drain).
func (d *Dispatcher) take(f delivery.Flow, n int) []*queue.Lease {
	line := lineOf(f)
	if !d.Delivery.Draining(f) {
		return d.Queue.Take(line, n)
	}
	oldest := int(float64(n)/5 + d.Chance())
	leases := d.Queue.TakeNewest(line, n-oldest)
	return append(leases, d.Queue.Take(line, n-len(leases))...)
}

func indexes(ps []queue.Pending) []int {
	out := make([]int, len(ps))
	for i, p := range ps {
		out[i] = p.Index
	}
	return out
}

// budget counts what is under way and makes a taker wait while it is above its limit.
type budget struct {
	limit int
	mu    sync.Mutex // guards the rest
	used  int
	free  chan struct{} // closed when used falls below limit; nil when nobody waits
}

func (b *budget) add(n int) {
	b.mu.Lock()
	b.used += n
	b.mu.Unlock()
}

func (b *budget) done(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < b.limit && b.free != nil {
		close(b.free)
		b.free = nil
	}
}

func (b *budget) wait(ctx context.Context) error {
	b.mu.Lock()
	if b.used < b.limit {
		b.mu.Unlock()
		return ctx.Err()
	}
	if b.free == nil {
		b.free = make(chan struct{})
	}
	free := b.free
	b.mu.Unlock()
	select {
	case <-free:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
