package sinks

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/mta/mta/events"
)

// The tests with real brokers are in e2e.

func TestNoServerOfNATS(t *testing.T) {
	nobodyThere(t, func(addr string) (events.Sink, error) {
		return NewNATS(Broker{Hosts: []string{addr}, User: "mta", Password: "x", Format: events.Records{}}, "s"), nil
	})
}

// TestErrors: what a server answers is a refusal, or an error with a remedy.
func TestErrorsOfNATS(t *testing.T) {
	s := NewNATS(Broker{}, "mail")
	for err, want := range map[error]string{
		nats.ErrMaxPayload: "", &jetstream.APIError{ErrorCode: tooLarge}: "", &events.Rejected{Reason: "x"}: "",
		&jetstream.APIError{ErrorCode: 10077}: "nats: ", nats.ErrAuthorization: "refuses the login",
		jetstream.ErrNoStreamResponse: `takes the subject "mail"`, nats.ErrPermissionViolation: "may not publish",
	} {
		got := s.explain(err)
		if isRejected(got) != (want == "") || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
