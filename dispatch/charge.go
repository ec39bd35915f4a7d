package dispatch

import (
	"sync/atomic"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/queue"
	"example.org/mta/warmup"
)

// charge follows a job from a source with a warm-up: the tokens charged for it, and the provider's replies.
type charge struct {
	warm          *warmup.Controller
	key, provider string
	judge         judge
	out           int          // recipients that were let out
	begun         atomic.Int64 // of those, charged
	refused       atomic.Bool  // there were no tokens when a transaction was to begin
}

// promise begins the charge of a job from a source that a warm-up knows.
func (d *Dispatcher) promise(c *choice, rt *route.Route) {
	if c.key != "" {
		c.paid = &charge{warm: d.Warmup, key: c.key, provider: rt.Provider,
			judge: judge{d.Classes, rt.Provider}, out: c.out}
	}
}

// cut takes the first n recipients out of a choice, with their part of the promised tokens.
func (c *choice) cut(n int) *choice {
	part := *c
	part.n, part.out = n, min(n, c.out)
	c.n, c.out = c.n-n, c.out-part.out
	c.called = false // delivery has called for one message
	return &part
}

// drop ends the charge of a job that is not handed to delivery.
func (c *choice) drop() {
	if c.paid != nil {
		c.paid.end(nil, nil)
	}
}

// begin is Job.MayBegin.
func (c *charge) begin(recipients int) bool {
	if !c.warm.Begin(c.key, c.provider, int64(recipients)) {
		c.refused.Store(true)
		return false
	}
	c.begun.Add(int64(recipients))
	return true
}

// end drops the promises of tokens that the job did not use, and reports its outcomes to the warm-up.
func (c *charge) end(recipients []queue.Pending, results []delivery.Result) {
	c.warm.Drop(c.key, c.provider, int64(c.out)-c.begun.Load())
	for i := range results {
		r := &results[i]
		if !r.Attempted || r.Session == "" { // refusals of a connection are Refused's
			continue
		}
		before := find(recipients, r.Recipient)
		if x, ok := c.judge.outcome(&r.Reply, before.Attempts, &before.Last); ok {
			c.warm.Report(c.key, c.provider, x)
		}
	}
}

// judge says what replies mean for a warm-up.
type judge struct {
	classes  *bounce.Classifier
	provider string
}

// outcome returns what a reply means for the health of a warm-up, false when it means nothing: what
// this relay says itself, a host's own trouble, greylisting. A deferral counts once for a recipient, at
// the first or, if that was none that counts, at the second attempt: attempts were made before, and last
// answered the last of them.
func (j *judge) outcome(r *reply.Reply, attempts int, last *reply.Reply) (warmup.Outcome, bool) {
	class := j.classes.Of(r, j.provider)
	switch {
	case r.OK():
		return warmup.Delivered, true
	case r.Local:
		return 0, false
	case r.Permanent() && class.AboutUs():
		return warmup.PolicyRefusal, true
	case r.Permanent() && class.Bounces():
		return warmup.HardBounce, true
	case r.Permanent() || class.AboutRecipient():
		return warmup.NotAboutUs, true // a provider that looks at mailbox and message blocks nobody
	}
	counts := j.counted(class, attempts) && attempts < 2 &&
		!(attempts == 1 && j.counted(j.classes.Of(last, j.provider), 0))
	switch {
	case class.AboutUs() && class != bounce.TooManyConnections && counts:
		return warmup.PolicyRefusal, true
	case class.AboutUs() && class != bounce.TooManyConnections:
		return warmup.RefusedAgain, true
	}
	return warmup.Deferred, counts
}

// counted reports whether a deferral of that class, after so many attempts, counts against a warm-up. A
// first one without a reason is most often greylisting (RFC 6647).
func (j *judge) counted(c bounce.Class, attempts int) bool {
	return c.AboutUs() || attempts > 0 && (c == bounce.TransientFailure || c == bounce.Uncategorized)
}

// refused returns what it means that a host ended a connection before any transaction, false when it
// means nothing. That is about this sender, never about an address.
func (j *judge) refused(r *reply.Reply) (warmup.Outcome, bool) {
	switch class := j.classes.Of(r, j.provider); {
	case class == bounce.TooManyConnections:
		return warmup.Deferred, true
	case class.AboutUs():
		return warmup.PolicyRefusal, true
	}
	return 0, false
}

// Refused reports to a warm-up that a host turned its source away: see delivery.Config.OnRefused. It is one
// outcome, however many recipients waited for that connection.
func (d *Dispatcher) Refused(rt *route.Route, source string, words reply.Reply) {
	if key, ok := d.Policy().WarmupKeyOf(source); ok {
		j := judge{d.Classes, rt.Provider}
		if x, ok := j.refused(&words); ok {
			d.Warmup.Report(key, rt.Provider, x)
		}
	}
}
