package submission

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// Sizes of the buffers that a connection borrows while it has something to keep in them. A
// connection that waits for its client keeps none.
const (
	smallBuffer = 4 << 10  // replies; command lines, of which one has to fit
	largeBuffer = 32 << 10 // content
)

// phase is what the library will do with the next octets that it reads.
type phase uint8

const (
	phaseBanner  phase = iota // it has not written the banner yet
	phaseCommand              // take them for a command line
	phaseReply                // nothing: it has a command to answer
	phaseData                 // take them for content, up to the end of DATA
	phaseChunk                // take them for content, as many as BDAT said
)

var (
	errOutOfStep = errors.New("the SMTP library reads out of step")
	errOverrun   = errors.New("content goes on far beyond the size limit")
)

// conn is the net.Conn that go-smtp serves. The library calls SetReadDeadline before it reads a
// command line and only then, which is how conn knows what it wants; see the package comment.
// It does not call Read before it has used up what it was given. All methods are called by the
// connection's own goroutine, apart from those that say otherwise.
type conn struct {
	srv    *Server
	client *client
	socket net.Conn             // what was accepted
	raw    net.Conn             // socket, or the PROXY reader or TLS connection on top of it
	tls    *tls.ConnectionState // nil in clear

	phase phase
	feed  []byte // for the library, as soon as it reads
	err   error  // of the first read that failed; sticky
	ended bool   // nothing is written any more
	last  bool   // the next reply is the last

	buf  []byte // borrowed; buf[r:w] has come from the client and waits
	r, w int
	out  []byte // borrowed; replies to be written

	command command // the one that the library has
	early   bool    // more had come after DATA when the library got it, and DATA is not answered yet
	line    []byte  // a command line that is not as the client sent it

	helo     string          // "" before EHLO or HELO
	extended bool            // EHLO
	tx       transaction     // nil outside of a transaction
	envelope intake.Envelope // of the transaction

	transfer transfer // of the message that is coming in

	mu struct { // also used by Shutdown, and by the library's goroutine for BDAT
		sync.Mutex
		greeted bool // preflight is over
		waits   bool // waits for a command
		idle    bool // waits for a command outside of a transaction
		submits bool // as submits reports, while idle
		// unproved: waits for a command until deadline, and its client has not shown that it
		// sends mail.
		unproved bool
		deadline time.Time
		hurried  bool        // deadline was shortened since slots are scarce
		chunks   transaction // the one that BDAT is for
		shown    shown
	}
	chunking sync.WaitGroup // the library's goroutine for BDAT
	closed   bool
	moved    bool // a conn with TLS on has taken over
}

func newConn(s *Server, socket net.Conn) *conn {
	now := s.cfg.Intake.Now()
	c := &conn{srv: s, socket: socket, raw: socket, client: &client{since: now, began: time.Now()}}
	c.client.MayHold = c.mayHold
	c.client.Session = s.cfg.IDs.Next(now).String()
	c.srv.desk.Settle(&c.client.Client)
	return c
}

// SetReadDeadline notes that the library wants a command line; conn has its own deadlines. An
// error makes the library leave the session without another word.
func (c *conn) SetReadDeadline(time.Time) error {
	if c.early && !c.ended {
		c.expel(outOfStep.Reply("DATA")) // it was refused, so what follows it are not commands
	}
	if c.ended || c.err != nil {
		return net.ErrClosed
	}
	c.phase = phaseCommand
	return nil
}

