package submission

import (
	"bytes"
	"fmt"
	"net/netip"
)

// Watcher is told what is said in sessions, for operators who look for trouble. Its methods are
// called by many goroutines and must not block.
type Watcher interface {
	// Watched reports whether anybody watches. It is asked for each line.
	Watched() bool
	Said(Line)
}

// Line is a line of a session. Content is left out, and credentials are masked.
type Line struct {
	Session    string
	Tenant     string         // on whose behalf the client submits
	Peer       netip.AddrPort // zero when unknown
	FromClient bool
	Text       []byte // without the line end; valid during the call
}

// said passes on a line of the session if somebody watches.
func (c *conn) said(fromClient bool, text []byte) {
	w := c.srv.cfg.Watcher
	if w == nil || !w.Watched() {
		return
	}
	text = bytes.TrimRight(text, "\r\n")
	switch {
	case fromClient:
		text = c.masked(text)
	case bytes.HasPrefix(text, []byte("334 ")): // a challenge can have a user's salt
		text = []byte("334 ***")
	}
	w.Said(Line{Session: c.client.Session, Tenant: c.client.OnBehalfOf(), Peer: c.client.Peer,
		FromClient: fromClient, Text: text})
}

// masked hides what AUTH says (RFC 4954, 4): all behind the mechanism, and the lines of an exchange
// that a client goes on with though it was refused.
func (c *conn) masked(text []byte) []byte {
	verb, arg, known := cutVerb(bytes.TrimRight(text, " \t"))
	switch {
	case known && verb == "AUTH":
		c.client.secret = true
		mechanism, _, more := bytes.Cut([]byte(arg), []byte(" "))
		if !more {
			return text
		}
		return append(append([]byte("AUTH "), mechanism...), " ***"...)
	case !known && c.client.secret:
		return []byte("***")
	}
	c.client.secret = false
	return text
}

// saidSecret stands for a response of a SASL exchange.
func (c *conn) saidSecret() {
	if w := c.srv.cfg.Watcher; w != nil && w.Watched() {
		w.Said(Line{Session: c.client.Session, Tenant: c.client.OnBehalfOf(), Peer: c.client.Peer, FromClient: true,
			Text: []byte("***")})
	}
}

// saidContent stands for the content of a message.
func (c *conn) saidContent(octets int64) {
	if w := c.srv.cfg.Watcher; w != nil && w.Watched() {
		w.Said(Line{Session: c.client.Session, Tenant: c.client.OnBehalfOf(), Peer: c.client.Peer, FromClient: true,
			Text: fmt.Appendf(nil, "(%d octets of content)", octets)})
	}
}
