package sinks

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"example.org/mta/mta/events"
)

// The tests with real brokers are in e2e.

func TestNoBrokerOfAMQP(t *testing.T) {
	nobodyThere(t, func(addr string) (events.Sink, error) {
		return NewAMQP(Broker{Hosts: []string{addr}, User: "mta", Password: "x", Format: events.Records{}}, "", "", "q"), nil
	})
}

// TestErrors: what a broker answers is a refusal, or an error with a remedy.
func TestErrorsOfAMQP(t *testing.T) {
	s := NewAMQP(Broker{User: "mta"}, "/v", "mail", "")
	for err, want := range map[error]string{
		&amqp091.Error{Code: amqp091.ContentTooLarge}: "", &amqp091.Error{Code: amqp091.PreconditionFailed}: "", &events.Rejected{Reason: "x"}: "",
		&amqp091.Error{Code: amqp091.AccessRefused}: `the user "mta"`, &amqp091.Error{Code: amqp091.NotFound}: `no exchange "mail"`,
		&amqp091.Error{Code: amqp091.NotAllowed}: `virtual host "/v"`, &amqp091.Error{Code: amqp091.InternalError}: "amqp: ",
	} {
		got := s.explain(err)
		if isRejected(got) != (want == "") || !strings.Contains(got.Error(), want) {
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
	s := NewAMQP(Broker{Hosts: []string{silent.Addr().String()}, Format: events.Records{}}, "", "", "q")
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
