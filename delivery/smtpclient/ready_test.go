package smtpclient

import "context"

// ready reports whether another transaction would go out at once.
func (c *Conn) ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped || c.mu.quitting || c.mu.held >= c.depth() {
		return false
	}
	if c.mode == Chunked && c.mu.flying.n > 0 && c.mu.flying.bytes >= c.mu.window.Bytes {
		return false
	}
	return c.caps.MailMax == 0 || c.mu.begun+c.mu.queue.n < c.caps.MailMax
}

// served counts the transactions that the host has taken.
func (c *Conn) served() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.served
}

// quitWithin is Finish, and waits for the end. When ctx ends first the connection is cut: what was under
// way comes out as after a lost connection. Not to be called from Done or Closed.
func (c *Conn) quitWithin(ctx context.Context) error {
	c.Finish()
	select {
	case <-c.ended:
		return c.Err()
	case <-ctx.Done():
		c.Close()
		<-c.ended
		return ctx.Err()
	}
}

// Len is the backlog: transactions handed over and not settled.
func (c *Conn) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.held
}
