package router

import (
	"example.org/mta/internal/reply"
)

// Why a domain has no route, as replies: one place, so that codes, report and manual agree. The
// command of each is "route".

func failure(code int, enhanced reply.Enhanced, format string, args ...any) *reply.Reply {
	r := reply.Local(code, enhanced, "route", format, args...)
	return &r
}

// RFC 5321, 5.1: a non-existent domain must be reported as an error. 5.1.2: bad destination
// system address (RFC 3463, 3.2).
func noSuchDomain(domain string) *reply.Reply {
	return failure(550, reply.Enhanced{5, 1, 2}, "the domain %s does not exist", domain)
}

// RFC 7505, 4.1 and 4.2 have these very codes.
func nullMX(domain string) *reply.Reply {
	return failure(556, reply.Enhanced{5, 1, 10}, "the domain %s does not accept mail (null MX)", domain)
}

// 5.4.4, unable to route, is what Postfix says to both of the following. RFC 5321, 5.1: no usable
// MX must be reported as an error, and so must an unusable implicit one.
func noAddress(domain string) *reply.Reply {
	return failure(550, reply.Enhanced{5, 4, 4}, "the domain %s has neither a mail exchanger nor an address", domain)
}

func noUsableExchanger(domain, why string) *reply.Reply {
	return failure(550, reply.Enhanced{5, 4, 4}, "no mail exchanger of %s can be used: %s", domain, why)
}

// 4.4.3: directory server failure.
func dnsFailure(domain, why string) *reply.Reply {
	return failure(451, reply.Enhanced{4, 4, 3}, "the DNS gives no answer for %s: %s", domain, why)
}

// 4.4.3, too: what was not answered in time is a TXT record or a web server.
func policyFailure(domain string) *reply.Reply {
	return failure(451, reply.Enhanced{4, 4, 3}, "whether %s has an MTA-STS policy was not known in time", domain)
}

// 5.4.6: routing loop detected, as Postfix says to a domain whose best exchanger it is itself.
func loop(domain string) *reply.Reply {
	return failure(554, reply.Enhanced{5, 4, 6}, "mail for %s loops back to this relay, which does not host it", domain)
}

// 5.1.3: bad destination mailbox address syntax.
func badLiteral(domain string, err error) *reply.Reply {
	return failure(550, reply.Enhanced{5, 1, 3}, "%s: %s", domain, err)
}

func badDomain() *reply.Reply {
	return failure(550, reply.Enhanced{5, 1, 3}, "the address has no domain")
}

// A smarthost that can't be found is our own failure, not the recipient's: never a 5xx, whatever
// the DNS says. The operator will repair it, and the mail waits.
func smarthostFailure(domain, why string) *reply.Reply {
	return failure(451, reply.Enhanced{4, 4, 4}, "the relay configured for %s can't be used: %s", domain, why)
}

func stopping() *reply.Reply {
	return failure(451, reply.Enhanced{4, 3, 2}, "the relay is shutting down")
}
