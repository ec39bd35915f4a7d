package suppression

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Each complaint is handed over once. After a wait that was in vain the others wait for a minute, too.
func TestComplaintsAreHandedOverOnce(t *testing.T) {
	c, now := newComplaints(), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const sources = 20
	for i := range sources {
		for range 2 {
			c.count(&Event{Source: fmt.Sprint(i), Sent: now})
		}
	}
	calls, got := 0, make(map[string]int64)
	flush := func(after time.Duration, refused func(source string) error) {
		t.Helper()
		calls = 0
		c.flush(t.Context(), now.Add(after), func(_ context.Context, source, _ string, _ time.Time, n int64) error {
			calls++
			err := refused(source)
			if err == nil {
				got[source] += n
			}
			return err
		})
	}
	flush(0, func(string) error { return fmt.Errorf("waiting: %w", context.DeadlineExceeded) })
	if calls != 1 {
		t.Errorf("%d calls wait in vain, one after the other", calls)
	}
	flush(time.Second, func(string) error { return nil })
	if calls != 0 {
		t.Errorf("%d calls a second later", calls)
	}
	flush(time.Minute, func(source string) error {
		if source == "7" {
			return errors.New("no")
		}
		return nil
	})
	if calls != sources {
		t.Errorf("%d calls, though one was refused at once", calls)
	}
	flush(2*time.Minute, func(string) error { return nil })
	for i := range sources {
		if n := got[fmt.Sprint(i)]; n != 2 {
			t.Errorf("%d complaints about source %d, want 2", n, i)
		}
	}
}
