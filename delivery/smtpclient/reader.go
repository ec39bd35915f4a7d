package smtpclient

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"mta/internal/reply"
)

// lastWords is how long the reader goes on reading after a write has failed: a host that refuses
// something by closing says why before it does.
const lastWords = 5 * time.Second

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

// pair tells x.t what the host has answered. over says that it was the last that t waited for.
func (c *Conn) pair(x expectation, r rawReply) (over bool, why *Error) {
	if !fits(x.command, r) {
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

// fits reports whether a command can have such a reply: 3xx belongs to DATA and 2xx does not.
func fits(k command, r rawReply) bool {
	switch {
	case r.negative():
		return true
	case k == cmdData:
		return r.code == 354
	}
	return r.positive()
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

// listenOn gives the host a moment more, when nothing is written any more.
func (c *Conn) listenOn() {
	c.mu.due = time.Now().Add(lastWords)
	c.setDeadline(c.mu.due)
}

// abortAnswered ends a transaction whose content was given up.
func (c *Conn) abortAnswered(t *Transaction, r rawReply) (over bool, why *Error) {
	if why := c.resetAnswered(r); why != nil || c.mu.dismissed {
		return false, why
	}
	if t.verdict != nil {
		t.conclude(t.verdict.Fate, t.verdict.Reply)
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
	// Ahead of us the rest of the envelope is on its way, and its replies (503, mostly) are still
	// to come: they change nothing.
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
	if c.mu.ending == nil {
		c.mu.ending = c.mu.distrust
	}
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
	case t.verdict != nil:
		t.conclude(t.verdict.Fate, t.verdict.Reply)
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
