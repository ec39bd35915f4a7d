package mta

import (
	"crypto/tls"
	"net"

	"example.org/mta/internal/certificates"
	"example.org/mta/mta/alarm"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
)

// tlsOf gives how a listener speaks TLS, nil without certificates.
func (r *mailIn) tlsOf(c config.Certificates) (*tls.Config, error) {
	if !c.Enabled() {
		return nil, nil
	}
	var acme *certificates.ACME
	if c.ACME {
		acme = r.acme
	}
	get, err := r.certs.Getter(c.Pairs(), acme)
	if err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: get, MinVersion: wiring.TLSVersions[c.MinVersion]}, nil
}

// openACME opens the sockets at which a certificate authority asks, when there is one.
func (r *mailIn) openACME(cfg *config.Config, undo *undoer) error {
	a := cfg.ACME
	shared, err := wiring.Certificates(cfg, r.known, r.now, r.log)
	if len(a.Names) == 0 || err != nil {
		return err
	}
	ac := certificates.ACMEConfig{Names: a.Names, Email: a.Email, Directory: a.Directory, Dir: a.Path,
		Addresses: r.serverAddresses, Published: check.Fresh(cfg, r.resolver).Addresses, Now: r.now, Log: r.log,
		Cluster: shared, Changed: func() { r.alarms.Set(r.now(), alarm.Certs, r.certificateTrouble()) }}
	for address, to := range map[string]*net.Listener{a.HTTP: &ac.HTTP, a.TLS: &ac.TLS} {
		if address == "" {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		undo.add(func() { l.Close() })
		*to = l
	}
	r.acme = certificates.NewACME(ac)
	return nil
}

func (r *mailIn) expiries() []certificates.Expiry {
	return append(r.certs.Expiries(), r.acme.Expiries()...)
}

// certificateTrouble returns which certificates end soon or have ended, and why ACME has none; "" for none.
func (r *mailIn) certificateTrouble() string {
	if failing := r.acme.Problem(); failing != "" {
		return failing
	}
	return wiring.Ending(r.policy.Load().Config, r.expiries(), r.now())
}
