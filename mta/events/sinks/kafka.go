package sinks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"example.org/mta/mta/events"
)

// Kafka is a topic. The message of an event is acknowledged by all replicas in sync, and the producer is idempotent:
// what the client itself has to send again is in the topic once.
type Kafka struct {
	Broker
	topic   string // must exist
	client  *kgo.Client
	checked atomic.Bool // a broker has answered since the last failure
	trouble trouble
}

// NewKafka makes a sink. login is the mechanism of SASL: plain, scram-sha-256, scram-sha-512, or "" for no login. It
// connects when the first batch is sent.
func NewKafka(b Broker, topic, login string) (*Kafka, error) {
	s := &Kafka{Broker: b, topic: topic}
	options := []kgo.Opt{
		kgo.SeedBrokers(b.Hosts...),
		kgo.ClientID("mta"),
		kgo.DefaultProduceTopic(topic),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // by the key as Java's clients do it
		kgo.ProducerLinger(0),                                // batches have waited in the stream
		// The stream sends a batch again that wasn't answered in time. Without this the client would hold on to
		// it, and the stream would wait for as long as the broker is away.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.Dialer(s.dial),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.WithHooks(&s.trouble),
	}
	if login != "" {
		m, err := mechanism(login, b.User, b.Password)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(m))
	}
	var err error
	s.client, err = kgo.NewClient(options...)
	return s, err
}

func (s *Kafka) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := s.Dial.Context(ctx, network, address)
	if err != nil || s.TLS == nil {
		return conn, err
	}
	trust := s.TLS.Clone()
	trust.ServerName, _, _ = net.SplitHostPort(address)
	secured := tls.Client(conn, trust)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

func mechanism(name, user, password string) (sasl.Mechanism, error) {
	switch name {
	case "plain":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "scram-sha-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "scram-sha-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("kafka: there is no mechanism %q", name)
}

// Send is [events.Sink.Send].
func (s *Kafka) Send(ctx context.Context, b *events.Batch) error {
	if err := s.send(ctx, b); err != nil {
		s.checked.Store(false)
		return s.explain(err)
	}
	return nil
}

func (s *Kafka) send(ctx context.Context, b *events.Batch) error {
	if !s.checked.Load() {
		// Producing would wait for a broker that takes the login until ctx ends, without a reason.
		if err := s.ping(ctx); err != nil {
			return err
		}
		s.checked.Store(true)
	}
	for _, wave := range b.Waves() {
		records := make([]*kgo.Record, len(wave))
		for i, e := range wave {
			value, err := s.Format.EncodeOne(nil, e)
			if err != nil {
				return err
			}
			records[i] = s.record(e, value)
		}
		if err := s.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// ping returns once a broker has answered. The client sets connections up without regard to ctx: a broker that says
// nothing is given up, and the client comes to that later.
func (s *Kafka) ping(ctx context.Context) error {
	answered := make(chan error, 1)
	go func() { answered <- s.client.Ping(ctx) }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no broker answers: %w", ctx.Err())
	}
}

// record makes the message of an event. Events of no message have no key, and go to any partition.
func (s *Kafka) record(e *events.Event, value []byte) *kgo.Record {
	r := &kgo.Record{
		Value: value, Timestamp: e.Time,
		Headers: []kgo.RecordHeader{
			{Key: "content-type", Value: []byte(s.Format.ContentTypeOne())},
			{Key: "event-id", Value: []byte(e.ID)},
		},
	}
	if e.Message != "" {
		r.Key = []byte(e.Message)
	}
	return r
}

// explain makes of a client's error what an operator can act on.
func (s *Kafka) explain(err error) error {
	switch {
	case isRejected(err):
		return err
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge),
		errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.PolicyViolation):
		return &events.Rejected{Reason: "kafka: " + err.Error()}
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Errorf("kafka: the broker refuses the login (user, password, sasl): %w", err)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("kafka: there is no topic %q: create it: %w", s.topic, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("kafka: the user may not write to the topic %q: %w", s.topic, err)
	}
	if last := s.trouble.last(); last != nil && !errors.Is(err, last) {
		return fmt.Errorf("kafka: %w; the last attempt to connect failed: %w", err, last)
	}
	return fmt.Errorf("kafka: %w", err)
}

// Close ends the connections.
func (s *Kafka) Close() error {
	s.client.Close()
	return nil
}

// trouble remembers why the last connection failed: the client tries again by itself, and reports only that time ran
// out.
type trouble struct {
	mu  sync.Mutex
	err error
}

func (t *trouble) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (t *trouble) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}
