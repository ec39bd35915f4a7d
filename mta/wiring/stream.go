package wiring

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/httpclient"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/mta/events/sinks"
)

// StreamParts is what streams are made with, besides their settings.
type StreamParts struct {
	NodeID string
	Agent  string // User-Agent of requests
	Now    func() time.Time
	// Addresses gives those of brokers and of the servers of web hooks; nil: by the system's resolver.
	Addresses httpclient.Addresses

	hooks *http.Transport // of streams that trust the system's authorities
}

// Streams makes the settings of all streams.
func Streams(cfg *config.Config, parts *StreamParts) []events.Settings {
	if parts.hooks == nil {
		parts.hooks = sinks.NewTransport(nil, parts.Addresses)
	}
	formats := map[string]events.Format{
		"records": events.Records{}, "cloudevents": events.NewCloudEvents(parts.NodeID), "sendgrid": events.SendGrid{},
	}
	var all []events.Settings
	for _, s := range cfg.Streams {
		all = append(all, events.Settings{
			Name: s.Name, To: s.To, Filter: events.Filter{Types: s.Types, Tenants: s.Tenants, Classes: s.Classes},
			Batch: s.Batch, Lanes: s.Lanes, Linger: s.Linger, Hold: s.Hold, Timeout: s.Timeout, Format: s.Format,
			Oldest:      s.From == "oldest",
			Open:        func() (events.Sink, error) { return parts.sink(s, formats[s.Format]) },
			Fingerprint: fingerprint(s),
		})
	}
	return all
}

// fingerprint is equal for streams that have equal sinks. It does not reveal their secrets.
func fingerprint(s *config.Stream) string {
	secrets := []string{}
	for _, secret := range slices.Concat(s.Secrets, s.Headers) {
		secrets = append(secrets, string(secret))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %d %s %q %q %q", s.To, s.Compression, s.Format, s.CA, secrets,
		len(s.Secrets), s.Timeout,
		s.User, string(s.Password), s.SASL))
	return hex.EncodeToString(sum[:])
}

func (p *StreamParts) sink(s *config.Stream, f events.Format) (events.Sink, error) {
	if events.IsBroker(s.To) {
		return p.broker(s, f)
	}
	return p.webhook(s, f)
}

func (p *StreamParts) webhook(s *config.Stream, f events.Format) (events.Sink, error) {
	signer, err := s.Signer()
	if err != nil {
		return nil, err
	}
	header := make(http.Header)
	for _, field := range s.Headers {
		name, value, _ := strings.Cut(string(field), ":")
		header.Add(name, strings.TrimSpace(value))
	}
	transport := p.hooks
	if s.CA != "" {
		roots, err := authorities(s.CA)
		if err != nil {
			return nil, err
		}
		transport = sinks.NewTransport(roots, p.Addresses)
	}
	return sinks.NewHook(sinks.HookOptions{
		URL: s.To, Format: f, Gzip: s.Compression == "gzip" && s.Format != "sendgrid", Signer: signer, Headers: header,
		Timeout: s.Timeout, Agent: p.Agent, Now: p.Now, Transport: transport,
	}), nil
}

// authorities reads a PEM file of certificates.
func authorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("ca: %s has no certificate", path)
	}
	return roots, nil
}

// broker makes the sink of a stream to a broker.
func (p *StreamParts) broker(s *config.Stream, f events.Format) (events.Sink, error) {
	format, single := f.(events.Single)
	if !single {
		return nil, fmt.Errorf("the format %s is for web hooks", s.Format)
	}
	a, err := events.ParseAddress(s.To)
	if err != nil {
		return nil, err
	}
	var trust *tls.Config
	if a.TLS {
		trust = &tls.Config{MinVersion: tls.VersionTLS12}
		if s.CA != "" {
			if trust.RootCAs, err = authorities(s.CA); err != nil {
				return nil, err
			}
		}
	}
	b := sinks.Broker{
		Hosts: a.Hosts, Dial: httpclient.Config{Addresses: p.Addresses}.Dialer(), TLS: trust, User: s.User,
		Password: string(s.Password),
		Format:   format,
	}
	switch a.Scheme {
	case "kafka":
		login := s.SASL
		if s.User == "" {
			login = ""
		}
		return sinks.NewKafka(b, a.Path, login)
	case "nats":
		return sinks.NewNATS(b, a.Path), nil
	case "amqp":
		return sinks.NewAMQP(b, a.Path, a.Query.Get("exchange"), a.Query.Get("key")), nil
	}
	return nil, fmt.Errorf("there are no streams to %s", a.Scheme)
}
