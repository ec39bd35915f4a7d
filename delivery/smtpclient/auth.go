package smtpclient

import (
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/emersion/go-sasl"

	"example.org/mta/internal/reply"
)

// authenticate says who we are (RFC 4954). Passwords go through TLS or not at all; to lack it is
// our trouble and not the message's, so it is temporary.
func (h *handshake) authenticate() error {
	if h.tls == nil {
		return &Error{Reply: reply.Local(454, reply.Enhanced{4, 7, 11}, "AUTH",
			"credentials are configured and the connection is not encrypted, so they were not sent")}
	}
	client := h.mechanism()
	if client == nil {
		return &Error{Reply: reply.Local(454, reply.Enhanced{4, 7, 4}, "AUTH",
			"the host offers no mechanism that this relay has (PLAIN, LOGIN): %q", h.caps.Auth)}
	}
	name, initial, err := client.Start()
	if err != nil {
		return &Error{Reply: reply.Local(454, reply.Enhanced{4, 7, 0}, "AUTH", "%s could not be started", name),
			Err: err}
	}
	line, shown := "AUTH "+name, "AUTH "+name
	if initial != nil {
		line, shown = line+" "+encode(initial), shown+" ***"
	}
	for {
		r, err := h.exchange("AUTH", line, shown, h.cfg.Timeouts.Hello)
		if err != nil {
			return err
		}
		if r.code != 334 {
			return authResult(r)
		}
		if line, err = respond(client, r); err != nil {
			return err
		}
		shown = "***"
	}
}

func (h *handshake) mechanism() sasl.Client {
	auth := h.cfg.Auth
	switch {
	case slices.Contains(h.caps.Auth, "PLAIN"):
		return sasl.NewPlainClient("", auth.Username, auth.Password)
	case slices.Contains(h.caps.Auth, "LOGIN"):
		return &login{answers: [][]byte{[]byte(auth.Username), []byte(auth.Password)}}
	}
	return nil
}

func authResult(r rawReply) error {
	switch {
	case r.code == 235:
		return nil
	case r.negative():
		return &Error{Reply: r.reply("AUTH")}
	}
	return outOfStep("AUTH", "the host answered AUTH with %q", clean(r.raw, 80))
}

// respond answers a challenge; a challenge that can't be is answered by "*" at the price of the
// connection.
func respond(client sasl.Client, r rawReply) (string, error) {
	challenge, err := base64.StdEncoding.DecodeString(r.reply("AUTH").Text)
	if err != nil {
		return "", outOfStep("AUTH", "the host's challenge is not base64")
	}
	response, err := client.Next(challenge)
	if err != nil {
		return "", &Error{Reply: reply.Local(454, reply.Enhanced{4, 7, 0}, "AUTH",
			"the host's challenge was not expected"), Err: fmt.Errorf("answering a challenge: %w", err)}
	}
	return encode(response), nil
}

func encode(b []byte) string {
	if len(b) == 0 {
		return "=" // an empty response (RFC 4954, 4)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// login is the LOGIN mechanism as hosts practise it: two questions, whose wording varies, so it
// isn't looked at. The library's insists on one wording, and on an initial response, which
// many hosts don't take.
type login struct{ answers [][]byte }

func (l *login) Start() (mech string, ir []byte, err error) { return "LOGIN", nil, nil }

func (l *login) Next([]byte) ([]byte, error) {
	if len(l.answers) == 0 {
		return nil, sasl.ErrUnexpectedServerChallenge
	}
	answer := l.answers[0]
	l.answers = l.answers[1:]
	return answer, nil
}
