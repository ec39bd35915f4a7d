package mta

import (
	"crypto/tls"

	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/certificates"
)

// newTLSPolicy makes what gives outgoing connections their terms.
func (r *mailOut) newTLSPolicy() *tlspolicy.Policy {
	cfg := tlspolicy.Config{
		Records: tlspolicy.DANE{DNS: validated{r.resolver}, Now: r.now},
		Roots:   r.certs.Authorities,
		Certificate: func(certificate, key string) (*tls.Certificate, error) {
			return r.certs.Client(certificates.Pair{Certificate: certificate, Key: key})
		},
		Domains: doubts{r},
		Now:     r.now,
	}
	if r.tlsReports != nil {
		cfg.Recorder = r.tlsReports
	}
	return tlspolicy.New(cfg)
}
