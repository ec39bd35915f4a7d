package delivery

import (
	"testing"
	"testing/synctest"
	"time"

	"mta/internal/sink"
)

// TestWhoFilledTheRoomIsToldOfRoom is of a caller with parked jobs that hands over just as many
// as there is room for, and so is refused none: he used not to hear of room again.
func TestWhoFilledTheRoomIsToldOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Share = 10 })
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second})))
		n := w.s.Room("a")
		for range n {
			w.send(r, 1)
		}
		if left := w.s.Room("a"); n != 10 || left != 0 {
			t.Fatalf("room for %d, and then for %d", n, left)
		}
		w.awaitResults(n, time.Hour)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.room) == 0 || w.room[0] != "a" {
			t.Errorf("told of room: %v, want a", w.room)
		}
	})
}
