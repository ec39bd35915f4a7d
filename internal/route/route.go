// Package route has the words between router and delivery: host, tier, site, route. Values
// only.
package route

import (
	"fmt"
	"hash/fnv"
	"net/netip"
)

// Host is one address of a mail exchanger: where a connection can go.
type Host struct {
	Name string // the exchanger's name, for TLS, logs and reports; the address when there is none
	Addr netip.AddrPort
}

// Inside returns the host of mail that the relay answers itself: "discard", or "fail" and the reply to each recipient.
// Its address is one that nobody has (RFC 6666).
func Inside(answer string) Host {
	sum := fnv.New64a()
	sum.Write([]byte(answer))
	a := netip.AddrFrom16([16]byte(sum.Sum([]byte{1, 0, 0, 0, 0, 0, 0, 0})))
	return Host{Name: answer, Addr: netip.AddrPortFrom(a, 25)}
}

// Inside reports whether the host was made by the function Inside.
func (h Host) Inside() bool { return discards.Contains(h.Addr.Addr()) }

// Inside reports whether this relay answers the route's mail itself.
func (r *Route) Inside() bool { return len(r.Tiers) == 1 && r.Tiers[0][0].Inside() }

var discards = netip.MustParsePrefix("100::/64")

// String gives "mx1.example.com[192.0.2.1]:25".
func (h Host) String() string { return fmt.Sprintf("%s[%s]:%d", h.Name, h.Addr.Addr(), h.Addr.Port()) }

// Tier is the hosts of equal preference, in the order in which they must be tried.
type Tier []Host

// Auth is what a smarthost wants to know of us. It must not reach a log.
type Auth struct{ Username, Password string }

// Route is where the mail for a domain goes. It is shared and must be left alone.
type Route struct {
	Domain   string // the recipient's domain, A-label form; the first of those that share the route
	Site     string // names the set of hosts; domains with the same set have the same site
	Provider string // several sites with one budget; "" when none matches
	Tiers    []Tier // best preference first; never empty, no tier empty
	Auth     *Auth  // nil without

	Configured bool // the hosts are those of the configuration, or an address
	Implicit   bool // TLS from the first octet (RFC 8314)
	Secure     bool // DNSSEC vouches for the names of the hosts
	STS        STS  // of the domain; zero means none
}

// STS is a domain's MTA-STS policy (RFC 8461) as mail heeds it.
type STS struct {
	Mode STSMode
	MX   string // the patterns of its hosts' names, in the policy's order, joined with ","
}

// STSMode is what becomes of mail for hosts that don't satisfy a policy.
type STSMode uint8

const (
	STSNone    STSMode = iota // there is no policy, or one of mode none
	STSTesting                // it is delivered, and reported
	STSEnforce                // it is not delivered to that host
)

// String gives the policy's own word.
func (m STSMode) String() string { return [...]string{"none", "testing", "enforce"}[m] }

// Hosts counts the hosts in all tiers.
func (r *Route) Hosts() int {
	n := 0
	for _, t := range r.Tiers {
		n += len(t)
	}
	return n
}