func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
func (c *conn) LocalAddr() net.Addr              { return c.socket.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr             { return net.TCPAddrFromAddrPort(c.client.Peer) }

// Read gives the library what it wants and not an octet more.
func (c *conn) Read(p []byte) (n int, err error) {
	defer c.guard(&err)
	if len(c.feed) == 0 && c.err == nil {
		switch c.phase {
		case phaseCommand:
			c.nextCommand(p)
		case phaseData:
			c.endData()
		case phaseChunk:
			return c.readChunk(p)
		default:
			c.fail(errOutOfStep)
		}
	}
	if len(c.feed) == 0 {
		return 0, c.err
	}
	n = copy(p, c.feed)
	c.feed = c.feed[n:]
	return n, nil
}

// guard ends the connection when its own code panics, as the library does around commands: what
// one client has found must not end the sessions of all.
func (c *conn) guard(err *error) {
	if r := recover(); r != nil {
		c.srv.cfg.Intake.Log.Error("panic in a session", "session", c.client.Session, "peer", c.client.Peer, "panic", r,
			"stack", string(debug.Stack()))
		c.out, c.ended = nil, true
		*err = c.fail(net.ErrClosed)
	}
}

// nextCommand waits for a command line that the library is to see. scratch is where the first
// octets can be put while there is no buffer.
func (c *conn) nextCommand(scratch []byte) {
	for len(c.feed) == 0 && c.err == nil {
		if r, end := c.mustEnd(); end {
			c.farewell(r)
			return
		}
		c.command = command{}
		if line, ok := c.readLine(scratch); ok {
			c.gate(line)
		}
	}
}

// mustEnd reports whether the session is over before the next command, and why.
func (c *conn) mustEnd() (reply.Reply, bool) {
	switch {
	case c.client.dismissed.Load() != nil:
		return *c.client.dismissed.Load(), true
	case c.client.excess != nil:
		return *c.client.excess, true
	case c.client.failedLogins >= failedLogins:
		return tooManyLogins.Reply(), true
	case c.client.errors >= c.srv.cfg.Limits.ErrorsPerSession:
		// a large provider that returns forged mail has many recipients refused, and brings bounces, too
		if c.srv.cfg.Inbound == nil {
			c.refused(intake.IntrusionProtocol)
		}
		return tooManyErrors.Reply(), true
	case c.client.idle > c.srv.cfg.Limits.IdleCommands:
		c.refused(intake.IntrusionProtocol)
		return tooManyIdle.Reply(), true
	case c.mustHurry() && time.Since(c.client.began) > crowdedWhole:
		return crowdedOut.Reply(), true
	}
	if leave := c.mustLeave(); leave != nil {
		return *leave, true
	}
	return reply.Reply{}, false
}

// mustLeave gives the reply to a client that may begin no transaction, since the relay takes no new mail; nil for all
// others.
func (c *conn) mustLeave() *reply.Reply {
	switch {
	case c.tx != nil:
		return nil
	case c.srv.isClosing():
		return shuttingDown.Refusal()
	case c.submits() && c.srv.cfg.Draining():
		return draining.Refusal()
	}
	return nil
}

// submits reports whether the client brings new mail. Others bring reports about mail that has left, which nobody else
// understands: they are taken as long as the relay runs.
func (c *conn) submits() bool { return c.srv.cfg.Inbound == nil || c.mayRelay() }

// readLine gives the next command line with its line end. A line that is too long is answered
// here, once it is over.
func (c *conn) readLine(scratch []byte) ([]byte, bool) {
	line, ok := c.readLineOf(smallBuffer, scratch, time.Now().Add(c.srv.cfg.Timeouts.Command))
	if !ok && c.err == nil {
		c.answer(lineTooLong.Reply(smallBuffer))
	}
	return line, ok
}

// readLineOf gives the next line, of at most so many octets. What there is of a longer one is dropped; the
// caller answers it, unless the client is lost.
func (c *conn) readLineOf(longest int, scratch []byte, deadline time.Time) ([]byte, bool) {
	for tooLong := false; ; {
		if i := bytes.IndexByte(c.buf[c.r:c.w], '\n'); i >= 0 {
			line := c.buf[c.r : c.r+i+1]
			c.r += i + 1
			return line, !tooLong && len(line) <= longest
		}
		switch {
		case c.w-c.r >= longest:
			tooLong = true
			c.r = c.w
		case c.w-c.r == len(c.buf) && len(c.buf) > 0:
			c.borrow(largeBuffer)
		}
		if c.mu.chunks != nil {
			deadline = earliest(deadline, c.contentDeadline())
		}
		if err := c.fill(deadline, scratch); err != nil {
			c.lostClient(err)
			return nil, false
		}
	}
}

// lostClient ends a session whose client does not send commands any more.
func (c *conn) lostClient(err error) {
	leave := c.mustLeave()
	switch {
	case leave != nil:
		c.farewell(*leave)
	case errors.Is(err, os.ErrDeadlineExceeded) && c.phase == phaseCommand && c.client.dismissed.Load() != nil:
		c.farewell(*c.client.dismissed.Load())
	case errors.Is(err, os.ErrDeadlineExceeded) && c.mu.chunks != nil:
		c.farewell(contentTimeout.Reply())
	case errors.Is(err, os.ErrDeadlineExceeded) && c.wasHurried():
		c.farewell(crowdedOut.Reply())
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.farewell(idleTooLong.Reply(c.srv.cfg.Timeouts.Command))
	default:
		c.finish()
	}
}

// fill waits for more from the client, after it has written the replies that are due. scratch is
// where the first octets of a command can be put, so that no buffer is held meanwhile.
func (c *conn) fill(deadline time.Time, scratch []byte) error {
	if err := c.flush(); err != nil {
		return err
	}
	if c.r == c.w {
		c.r, c.w = 0, 0
		if c.phase == phaseCommand {
			c.giveBack()
		}
	}
	if err := c.readDeadline(deadline); err != nil {
		return err
	}
	defer c.notIdle()
	if c.buf == nil && len(scratch) > 0 {
		n, err := c.read(scratch[:min(len(scratch), smallBuffer)])
		if n > 0 {
			c.borrow(smallBuffer)
			c.w = copy(c.buf, scratch[:n])
		}
		return err
	}
	c.borrow(smallBuffer)
	if c.w == len(c.buf) {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	n, err := c.read(c.buf[c.w:])
	c.w += n
	return err
}

// read gives either octets or an error, not both; the next read has the error again.
func (c *conn) read(p []byte) (int, error) {
	for {
		n, err := c.raw.Read(p)
		switch {
		case n > 0:
			return n, nil
		case err != nil:
			return 0, err
		}
	}
}

// readDeadline bounds the next read. While the connection is idle, Shutdown can end it earlier.
func (c *conn) readDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == phaseCommand && c.tx == nil {
		if c.mustLeave() != nil {
			return os.ErrDeadlineExceeded
		}
		c.mu.idle, c.mu.submits = true, c.submits()
	}
	if c.phase == phaseCommand {
		if c.client.dismissed.Load() != nil {
			return os.ErrDeadlineExceeded
		}
		c.mu.waits = true
	}
	c.show(t)
	if c.phase == phaseCommand && !c.client.proved {
		c.mu.unproved, c.mu.deadline, c.mu.hurried = true, t, false
		if c.mustHurry() {
			t = c.shorten(t)
		}
	}
	return c.socket.SetReadDeadline(t)
}

func (c *conn) notIdle() {
	c.mu.Lock()
	c.mu.waits, c.mu.idle, c.mu.unproved = false, false, false
	c.mu.Unlock()
}

// wake makes an idle connection look up and see that the server is closing. One without a banner yet is soon at the
// point where it can be answered. Shutdown calls it.
func (c *conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.mu.greeted:
		c.socket.SetDeadline(time.Now().Add(lingerTime))
	case c.mu.idle:
		c.socket.SetReadDeadline(time.Unix(1, 0))
	}
}

