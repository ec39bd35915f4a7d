package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.org/mta/mta/events"
	"example.org/mta/mta/events/sinks"
)

// login is how a sink gets in.
type login struct {
	tls            *tls.Config
	mechanism      string // Kafka's
	user, password string
}

// brokerKind is one of the brokers, and what the tests need of it.
type brokerKind struct {
	name     string
	make     func(*testing.T, brokerCertificate) *broker
	create   func(t *testing.T, b *broker, topic string)                                // a place for events
	sink     func(t *testing.T, b *broker, l login, topic string) events.Sink           // that leads there
	receive  func(t *testing.T, b *broker, topic string, each func(message, id string)) // until the test ends
	logins   []login                                                                    // good ones
	tooLarge int                                                                        // octets that it refuses in a message
	noSuch   string                                                                     // what the error for a place that is not there says
	badLogin string                                                                     // and for a login that is not good
	address  string                                                                     // in a stream: of the broker and a place
	slow     bool                                                                       // to start
}

var brokerKinds = []*brokerKind{
	{
		name: "kafka", address: "kafka+tls://%s/%s", slow: true, make: newKafka, create: createTopic, sink: kafkaSink, receive: receiveKafka, tooLarge: 1200 << 10, noSuch: "there is no topic", badLogin: "refuses the login",
		logins: []login{
			{mechanism: "plain", user: brokerUser, password: brokerPassword}, {mechanism: "scram-sha-256", user: brokerUser, password: brokerPassword},
			{mechanism: "scram-sha-512", user: brokerUser, password: brokerPassword},
		},
	},
	{
		name: "nats", address: "nats+tls://%s/%s.{tenant}.{type}", make: newNATS, create: createStream, sink: natsSink, receive: receiveNATS, tooLarge: 70 << 10, noSuch: "no JetStream stream takes", badLogin: "refuses the login",
		logins: []login{{user: brokerUser, password: brokerPassword}},
	},
	{
		name: "amqp", address: "amqps://%s/?key=%s", slow: true, make: newRabbit, create: createQueue, sink: amqpSink, receive: receiveAMQP, tooLarge: 1200 << 10, noSuch: "no queue takes", badLogin: "refuses the login",
		logins: []login{{user: brokerUser, password: brokerPassword}},
	},
}

// TestSinks runs each sink against a real broker: over TLS with every login, with refused events, wrong logins and
// places that are not there, and while the broker is stopped and killed under the flow.
func TestSinks(t *testing.T) {
	t.Parallel() // the parts take turns
	certificate := newBrokerCertificate(t)
	for _, k := range brokerKinds {
		t.Run(k.name, func(t *testing.T) {
			parallel(t)
			b := k.make(t, certificate)
			b.begin(t)
			b.wait(t)
			k.create(t, b, "events")
			k.create(t, b, "trouble") // seconds before the broker is killed: RabbitMQ writes down later that a queue is durable
			good := k.logins[0]
			good.tls = certificate.trust
			t.Run("logins", func(t *testing.T) { k.testLogins(t, b, certificate.trust) })
			t.Run("no place", func(t *testing.T) {
				err := sendOnce(k.sink(t, b, good, "nowhere"), flow(1, 1, 10)[0])
				if err == nil || !strings.Contains(err.Error(), k.noSuch) {
					t.Errorf("the error is %v, and should say %q", err, k.noSuch)
				}
			})
			t.Run("too large", func(t *testing.T) {
				batch := flow(1, 3, 10)[0]
				batch.Events[1].Line = []byte(`{"x":"` + strings.Repeat("x", k.tooLarge) + `"}`)
				err := sendOnce(k.sink(t, b, good, "events"), batch)
				if rejected := (*events.Rejected)(nil); !errors.As(err, &rejected) {
					t.Errorf("the error is %v, and no refusal", err)
				}
			})
			t.Run("hangs", func(t *testing.T) { k.testHang(t, b, good) })
			t.Run("relay", func(t *testing.T) { k.testRelay(t, b, certificate) })
			t.Run("stopped and killed", func(t *testing.T) { k.testTrouble(t, b, good) })
		})
	}
}

func (k *brokerKind) testLogins(t *testing.T, b *broker, trust *tls.Config) {
	for _, l := range k.logins {
		l.tls = trust
		if err := sendOnce(k.sink(t, b, l, "events"), flow(1, 1, 10)[0]); err != nil {
			t.Errorf("%s: %v", l.mechanism, err)
		}
		l.password = "wrong"
		if err := sendOnce(k.sink(t, b, l, "events"), flow(1, 1, 10)[0]); err == nil || !strings.Contains(err.Error(), k.badLogin) {
			t.Errorf("%s: the error is %v, and should say %q", l.mechanism, err, k.badLogin)
		}
	}
	l := k.logins[0]
	l.tls = &tls.Config{} // which doesn't trust the authority of the tests
	if err := sendOnce(k.sink(t, b, l, "events"), flow(1, 1, 10)[0]); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of an unknown authority: the error is %v", err)
	}
}

