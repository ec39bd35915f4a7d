package dkim

import "golang.org/x/net/publicsuffix"

// Organization gives the domain that the owner of a domain has registered (RFC 7489, 3.2): the name below a public
// suffix as "co.uk". A public suffix is its own.
func Organization(domain string) string {
	if d, err := publicsuffix.EffectiveTLDPlusOne(domain); err == nil {
		return d
	}
	return domain
}

// SameOrganization reports whether two domains have one owner, as relaxed alignment demands (RFC 7489, 3.1.1).
func SameOrganization(a, b string) bool { return Organization(a) == Organization(b) }
