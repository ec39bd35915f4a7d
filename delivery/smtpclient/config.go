package smtpclient

import (
	"log/slog"
	"time"

	"example.org/mta/internal/route"
)

// Mode is how far ahead of the replies the commands may run.
type Mode uint8

const (
	anyMode   Mode = iota
	LockStep       // one command, one reply
	Pipelined      // one flight a message (RFC 2920)
	Chunked        // a window of whole messages (RFC 2920 with RFC 3030)
)

// String gives the name that the configuration and destdb use.
func (m Mode) String() string {
	switch m {
	case LockStep:
		return "lock-step"
	case Pipelined:
		return "pipelining"
	case Chunked:
		return "chunking"
	}
	return "any"
}

// Config is what the client has to know of itself and of the host. Only Name and Host are needed.
type Config struct {
	// Name is what this relay calls itself in EHLO: the name of the source.
	Name string
	// Host is whom the connection leads to.
	Host route.Host

	// TLS is nil for clear text.
	TLS *TLS
	// Auth is sent over TLS only; nil without. It reaches no log and no trace.
	Auth *route.Auth

	Timeouts Timeouts // zero fields: those of RFC 5321, 4.5.3.2

	// MaxMode caps the mode, for hosts that are known to answer out of step. Zero is no cap.
	MaxMode Mode
	// Window is where the window starts: what was learned about the host. Zero is one message.
	Window Window
	// MaxWindow is what it may grow to. Zero is 64 messages and 4 MiB.
	MaxWindow Window

	// SendEightBit sends 8-bit content as it is to a host without 8BITMIME. By default such a
	// message is refused with 5.6.3 (RFC 6152, 3): this relay doesn't convert content.
	SendEightBit bool

	Trace *Trace       // who watches the conversation from the start; nil: nobody
	Log   *slog.Logger // nil: nowhere

	// Answered is called by Handshake at each reply of the host, and when TLS is up; nil: it is not. It must
	// not block.
	Answered func()
	// Closed is called once, when the connection has ended and after the Done of its last
	// transaction. Err returns why. It must not block.
	Closed func(*Conn)
}

// Timeouts bound each phase: how long the host may take for its reply. The connection attempt
// itself is the caller's.
type Timeouts struct {
	Greeting time.Duration // 5 min
	Hello    time.Duration // EHLO, HELO, STARTTLS and its handshake, each step of AUTH: 5 min
	Mail     time.Duration // MAIL and RSET: 5 min
	Rcpt     time.Duration // 5 min
	Data     time.Duration // from DATA to 354: 2 min
	Block    time.Duration // writing one block, and a BDAT that isn't the last: 3 min
	Dot      time.Duration // from the content's end to its reply: 10 min
	Quit     time.Duration // 10 s: all mail is settled by then
}

func (t Timeouts) withDefaults() Timeouts {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Greeting, 5 * time.Minute}, {&t.Hello, 5 * time.Minute}, {&t.Mail, 5 * time.Minute},
		{&t.Rcpt, 5 * time.Minute}, {&t.Data, 2 * time.Minute}, {&t.Block, 3 * time.Minute},
		{&t.Dot, 10 * time.Minute}, {&t.Quit, 10 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return t
}
