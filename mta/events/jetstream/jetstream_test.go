package jetstream

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/mta/mta/events"
	"example.org/mta/mta/events/eventstest"
	"example.org/mta/mta/events/records"
)

// The tests with real brokers are in e2e.

func TestNobodyThere(t *testing.T) {
	eventstest.NobodyThere(t, func(addr string) (events.Sink, error) {
		return New(Config{Servers: []string{addr}, Subject: "s", User: "mta", Password: "x", Format: records.Format{}})
	})
}

// TestErrors: what a server answers is a refusal, or an error with a remedy.
func TestErrors(t *testing.T) {
	s := &Sink{config: Config{Subject: "mail"}}
	for err, want := range map[error]string{
		nats.ErrMaxPayload: "", &jetstream.APIError{ErrorCode: tooLarge}: "", &events.Rejected{Reason: "x"}: "",
		&jetstream.APIError{ErrorCode: 10077}: "nats: ", nats.ErrAuthorization: "refuses the login",
		jetstream.ErrNoStreamResponse: `takes the subject "mail"`, nats.ErrPermissionViolation: "may not publish",
	} {
		got := s.explain(err)
		rejected := (*events.Rejected)(nil)
		if errors.As(got, &rejected) != (want == "") || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
