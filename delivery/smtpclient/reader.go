package smtpclient

import (
	"errors"
	"os"
	"time"
)

// read is the reader: it pairs replies with commands until there are no more, and settles what is
// left.
func (c *Conn) read() {
	c.finish(c.replies())
}

// replies takes replies until the connection is at its end, and says why that is: nil after QUIT.
func (c *Conn) replies() *Error {
	for {
		r, err := c.in.next()
		if err != nil {
			return c.lostReading(err)
		}
		t, end, why := c.accept(r)
		if t != nil {
			c.settle(t)
		}
		c.handBackReturned()
		if end {
			return why
		}
	}
}

// incoming is where the reply reader of a running connection reads from.
type incoming struct{ c *Conn }

// Read waits for the host. The writer is woken only now: it then sees everything that the host has
// said so far, and answers it in one flight. A deadline that passes before its time is moved, see
// arm.
func (i incoming) Read(p []byte) (int, error) {
	c := i.c
	c.mu.Lock()
	c.mu.batch = false
	c.wake.Signal()
	c.mu.Unlock()
	for {
		n, err := c.conn.Read(p)
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.rearm() {
			continue
		}
		c.mu.Lock()
		c.mu.batch = true
		c.mu.Unlock()
		return n, err
	}
}

// accept takes one reply. It gives the transaction that is settled by it, if any, and says
// whether the connection is at its end and why.
func (c *Conn) accept(r rawReply) (settled *Transaction, end bool, why *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, owed := c.mu.expected.pop()
	c.traceReply(x, r)
	switch {
	case r.code == 421 && !(owed && x.command == cmdQuit):
		return nil, true, c.farewell(x, owed, r)
	case c.mu.dismissed:
		return nil, true, c.outOfStep(x, r)
	case !owed:
		return nil, true, c.unasked(r)
	case x.command == cmdQuit:
		return nil, true, nil
	}
	over, why := c.pair(x, r)
	if why != nil {
		// The reply that broke it is no answer to x: x is owed one for ever.
		return nil, true, why
	}
	c.arm(time.Now())
	if over {
		c.leave(x.t)
		settled = x.t
	}
	return settled, false, nil
}

// leave takes t, which is the first of them, from those under way.
func (c *Conn) leave(t *Transaction) {
	c.mu.flying.pop()
	if c.mu.current == t {
		c.mu.current = nil
	}
}
