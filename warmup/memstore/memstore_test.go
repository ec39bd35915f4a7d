package memstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/warmup"
	"example.org/mta/warmup/storetest"
)

func TestConformance(t *testing.T) {
	var now atomic.Int64
	storetest.Run(t, storetest.Subject{
		Open: func(*testing.T) warmup.Store { return New(func() warmup.Instant { return warmup.Instant(now.Load()) }) },
		Pass: func(d time.Duration) { now.Add(d.Milliseconds()) },
	})
}

func TestFaults(t *testing.T) {
	s := New(func() warmup.Instant { return 0 })
	s.SetDown(true)
	if _, _, err := s.Claim(t.Context(), "a", time.Second, nil, nil); !errors.Is(err, ErrDown) {
		t.Errorf("claim while down: %v", err)
	}
	if _, err := s.Write(t.Context(), nil, nil); !errors.Is(err, ErrDown) {
		t.Errorf("write while down: %v", err)
	}
	s.SetDown(false)
	r, _, err := s.Claim(t.Context(), "a", time.Second, []warmup.Key{{Name: "ip"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, apply := range []bool{false, true} {
		s.Unsure(func() (bool, bool) { return apply, false })
		_, err := s.Write(t.Context(), []warmup.Change{{Name: "ip", Fence: r[0].Fence, Value: []byte("x")}}, nil)
		if !errors.Is(err, warmup.ErrUnknownOutcome) {
			t.Errorf("unsure write: %v", err)
		}
		if got := len(s.Peek("ip", nil)) > 0; got != apply {
			t.Errorf("applied: %v, want %v", got, apply)
		}
	}
}
