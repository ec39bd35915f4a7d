// Package sinks has the ends of streams: a web hook gets a POST request for each batch; a topic of Kafka, a subject of
// NATS and an exchange of AMQP 0-9-1 get a message for each event.
package sinks

import (
	"crypto/tls"
	"errors"
	"time"

	"example.org/mta/mta/events"
)

// Broker is how a sink reaches a broker.
type Broker struct {
	Hosts    []string // "host:port"; of Kafka, some of the cluster
	Dial     events.Dial
	TLS      *tls.Config // nil: in clear
	User     string      // "": of AMQP guest; of NATS with a password, the password is a token
	Password string
	Format   events.Single
}

// dialTimeout bounds connecting to a broker.
const dialTimeout = 5 * time.Second

// isRejected reports whether an error is a refusal already, which needs no explanation.
func isRejected(err error) bool {
	rejected := (*events.Rejected)(nil)
	return errors.As(err, &rejected)
}
