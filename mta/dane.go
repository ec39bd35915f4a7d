package mta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/dane"
	"example.org/mta/internal/route"
	"example.org/mta/router/resolver"
)

// tlsaRecords finds hosts' TLSA records for the TLS policy. The resolver remembers them for their TTL,
// and looks each up once for all who ask at the same time.
type tlsaRecords struct {
	dns *resolver.Resolver
	now func() time.Time
}

// TLSA implements tlspolicy.Records.
func (r tlsaRecords) TLSA(ctx context.Context, h route.Host) (tlspolicy.TLSA, error) {
	found, err := dane.Lookup(ctx, validated{r.dns}, h.Name, h.Addr)
	if err != nil {
		return tlspolicy.TLSA{}, &tlspolicy.Failure{Class: tlspolicy.DNSSECInvalid, Err: err}
	}
	switch found.Status {
	case dane.Unusable:
		return tlspolicy.TLSA{State: tlspolicy.Unusable, Name: found.Base}, nil
	case dane.Usable:
		return tlspolicy.TLSA{State: tlspolicy.Usable, Name: found.Base, Text: found.Text, Match: func(state *tls.ConnectionState) error {
			_, err := found.Verify(state.PeerCertificates, r.now(), h.Name)
			return err
		}}, nil
	}
	return tlspolicy.TLSA{}, nil
}

// validated is the DNS as DANE sees it.
type validated struct{ dns *resolver.Resolver }

func (v validated) Addresses(ctx context.Context, host string, ipv6 bool) (dane.Answer, error) {
	if ipv6 {
		return daneAnswer(v.dns.AAAA(ctx, host))
	}
	return daneAnswer(v.dns.A(ctx, host))
}

func (v validated) Alias(ctx context.Context, name string) (dane.Answer, error) {
	return daneAnswer(v.dns.CNAME(ctx, name))
}

func (v validated) TLSA(ctx context.Context, name string) (dane.Answer, error) {
	return daneAnswer(v.dns.TLSA(ctx, name))
}

// daneAnswer says in package dane's words what the resolver has found.
func daneAnswer(a *resolver.Answer, err error) (dane.Answer, error) {
	var failed *resolver.Error
	switch {
	case err == nil:
		out := dane.Answer{Name: a.Name, Secure: a.Secure}
		for _, r := range a.TLSA {
			out.Records = append(out.Records, dane.Record(r))
		}
		return out, nil
	case !errors.As(err, &failed):
		return dane.Answer{}, err
	case failed.Kind != resolver.Temporary:
		return dane.Answer{Name: failed.Name, Secure: failed.Secure}, nil
	}
	// The name server stays unnamed: senders read this.
	return dane.Answer{}, fmt.Errorf("looking up %s of %s: %s", failed.Type, failed.Name, failed.Reason)
}
