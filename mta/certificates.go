package mta

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mta/internal/certificates"
	"mta/mta/config"
)

// expiresSoon is how long before the end of a certificate its alarm begins: renewal should have come
// weeks before.
const expiresSoon = 14 * 24 * time.Hour

var tlsVersions = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// tlsOf gives how a listener speaks TLS, nil without certificates.
func (r *Relay) tlsOf(l *config.Listener) (*tls.Config, error) {
	if !l.TLS.Enabled() {
		return nil, nil
	}
	get, err := r.certs.Getter(l.TLS.Pairs())
	if err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: get, MinVersion: tlsVersions[l.TLS.MinVersion], SessionTicketsDisabled: !l.TLS.SessionTickets}, nil
}

// keepCertificates forgets those that no listener has any more.
func (r *Relay) keepCertificates(cfg *config.Config) {
	var all []certificates.Pair
	for _, l := range cfg.Listeners {
		all = append(all, l.TLS.Pairs()...)
	}
	r.certs.Keep(all)
}

// certificateTrouble says which certificates end soon or have ended, "" when none does.
func (r *Relay) certificateTrouble() string {
	var soon []string
	for _, e := range r.certs.Expiries() {
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
	return strings.Join(soon, ", ") + ": put a new certificate into the file, the relay reads it by itself"
}

// certificateWarnings says which certificates of a configuration have expired, or will soon.
func certificateWarnings(cfg *config.Config, now time.Time) (out []string) {
	for _, l := range cfg.Listeners {
		for _, p := range l.TLS.Pairs() {
			c, err := tls.LoadX509KeyPair(p.Certificate, p.Key)
			if err != nil || c.Leaf.NotAfter.Sub(now) >= expiresSoon {
				continue // what can't be read is an error of the configuration
			}
			verb := "expires"
			if !now.Before(c.Leaf.NotAfter) {
				verb = "has expired"
			}
			out = append(out, fmt.Sprintf("%s: %s %s on %s: renew it; the relay reads the new file by itself",
				place(fmt.Sprintf("listener %q", l.Name), l.Origin("tls.certificate")), p.Certificate, verb, c.Leaf.NotAfter.UTC().Format(time.DateOnly)))
		}
	}
	return out
}

var certificateExpiry = prometheus.NewDesc("mta_certificate_expiry_timestamp_seconds", "When a listener's certificate expires, in Unix time.", []string{"file"}, nil)

func (r *Relay) collectCertificates(ch chan<- prometheus.Metric) {
	for _, e := range r.certs.Expiries() {
		ch <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(e.At.Unix()), e.File)
	}
}
