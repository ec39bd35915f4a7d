package wiring

import (
	"fmt"
	"testing"
	"time"

	"example.org/mta/mta/config"
)

// TestBrokers: each scheme has its sink, and another login is another sink.
func TestBrokers(t *testing.T) {
	fingerprints := make(map[string]string)
	for _, to := range []string{"kafka://127.0.0.1/t", "kafka+tls://b1.example.com,b2.example.com/t", "nats+tls://n.example.com/s", "amqps://mq.example.com/?key=q"} {
		for _, login := range []string{"", "user = \"mta\"\npassword = \"one\"", "user = \"mta\"\npassword = \"two\"", "user = \"mta\"\npassword = \"two\"\nsasl = \"scram-sha-256\""} {
			what := to + " with " + login
			c, err := config.Parse(fmt.Appendf(nil, "stream \"s\" {\nto = %q\n%s\n}", to, login), "mta.conf", func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			s := Streams(c, &StreamParts{NodeID: "n", Now: time.Now})[0]
			sink, err := s.Open()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := sink.Close(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if same, there := fingerprints[s.Fingerprint]; there {
				t.Errorf("%s has the fingerprint of %s", what, same)
			}
			fingerprints[s.Fingerprint] = what
		}
	}
}
