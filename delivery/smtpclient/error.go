package smtpclient

import (
	"errors"

	"example.org/mta/internal/reply"
)

// ErrOutOfStep is in the chain of an error when the host's replies can't be those to our commands:
// malformed, of a class that the command can't have, too many, or complaining of the order of commands
// where that was right. The host is best talked to in LockStep from now on (Config.MaxMode).
var ErrOutOfStep = errors.New("the host answers out of step")

// ErrClosed is in the chain when this side ended the connection by Close.
var ErrClosed = errors.New("connection closed by this relay")

// Error is why a handshake failed or a connection ended.
type Error struct {
	// Reply is the host's refusal, or, with Local set, this relay's words in place of one. A
	// refusal of a whole session (greeting, EHLO, STARTTLS, AUTH) says nothing about the message:
	// even a permanent one is best met with another host, or later.
	Reply reply.Reply
	// TLS says that the TLS handshake failed, after which nothing more can be said on that
	// connection. Where TLS is not required the caller may dial again in clear text (RFC 7435, 4.1).
	TLS bool
	// NoTLS says that TLS was required, and the host did not offer STARTTLS, or refused it.
	NoTLS bool
	// Err is the cause underneath: from the network, from crypto/tls, ErrOutOfStep; may be nil.
	Err error
}

// Error names the step and what happened. The host is the caller's to add.
func (e *Error) Error() string { return e.Reply.Error() }

// Unwrap gives the reply (as *reply.Reply) and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{&e.Reply}
	}
	return []error{&e.Reply, e.Err}
}
