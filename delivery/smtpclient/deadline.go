package smtpclient

import (
	"time"
)

// arm sets the time by which the next reply must be there. The socket's deadline is moved only
// when it would be too late: one that passes too early is moved then. So there is no system call
// and no timer to change for each reply.
func (c *Conn) arm(now time.Time) {
	if c.mu.stopped {
		return // what is still to come has its own end: lastWords
	}
	x, ok := c.mu.expected.first()
	if !ok {
		c.mu.due = time.Time{}
		return
	}
	c.mu.due = now.Add(c.patience(x.command))
	if c.mu.armed.IsZero() || c.mu.due.Before(c.mu.armed) {
		c.setDeadline(c.mu.due)
	}
}

func (c *Conn) setDeadline(t time.Time) {
	c.mu.armed = t
	_ = c.conn.SetReadDeadline(t)
}

// rearm is called when the socket's deadline has passed, or may have to be later. It reports
// whether there is still time.
func (c *Conn) rearm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.due.IsZero() && !time.Now().Before(c.mu.due) {
		return false
	}
	c.setDeadline(c.mu.due)
	return true
}

// patience is how long the host may take for a reply (RFC 5321, 4.5.3.2).
func (c *Conn) patience(k command) time.Duration {
	t := &c.cfg.Timeouts
	switch k {
	case cmdRcpt:
		return t.Rcpt
	case cmdData:
		return t.Data
	case cmdChunk:
		return t.Block
	case cmdContent, cmdLastChunk:
		return t.Dot
	case cmdQuit:
		return t.Quit
	}
	return t.Mail
}

// listenOn gives the host a moment more, when nothing is written any more.
func (c *Conn) listenOn() {
	c.mu.due = time.Now().Add(lastWords)
	c.setDeadline(c.mu.due)
}