// wakeToDrain is wake for a server that goes on.
func (c *conn) wakeToDrain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.idle && c.mu.submits {
		c.socket.SetReadDeadline(time.Unix(1, 0))
	}
}

// bound gives a step of the preflight so much time.
func (c *conn) bound(d time.Duration) {
	c.mu.Lock() // wake comes before, and patience sees it, or after
	defer c.mu.Unlock()
	c.socket.SetDeadline(time.Now().Add(c.patience(d)))
}

// patience is d, or little while the server is closing.
func (c *conn) patience(d time.Duration) time.Duration {
	if c.srv.isClosing() {
		return min(d, lingerTime)
	}
	return d
}

// cut ends the connection whatever it does. Shutdown calls it.
func (c *conn) cut() { c.socket.Close() }

// Write takes one line of a reply from the library.
func (c *conn) Write(p []byte) (n int, err error) {
	defer c.guard(&err)
	switch {
	case c.ended:
	case c.phase == phaseBanner:
		c.greet()
	default:
		c.put(c.reword(p))
	}
	return len(p), nil
}

// greet writes the banner if the client may stay. After STARTTLS there is none (RFC 3207, 4).
func (c *conn) greet() {
	if c.client.greeted {
		return
	}
	r := c.preflight()
	if leave := c.mustLeave(); leave != nil {
		r = leave
	}
	c.mu.Lock()
	c.mu.greeted = true
	c.mu.Unlock()
	c.client.greeted = true
	switch {
	case c.ended: // the TLS handshake failed
	case r != nil:
		c.report("connect", *r)
		c.farewell(*r)
	default:
		c.put(append([]byte("220 "+c.srv.cfg.Intake.Hostname+" ESMTP ready"), crlf...))
	}
}

