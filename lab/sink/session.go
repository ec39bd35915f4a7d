package sink

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// inputSize is the reading buffer: what a client can pipeline before it is answered, and the
// longest command line.
const inputSize = 16 << 10

// tlsTimeout bounds a handshake, so that a silent client can't hold one for ever.
const tlsTimeout = 30 * time.Second

// session is one connection: its state, and the reading of it.
type session struct {
	srv     *Server
	conn    net.Conn // as accepted
	wire    net.Conn // conn, or TLS upon it
	client  netip.AddrPort
	rng     *rand.Rand
	crowded bool // one connection too many: only to be told so
	r       *bufio.Reader

	out     []byte    // replies that leave before the next read that may block
	outDue  time.Time // when they leave, of a server with delays
	lane    *lane     // nil when replies are written at once
	ready   time.Time // when the server is done with all work so far
	arrived time.Time // when the last bytes were read
	failed  error     // of writing

	helo          string // what the client called itself; "" before EHLO or HELO
	authenticated bool
	encrypted     bool
	commands      int // in the flight that is being answered
	about         ConnectionStats

	tx      transaction
	content content
}

// transaction is what MAIL begins and content ends.
type transaction struct {
	open          bool
	sender        string
	mailParams    string
	recipients    []string
	rcptParams    []string
	declared      int64 // octets by SIZE=; 0 when not given
	eightBit      bool  // BODY=8BITMIME or BINARYMIME
	utf8          bool
	chunked       bool // a BDAT has been
	chunksRefused bool // a BDAT was refused, so all further ones are (RFC 3030, 2)
	cutAfter      int64
}

func newSession(s *Server, conn net.Conn, client netip.AddrPort, number uint64) *session {
	x := &session{srv: s, conn: conn, wire: conn, client: client,
		rng: rand.New(rand.NewPCG(s.cfg.Seed, number))}
	x.about = ConnectionStats{Number: number, Client: client, Opened: time.Now()}
	x.r = bufio.NewReaderSize(input{x}, inputSize)
	x.content.identify = s.cfg.Recorder.identifies()
	x.content.capture = s.cfg.Recorder.captures()
	return x
}

// run is the session from the first byte to the last.
func (x *session) run() {
	defer x.srv.wait.Done()
	x.arrived = time.Now()
	if x.srv.faults.delayed {
		x.lane = newLane(func() net.Conn { return x.wire }, x.srv.done, x.cut)
	}
	x.talk()
	x.flush()
	if x.lane != nil {
		x.lane.end()
	}
	x.srv.ended(x) // before the client sees the end, and connects again
	x.wire.Close()
	x.about.Closed = time.Now()
	x.srv.stats.connection(x)
}

func (x *session) talk() {
	if !x.greet() {
		return
	}
	for {
		line, err := x.readLine()
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			x.say("500 5.5.2 line too long")
			x.about.End = "line too long"
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			x.say("421 4.4.2 " + x.srv.cfg.Hostname + " idle for too long")
			x.about.End = "idle"
			return
		case err != nil:
			x.about.End = cmp.Or(x.about.End, "client left")
			return
		}
		if !x.command(line) {
			return
		}
	}
}

// greet sends the banner, and reports whether the session goes on.
func (x *session) greet() bool {
	x.srv.stats.connections.Add(1)
	if x.crowded {
		x.srv.stats.crowded.Add(1)
		x.about.End = "one too many"
		x.say("421 4.7.0 " + x.srv.cfg.Hostname + " Too many connections, try again later")
		return false
	}
	v := x.verdict(Connect, "", "")
	if v.stop {
		return false
	}
	x.spend(x.srv.faults.work[Greeting])
	v.text = cmp.Or(v.text, "220 "+x.srv.cfg.Hostname+" ESMTP")
	if !x.answer(Connect, v) || v.text[0] != '2' {
		return false
	}
	v = x.verdict(Greeting, "", "")
	if v.stop {
		return false
	}
	x.stray(Greeting)
	return true
}

// readLine gives the next command without its line end, valid until the next read.
func (x *session) readLine() ([]byte, error) {
	line, err := x.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	} else if x.srv.cfg.Inspect {
		x.srv.stats.fault("a command that ends in a bare LF")
	}
	return line, nil
}

