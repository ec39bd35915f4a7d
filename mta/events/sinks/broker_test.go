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
		send := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			began := time.Now()
			err := s.Send(ctx, &events.Batch{Events: []events.Event{{ID: "e", Message: "m", Line: []byte("{}")}}})
			if took := time.Since(began); took > within+time.Minute {
				t.Errorf("%s: a batch with %v to go failed after %v", what, within, took)
			}
			return err
		}
		within := 300 * time.Millisecond
		err = send(within)
		for ; what == "closed" && !namesReason(err) && within < time.Minute; err = send(within) {
			within *= 4 // on a busy machine no connection had been refused by then
		}
		if err == nil || isRejected(err) {
			t.Errorf("%s: %v", what, err)
		} else if what == "closed" && !namesReason(err) {
			t.Errorf("the error hides its reason: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func namesReason(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "no servers"))
}
