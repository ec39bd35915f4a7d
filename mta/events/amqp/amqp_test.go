package amqp

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"example.org/mta/mta/events"
	"example.org/mta/mta/events/eventstest"
	"example.org/mta/mta/events/records"
)

// The tests with real brokers are in e2e.

func TestNobodyThere(t *testing.T) {
	eventstest.NobodyThere(t, func(addr string) (events.Sink, error) {
		return New(Config{Brokers: []string{addr}, Key: "q", User: "mta", Password: "x", Format: records.Format{}})
	})
}

// TestErrors: what a broker answers is a refusal, or an error with a remedy.
func TestErrors(t *testing.T) {
	s := &Sink{config: Config{Exchange: "mail", Vhost: "/v", User: "mta"}}
	for err, want := range map[error]string{
		&amqp091.Error{Code: amqp091.ContentTooLarge}: "", &amqp091.Error{Code: amqp091.PreconditionFailed}: "", &events.Rejected{Reason: "x"}: "",
		&amqp091.Error{Code: amqp091.AccessRefused}: `the user "mta"`, &amqp091.Error{Code: amqp091.NotFound}: `no exchange "mail"`,
		&amqp091.Error{Code: amqp091.NotAllowed}: `virtual host "/v"`, &amqp091.Error{Code: amqp091.InternalError}: "amqp: ",
	} {
		got := s.explain(err)
		rejected := (*events.Rejected)(nil)
		if errors.As(got, &rejected) != (want == "") || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// A broker that accepts connections and does not answer holds up neither Close nor a batch whose time is over.
func TestNobodyWaitsForASilentBroker(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s, err := New(Config{Brokers: []string{silent.Addr().String()}, Key: "q", Format: records.Format{}})
	if err != nil {
		t.Fatal(err)
	}
	connecting := make(chan error, 1)
	go func() { connecting <- s.Send(context.Background(), &events.Batch{Events: []events.Event{{ID: "1"}}}) }()
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Send(over, &events.Batch{Events: []events.Event{{ID: "2"}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a batch whose time is over: %v", err)
	}
	_ = s.Close()
	select {
	case err := <-connecting:
		t.Fatalf("the first batch ended before the broker was gone: %v", err)
	default:
	}
	conn.Close()
	if err := <-connecting; err == nil {
		t.Error("the first batch was sent to nobody")
	}
}
