package smtpclient

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/reply"
)

// Conn is an SMTP session that is ready for mail. Its methods may be called by any goroutine,
// from Done and Closed too where nothing else is said.
type Conn struct {
	cfg  Config
	raw  net.Conn // what the caller dialled; closing it cuts the session at once
	conn net.Conn // raw, or TLS over it
	caps Capabilities
	tls  *tls.ConnectionState
	mode Mode

	trace atomic.Pointer[Trace]

	in      replyReader // the reader's
	out     flight      // the writer's
	carried atomic.Int64

	wake  sync.Cond     // on mu; only the writer waits
	wrote chan struct{} // closed when the writer has ended
	ended chan struct{} // closed when all is settled

	mu struct {
		sync.Mutex

		queue   transactions // handed over, not begun
		current *Transaction // what the writer is in the midst of
		flying  transactions // begun and not settled, in the order of MAIL
		held    int          // handed over and not told to Done yet
		begun   int          // MAIL commands so far
		served  int          // messages that the host has taken

		expected expectations // replies that the host owes for what has been sent
		sent     int64        // octets that may have reached the host, as a position in the stream
		due      time.Time    // when the first of the expected must be there
		armed    time.Time    // the socket's read deadline: never later than due
		batch    bool         // the reader is going through replies and wakes the writer when it is through

		window  pacedWindow
		dirty   bool   // the host may have a transaction open: RSET before the next MAIL
		manner  manner // of the host, as far as it has shown it
		resets  int    // RSETs since a message's content was answered
		nonMail int    // RSETs beyond the first of those, in all

		// The end, by degrees.
		quitting  bool         // takes no more, QUIT after what it has
		distrust  *Error       // the host does not keep step: QUIT after what is under way
		returned  transactions // what was queued then, for the reader to hand back
		stopped   bool         // nothing more is written
		ending    *Error       // why; nil after QUIT
		dismissed bool         // the host has refused RSET
		goodbye   bool         // the host has acted on nothing behind what it answered last
	}
}

// Send hands t over; replies come by t.Done. It does not block. It returns false, and t stays the
// caller's, when the connection takes no more: it has ended, is about to, or Finish was called.
func (c *Conn) Send(t *Transaction) bool {
	t.begin()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped || c.mu.quitting {
		return false
	}
	c.mu.queue.push(t)
	c.mu.held++
	if !c.mu.batch {
		c.wake.Signal()
	}
	return true
}

// Recall takes back what has not begun: it is settled as Untried, from within this call.
func (c *Conn) Recall() { c.recall(takenBack) }

var takenBack = reply.Local(421, reply.Enhanced{4, 4, 2}, "", "returned to the queue before it was sent")

func (c *Conn) recall(why reply.Reply) {
	c.mu.Lock()
	queue := c.mu.queue.takeAll()
	c.mu.Unlock()
	for t := queue.pop(); t != nil; t = queue.pop() {
		t.conclude(Untried, why)
		c.settle(t)
	}
}

// Depth is how many transactions make use of the wire at the moment: 1 in lock-step, 2 with
// pipelining (a content and the next envelope), the window with chunking. A backlog above it
// waits in the connection.
func (c *Conn) Depth() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.depth()
}

func (c *Conn) depth() int {
	switch c.mode {
	case LockStep:
		return 1
	case Pipelined:
		return 2
	}
	if c.mu.nonMail >= maxNonMail {
		return 1
	}
	return c.mu.window.Messages
}

// maxNonMail is after how many RSETs, beyond one for each message, the window is closed to one
// message: then RSET is sent only where it is known to be needed. Exim drops a connection after more
// than 10 (smtp_accept_max_nonmail), and a message whose recipients were all refused has one too
// many.
const maxNonMail = 5

// BytesSent counts the octets that were handed to the network since the handshake.
func (c *Conn) BytesSent() int64 { return c.carried.Load() }

// Mode is the mode in use.
func (c *Conn) Mode() Mode { return c.mode }

// Capabilities is what the host said in its last EHLO. It must be left alone.
func (c *Conn) Capabilities() *Capabilities { return &c.caps }

// TLS is the state of TLS, nil in clear text.
func (c *Conn) TLS() *tls.ConnectionState { return c.tls }

// Window is what the host has been found to bear, for Config.Window of the next connection. It
// is most useful after the end.
func (c *Conn) Window() Window {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.window.Window
}

// SetTrace replaces who watches; nil ends it.
func (c *Conn) SetTrace(t *Trace) { c.trace.Store(t) }

// Finish lets the connection end: it takes no more transactions, and says QUIT behind those that it
// has. It does not wait; Ended and Config.Closed tell.
func (c *Conn) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.quitting = true
	c.wake.Signal()
}

// Close cuts the connection. It does not wait; Ended and Config.Closed tell. What the host has not got yet of the
// messages under way does not leave later, out of a buffer.
func (c *Conn) Close() {
	c.stop(&Error{Reply: closedHere, Err: ErrClosed})
	c.mu.Lock()
	amid := c.mu.flying.n > 0
	c.mu.Unlock()
	if tcp, ok := c.raw.(interface{ SetLinger(int) error }); ok && amid {
		_ = tcp.SetLinger(0)
	}
	_ = c.raw.Close()
}

var closedHere = reply.Local(421, reply.Enhanced{4, 4, 2}, "", "connection closed by this relay")

// Ended is closed when the connection has ended and all that it had is settled.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Err returns why the connection ended: nil after QUIT and before the end, an *Error otherwise. An
// idle connection that the host closes is an error too; its Reply says so.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ending == nil {
		return nil
	}
	return c.mu.ending
}

// stop ends the writing, for the first reason given. The reader sees to the rest.
func (c *Conn) stop(why *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopLocked(why)
}

func (c *Conn) stopLocked(why *Error) {
	if c.mu.stopped {
		return
	}
	c.mu.stopped, c.mu.ending = true, why
	c.wake.Signal()
}

// relays is Outcome.Relayed.
func (c *Conn) relays(t *Transaction) bool {
	by := t.Message.By()
	if c.caps.DeliverBy {
		return by.Trace
	}
	return !by.At.IsZero() && !by.Return
}

// settle reports what became of t. No lock may be held.
func (c *Conn) settle(t *Transaction) {
	c.mu.Lock()
	c.mu.held--
	if c.mu.current == t {
		c.mu.current = nil
	}
	o := Outcome{Results: t.results, DSN: c.caps.DSN && t.ReturnPath == nil, UTF8: t.utf8, Begun: t.begun,
		Written: t.written, Relayed: c.relays(t)}
	c.mu.Unlock()
	t.Done(t, o)
}
