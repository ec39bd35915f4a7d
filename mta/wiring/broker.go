package wiring

import (
	"crypto/tls"
	"fmt"

	"example.org/mta/internal/httpclient"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/mta/events/address"
	"example.org/mta/mta/events/amqp"
	"example.org/mta/mta/events/jetstream"
	"example.org/mta/mta/events/kafka"
)

// broker makes the sink of a stream to a broker.
func (p *StreamParts) broker(s *config.Stream, f events.Format) (events.Sink, error) {
	format, single := f.(events.Single)
	if !single {
		return nil, fmt.Errorf("the format %s is for web hooks", s.Format)
	}
	a, err := address.Parse(s.To)
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
	dial := httpclient.Config{Addresses: p.Addresses}.Dialer()
	switch a.Scheme {
	case "kafka":
		c := kafka.Config{Brokers: a.Hosts, Topic: a.Path, Dial: dial, TLS: trust, User: s.User, Password: string(s.Password), Format: format}
		if s.User != "" {
			c.Mechanism = s.SASL
		}
		return kafka.New(c)
	case "nats":
		return jetstream.New(jetstream.Config{Servers: a.Hosts, Subject: a.Path, Dial: dial, TLS: trust, User: s.User, Password: string(s.Password), Format: format})
	case "amqp":
		return amqp.New(amqp.Config{
			Brokers: a.Hosts, Dial: dial, TLS: trust, Vhost: a.Path, Exchange: a.Query.Get("exchange"), Key: a.Query.Get("key"),
			User: s.User, Password: string(s.Password), Format: format,
		})
	}
	return nil, fmt.Errorf("there are no streams to %s", a.Scheme)
}
