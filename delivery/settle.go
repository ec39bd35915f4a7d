package delivery

import (
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
)

// maxMoves is how many connections may die under a part before it is given back: a host that ends every
// connection must not keep a job for ever.
const maxMoves = 5

// done is called by the client with the outcome of a transaction.
func (s *Scheduler) done(t *smtpclient.Transaction, o smtpclient.Outcome) {
	now := s.cfg.Now()
	p := t.Context.(*part)
	w := p.work
	s.mu.Lock()
	c := p.conn
	c.clocked(p, o.Results, now)
	s.unassign(p, now)
	var again []int
	moved, yielded, good := false, false, false
	for i, r := range o.Results {
		switch r.Fate {
		case smtpclient.Untried:
			if !s.draining && w.lane.asked.gen == s.limGen && (c.yields || p.moves < maxMoves) {
				again, moved, yielded = append(again, t.Recipients[i]), !c.yields, c.yields
				continue
			}
		case smtpclient.Excess:
			again = append(again, t.Recipients[i])
			continue
		}
		if r.Fate == smtpclient.Answered {
			c.answered, c.said = true, r.Reply
		}
		good = good || r.Fate == smtpclient.Answered && r.Reply.OK()
		res := s.resultOf(p, c, i, r, &o, now) // which may give back other parts of w, and append their results
		if w.results == nil {
			w.results = make([]Result, 0, len(w.Recipients))
		}
		w.results = append(w.results, res)
	}
	if o.Begun.IsZero() {
		w.lane.giveBack(w.lane.waiting.account(w.Message.Tenant), now)
	}
	if good {
		w.lane.drain.took()
		s.countAccepted(c, now)
	}
	if moved {
		c.rec.Phase = destdb.Closing
		c.recount()
		p.moves++
		s.counts.Moved++
	} else if len(again) > 0 && !yielded {
		c.rec.Path.Host.Facts.RcptMax = len(t.Recipients) - len(again)
	}
	if len(again) > 0 {
		p.tx.Recipients = again
		s.requeue(p)
	}
	finished := s.conclude(w)
	if finished {
		s.leave(w.Job, now)
	}
	c.measure()
	if w.lane.waiting.n > 0 {
		w.lane.run(now)
	}
	s.poolOf(c).run(now)
	c.earnTurns()
	s.offerPlaces(c, now)
	s.mu.Unlock()
	if finished {
		w.Done(w.Job, w.results)
	}
}

func (s *Scheduler) resultOf(p *part, c *connection, i int, r smtpclient.Result, o *smtpclient.Outcome,
	now time.Time) Result {
	res := Result{
		Recipient: p.tx.Recipients[i], Reply: r.Reply, Host: c.host, Source: c.source.Name,
		Withdrawn: r.Fate == smtpclient.Withdrawn,
		Attempted: r.Fate != smtpclient.Untried && r.Fate != smtpclient.Withdrawn,
		Ambiguous: r.Fate == smtpclient.Ambiguous,
		DSN:       o.DSN, Relayed: o.Relayed, UTF8: o.UTF8, Session: c.id, Link: &c.link, Times: p.times(c, o, now),
	}
	switch r.Fate {
	case smtpclient.Untried:
		if s.draining {
			res.Reply = stopping
		} else if l := p.work.lane; l.asked.gen != s.limGen {
			res.Reply, res.Withdrawn = withoutSource(l.laneKey.source), true
		} else {
			res.Reply = reply.Local(451, reply.Enhanced{4, 4, 2}, r.Reply.Command,
				"%d connections ended before the message was sent: %s", p.moves+1, answer(r.Reply, c.host))
			res.RetryAfter = now.Add(c.lane.limits.HostRetry)
		}
	case smtpclient.Ambiguous:
		s.cfg.Log.Warn("ambiguous: the host may have taken the message, it is tried again", "message",
			p.work.Message.ID.String(), "host", c.host.String(), "session", c.id)
		s.counts.Ambiguous++
		p.work.lane.drain.failure(now)
	case smtpclient.Answered, smtpclient.Failed:
		// What is untried is left out: judgeEnd looks at the 421 that ends a connection.
		if !r.Reply.OK() {
			s.judge(c, r.Reply, false, now)
			p.work.lane.drain.refused(&r.Reply, s.cfg.Classes.Of(&r.Reply, c.route.Provider), now)
		}
	}
	return res
}

// times are those of the transaction that p's recipients were in.
func (p *part) times(c *connection, o *smtpclient.Outcome, now time.Time) Times {
	t := Times{Wait: p.handed.Sub(p.work.since)}
	if p.fresh { // it waited for the connection, or for what was left of the opening
		t.Handshake = min(c.shaking, t.Wait)
		t.Connect = min(c.connecting, t.Wait-t.Handshake)
		t.Wait -= t.Connect + t.Handshake
	}
	switch {
	case o.Begun.IsZero():
	case o.Written.IsZero():
		t.Turn, t.Reply = o.Begun.Sub(p.handed), now.Sub(o.Begun)
	default:
		t.Turn, t.Send, t.Reply = o.Begun.Sub(p.handed), o.Written.Sub(o.Begun), now.Sub(o.Written)
	}
	return t
}

// requeue lets a part wait again, before others of its message.
func (s *Scheduler) requeue(p *part) { p.work.lane.waiting.add(p, true) }

// giveResult gives all recipients of a part the same result.
func (p *part) giveResult(r Result) {
	w := p.work
	for _, i := range p.tx.Recipients {
		r.Recipient, r.Source = i, w.Job.Source
		w.results = append(w.results, r)
	}
}

// fail gives a part that waits, and is off the list, the same result for all its recipients.
func (s *Scheduler) fail(p *part, r Result) {
	if l := p.work.lane; l.waiting.n == 0 {
		l.rest()
	}
	p.giveResult(r)
	if s.conclude(p.work) {
		s.finish(p.work)
	}
}

// refuse gives all of a job that has no lane one result.
func (s *Scheduler) refuse(w *work, r reply.Reply) {
	for _, i := range w.Recipients {
		w.results = append(w.results, Result{Recipient: i, Source: w.Job.Source, Reply: r})
	}
	s.conclude(w)
	s.finish(w)
}

// conclude takes a job off the books when all its recipients have a result; the caller then has
// its Done called, and gives its space back by leave.
func (s *Scheduler) conclude(w *work) bool {
	if len(w.results) < len(w.Recipients) {
		return false
	}
	s.counts.Done++
	if m := w.message; m != nil {
		if m.works--; m.works == 0 {
			delete(s.messages, m.id)
		}
	}
	return true
}

// finish has the clock call w's Done: never from within Submit, nor with the lock held. Its space is
// free only after that: when a host is down, a caller with a backlog could otherwise hand all of it
// over at once, since each job would fail and free space for the next.
func (s *Scheduler) finish(w *work) {
	s.calls.done = append(s.calls.done, w)
	s.signal()
}
