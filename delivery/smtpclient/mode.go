package smtpclient

import "time"

// answered sends the flight and waits until the host has answered all of it. It reports whether
// t goes on: it is neither settled by what the host said nor has the connection ended.
func (c *Conn) answered(t *Transaction) bool {
	if !c.flush() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.mu.stopped && c.mu.current == t && c.mu.expected.len() > 0 {
		c.wake.Wait()
	}
	if c.mu.stopped || c.mu.current != t {
		return false
	}
	c.out.open()
	return true
}

// lockStep sends t one command at a time. One without content is over with the reply to its last RCPT, and RSET
// comes before the next.
func (c *Conn) lockStep(t *Transaction) {
	if len(c.out.staged) > 0 && !c.answered(t) { // RSET
		return
	}
	c.mail(t)
	if !c.answered(t) {
		return
	}
	for i := range t.results {
		if !c.wanted(t, i) {
			continue
		}
		c.rcpt(t, i)
		if !c.answered(t) {
			return
		}
	}
	if t.binary() {
		c.chunks(t)
		c.landed()
		return
	}
	c.data(t)
	if c.answered(t) {
		c.content(t)
	}
}

// landed sends the flight and waits until nothing is under way.
func (c *Conn) landed() {
	if !c.flush() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.mu.stopped && c.mu.flying.n > 0 {
		c.wake.Wait()
	}
}

// wanted reports whether the host is still to be asked for the i-th recipient.
func (c *Conn) wanted(t *Transaction, i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.results[i].Fate == unanswered
}

// pipelined sends t's envelope in one flight (with the content of the message before, if that is
// in it) and its content into the next.
func (c *Conn) pipelined(t *Transaction) {
	c.mail(t)
	c.recipients(t)
	c.data(t)
	if !c.answered(t) {
		return
	}
	if c.anyAccepted(t) {
		c.content(t)
		return
	}
	// The host said 354 though it has taken no recipient: the content is not for it. A lone dot
	// ends the transaction, whose results are known already (RFC 2920, 3.1).
	c.command(t, cmdContent, 0, append(c.out.buf, ".\r\n"...))
	c.letGo(t)
}

func (c *Conn) anyAccepted(t *Transaction) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return t.accepted > 0
}

// chunked sends t as a whole, without waiting for any reply.
func (c *Conn) chunked(t *Transaction) {
	c.mail(t)
	c.recipients(t)
	c.chunks(t)
}

// ask sends t, which has no content, as a whole: RSET can stand anywhere in a group of commands (RFC 2920, 3.1).
func (c *Conn) ask(t *Transaction) {
	c.mail(t)
	c.recipients(t)
	c.abort(t, nil)
}

// letGo is called when all of t is in the flight: the writer does not touch it any more, since
// it is settled when the replies come.
func (c *Conn) letGo(t *Transaction) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.end, t.written = c.out.position(), now
	if c.mu.current == t {
		c.mu.current = nil
	}
}
