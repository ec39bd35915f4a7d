package kafka

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"example.org/mta/mta/events"
	"example.org/mta/mta/events/eventstest"
	"example.org/mta/mta/events/records"
)

// The tests with real brokers are in e2e.

func TestNobodyThere(t *testing.T) {
	eventstest.NobodyThere(t, func(addr string) (events.Sink, error) {
		return New(Config{Brokers: []string{addr}, Topic: "t", Format: records.Format{}})
	})
}

// TestErrors: what a broker answers is a refusal, or an error with a remedy.
func TestErrors(t *testing.T) {
	s := &Sink{topic: "mail"}
	for err, want := range map[error]string{
		kerr.MessageTooLarge: "", kerr.InvalidRecord: "", &events.Rejected{Reason: "x"}: "",
		kerr.SaslAuthenticationFailed: "refuses the login", kerr.UnknownTopicOrPartition: `there is no topic "mail"`,
		kerr.TopicAuthorizationFailed: "may not write", kerr.NotLeaderForPartition: "kafka: ",
	} {
		got := s.explain(err)
		rejected := (*events.Rejected)(nil)
		if errors.As(got, &rejected) != (want == "") || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if _, err := New(Config{Brokers: []string{"127.0.0.1:1"}, Topic: "t", Mechanism: "gssapi"}); err == nil {
		t.Error("a mechanism that is not there is accepted")
	}
}
