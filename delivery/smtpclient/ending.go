package smtpclient

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"example.org/mta/internal/reply"
)

// lastWords is how long the reader goes on reading after a write has failed: a host that refuses
// something by closing says why before it does.
const lastWords = 5 * time.Second

// farewell is 421: the host closes and has acted on nothing that came behind the command that
// this answers (RFC 5321, 3.8).
func (c *Conn) farewell(x expectation, owed bool, r rawReply) *Error {
	t, word := x.t, x.command.String()
	if !owed {
		word = ""
		if t = c.contentUnderWay(); t != nil {
			word = "content"
		}
	}
	goodbye := r.reply(word)
	c.mu.goodbye = true
	switch atMail := x.command == cmdReset || x.command == cmdMail; {
	case t == nil:
	case owed && atMail && c.mu.served > 0:
		// It has had enough of this connection, and not of this message: it is Untried.
	default:
		t.conclude(Answered, goodbye)
	}
	return &Error{Reply: goodbye}
}

// contentUnderWay is the transaction whose content is being sent after 354, nil when none is.
func (c *Conn) contentUnderWay() *Transaction {
	if t := c.mu.flying.first; t != nil && t.content {
		return t
	}
	return nil
}

// unasked is a reply that nothing was sent for. A refusal while a content is being sent is meant
// for that: the host does not want to read it to its end.
func (c *Conn) unasked(r rawReply) *Error {
	if t := c.contentUnderWay(); t != nil && r.negative() {
		refusal := r.reply("content")
		t.conclude(Answered, refusal)
		return &Error{Reply: refusal}
	}
	return outOfStep("", "the host said %q without having been asked", clean(r.raw, 80))
}

func (c *Conn) outOfStep(x expectation, r rawReply) *Error {
	word := x.command.String()
	return outOfStep(word, "the host answered %s with %q", word, clean(r.raw, 80))
}

func outOfStep(command, format string, args ...any) *Error {
	return &Error{Reply: reply.Local(451, reply.Enhanced{4, 5, 0}, command, format, args...), Err: ErrOutOfStep}
}

// lostReading makes the reason of a read that failed.
func (c *Conn) lostReading(err error) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.dismissed && errors.Is(err, io.EOF) {
		c.mu.goodbye = true
		return c.mu.ending
	}
	word, waited := "", ""
	if x, ok := c.mu.expected.first(); ok {
		word = x.command.String()
		waited = fmt.Sprintf(" while waiting for the reply to %s", word)
		if x.command == cmdQuit {
			return nil // it closes without a word: as good as 221
		}
	}
	if errors.Is(err, ErrOutOfStep) {
		return &Error{Reply: reply.Local(451, reply.Enhanced{4, 5, 0}, word, "%v", err), Err: err}
	}
	e := &Error{Reply: lost(word, err, waited), Err: err}
	if c.droppedAhead(err) {
		e.Err = fmt.Errorf("%w: %w", ErrOutOfStep, err)
	}
	return e
}

// droppedAhead reports whether the host may have thrown away what was sent ahead of its reply to a
// content: it answered that, and then is silent about the commands behind it.
func (c *Conn) droppedAhead(err error) bool {
	x, ok := c.mu.expected.first()
	return ok && !c.mu.dismissed && (x.command == cmdReset || x.command == cmdMail) && c.mode != LockStep &&
		c.mu.served > 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// lost puts the end of a connection into a reply.
func lost(command string, err error, during string) reply.Reply {
	var what string
	var timeout net.Error
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		what = "the host closed the connection"
	case errors.As(err, &timeout) && timeout.Timeout():
		what = "timed out"
	default:
		what = "the connection was lost: " + cause(err)
	}
	return reply.Local(421, reply.Enhanced{4, 4, 2}, command, "%s%s", what, during)
}

// cause is the innermost text of a network error: "connection reset by peer" without addresses,
// which the records have anyhow.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// lostWriting is called when a write of the flight has failed after n octets. The reader goes on
// for a moment: what the host has said before it closed is worth having.
func (c *Conn) lostWriting(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.sent = c.out.base + int64(n)
	c.stopLocked(&Error{Reply: lost("", err, " while writing"), Err: err})
	c.listenOn()
}

// finish ends the connection and settles everything that it still has.
func (c *Conn) finish(why *Error) {
	c.stop(why)
	c.nameEnd(why)
	if why == nil {
		_ = c.conn.Close() // QUIT was answered: with TLS, say goodbye there too
	}
	_ = c.raw.Close()
	<-c.wrote
	c.learnFromEnd()
	c.handBackAll()
	if c.cfg.Closed != nil {
		c.cfg.Closed(c)
	}
	close(c.ended)
}

// nameEnd lets what is known better take the place of the reason: the lost trust that QUIT was said
// for, or the host's own words that a write failed because of.
func (c *Conn) nameEnd(why *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ending = cmp.Or(c.mu.ending, c.mu.distrust)
	known := why != nil && (!why.Reply.Local || errors.Is(why, ErrOutOfStep))
	if known && c.mu.ending != nil && !errors.Is(c.mu.ending, ErrClosed) {
		c.mu.ending = why
	}
}

// learnFromEnd shrinks the window when the end came amid mail.
func (c *Conn) learnFromEnd() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch why := c.mu.ending; {
	case why == nil:
	case errors.Is(why, ErrOutOfStep):
		c.mu.window.distrusted()
		c.cfg.Log.Warn("a host answers out of step", "host", c.cfg.Host, "mode", c.mode, "err", why)
	case c.mu.flying.n > 0 && !errors.Is(why, ErrClosed):
		c.mu.window.troubled()
	}
}

// handBackAll settles, in their order, the transactions that the end has left without an answer.
func (c *Conn) handBackAll() {
	end := c.endReply()
	c.mu.Lock()
	flying := c.mu.flying.takeAll()
	queue := c.mu.queue.takeAll()
	c.mu.Unlock()
	for first := true; flying.n > 0; first = false {
		t := flying.pop()
		c.concludeAtEnd(t, first, end)
		c.settle(t)
	}
	for queue.n > 0 {
		t := queue.pop()
		t.conclude(Untried, end)
		c.settle(t)
	}
}

// concludeAtEnd decides on a transaction that was under way when the connection ended. first says
// that it is the one whose reply was awaited: the others were only on their way.
func (c *Conn) concludeAtEnd(t *Transaction, first bool, end reply.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := t.end > 0 && t.end <= c.mu.sent
	reused := c.mu.served > 0 && !t.heard
	switch {
	case t.local != nil:
		t.conclude(t.local.Fate, t.local.Reply)
	case c.mu.goodbye:
		t.conclude(Untried, end)
	case whole:
		t.conclude(Ambiguous, end)
	case first && t.start < c.mu.sent && !reused:
		t.conclude(Failed, end)
	default:
		t.conclude(Untried, end)
	}
}

// endReply is why the connection ended, as a reply that is worth another try.
func (c *Conn) endReply() reply.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch why := c.mu.ending; {
	case why == nil:
		return reply.Local(421, reply.Enhanced{4, 4, 2}, "", "the connection ended before this message was sent")
	case why.Reply.Temporary():
		return why.Reply
	default:
		return reply.Local(421, reply.Enhanced{4, 4, 2}, "", "the host ended the connection: %v", why.Reply)
	}
}
