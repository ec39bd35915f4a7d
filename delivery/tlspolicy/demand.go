package tlspolicy

import "example.org/mta/internal/route"

// Level is how much protection mail for a destination needs.
type Level uint8

const (
	// Opportunistic uses STARTTLS where the host offers it, with any certificate, and clear text
	// elsewhere (RFC 7435).
	Opportunistic Level = iota
	// Off never uses TLS.
	Off
	// Required uses TLS with any certificate, or sends nothing.
	Required
	// Verified uses TLS with a certificate that is the host's, or sends nothing.
	Verified
)

// String gives the word of the configuration.
func (l Level) String() string {
	return [...]string{"opportunistic", "off", "required", "verified"}[l]
}

// Settings are what the configuration says of a destination.
type Settings struct {
	Level Level
	// MinVersion is the lowest version of TLS. 0: 1.2, and 1.0 where clear text would do as well.
	MinVersion uint16
	// CA names a file of the only authorities that may have signed the host's certificate. "": those
	// of the system.
	CA string
	// Certificate and Key name the files of the certificate that a host is shown when it asks for one.
	Certificate, Key string
	// STS and DANE say whether the policies of recipients' domains, and the TLSA records of hosts, count.
	STS, DANE bool
}

// Message is what a message asks for itself (RFC 8689).
type Message struct {
	RequireTLS bool // MAIL had REQUIRETLS
	NotNeeded  bool // its header has "TLS-Required: No"
	Report     bool // this relay made it, about another message
}

// Demand is what mail demands of a connection. It is comparable: mail with equal demands for a site
// can share connections. The zero value is opportunistic TLS.
type Demand struct {
	Level            Level
	Implicit         bool // TLS from the first octet (RFC 8314), and not by STARTTLS
	MinVersion       uint16
	CA               string
	Certificate, Key string
	DANE             bool      // the host's TLSA records count
	STS              route.STS // the policy that the host must satisfy, or is measured by
	RequireTLS       bool      // the host must offer REQUIRETLS
	Doubtful         bool      // then: only STS, if anything, vouches for the names of the hosts
	Unreported       bool      // the result says nothing of the domain's policies, and isn't recorded
}

// Decide returns what mail along a route demands. What a message asks for overrules the policies that the
// recipient's domain publishes, REQUIRETLS before "TLS-Required: No" (RFC 8689, 4.1), which does not
// overrule the operator's own settings.
func Decide(s Settings, r *route.Route, m Message) Demand {
	if r.Inside() && !m.RequireTLS {
		return Demand{Level: Off, Unreported: true}
	}
	d := Demand{Level: s.Level, MinVersion: s.MinVersion, CA: s.CA, Certificate: s.Certificate, Key: s.Key,
		Implicit: r.Implicit}
	d.Unreported = r.Configured // its hosts are ours, and not the domain's
	if r.Auth != nil || r.Implicit && s.Level != Required {
		d.Level = Verified // a password goes only to the host that it is for
	}
	// a report of ours is not lost for want of it: it has no content of the message (RFC 8689, 5)
	require := m.RequireTLS && !m.Report
	switch {
	case require:
	case d.Level == Off, m.NotNeeded:
		d.Unreported = true
		return d
	}
	d.DANE = s.DANE && (r.Secure || r.Configured)
	if s.STS {
		d.STS = r.STS
	}
	if d.STS.Mode == route.STSEnforce || require {
		d.Level = Verified
	}
	d.RequireTLS = require
	// RFC 8689, 4.2.1: a name that anybody could have put into the DNS proves nothing.
	d.Doubtful = require && !r.Configured && !r.Secure && d.STS.Mode != route.STSEnforce
	return d
}
