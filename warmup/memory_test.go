package warmup

import (
	"errors"
	"testing"
	"time"
)

func TestMemoryFaults(t *testing.T) {
	s := NewMemory(func() Instant { return 0 })
	s.SetDown(true)
	if _, _, err := s.Claim(t.Context(), "a", time.Second, nil, nil); !errors.Is(err, ErrDown) {
		t.Errorf("claim while down: %v", err)
	}
	if _, err := s.Write(t.Context(), nil, nil); !errors.Is(err, ErrDown) {
		t.Errorf("write while down: %v", err)
	}
	s.SetDown(false)
	r, _, err := s.Claim(t.Context(), "a", time.Second, []Key{{Name: "ip"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, apply := range []bool{false, true} {
		s.Unsure(func() (bool, bool) { return apply, false })
		_, err := s.Write(t.Context(), []Change{{Name: "ip", Fence: r[0].Fence, Value: []byte("x")}}, nil)
		if !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("unsure write: %v", err)
		}
		if got := len(s.Peek("ip", nil)) > 0; got != apply {
			t.Errorf("applied: %v, want %v", got, apply)
		}
	}
}
