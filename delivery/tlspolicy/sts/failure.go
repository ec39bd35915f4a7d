package sts

import (
	"context"
	"crypto/tls"
	"errors"
	"time"
)

// Kind says at which step no policy could be had.
type Kind uint8

const (
	Absent      Kind = iota // the DNS has no record: the domain does without MTA-STS
	DNS                     // the DNS did not answer
	Record                  // the record is malformed, or there are several
	Fetch                   // the web server did not serve a policy
	Certificate             // the web server's certificate is not valid for it
	Invalid                 // what it served is not a policy
	kinds
)

// String gives the word for metrics. The last three are those of TLS reports (RFC 8460, 4.3.2.1) without their prefix.
func (k Kind) String() string {
	return [...]string{"absent", "dns", "record", "policy-fetch-error", "webpki-invalid", "policy-invalid"}[k]
}

// Failure is why a domain's policy could not be had or renewed.
type Failure struct {
	Kind Kind
	At   time.Time
	err  error
}

// Error names the step and the reason.
func (f *Failure) Error() string { return f.err.Error() }

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.err }

// ErrName is for what is not a domain that could have a policy: an address literal, for example.
var ErrName = errors.New("not a domain name")

// ErrClosed is what those get who wait for a policy when Close is called.
var ErrClosed = errors.New("MTA-STS policies are not looked up any more")

// kindOfRecord classifies an error of ParseRecord.
func kindOfRecord(err error) Kind {
	if errors.Is(err, errNoRecord) {
		return Absent
	}
	return Record
}

// kindOfFetch classifies an error of fetch.
func kindOfFetch(err error) Kind {
	var invalid *policyError
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid):
		return Invalid
	case errors.As(err, &untrusted):
		return Certificate
	}
	return Fetch
}

// policyError is an error of Parse.
type policyError struct{ err error }

func (e *policyError) Error() string { return e.err.Error() }
func (e *policyError) Unwrap() error { return e.err }

// timedOut puts a deadline of ours into words.
func timedOut(ctx context.Context, err error, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New(what + ": no answer in time")
	}
	return err
}
