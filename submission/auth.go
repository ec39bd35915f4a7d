package submission

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// maxResponse is the longest line of an exchange, in octets (RFC 4954, 4).
const maxResponse = 12288

// failedLogins is how many a connection may have.
const failedLogins = 3

// mayRelay reports whether the client may send to anybody.
func (c *conn) mayRelay() bool { return c.client.login != nil || c.client.relay }

// identity is what package auth wants to know of the client.
func (c *conn) identity() auth.Client {
	return auth.Client{Session: c.client.Session, Peer: c.client.Peer, Network: c.client.Network, TLS: c.tls,
		CAs: c.srv.cfg.ClientCAs}
}

// offered lists the mechanisms that the client can use now.
func (c *conn) offered() []string {
	cfg := &c.srv.cfg
	if cfg.Auth == nil || !c.private() {
		return nil
	}
	return cfg.Auth.Offer(cfg.Mechanisms, c.identity())
}

// private reports whether nobody can listen to a password.
func (c *conn) private() bool {
	return c.tls != nil || c.srv.cfg.ClearOnLoopback && c.client.direct && isLoopback(c.client.Peer.Addr())
}

func isLoopback(a netip.Addr) bool { return a.Unmap().IsLoopback() }

// auth answers the AUTH command (RFC 4954, 4).
func (c *conn) auth(arg string) {
	cfg := &c.srv.cfg
	mechanism, initial, has := strings.Cut(arg, " ")
	mechanism = strings.ToUpper(mechanism)
	switch offered := c.offered(); {
	case cfg.Auth == nil:
		c.answer(notImplemented.Reply())
	case !c.extended:
		c.answer(greetFirst.Reply())
	case c.tx != nil:
		c.answer(authInMail.Reply())
	case c.client.login != nil && c.client.login.Mechanism != auth.ByCertificate:
		c.answer(alreadyLoggedIn.Reply())
	case !c.private() && c.srv.uncertified():
		c.answer(noCertificate.Reply())
	case !c.private():
		c.answer(authInClear.Reply())
	case mechanism == "":
		c.answer(noMechanism.Reply())
	case !slices.Contains(offered, mechanism):
		c.answer(unknownMechanism.Reply())
	default:
		var response []byte
		if initial = strings.TrimLeft(initial, " "); has && initial != "" {
			var ok bool
			if response, ok = decodeResponse(initial); !ok {
				c.answer(badResponse.Reply())
				return
			}
		}
		c.exchange(cfg.Auth.Begin(c.srv.patient, c.identity(), mechanism, offered), response)
	}
}

// decodeResponse reads the initial response in an AUTH command, of which "=" is an empty one.
func decodeResponse(text string) ([]byte, bool) {
	if text == "=" {
		return []byte{}, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	return b, err == nil
}

// exchange goes through a SASL exchange.
func (c *conn) exchange(e *auth.Exchange, response []byte) {
	for {
		c.flush() // what follows may take a while
		challenge, done, err := e.Next(response)
		switch {
		case err != nil:
			c.loginFailed(err)
			return
		case done:
			if c.loggedIn(e.Login()); c.client.excess == nil {
				c.answer(loginTaken.Reply())
			} // else mustEnd has the last word
			return
		}
		c.put(append(base64.StdEncoding.AppendEncode([]byte("334 "), challenge), crlf...))
		var ok bool
		if response, ok = c.readResponse(); !ok {
			return
		}
	}
}

// readResponse reads a line of an exchange. When there is none to go on with, it has been answered.
func (c *conn) readResponse() ([]byte, bool) {
	line, ok := c.readLineOf(maxResponse, nil, time.Now().Add(c.srv.cfg.Timeouts.Command))
	switch {
	case !ok && c.err != nil:
		return nil, false
	case !ok:
		c.answer(responseTooLong.Reply())
		return nil, false
	}
	c.saidSecret()
	text, ended := bytes.CutSuffix(line, crlf)
	if !ended {
		text = bytes.TrimSuffix(line, []byte("\n"))
	}
	if !ended && c.client.Newlines == intake.RefuseBareNewlines {
		c.answer(bareLFCommand.Reply())
		return nil, false
	}
	if string(text) == "*" {
		c.answer(loginCancelled.Reply())
		return nil, false
	}
	response, err := base64.StdEncoding.Strict().AppendDecode([]byte{}, text)
	if err != nil {
		c.answer(badResponse.Reply())
		return nil, false
	}
	return response, true
}

// loginFailed answers why nobody has logged in.
func (c *conn) loginFailed(err error) {
	if c.srv.patient.Err() != nil { // whatever the password
		c.farewell(shuttingDown.Reply())
		return
	}
	c.client.failedLogins++
	switch {
	case errors.Is(err, auth.ErrDenied):
		c.refused(intake.IntrusionLogin)
		c.answer(loginDenied.Reply())
	case errors.Is(err, auth.ErrTooMany):
		c.refused(intake.IntrusionLogin)
		c.answer(loginsTooMany.Reply())
	case errors.Is(err, auth.ErrBusy):
		c.answer(loginsTooMany.Reply())
	case errors.Is(err, auth.ErrNoUsers):
		c.answer(loginUnable.Reply())
	default:
		c.answer(badResponse.Reply())
	}
}

// loggedIn takes note of who the client is.
func (c *conn) loggedIn(l *auth.Login) {
	c.setLogin(l)
	c.client.proved, c.client.failedLogins = true, 0
	if c.client.excess = c.seat(); c.client.excess == nil {
		c.client.excess = c.countTenant()
	}
}

// setLogin changes who the client has logged in as; nil: as nobody.
func (c *conn) setLogin(l *auth.Login) {
	cl := c.client
	if cl.login = l; l == nil {
		l = new(auth.Login)
	}
	cl.User, cl.Tenant, cl.Senders = l.User, l.Tenant, l.Senders
	c.srv.desk.Settle(&cl.Client)
}

// loginByCertificate takes the user of the client's certificate, if it has shown one.
func (c *conn) loginByCertificate() {
	if cfg := &c.srv.cfg; cfg.Auth != nil {
		if l := cfg.Auth.Certificate(c.srv.ctx, c.identity()); l != nil {
			c.loggedIn(l)
		}
	}
}
