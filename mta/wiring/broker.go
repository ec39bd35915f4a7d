package wiring

import (
	"crypto/tls"
	"fmt"

	"example.org/mta/internal/httpclient"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/mta/events/sinks"
)

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
