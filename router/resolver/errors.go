package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Kind is what an error means for the name that was looked up.
type Kind uint8

const (
	Temporary Kind = iota // nothing is known: SERVFAIL, REFUSED, no answer, a malformed one
	NXDomain              // the name does not exist, for any type
	NoData                // the name exists and has no such record
)

// String gives the word for logs.
func (k Kind) String() string {
	switch k {
	case NXDomain:
		return "NXDOMAIN"
	case NoData:
		return "NODATA"
	}
	return "temporary"
}

// Error is why a look-up gave no records.
type Error struct {
	Kind    Kind
	Name    string // as asked for
	Type    Type
	Reason  string         // in a few words, as "SERVFAIL"
	Server  netip.AddrPort // the server that was asked last; zero when none was or all agree
	Secure  bool           // NXDomain or NoData, and the server vouches for it, see Answer.Secure
	Expires time.Time      // until when the cache says the same
	cause   error
}

// Error names the step and the reason.
func (e *Error) Error() string {
	s := fmt.Sprintf("looking up %s of %s: %s", e.Type, e.Name, e.Reason)
	if e.Server.IsValid() {
		s += " (" + e.Server.String() + ")"
	}
	return s
}

// Unwrap gives the cause: a context's or the network's error.
func (e *Error) Unwrap() error { return e.cause }

// KindOf is the kind of an error of this package; of any other it is Temporary.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Temporary
}

var (
	errBusy      = errors.New("too many look-ups at once")
	errAliases   = errors.New("too many aliases, or a loop of them")
	errMalformed = errors.New("malformed answer")
	errLame      = errors.New("server does not look names up for us (neither recursive nor authoritative)")
)

// errRcode is a response code that is not an answer, such as SERVFAIL.
type errRcode string

func (e errRcode) Error() string { return string(e) }

// serverError is a failure of one server.
type serverError struct {
	server netip.AddrPort
	err    error
}

func (e *serverError) Error() string { return fmt.Sprintf("asking %s: %v", e.server, e.err) }
func (e *serverError) Unwrap() error { return e.err }

// silent reports that the server may answer yet if asked again, rather than that it has answered.
func (e *serverError) silent() bool {
	var rc errRcode
	return !errors.As(e.err, &rc) && !errors.Is(e.err, errMalformed) && !errors.Is(e.err, errLame)
}

// reason puts a cause in words that are fit for a report to the sender: no addresses of ours.
func reason(err error) string {
	var rc errRcode
	var ne net.Error
	switch {
	case errors.As(err, &rc):
		return string(rc)
	case errors.Is(err, errMalformed), errors.Is(err, errLame), errors.Is(err, errBusy), errors.Is(err, errAliases):
		for _, e := range []error{errMalformed, errLame, errBusy, errAliases} {
			if errors.Is(err, e) {
				return e.Error()
			}
		}
	case errors.Is(err, context.Canceled):
		return "look-up was cancelled"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &ne) && ne.Timeout():
		return "no answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "name server is not running"
	}
	return "name server can't be reached"
}
