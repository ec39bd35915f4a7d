package tlspolicy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/internal/route"
)

// VerifiedBy is what vouches for a host's certificate.
type VerifiedBy string

const (
	ByNothing VerifiedBy = ""
	ByPKIX    VerifiedBy = "PKIX" // an authority, and the host's name in the certificate
	BySTS     VerifiedBy = "STS"  // the same, of a host that the domain's MTA-STS policy names
	ByDANE    VerifiedBy = "DANE" // the host's TLSA records
)

// Facts are how a connection is protected. The zero value is clear text.
type Facts struct {
	Version     string // as "TLSv1.3"
	Cipher      string // as "TLS_AES_128_GCM_SHA256"
	Verified    VerifiedBy
	Unverified  string // why nothing vouches for the certificate
	Certificate string // its name: the host's where it has that, or else its first
	Resumed     bool
}

// Verify checks a connection, and notes the facts. An error says that it must not be used. A resumed
// connection has the certificates of the first one, and is verified all the same: authorities, records
// and the time of day may have changed since.
func (t *Terms) Verify(state *tls.ConnectionState) error {
	t.facts = Facts{
		Version:     strings.Replace(tls.VersionName(state.Version), "TLS ", "TLSv", 1),
		Cipher:      tls.CipherSuiteName(state.CipherSuite),
		Certificate: t.nameOf(state), Resumed: state.DidResume,
	}
	by, err := t.vouch(state)
	err = bounded(err)
	t.facts.Verified, t.problem = by, err
	if err == nil {
		return nil
	}
	t.facts.Unverified = err.Error()
	// What vouches for the certificate and not for the host is a policy of mode testing: the others are checked
	// before the connection is made.
	if t.demand.Level == Verified && by == ByNothing || t.tlsa.State == Usable {
		t.refused = true
		return err
	}
	return nil
}

// Stale reports whether Verify refused a session that was resumed. Its certificate is the one that the host
// had when the session began, which may have been replaced since: a new session decides.
func (t *Terms) Stale() bool { return t.facts.Resumed && t.refused }

// Facts gives what Verify found; zero for clear text.
func (t *Terms) Facts() Facts { return t.facts }

// vouch returns what vouches for the host's certificate. DANE, where the host has it, has the last word
// (RFC 8461, 2).
func (t *Terms) vouch(state *tls.ConnectionState) (VerifiedBy, error) {
	if t.tlsa.State == Usable {
		if err := t.tlsa.Match(state); err != nil {
			return ByNothing, withClass(TLSAInvalid, err)
		}
		return ByDANE, nil
	}
	if err := t.pkix(state); err != nil {
		return ByNothing, err
	}
	if t.demand.STS.Mode == route.STSNone {
		return ByPKIX, nil
	}
	if err := t.named(); err != nil {
		return ByPKIX, err
	}
	return BySTS, nil
}

// pkix checks the certificate's chain, its times and its name.
func (t *Terms) pkix(state *tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return &Failure{ValidationFailed, errors.New("the host has shown no certificate")}
	}
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: between, DNSName: t.expectedName(), CurrentTime: t.policy.cfg.Now(),
	})
	if err == nil {
		return nil
	}
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return &Failure{HostMismatch,
			fmt.Errorf("the certificate is for %s and not for %s", certificateNames(name.Certificate), t.host.Name)}
	case errors.As(err, &authority):
		return &Failure{NotTrusted, err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &Failure{Expired, err}
	}
	return &Failure{ValidationFailed, err}
}

// expectedName is the host's name, in the form that crypto/x509 takes for an address where it is one.
func (t *Terms) expectedName() string {
	name := strings.TrimSuffix(t.host.Name, ".")
	if net.ParseIP(name) != nil {
		return "[" + name + "]"
	}
	return name
}

// nameOf is the name by which the certificate goes in records.
func (t *Terms) nameOf(state *tls.ConnectionState) string {
	if len(state.PeerCertificates) == 0 {
		return ""
	}
	c := state.PeerCertificates[0]
	if c.VerifyHostname(t.expectedName()) == nil {
		return strings.TrimSuffix(t.host.Name, ".")
	}
	first, _, _ := strings.Cut(certificateNames(c), ", ")
	return legible.Line(first, maxText)
}

// maxText bounds what is said of a certificate, in octets.
const maxText = 500

// bounded is an error with such a text, in the class of err.
func bounded(err error) error {
	if err == nil || legible.Line(err.Error(), maxText) == err.Error() {
		return err
	}
	return &Failure{classOf(err), errors.New(legible.Line(err.Error(), maxText))}
}

// certificateNames lists the names of a certificate, the first few of many.
func certificateNames(c *x509.Certificate) string {
	const few = 5
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) == 0 && c.Subject.CommonName != "":
		return c.Subject.CommonName
	case len(names) == 0:
		return "no name"
	case len(names) > few:
		names = append(names[:few], "others")
	}
	return strings.Join(names, ", ")
}

// Established notes that the session stands. From is the address that it was made from.
func (t *Terms) Established(from netip.Addr) {
	switch {
	case !t.Wanted():
	case t.facts == (Facts{}):
		t.record(from, &Failure{NoSTARTTLS, errors.New("the host does not offer STARTTLS, or refuses it")})
	case t.tlsa.State == Unusable:
		t.record(from, &Failure{TLSAInvalid, errors.New("the host has TLSA records, and none that SMTP can use")})
	case t.policyType() == NoPolicy:
		t.record(from, nil) // nothing says that the certificate must be good
	default:
		t.record(from, t.problem)
	}
}

// NotOffered notes that there is no session, since the host has no STARTTLS.
func (t *Terms) NotOffered(from netip.Addr, err error) {
	t.record(from, &Failure{NoSTARTTLS, err})
}

// Broken notes that the handshake has failed.
func (t *Terms) Broken(from netip.Addr, err error) {
	if t.problem != nil {
		err = t.problem
	}
	t.record(from, err)
}

func (t *Terms) policyType() PolicyType {
	switch {
	case t.tlsa.State != Absent:
		return DANEPolicy
	case t.demand.STS.Mode != route.STSNone:
		return STSPolicy
	}
	return NoPolicy
}

// record gives the result to those who keep count, and has a policy that failed looked for anew.
func (t *Terms) record(from netip.Addr, err error) {
	cfg := &t.policy.cfg
	policy := t.policyType()
	if err != nil && policy == STSPolicy && cfg.Domains != nil {
		cfg.Domains.Failed(t.domain)
	}
	if cfg.Recorder == nil || t.demand.Unreported {
		return
	}
	r := Result{Time: cfg.Now(), Domain: t.domain, Policy: policy, STS: t.demand.STS, Host: t.host, Source: from}
	if t.tlsa.Text != nil {
		r.TLSA = t.tlsa.Text()
	}
	if err != nil {
		r.Class, r.Reason = classOf(err), err.Error()
		if r.Class == DNSSECInvalid {
			r.Policy = DANEPolicy
		}
	}
	cfg.Recorder.Record(r)
}

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
