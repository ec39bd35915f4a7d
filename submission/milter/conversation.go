package milter

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/emersion/go-milter"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

const (
	// actions are what a milter may do to a message. Its envelope is the client's.
	actions = milter.OptAddHeader | milter.OptChangeBody | milter.OptChangeHeader | milter.OptQuarantine
	// protocol are the steps that a milter may go without: those that every version has.
	protocol = milter.OptNoConnect | milter.OptNoHelo | milter.OptNoMailFrom | milter.OptNoRcptTo |
		milter.OptNoBody | milter.OptNoHeaders | milter.OptNoEOH
	// tolerated is what rspamd wants besides, whatever is offered: steps that it doesn't answer, or that are not made.
	tolerated = protocol | milter.OptNoHeaderReply | milter.OptNoConnReply | milter.OptNoHeloReply |
		milter.OptNoMailReply | milter.OptNoRcptReply | milter.OptNoDataReply | milter.OptNoUnknownReply |
		milter.OptNoEOHReply | milter.OptNoBodyReply | milter.OptNoUnknown | milter.OptNoData

	// What a milter may send beside a header and a body, in octets, each packet counted as more than it is: it
	// becomes a Go value. A body that was encoded anew can be three times as large (RFC 2045, 6.7).
	answers = 1 << 20
	packet  = 256
	// memoryStep is in which steps memory is taken for it.
	memoryStep = 64 << 10
)

// bounded is a connection by which so much comes, and no more.
type bounded struct {
	net.Conn
	left   int64  // octets that may still come
	free   int64  // octets of memory that have been taken and not been used
	body   uint32 // octets to come of the packet
	length uint32 // of the next packet, as far as it is known
	digits int    // octets of length that are known
	take   func(int64) bool
	broken bool // an answer did not come, or a command did not leave
}

// serve bounds what comes about a message.
func (c *bounded) serve(m *intake.Filtered) {
	commands := bytes.Count(m.Header, []byte("\n")) + len(m.Recipients) + len(m.Body)/milter.MaxBodyChunk
	c.take = m.Take
	c.left = answers + int64(m.Limits.HeaderSize) + m.Limits.Size + 3*int64(len(m.Body)) + 2*packet*int64(commands)
}

var (
	errTooMuch  = errors.New("it sends more than a message can have")
	errNoMemory = errors.New("its answer finds no memory: too many messages are coming in")
)

func (c *bounded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.broken = c.broken || err != nil
	cost := int64(n)
	for rest := p[:n]; len(rest) > 0; {
		if k := min(c.body, uint32(len(rest))); k > 0 {
			c.body -= k
			rest = rest[k:]
			continue
		}
		c.length = c.length<<8 | uint32(rest[0])
		rest = rest[1:]
		if c.digits++; c.digits == 4 {
			c.body, c.length, c.digits = c.length, 0, 0
			cost += packet
		}
	}
	c.left -= cost
	c.free -= cost
	switch {
	case c.left < 0:
		return 0, errTooMuch
	case c.free < 0 && c.take != nil:
		if !c.take(memoryStep - c.free) {
			return 0, errNoMemory
		}
		c.free = memoryStep
	}
	return n, err
}

func (c *bounded) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.broken = c.broken || err != nil
	return n, err
}

// given dials a connection that there is.
type given struct{ net.Conn }

func (g given) Dial(string, string) (net.Conn, error) { return g.Conn, nil }

// negotiate begins a session.
func negotiate(c net.Conn) (*milter.ClientSession, error) {
	s, err := milter.NewClientWithOptions("", "", milter.ClientOptions{Dialer: given{c}, ActionMask: actions,
		ProtocolMask: protocol}).Session()
	if err == nil && s.ProtocolOpts&^tolerated != 0 {
		err = fmt.Errorf("it wants what was not offered: protocol %#x", s.ProtocolOpts&^tolerated)
	}
	return s, err
}

// talk is a session up to the first answer that ends it.
type talk struct {
	*milter.ClientSession
	answer  *milter.Action // nil: go on
	changes []milter.ModifyAction
	err     error
}

