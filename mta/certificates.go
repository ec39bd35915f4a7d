package mta

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"example.org/mta/internal/certificates"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
)

// expiresSoon is how long before the end of a certificate its alarm begins: renewal should have come
// weeks before.
const expiresSoon = 14 * 24 * time.Hour

// tlsOf gives how a listener speaks TLS, nil without certificates.
func (r *Relay) tlsOf(c config.Certificates) (*tls.Config, error) {
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
	return &tls.Config{GetCertificate: get, MinVersion: wiring.TLSVersions[c.MinVersion], SessionTicketsDisabled: !c.SessionTickets}, nil
}

// openACME opens the sockets at which a certificate authority asks, when there is one.
func (r *Relay) openACME(cfg *config.Config, undo *undoer) error {
	a := cfg.ACME
	if len(a.Names) == 0 {
		return nil
	}
	ac := certificates.ACMEConfig{Names: a.Names, Email: a.Email, Directory: a.Directory, Dir: a.Path, Log: r.log}
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

func (r *Relay) expiries() []certificates.Expiry {
	all := r.certs.Expiries()
	if r.acme != nil {
		all = append(all, r.acme.Expiries()...)
	}
	return all
}

// keepCertificates forgets those that are not named any more.
func (r *Relay) keepCertificates(cfg *config.Config) {
	var all []certificates.Pair
	for _, l := range cfg.Listeners {
		all = append(all, l.TLS.Pairs()...)
	}
	for _, a := range cfg.APIs {
		all = append(all, a.TLS.Pairs()...)
	}
	all = append(all, cfg.Console.TLS.Pairs()...)
	r.certs.Keep(append(all, cfg.ClientPairs()...))
}

// certificateTrouble says which certificates end soon or have ended, "" when none does.
func (r *Relay) certificateTrouble() string {
	var soon []string
	if r.acme != nil {
		if trouble := r.acme.Trouble(); trouble != "" {
			return trouble
		}
	}
	for _, e := range r.expiries() {
		switch left := e.At.Sub(r.now()); {
		case left <= 0:
			soon = append(soon, fmt.Sprintf("%s has expired on %s", e.File, e.At.UTC().Format(time.DateOnly)))
		case left < expiresSoon:
			soon = append(soon, fmt.Sprintf("%s expires on %s", e.File, e.At.UTC().Format(time.DateOnly)))
		}
	}
	if len(soon) == 0 {
		return ""
	}
	return strings.Join(soon, ", ") + ": put a new certificate into its file, which the relay reads by itself"
}

// certificateWarnings says which certificates of a configuration have expired, or will soon.
func certificateWarnings(cfg *config.Config, now time.Time) (out []string) {
	warn := func(what string, c config.Certificates) {
		for _, p := range c.Pairs() {
			c, err := tls.LoadX509KeyPair(p.Certificate, p.Key)
			if err != nil || c.Leaf.NotAfter.Sub(now) >= expiresSoon {
				continue // what can't be read is an error of the configuration
			}
			verb := "expires"
			if !now.Before(c.Leaf.NotAfter) {
				verb = "has expired"
			}
			out = append(out, fmt.Sprintf("%s: %s %s on %s: renew it; the relay reads the new file by itself",
				what, p.Certificate, verb, c.Leaf.NotAfter.UTC().Format(time.DateOnly)))
		}
	}
	for _, l := range cfg.Listeners {
		warn(place(fmt.Sprintf("listener %q", l.Name), l.Origin("tls.certificate")), l.TLS.Certificates)
	}
	for _, a := range cfg.APIs {
		warn(place(fmt.Sprintf("api %q", a.Name), a.Origin("tls.certificate")), a.TLS)
	}
	return out
}
