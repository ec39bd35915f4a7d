package tlsout

import (
	"context"
	"errors"
	"fmt"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/router/resolver"
)

// validated is the DNS as DANE sees it.
type validated struct{ dns *resolver.Resolver }

func (v validated) Addresses(ctx context.Context, host string, ipv6 bool) (tlspolicy.DNSAnswer, error) {
	if ipv6 {
		return daneAnswer(v.dns.AAAA(ctx, host))
	}
	return daneAnswer(v.dns.A(ctx, host))
}

func (v validated) Alias(ctx context.Context, name string) (tlspolicy.DNSAnswer, error) {
	return daneAnswer(v.dns.CNAME(ctx, name))
}

func (v validated) TLSA(ctx context.Context, name string) (tlspolicy.DNSAnswer, error) {
	return daneAnswer(v.dns.TLSA(ctx, name))
}

// daneAnswer says in DANE's words what the resolver has found.
func daneAnswer(a *resolver.Answer, err error) (tlspolicy.DNSAnswer, error) {
	var failed *resolver.Error
	switch {
	case err == nil:
		out := tlspolicy.DNSAnswer{Name: a.Name, Secure: a.Secure}
		for _, r := range a.TLSA {
			out.Records = append(out.Records, tlspolicy.TLSARecord(r))
		}
		return out, nil
	case !errors.As(err, &failed):
		return tlspolicy.DNSAnswer{}, err
	case failed.Kind != resolver.Temporary:
		return tlspolicy.DNSAnswer{Name: failed.Name, Secure: failed.Secure}, nil
	}
	// The name server stays unnamed: senders read this.
	return tlspolicy.DNSAnswer{}, fmt.Errorf("looking up %s of %s: %s", failed.Type, failed.Name, failed.Reason)
}
