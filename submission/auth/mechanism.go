package auth

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/emersion/go-sasl"
	"github.com/xdg-go/scram"
)

// Names of mechanisms.
const (
	Plain     = sasl.Plain // RFC 4616
	LoginName = sasl.Login // draft-murchison-sasl-login
	SCRAM     = "SCRAM-SHA-256"
	SCRAMPlus = "SCRAM-SHA-256-PLUS"
	External  = sasl.External // RFC 4422, appendix A
)

// ByCertificate is the mechanism of a login that took no AUTH command.
const ByCertificate = "certificate"

// ByPassword is the mechanism of a login outside SASL.
const ByPassword = "password"

// Exchange is one SASL exchange.
type Exchange struct {
	a      *attempt
	server sasl.Server
	login  *Login
}

// Offer gives those of the mechanisms that a client can use.
func (s *Service) Offer(mechanisms []string, c Client) []string {
	return slices.DeleteFunc(slices.Clone(mechanisms), func(m string) bool {
		switch m {
		case SCRAMPlus:
			return !binding(c).IsSupported()
		case External:
			return s.byCertificate(c) == nil
		}
		return false
	})
}

// Begin starts an exchange with one of the mechanisms that were offered to the client. Next may wait,
// for its turn and with a failure, until ctx ends.
func (s *Service) Begin(ctx context.Context, c Client, mechanism string, offered []string) *Exchange {
	e := &Exchange{a: &attempt{s: s, ctx: ctx, client: c, mechanism: mechanism, began: s.cfg.Now()}}
	switch mechanism {
	case Plain:
		e.server = sasl.NewPlainServer(e.plain)
	case LoginName:
		e.server = &loginServer{check: func(name, password string) error { return e.plain("", name, password) }}
	case SCRAM, SCRAMPlus:
		e.server = newScramServer(e, mechanism == SCRAMPlus, slices.Contains(offered, SCRAMPlus))
	case External:
		e.server = sasl.NewExternalServer(e.external)
	}
	return e
}

// Next takes a response of the client, nil when it has sent none yet. When done is true, Login has
// the result.
func (e *Exchange) Next(response []byte) (challenge []byte, done bool, err error) {
	challenge, done, err = e.server.Next(response)
	for _, ours := range []error{ErrDenied, ErrTooMany, ErrBusy, ErrNoUsers} {
		if errors.Is(err, ours) {
			return nil, false, ours
		}
	}
	if err != nil {
		return nil, false, ErrMalformed
	}
	return challenge, done, nil
}

// Login is who has logged in, nil before the exchange is done.
func (e *Exchange) Login() *Login { return e.login }

// plain checks name and password. Nobody may act as another (RFC 4616, 2: the authorization identity).
func (e *Exchange) plain(identity, name, password string) (err error) {
	if len(name) > maxResponse || len(password) > maxResponse {
		return ErrMalformed
	}
	if identity != "" && !sameName(identity, name) {
		e.a.why = "wants to act as another user"
		password = ""
	}
	e.login, err = e.a.password(name, password)
	return err
}

// maxResponse is the longest name or password that is looked at, in octets. RFC 4616 demands 255.
const maxResponse = 1024

func sameName(a, b string) bool {
	x, err := NormalName(a)
	if err != nil {
		return false
	}
	y, err := NormalName(b)
	return err == nil && x == y
}

// external takes the user of the client's certificate.
func (e *Exchange) external(identity string) error {
	u := e.a.s.byCertificate(e.a.client)
	if u == nil || identity != "" && !sameName(identity, u.Name) {
		e.a.user, e.a.why = u, "no certificate of this user"
		return e.a.end(nil, ErrDenied)
	}
	e.a.user = u
	e.login = e.a.login()
	return e.a.end(nil, nil)
}

// loginServer is the server of LOGIN. go-sasl has none.
type loginServer struct {
	check func(name, password string) error
	name  *string
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case response == nil:
		return []byte("Username:"), false, nil
	case l.name == nil: // in the AUTH command, too, as Outlook and curl send it
		name := string(response)
		l.name = &name
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(*l.name, string(response))
}