// over reports whether the milter has decided, or failed.
func (t *talk) over() bool { return t.err != nil || t.answer != nil }

// say has one step done, with the macros of which the value is known.
func (t *talk) say(code milter.Code, macros []string, do func() (*milter.Action, error)) {
	var known []string
	for i := 0; i < len(macros); i += 2 {
		if macros[i+1] != "" {
			known = append(known, macros[i], macros[i+1])
		}
	}
	if len(known) > 0 && !t.over() {
		t.err = t.Macros(code, known...)
	}
	if t.over() {
		return
	}
	var answer *milter.Action
	if answer, t.err = do(); t.err == nil && answer.Code != milter.ActContinue {
		t.answer = answer
	}
}

// converse replays a message, and returns the answer and the changes.
func converse(s *milter.ClientSession, listener string,
	m *intake.Filtered) (*milter.Action, []milter.ModifyAction, error) {
	t, c := &talk{ClientSession: s}, m.Client
	t.greet(listener, m)
	t.say(milter.CodeMail, []string{"i", m.ID, "{auth_authen}", cmp.Or(c.User, c.APIKey),
		"{mail_addr}", string(m.Sender)}, func() (*milter.Action, error) { return s.Mail(string(m.Sender), nil) })
	for i := range m.Recipients {
		a := string(m.Recipients[i].Address)
		t.say(milter.CodeRcpt, []string{"{rcpt_addr}", a}, func() (*milter.Action, error) { return s.Rcpt(a, nil) })
	}
	for field := range intake.EachField(m.Header) {
		name, value, _ := envelope.CutField(field)
		t.say(milter.CodeHeader, nil, func() (*milter.Action, error) {
			return s.HeaderField(string(name), unfolded(value))
		})
	}
	t.say(milter.CodeEOH, nil, s.HeaderEnd)
	for rest := m.Body; len(rest) > 0 && !t.over(); {
		n := min(len(rest), milter.MaxBodyChunk)
		t.say(milter.CodeBody, nil, func() (*milter.Action, error) { return s.BodyChunk(rest[:n]) })
		rest = rest[n:]
	}
	t.say(milter.CodeEOB, []string{"i", m.ID}, func() (*milter.Action, error) {
		changes, answer, err := s.End()
		t.changes, t.answer = changes, answer
		return answer, err
	})
	if t.err == nil {
		_ = s.Close() // it has answered; what it makes of the end is its own business
	}
	return t.answer, t.changes, t.err
}

// greet replays the beginning of the session.
func (t *talk) greet(listener string, m *intake.Filtered) {
	c := m.Client
	family, name, at, port := milter.FamilyUnknown, "localhost", "", ""
	if addr := c.Peer.Addr().Unmap().WithZone(""); addr.IsValid() {
		family, at, port = milter.FamilyInet, addr.String(), strconv.Itoa(int(c.Peer.Port()))
		if addr.Is6() {
			family = milter.FamilyInet6
		}
		name = "[" + at + "]"
	}
	t.say(milter.CodeConn, []string{"j", m.Hostname, "{daemon_name}", listener, "{client_addr}", at,
		"{client_port}", port, "{client_name}", name}, func() (*milter.Action, error) {
		return t.Conn(name, family, c.Peer.Port(), at)
	})
	var version, cipher string
	if c.TLS != nil {
		version = strings.Replace(tls.VersionName(c.TLS.Version), " ", "v", 1)
		cipher = tls.CipherSuiteName(c.TLS.CipherSuite)
	}
	t.say(milter.CodeHelo, []string{"{tls_version}", version, "{cipher}", cipher}, func() (*milter.Action, error) {
		return t.Helo(cmp.Or(c.Helo, name))
	})
}

// unfolded is a field's value as milters get it: lines end in LF, and the space after the colon is not there.
func unfolded(value []byte) string {
	value = bytes.TrimLeft(bytes.TrimRight(value, "\r\n"), " \t")
	return string(bytes.ReplaceAll(value, []byte("\r\n"), []byte("\n")))
}
