package wiring

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
)

// TestBrokersAreFoundByTheRelay: the clients of brokers ask the relay's resolver for their addresses, and not the
// system's, and verify certificates for the broker's name.
func TestBrokersAreFoundByTheRelay(t *testing.T) {
	for _, to := range []string{"kafka://%s/t", "kafka+tls://%s/t", "nats://%s/s", "amqp://%s/?key=q", "amqps://%s/?key=q"} {
		t.Run(to, func(t *testing.T) {
			secured := strings.Contains(to, "+tls") || strings.HasPrefix(to, "amqps")
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			met := make(chan string, 1) // filled before the connection breaks
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if !secured {
					met <- ""
					return
				}
				_ = tls.Server(conn, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
					met <- hello.ServerName
					return nil, errors.New("that is all")
				}}).Handshake()
			}()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			c, err := config.Parse(fmt.Appendf(nil, "stream \"s\" {\nto = %q\nallow_clear = true\n}", fmt.Sprintf(to, "broker.invalid:"+port)), "mta.conf", func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			sink, err := Streams(c, &StreamParts{NodeID: "n", Now: time.Now, Addresses: func(_ context.Context, host string) ([]netip.Addr, error) {
				if host != "broker.invalid" {
					return nil, fmt.Errorf("asked for %s", host)
				}
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			}})[0].Open()
			if err != nil {
				t.Fatal(err)
			}
			defer sink.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() { failed <- sink.Send(ctx, &events.Batch{}) }()
			var name string
			select {
			case name = <-met:
				cancel()
				<-failed
			case err := <-failed: // some clients return as soon as the connection breaks
				select {
				case name = <-met:
				default:
					t.Fatalf("no connection: %v", err)
				}
			}
			if secured && name != "broker.invalid" {
				t.Errorf("the certificate is verified for %q", name)
			}
		})
	}
}

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