// scramServer is the server of SCRAM-SHA-256 (RFC 5802, 7677).
type scramServer struct {
	e    *Exchange
	conv *scram.ServerConversation
	plus bool
	step int
}

func newScramServer(e *Exchange, plus, plusOffered bool) *scramServer {
	s := &scramServer{e: e, plus: plus}
	server, _ := scram.SHA256.NewServer(s.credentials) // has no errors to give
	switch {
	case plus:
		s.conv = server.NewConversationWithChannelBindingRequired(binding(e.a.client))
	case plusOffered: // a client that could use it, and does not see it offered, is being deceived
		s.conv = server.NewConversationWithChannelBinding(binding(e.a.client))
	default:
		s.conv = server.NewConversation()
	}
	return s
}

// binding is tls-exporter's (RFC 9266); none in clear, and with a TLS 1.2 that is not fit for it.
func binding(c Client) scram.ChannelBinding {
	if c.TLS == nil {
		return scram.ChannelBinding{}
	}
	b, err := scram.NewTLSExporterBinding(c.TLS)
	if err != nil {
		return scram.ChannelBinding{}
	}
	return b
}

func (s *scramServer) Next(response []byte) (challenge []byte, done bool, err error) {
	if response == nil {
		return []byte{}, false, nil
	}
	s.step++
	switch s.step {
	case 1:
		return s.first(response)
	case 2:
		return s.final(response)
	case 3: // SMTP has no place for data with its success: they went before (RFC 4954, 4)
		if len(response) > 0 {
			return nil, false, s.denied("something behind the end of SCRAM")
		}
		s.e.login = s.e.a.login()
		s.e.a.s.known.met(s.e.a.place())
		return nil, true, s.e.a.end(nil, nil)
	}
	return nil, false, ErrMalformed
}

func (s *scramServer) first(response []byte) ([]byte, bool, error) {
	if len(response) > 2*maxResponse || !s.plus && bytes.HasPrefix(response, []byte("p=")) {
		return nil, false, ErrMalformed
	}
	text, err := s.conv.Step(string(response))
	switch {
	case errors.Is(err, ErrNoUsers):
		return nil, false, s.e.a.end(nil, ErrNoUsers)
	case err != nil && strings.HasPrefix(text, "e="):
		return nil, false, s.denied("channel binding: " + strings.TrimPrefix(text, "e="))
	case err != nil:
		return nil, false, ErrMalformed
	}
	return []byte(text), false, nil
}

// credentials gives a user's. Who has none has salt and iterations all the same, always the same for a name,
// and keys that nobody can know.
func (s *scramServer) credentials(name string) (scram.StoredCredentials, error) {
	a := s.e.a
	if err := a.find(name); err != nil {
		return scram.StoredCredentials{}, err
	}
	if a.user != nil {
		if c, ok := a.user.Hash.Credentials(); ok {
			return c, nil
		}
		a.why = "user's password is not hashed for SCRAM: it takes a login by PLAIN or LOGIN, or 'mta user password'"
	}
	return scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(a.s.mac("salt", a.name)[:16]), Iters: iterations},
		StoredKey:  a.s.mac("stored key", a.name), ServerKey: a.s.mac("server key", a.name),
	}, nil
}

// final checks the proof.
func (s *scramServer) final(response []byte) ([]byte, bool, error) {
	a := s.e.a
	hearing, err := a.begin(a.s.known.at(a.place()))
	if err != nil {
		return nil, false, a.end(nil, err)
	}
	text, err := s.conv.Step(string(response))
	if identity := s.conv.AuthzID(); identity != "" && !sameName(identity, a.name) {
		a.why, err = "wants to act as another user", ErrDenied
	}
	if err != nil || !s.conv.Valid() || a.user == nil {
		return nil, false, a.wrong(hearing)
	}
	hearing.right()
	return []byte(text), false, nil
}

func (s *scramServer) denied(why string) error {
	s.e.a.why = why
	return s.e.a.end(nil, ErrDenied)
}
