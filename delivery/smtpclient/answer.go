package smtpclient

import "example.org/mta/internal/reply"

// pair gives x.t what the host has answered. over reports that it was the last that t waited for.
func (c *Conn) pair(x expectation, r rawReply) (over bool, why *Error) {
	if !fits(x.command, r) || c.mode == Chunked && c.mu.manner.foreign(x.command, r) {
		return false, c.outOfStep(x, r)
	}
	switch x.command {
	case cmdReset:
		return false, c.resetAnswered(r)
	case cmdAbort:
		return c.abortAnswered(x.t, r)
	case cmdMail:
		return c.mailAnswered(x, r), nil
	case cmdRcpt:
		return c.rcptAnswered(x, r), nil
	case cmdData:
		return c.dataAnswered(x, r), nil
	case cmdChunk:
		c.chunkAnswered(x, r)
		return false, nil
	}
	return true, c.contentAnswered(x, r)
}

// fits reports whether a command can have such a reply: 3xx belongs to DATA and 2xx does not, and
// some 2xx belong to commands that are not sent in a transaction, or to QUIT. A host that swallows
// the reply to a content answers it, as it seems, with the 221 for QUIT: it must not count as
// delivered.
func fits(k command, r rawReply) bool {
	switch {
	case r.negative():
		return true
	case k == cmdData:
		return r.code == 354
	}
	return r.positive() && !r.aside()
}

func (c *Conn) resetAnswered(r rawReply) *Error {
	if r.positive() {
		c.mu.dirty = false
		if c.mu.resets++; c.mu.resets > 1 {
			c.mu.nonMail++
		}
		return nil
	}
	// RFC 5321, 4.1.1.5 has no failure for it: the host wants no more commands. What it would take
	// the next MAIL for nobody knows, so nothing more is sent; if it closes now, as Exim does
	// after "too many nonmail commands", it has acted on nothing behind this.
	why := &Error{Reply: r.reply("RSET")}
	if c.mu.expected.len() == 0 {
		return why
	}
	c.mu.dismissed = true
	c.stopLocked(why)
	c.listenOn()
	return nil
}

// abortAnswered ends a transaction whose content was given up.
func (c *Conn) abortAnswered(t *Transaction, r rawReply) (over bool, why *Error) {
	if why := c.resetAnswered(r); why != nil || c.mu.dismissed {
		return false, why
	}
	if t.local != nil {
		t.conclude(t.local.Fate, t.local.Reply)
	}
	return true, nil
}

func (c *Conn) mailAnswered(x expectation, r rawReply) (over bool) {
	t := x.t
	t.heard = true
	if r.positive() {
		c.mu.dirty = true
		return false
	}
	refusal := c.refusal(x, r)
	if refusal.Reply.Temporary() {
		c.mu.window.troubled()
	}
	t.refused = true
	t.conclude(refusal.Fate, refusal.Reply)
	// Where the rest of the envelope is on its way already, its replies (503, mostly) are still to
	// come: they change nothing.
	return c.stepwise(t)
}

// stepwise reports whether t is sent one command at a time, so that it is over as soon as it has
// failed.
func (c *Conn) stepwise(t *Transaction) bool {
	return c.mode == LockStep || c.mode == Pipelined && t.binary()
}

func (c *Conn) rcptAnswered(x expectation, r rawReply) (over bool) {
	t, i := x.t, int(x.rcpt)
	t.asked--
	if result := &t.results[i]; result.open() {
		switch {
		case r.positive() && t.asksOnly():
			*result = Result{Fate: Answered, Reply: r.reply("RCPT")}
		case r.positive():
			result.Fate = accepted
			t.accepted++
		case t.accepted > 0 && full(r):
			*result = Result{Fate: Excess, Reply: r.reply("RCPT")}
			if c.stepwise(t) {
				t.leaveOut(i+1, result.Reply)
			}
		default:
			*result = c.refusal(x, r)
		}
	}
	return c.stepwise(t) && t.asked == 0 && t.accepted == 0
}

// full reports whether r says that the transaction, and not the recipient, is the trouble: 452, or
// 552 from older hosts, with X.5.3 or with no enhanced code at all (RFC 5321, 4.5.3.1.10). 452
// 4.2.2, for one, is a full mailbox.
func full(r rawReply) bool {
	if r.code != 452 && r.code != 552 {
		return false
	}
	e := r.enhanced()
	return e == reply.Enhanced{} || e[1] == 5 && e[2] == 3
}

func (c *Conn) dataAnswered(x expectation, r rawReply) (over bool) {
	if !r.negative() {
		return false // the writer goes on
	}
	refusal := c.refusal(x, r)
	x.t.conclude(refusal.Fate, refusal.Reply)
	return true
}

func (c *Conn) chunkAnswered(x expectation, r rawReply) {
	if r.negative() {
		refusal := c.refusal(x, r)
		x.t.refused = true
		x.t.conclude(refusal.Fate, refusal.Reply)
	}
}

// contentAnswered ends a transaction by the reply to its content.
func (c *Conn) contentAnswered(x expectation, r rawReply) *Error {
	t := x.t
	switch {
	case r.positive() && t.refused && x.command == cmdLastChunk:
		// What the host has now taken is not what was sent.
		return c.outOfStep(x, r)
	case r.positive():
		// With no recipient accepted this was the answer to a lone dot, and nothing is left to be
		// concluded by it.
		c.mu.dirty = false
		if t.accepted > 0 {
			c.mu.served++
			c.mu.window.succeeded(c.mu.begun-c.mu.flying.n+1, t.Message.Size)
		}
	case x.command == cmdContent:
		c.mu.dirty = false
	}
	if t.accepted > 0 {
		c.mu.resets = 0
	}
	if t.accepted > 0 && !t.refused {
		final := Result{Fate: Answered}
		if r.positive() {
			final.Reply = r.reply("content")
		} else if final = c.refusal(x, r); final.Reply.Temporary() {
			c.mu.window.troubled()
		}
		t.conclude(final.Fate, final.Reply)
	}
	return nil
}

// refusal is the result that a 4xx or 5xx gives. A host that finds the order of commands wrong where
// it is right, or doesn't know a command that it has offered, is talking of itself and not of the
// message: it may have lost count of what was sent ahead. The message has failed for now, the
// connection takes no more, and the host is best talked to in lock-step, where 503 is believed.
func (c *Conn) refusal(x expectation, r rawReply) Result {
	if c.mode == LockStep || !misplaced(x, r) {
		return Result{Fate: Answered, Reply: r.reply(x.command.String())}
	}
	why := c.outOfStep(x, r)
	if c.mu.distrust == nil {
		c.mu.distrust, c.mu.quitting = why, true
		c.mu.returned = c.mu.queue.takeAll()
	}
	return Result{Fate: Failed, Reply: why.Reply}
}

// misplaced reports whether r complains of a sequence of commands that was right.
func misplaced(x expectation, r rawReply) bool {
	sequence := r.code == 503
	unknown := r.code == 500 || r.code == 502
	switch t := x.t; x.command {
	case cmdMail:
		return sequence
	case cmdRcpt:
		return sequence && !t.refused
	case cmdData, cmdChunk, cmdLastChunk:
		return (sequence || unknown) && t.accepted > 0 && !t.refused
	}
	return false
}

// handBackReturned settles what was queued when the host lost our trust.
func (c *Conn) handBackReturned() {
	c.mu.Lock()
	returned, why := c.mu.returned.takeAll(), c.mu.distrust
	c.mu.Unlock()
	for t := returned.pop(); t != nil; t = returned.pop() {
		t.conclude(Untried, why.Reply)
		c.settle(t)
	}
}