// testHang has the broker stand still. A batch fails in its time, on a connection and on a new one; once the broker goes
// on, so do batches.
func (k *brokerKind) testHang(t *testing.T, b *broker, l login) {
	s := k.sink(t, b, l, "events")
	if err := sendOnce(s, flow(1, 1, 10)[0]); err != nil {
		t.Fatal(err)
	}
	b.now.pause(t)
	defer b.now.resume()
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		began := time.Now()
		err := s.Send(ctx, flow(1, 100, 10)[0])
		cancel()
		if rejected := (*events.Rejected)(nil); err == nil || errors.As(err, &rejected) {
			t.Errorf("a broker that stands still answers %v", err)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("a batch with a second to go failed after %v", took)
		}
	}
	b.now.resume()
	eventually(t, patience, func() error { return sendOnce(s, flow(1, 100, 10)[0]) })
}

// testTrouble stops and kills the broker while MTA_EVENTS (3,000) events flow; one that is slow to start is stopped only
// if that is set. None may be missing, and the first copies of those of a
// message must be in order.
func (k *brokerKind) testTrouble(t *testing.T, b *broker, l login) {
	total, long := cmp.Or(manyEvents(), 3000), manyEvents() > 0
	account := newEventAccount()
	batches := flow(total/100, 100, 3)
	sink := k.sink(t, b, l, "trouble")
	began, killed := time.Now(), make(chan struct{})
	for i, batch := range batches {
		switch {
		case i == len(batches)/3 && (long || !k.slow):
			b.end(false)
			b.begin(t)
		case i == 2*len(batches)/3:
			go func(now *process) { // within a batch, most likely
				defer close(killed)
				now.kill()
			}(b.now)
		}
		deadline := time.Now().Add(patience)
		for err := sendOnce(sink, batch); err != nil; err = sendOnce(sink, batch) {
			if time.Now().After(deadline) {
				t.Fatalf("batch %d: %v", i, err)
			}
			if b.now.ended() {
				b.begin(t)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.Logf("%d events in %v, and trouble on the way", total, time.Since(began))
	if <-killed; b.now.ended() { // after the last batch
		b.begin(t)
	}
	b.wait(t)
	k.receive(t, b, "trouble", account.take)
	eventually(t, patience, func() error { return account.complete(batches) })
}

// flow makes batches of events; each message has so many of them, one after the other.
func flow(batches, size, ofMessage int) (all []*events.Batch) {
	n := 0
	for i := range batches {
		b := &events.Batch{ID: fmt.Sprintf("b%d", i), Stream: "test"}
		for range size {
			id, message := fmt.Sprintf("e2e-%09d", n), fmt.Sprintf("m%d", n/ofMessage)
			b.Events = append(b.Events, events.Event{
				ID: id, Message: message, Type: "TransientFailure", Tenant: "acme", Time: time.Now(),
				Line: fmt.Appendf(nil, `{"type":"TransientFailure","id":%q,"sender":"a@b.example","recipient":"joe@c.example","event_id":%q}`, message, id),
			})
			n++
		}
		all = append(all, b)
	}
	return all
}

// sendOnce is one attempt, as a stream makes it.
func sendOnce(s events.Sink, b *events.Batch) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.Send(ctx, b)
}

// eventAccount has what a consumer got.
type eventAccount struct {
	mu    sync.Mutex // guards the rest
	first map[string][]string
	seen  map[string]int
}

func newEventAccount() *eventAccount {
	return &eventAccount{first: make(map[string][]string), seen: make(map[string]int)}
}

func (a *eventAccount) take(message, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[id]++; a.seen[id] == 1 {
		a.first[message] = append(a.first[message], id)
	}
}

// different is how many events are there, each counted once.
func (a *eventAccount) different() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// times is how many events have come, with those that came again.
func (a *eventAccount) times() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, times := range a.seen {
		n += times
	}
	return n
}

// of gives the events of a message; those of no message belong to "".
func (a *eventAccount) of(message string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.first[message])
}

// complete returns nil once each event is there, those of a message in their order.
func (a *eventAccount) complete(batches []*events.Batch) error {
	sent := make(map[string][]string)
	for _, b := range batches {
		for _, e := range b.Events {
			sent[e.Message] = append(sent[e.Message], e.ID)
		}
	}
	return a.has(sent)
}

