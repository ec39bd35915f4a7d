package sinks

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"example.org/mta/mta/events"
)

// The tests with real brokers are in e2e.

func TestNoBrokerOfKafka(t *testing.T) {
	nobodyThere(t, func(addr string) (events.Sink, error) {
		return NewKafka(Broker{Hosts: []string{addr}, Format: events.Records{}}, "t", "")
	})
}

// TestErrors: what a broker answers is a refusal, or an error with a remedy.
func TestErrorsOfKafka(t *testing.T) {
	s := &Kafka{topic: "mail"}
	for err, want := range map[error]string{
		kerr.MessageTooLarge: "", kerr.InvalidRecord: "", &events.Rejected{Reason: "x"}: "",
		kerr.SaslAuthenticationFailed: "refuses the login", kerr.UnknownTopicOrPartition: `there is no topic "mail"`,
		kerr.TopicAuthorizationFailed: "may not write", kerr.NotLeaderForPartition: "kafka: ",
	} {
		got := s.explain(err)
		if isRejected(got) != (want == "") || !strings.Contains(got.Error(), want) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if _, err := NewKafka(Broker{Hosts: []string{"127.0.0.1:1"}}, "t", "gssapi"); err == nil {
		t.Error("a mechanism that is not there is accepted")
	}
}