// put collects a line of a reply. It is written before the next read that has to wait, before
// a commit, or when the buffer is full.
func (c *conn) put(line []byte) {
	c.said(false, line)
	if len(c.out)+len(line) > smallBuffer && c.flush() != nil {
		return
	}
	if c.out == nil {
		c.out = c.srv.small.Get().(*[smallBuffer]byte)[:0]
	}
	c.out = append(c.out, line...)
	if !isLastLine(line) {
		return
	}
	c.showReply(line)
	code := c.observe(line)
	if code == 421 || c.last || bytes.HasPrefix(line, bareNewlineReply) { // the library would go on
		c.last = true
		c.finish()
	}
}

// answer replies to a command that the library does not get to see.
func (c *conn) answer(r reply.Reply) { c.put(appendReply(nil, r)) }

// farewell sends the last reply of a session.
func (c *conn) farewell(r reply.Reply) {
	c.last = true
	c.answer(r)
}

// finish writes what is due and lets nothing more pass. The library then closes the connection.
func (c *conn) finish() {
	c.flush()
	c.ended = true
	c.fail(io.EOF)
}

// fail keeps the first read error for good.
func (c *conn) fail(err error) error {
	if c.err == nil {
		c.err = err
	}
	return c.err
}

// mayHold reports whether the client can be kept waiting for a reply: it has those before it.
func (c *conn) mayHold() bool { return c.flush() == nil }

// flush writes the replies that are due.
func (c *conn) flush() error {
	if len(c.out) == 0 || c.ended {
		return nil
	}
	c.socket.SetWriteDeadline(time.Now().Add(c.srv.cfg.Timeouts.Write))
	_, err := c.raw.Write(c.out)
	c.srv.recycle(c.out)
	c.out = nil
	if err != nil {
		c.ended = true
		return c.fail(err)
	}
	return nil
}

// borrow makes sure that buf has size octets at least.
func (c *conn) borrow(size int) {
	if len(c.buf) >= size {
		return
	}
	old, r, w := c.buf, c.r, c.w
	if size <= smallBuffer {
		c.buf = c.srv.small.Get().(*[smallBuffer]byte)[:]
	} else {
		c.buf = c.srv.large.Get().(*[largeBuffer]byte)[:]
	}
	c.r, c.w = 0, copy(c.buf, old[r:w])
	c.srv.recycle(old)
}

func (c *conn) giveBack() {
	c.srv.recycle(c.buf)
	c.buf, c.r, c.w = nil, 0, 0
}

// recycle takes a buffer back.
func (s *Server) recycle(b []byte) {
	switch cap(b) {
	case smallBuffer:
		s.small.Put((*[smallBuffer]byte)(b[:smallBuffer]))
	case largeBuffer:
		s.large.Put((*[largeBuffer]byte)(b[:largeBuffer]))
	}
}

// Close ends the connection. The library calls it once or more.
func (c *conn) Close() error {
	if c.closed || c.moved {
		return nil
	}
	c.closed = true
	if !c.ended {
		c.finish()
	}
	if c.last && c.seated() { // without a slot it would take the room of those who have one
		c.linger()
	}
	err := c.raw.Close()
	c.chunking.Wait() // the library has closed its pipe
	c.giveBack()
	if c.client.held {
		c.srv.releaseClient(c.client.Network)
	}
	c.unseat()
	c.uncountTenant()
	c.endTransaction()
	c.srv.remove(c, nil)
	c.srv.cfg.Intake.Log.LogAttrs(context.Background(), slog.LevelDebug, "session ended",
		slog.String("session", c.client.Session), slog.Any("peer", c.client.Peer), slog.String("helo", c.helo),
		slog.Int("messages", c.client.Messages()), slog.Duration("took", c.srv.cfg.Intake.Now().Sub(c.client.since)))
	return err
}

// linger lets our last words arrive: to close a socket that has unread octets resets the
// connection, and the client may then not see the reply.
func (c *conn) linger() {
	t, ok := c.socket.(interface{ CloseWrite() error })
	if !ok {
		return
	}
	if s, ok := c.raw.(*tls.Conn); ok {
		s.CloseWrite()
	}
	t.CloseWrite()
	c.socket.SetReadDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, c.socket, lingerSize)
}

// What a client that has to go may still send before it is cut off.
const (
	lingerTime = time.Second
	lingerSize = 256 << 10
)

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