// has is complete for the ids of the events by message.
func (a *eventAccount) has(sent map[string][]string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var missing []string
	for _, ids := range sent {
		missing = append(missing, slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return a.seen[id] > 0 })...)
	}
	if n := len(missing); n > 0 {
		return fmt.Errorf("%d events are missing, from %s to %s (%d are there)", n, slices.Min(missing), slices.Max(missing), len(a.seen))
	}
	for m, ids := range sent {
		if m == "" {
			continue // there is no order of events that belong to no message
		}
		if got := a.first[m]; strings.Join(got, " ") != strings.Join(ids, " ") {
			return fmt.Errorf("the events of %s came as %v, and were sent as %v", m, got, ids)
		}
	}
	return nil
}

func sinkOf(t *testing.T, s events.Sink, err error) events.Sink {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// tlsTo is how a sink reaches a broker by TLS.
func tlsTo(b *broker, l login) sinks.Broker {
	return sinks.Broker{
		Hosts: []string{b.tls}, TLS: l.tls, User: l.user, Password: l.password, Format: events.NewCloudEvents("e2e"),
	}
}

func kafkaSink(t *testing.T, b *broker, l login, topic string) events.Sink {
	s, err := sinks.NewKafka(tlsTo(b, l), topic, l.mechanism)
	return sinkOf(t, s, err)
}

func createTopic(t *testing.T, b *broker, topic string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.clear))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	made := kmsg.NewCreateTopicsRequestTopic()
	made.Topic, made.NumPartitions, made.ReplicationFactor = topic, 3, 1
	req.Topics = append(req.Topics, made)
	eventually(t, patience, func() error {
		resp, err := req.RequestWith(context.Background(), client)
		if err == nil && resp.Topics[0].ErrorCode != 0 && resp.Topics[0].ErrorCode != 36 { // it is there
			err = fmt.Errorf("Kafka creates no topic: code %d", resp.Topics[0].ErrorCode)
		}
		return err
	})
}

func receiveKafka(t *testing.T, b *broker, topic string, each func(message, id string)) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.clear), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachError(func(_ string, partition int32, err error) {
				t.Logf("Kafka's consumer of partition %d: %v", partition, err)
			})
			fetches.EachRecord(func(r *kgo.Record) {
				for _, h := range r.Headers {
					if h.Key == "event-id" {
						each(string(r.Key), string(h.Value))
					}
				}
			})
		}
	}()
}

func natsSink(t *testing.T, b *broker, l login, topic string) events.Sink {
	return sinkOf(t, sinks.NewNATS(tlsTo(b, l), topic+".{tenant}.{type}"), nil)
}

func natsClient(t *testing.T, b *broker) natsjs.JetStream {
	nc, err := nats.Connect("nats://"+b.clear, nats.UserInfo(brokerUser, brokerPassword), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func createStream(t *testing.T, b *broker, topic string) {
	_, err := natsClient(t, b).CreateStream(context.Background(), natsjs.StreamConfig{Name: topic, Subjects: []string{topic + ".>"}})
	if err != nil {
		t.Fatal(err)
	}
}

func receiveNATS(t *testing.T, b *broker, topic string, each func(message, id string)) {
	consumer, err := natsClient(t, b).OrderedConsumer(context.Background(), topic, natsjs.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	running, err := consumer.Consume(func(m natsjs.Msg) { each(subjectOf(m.Data()), m.Headers().Get("Nats-Msg-Id")) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(running.Stop)
}

func amqpSink(t *testing.T, b *broker, l login, topic string) events.Sink {
	return sinkOf(t, sinks.NewAMQP(tlsTo(b, l), "", "", topic), nil)
}

func amqpChannel(t *testing.T, b *broker) *amqp091.Channel {
	conn, err := amqp091.DialConfig("amqp://"+b.clear+"/", amqp091.Config{SASL: []amqp091.Authentication{&amqp091.PlainAuth{Username: brokerUser, Password: brokerPassword}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func createQueue(t *testing.T, b *broker, topic string) {
	if _, err := amqpChannel(t, b).QueueDeclare(topic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

func receiveAMQP(t *testing.T, b *broker, topic string, each func(message, id string)) {
	messages, err := amqpChannel(t, b).Consume(topic, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for m := range messages {
			each(m.CorrelationId, m.MessageId)
		}
	}()
}

// subjectOf is the attribute of a CloudEvent.
func subjectOf(event []byte) string {
	_, rest, _ := strings.Cut(string(event), `"subject":"`)
	subject, _, _ := strings.Cut(rest, `"`)
	return subject
}