// input reads what the client sends, after all replies so far have left: that is the end of a
// flight.
type input struct{ x *session }

func (in input) Read(p []byte) (int, error) {
	x := in.x
	x.about.Flight = max(x.about.Flight, x.commands)
	x.commands = 0
	x.flush()
	if x.failed != nil {
		return 0, x.failed
	}
	idle := x.srv.cfg.IdleTimeout + x.srv.cfg.Latency
	if err := x.wire.SetReadDeadline(time.Now().Add(idle)); err != nil {
		return 0, err
	}
	n, err := x.wire.Read(p)
	x.arrived = time.Now()
	return n, err
}

// say adds a reply to the flight, one line for each line of text.
func (x *session) say(text string) {
	if x.lane != nil {
		if due := x.due(); !due.Equal(x.outDue) {
			x.flush()
			x.outDue = due
		}
	}
	for {
		i := strings.IndexByte(text, '\n')
		if i < 0 {
			break
		}
		x.out = append(x.out, text[:3]...)
		x.out = append(x.out, '-')
		x.out = append(x.out, text[4:i]...)
		x.out = append(x.out, "\r\n"...)
		text = text[:4] + text[i+1:]
	}
	x.out = append(x.out, text...)
	x.out = append(x.out, "\r\n"...)
}

// spend keeps the server busy for d: the reply that follows, and all after it, come later.
func (x *session) spend(d time.Duration) {
	if d > 0 {
		x.ready = later(x.ready, x.arrived).Add(d)
	}
}

// due is when a reply to what was read last leaves.
func (x *session) due() time.Time {
	d := later(x.ready, x.arrived).Add(x.srv.cfg.Latency)
	if j := x.srv.cfg.Jitter; j > 0 && !d.Equal(x.outDue) {
		d = d.Add(time.Duration(x.rng.Int64N(int64(j))))
	}
	return later(d, x.outDue)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// flush lets the replies so far leave.
func (x *session) flush() {
	switch {
	case len(x.out) == 0:
	case x.lane != nil:
		x.lane.in <- flight{due: x.outDue, replies: x.out}
		x.out = nil
	default:
		if x.failed == nil {
			_, x.failed = x.wire.Write(x.out)
		}
		x.out = x.out[:0]
	}
}

// drop ends the session without a reply, after those before it have left.
func (x *session) drop(p Phase) {
	x.srv.stats.dropped[p].Add(1)
	x.about.End = "dropped at " + p.String()
	if x.lane != nil {
		due := x.due()
		x.flush()
		x.lane.in <- flight{due: due, cut: true}
		return
	}
	x.flush()
	x.cut()
}

// cut closes the connection, the hard way when so configured.
func (x *session) cut() {
	if t, ok := x.conn.(*net.TCPConn); ok && x.srv.cfg.DropByReset {
		t.SetLinger(0)
	}
	x.conn.Close()
}

// secure turns to TLS, after its 220 has left.
func (x *session) secure() bool {
	x.flush()
	if x.lane != nil {
		written := make(chan struct{})
		x.lane.in <- flight{written: written}
		<-written
	}
	// RFC 3207, 4.2: what came in the clear after STARTTLS must not be taken for what came
	// within TLS.
	if x.r.Buffered() > 0 {
		x.srv.stats.fault("commands pipelined after STARTTLS")
		x.about.End = "clear text after STARTTLS"
		return false
	}
	t := tls.Server(x.conn, x.srv.cfg.TLS)
	if err := x.conn.SetDeadline(time.Now().Add(tlsTimeout)); err != nil {
		return false
	}
	if err := t.Handshake(); err != nil {
		x.srv.stats.tlsFailed.Add(1)
		x.about.End = "tls: " + err.Error()
		return false
	}
	if err := x.conn.SetDeadline(time.Time{}); err != nil {
		return false
	}
	x.wire, x.encrypted, x.about.TLS, x.about.Resumed = t, true, true, t.ConnectionState().DidResume
	x.helo, x.authenticated = "", false // RFC 3207, 4.2: knowledge from before is discarded
	x.tx = transaction{}
	return true
}
