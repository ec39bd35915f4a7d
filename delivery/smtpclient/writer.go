package smtpclient

import (
	"errors"
	"fmt"
	"io"

	"mta/internal/reply"
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
	t.start = c.out.position()
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
	c.command(t, cmdRcpt, i, appendRcpt(c.out.buf, t.recipient(i), t.utf8, &c.caps))
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

// lockStep sends t one command at a time.
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

// letGo is called when all of t is in the flight: the writer does not touch it any more, since
// it is settled when the replies come.
func (c *Conn) letGo(t *Transaction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.end = c.out.position()
	if c.mu.current == t {
		c.mu.current = nil
	}
}

// content sends the content after 354, and the final dot. From the first octet on there is no
// way back but to cut the connection: the host must never see a dot behind half a message.
func (c *Conn) content(t *Transaction) {
	c.mu.Lock()
	t.content = true
	c.mu.Unlock()
	if err := c.stuff(t); err != nil && !errors.Is(err, errStopped) {
		c.cut(t, err)
	}
}

var errStopped = errors.New("the connection has ended")

func (c *Conn) stuff(t *Transaction) error {
	body, err := t.Body()
	if err != nil {
		return fmt.Errorf("opening the content: %w", err)
	}
	defer body.Close()
	in := blocks.Get().(*block)
	defer blocks.Put(in)
	var s stuffer
	piece := in.b[:cap(in.b)]
	for done := false; !done; {
		n, err := body.Read(piece)
		if done = errors.Is(err, io.EOF); err != nil && !done {
			return fmt.Errorf("reading the content: %w", err)
		}
		if err := c.stuffPiece(t, &s, piece[:n]); err != nil {
			return err
		}
	}
	if s.size != t.Message.Size {
		return fmt.Errorf("the content has %d octets where Message.Size says %d", s.size, t.Message.Size)
	}
	buf, err := s.end(c.out.buf)
	if err != nil {
		return err
	}
	c.traceContent(t, buf[len(c.out.buf):])
	c.out.buf = buf
	c.out.staged = append(c.out.staged, expectation{t: t, command: cmdContent})
	c.letGo(t)
	return nil
}

func (c *Conn) stuffPiece(t *Transaction, s *stuffer, piece []byte) error {
	if s.size+int64(len(piece)) > t.Message.Size {
		return errTooLong
	}
	buf, err := s.append(c.out.buf, piece)
	if err != nil {
		return err
	}
	c.traceContent(t, buf[len(c.out.buf):])
	if c.out.buf = buf; len(buf) < flightSize {
		return nil
	}
	if !c.flush() {
		return errStopped
	}
	c.out.open()
	return nil
}

// cut ends the connection in the middle of t's content, because of what is wrong with that.
func (c *Conn) cut(t *Transaction, err error) {
	verdict := c.unreadable(t, err)
	c.mu.Lock()
	t.verdict = verdict
	c.mu.Unlock()
	c.stop(&Error{Reply: reply.Local(421, reply.Enhanced{4, 3, 0}, "content", "connection cut: the content could not be sent to its end"), Err: err})
	_ = c.raw.Close()
}

// chunks sends the content by BDAT. Every chunk is read and checked as a whole before its BDAT is
// written, so that trouble with the content ends in RSET and costs neither the connection nor the
// messages around it.
func (c *Conn) chunks(t *Transaction) {
	body, err := t.Body()
	if err != nil {
		c.abort(t, fmt.Errorf("opening the content: %w", err))
		return
	}
	defer body.Close()
	var lines lineChecker
	for left := t.Message.Size; ; {
		n := min(left, chunkSize)
		left -= n
		if err := c.chunk(t, body, int(n), left == 0, &lines); err != nil {
			c.abort(t, err)
			return
		}
		if left == 0 {
			c.letGo(t)
			return
		}
		switch goOn, ok := c.afterChunk(t); {
		case !ok:
			return
		case !goOn:
			c.abort(t, nil)
			return
		}
	}
}

// chunk adds one BDAT with n octets of the body.
func (c *Conn) chunk(t *Transaction, body io.Reader, n int, last bool, lines *lineChecker) error {
	k := cmdChunk
	if last {
		k = cmdLastChunk
	}
	mark := len(c.out.buf)
	buf := appendBDAT(c.out.buf, n, last)
	header := len(buf)
	buf, err := readExactly(buf, body, n)
	if err == nil && last {
		err = atEnd(body, buf)
	}
	if err != nil {
		return err
	}
	if !t.binary() {
		if err := lines.check(buf[header:]); err != nil {
			return err
		}
		if last {
			if buf, header, err = wholeLines(buf, mark, header, lines); err != nil {
				return err
			}
		}
	}
	c.command(t, k, 0, buf[:header])
	c.out.buf = buf
	c.traceContent(t, buf[header:])
	return nil
}

// afterChunk reports whether the next chunk of t is to be sent (goOn), and whether anything can
// be (ok). A host that has refused a chunk must not get more of the message (RFC 3030, 2).
func (c *Conn) afterChunk(t *Transaction) (goOn, ok bool) {
	if c.mode != Chunked {
		ok = c.answered(t)
	} else if ok = c.flush(); ok {
		c.out.open()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !t.refused, ok
}

// abort ends t by RSET in place of the rest of its content: the host has not been told LAST. err is
// what is wrong here, nil when the host has refused it.
func (c *Conn) abort(t *Transaction, err error) {
	if err != nil {
		verdict := c.unreadable(t, err)
		c.mu.Lock()
		t.verdict = verdict
		c.mu.Unlock()
	}
	c.out.open()
	c.command(t, cmdAbort, 0, append(c.out.buf, "RSET\r\n"...))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.current == t {
		c.mu.current = nil
	}
}
