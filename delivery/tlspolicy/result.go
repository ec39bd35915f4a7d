package tlspolicy

import (
	"errors"
	"net/netip"
	"time"

	"example.org/mta/internal/route"
)

// Result is what became of the TLS of one connection attempt, or of a look-up of a policy that failed, for
// reports (RFC 8460).
type Result struct {
	Time   time.Time
	Domain string // whose policy applied: the recipients' domain
	Policy PolicyType
	STS    route.STS // the policy, with Policy STSPolicy; zero when it could not be had
	TLSA   []string  // the host's records that can be used, with Policy DANEPolicy
	Host   route.Host
	Source netip.Addr // from which the attempt was made; zero when it came to none
	Class  Class      // "" is success
	Reason string     // more about a failure, in words
}

// PolicyType is the policy by which an attempt is measured (RFC 8460, 4.4).
type PolicyType string

const (
	DANEPolicy PolicyType = "tlsa"
	STSPolicy  PolicyType = "sts"
	NoPolicy   PolicyType = "no-policy-found"
)

// Class is the kind of a failure (RFC 8460, 4.3).
type Class string

const (
	NoSTARTTLS       Class = "starttls-not-supported"
	HostMismatch     Class = "certificate-host-mismatch"
	Expired          Class = "certificate-expired"
	NotTrusted       Class = "certificate-not-trusted"
	ValidationFailed Class = "validation-failure" // any other
	TLSAInvalid      Class = "tlsa-invalid"
	DNSSECInvalid    Class = "dnssec-invalid"
	STSFetchError    Class = "sts-policy-fetch-error"
	STSInvalid       Class = "sts-policy-invalid"
	STSWebPKI        Class = "sts-webpki-invalid"
)

// Recorder takes the results of connection attempts. It is called by many goroutines at once, and must
// not block.
type Recorder interface {
	Record(Result)
}

// Failure is why the TLS of a host does not do, by its class.
type Failure struct {
	Class Class
	Err   error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// classOf gives the class of what went wrong.
func classOf(err error) Class {
	var f *Failure
	if errors.As(err, &f) {
		return f.Class
	}
	return ValidationFailed
}

// withClass gives err a class, unless it has one.
func withClass(c Class, err error) error {
	if f := (*Failure)(nil); errors.As(err, &f) {
		return err
	}
	return &Failure{c, err}
}
