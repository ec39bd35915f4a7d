package smtpclient

import (
	"time"

	"example.org/mta/internal/reply"
)

// write is the writer: it takes transactions in turn and puts them on the wire as far ahead of
// the replies as the mode allows.
func (c *Conn) write() {
	defer close(c.wrote)
	defer c.out.close()
	for {
		t := c.next()
		if t == nil {
			return
		}
		if !c.prepare(t) {
			c.settle(t)
			continue
		}
		if !c.launch(t) {
			t.conclude(Untried, c.endReply())
			c.settle(t)
			return
		}
		switch {
		case t.asksOnly() && c.mode != LockStep:
			c.ask(t)
		case c.mode == Chunked:
			c.chunked(t)
		case c.mode == Pipelined && !t.binary():
			c.pipelined(t)
		default:
			c.lockStep(t)
		}
	}
}

// next gives the transaction that is to be written. Before it waits for one, it sends what is in
// the flight. It gives nil when there will be none, QUIT being sent if it can.
func (c *Conn) next() *Transaction {
	t, state := c.take()
	for ; state == nothingYet; t, state = c.wait() {
		if !c.flush() {
			return nil
		}
	}
	switch state {
	case usedUp:
		c.Finish()
		c.recall(sessionUsed)
		c.quit()
	case quitNow:
		c.quit()
	}
	return t
}

// sessionUsed is told when LIMITS MAILMAX is reached (RFC 9422, 4.1). What is queued goes
// elsewhere.
var sessionUsed = reply.Local(421, reply.Enhanced{4, 5, 3}, "", "the host takes no more messages in this session")

func (c *Conn) quit() {
	c.out.open()
	c.command(nil, cmdQuit, 0, append(c.out.buf, "QUIT\r\n"...))
	c.flush()
}

// What take finds.
type supply uint8

const (
	something  supply = iota // a transaction, or that nothing more is to be written
	nothingYet               // it is to be waited for
	quitNow                  // nothing will come: say QUIT
	usedUp                   // the host takes no more in this session
)

// take gives the next transaction, if it may begin now.
func (c *Conn) take() (*Transaction, supply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked()
}

// wait is take, after something has changed.
func (c *Conn) wait() (*Transaction, supply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if t, state := c.takeLocked(); state != nothingYet {
			return t, state
		}
		c.wake.Wait()
	}
}

func (c *Conn) takeLocked() (*Transaction, supply) {
	switch {
	case c.mu.stopped:
		return nil, something
	case c.mu.queue.n == 0 && c.mu.quitting && (c.mode != LockStep || c.mu.flying.n == 0):
		return nil, quitNow
	case c.mu.queue.n == 0 || !c.mayBegin():
		return nil, nothingYet
	case c.caps.MailMax > 0 && c.mu.begun >= c.caps.MailMax:
		return nil, usedUp
	}
	c.mu.current = c.mu.queue.pop()
	return c.mu.current, something
}

// mayBegin reports whether the mode allows another MAIL now.
func (c *Conn) mayBegin() bool {
	switch c.mode {
	case LockStep:
		return c.mu.flying.n == 0
	case Pipelined:
		// Behind a content that is written: RFC 2920, 3.1 lets it be the first "command" of a
		// group that goes on with the next MAIL.
		return c.mu.flying.n <= 1
	}
	if c.mu.nonMail >= maxNonMail {
		return c.mu.flying.n == 0
	}
	return c.mu.window.open(c.mu.flying.n, c.mu.flying.bytes)
}

// launch puts t among those under way and begins its part of the flight, with RSET when the host
// may have a transaction open. It reports false when the connection has ended meanwhile.
//
// A window of transactions needs RSET before every MAIL: after a BDAT that is refused (all RCPTs
// were, for example) the host's state is indeterminate (RFC 3030, 2), and a RCPT of the next
// message could be taken for one more of the last, whose sender would then get its bounces. Behind
// a content that is sent with DATA none is needed: the host forgets the transaction with its
// reply, whatever that is (RFC 5321, 4.1.1.4).
func (c *Conn) launch(t *Transaction) bool {
	if len(c.out.buf) >= flightSize && !c.flush() {
		return false
	}
	t.start, t.begun = c.out.position(), time.Now()
	c.mu.Lock()
	if c.mu.stopped {
		c.mu.Unlock()
		return false
	}
	reset := c.mu.dirty && c.mu.flying.n == 0 || c.mode == Chunked && c.mu.flying.n > 0
	c.mu.flying.push(t)
	c.mu.begun++
	c.mu.window.begun(c.mu.begun, c.mu.flying.n, c.mu.flying.bytes)
	c.mu.Unlock()
	c.out.open()
	if reset {
		c.command(t, cmdReset, 0, append(c.out.buf, "RSET\r\n"...))
	}
	return true
}

// command adds a command to the flight; buf is the flight with it at the end.
func (c *Conn) command(t *Transaction, k command, rcpt int, buf []byte) {
	c.traceCommands(t, buf[len(c.out.buf):])
	c.out.buf = buf
	c.out.staged = append(c.out.staged, expectation{t: t, command: k, rcpt: int32(rcpt)})
}

func (c *Conn) mail(t *Transaction) {
	c.command(t, cmdMail, 0, appendMail(c.out.buf, t, &c.caps))
}

func (c *Conn) rcpt(t *Transaction, i int) {
	c.command(t, cmdRcpt, i, appendRcpt(c.out.buf, t, i, &c.caps))
}

// recipients adds RCPT for every recipient that the host is to be asked for.
func (c *Conn) recipients(t *Transaction) {
	for i := range t.results {
		// Nobody else closes results of t yet: its MAIL has not left.
		if t.results[i].open() {
			c.rcpt(t, i)
		}
	}
}

func (c *Conn) data(t *Transaction) {
	c.command(t, cmdData, 0, append(c.out.buf, "DATA\r\n"...))
}
