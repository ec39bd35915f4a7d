package sinks

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/events"
)

// nobodyThere checks that a batch to a closed port, or to a listener that is silent, fails in its time, with its reason,
// and can be sent again. open makes the sink of a broker at an address.
func nobodyThere(t *testing.T, open func(addr string) (events.Sink, error)) {
	t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for what, addr := range map[string]string{"closed": closed.Addr().String(), "silent": silent.Addr().String()} {
		s, err := open(addr)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		began := time.Now()
		err = s.Send(ctx, &events.Batch{Events: []events.Event{{ID: "e", Message: "m", Line: []byte("{}")}}})
		cancel()
		if err == nil || isRejected(err) {
			t.Errorf("%s: %v", what, err)
		} else if what == "closed" && !strings.Contains(err.Error(), "refused") && !strings.Contains(err.Error(), "no servers") {
			t.Errorf("the error hides its reason: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: a batch with 300 ms to go failed after %v", what, took)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
