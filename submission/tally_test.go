package submission

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"example.org/mta/submission/intake"
)

// A stranger's refusals are written down once, and then counted.
func TestRefusalsAreCounted(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		taken := func() []intake.Rejection {
			r.events.mu.Lock()
			defer r.events.mu.Unlock()
			all := r.events.rejected
			r.events.rejected = nil
			return all
		}
		flood := func(address string, n int) {
			for done := 0; done < n; {
				p := r.dial(address)
				p.expect("220")
				p.cmd("EHLO x", "250")
				p.cmd("MAIL FROM:<a@example.org>", "250")
				for i := 0; i < 10 && done < n; i++ {
					p.cmd("RCPT TO:<b@example.net>", "550 5.7.1")
					done++
				}
				p.cmd("QUIT", "221")
			}
		}
		flood("198.51.100.1", 500)
		flood("198.51.100.2", 3)
		if got := taken(); len(got) != 2 || got[0].Count > 1 || got[1].Peer.Addr() != netip.MustParseAddr("198.51.100.2") {
			t.Fatalf("%d records at once: %+v", len(got), got)
		}
		time.Sleep(time.Minute + time.Second)
		counts := make(map[string]int64)
		for _, e := range taken() {
			counts[e.Peer.Addr().String()+" "+e.Reply.Enhanced.String()] = e.Count
		}
		if len(counts) != 2 || counts["198.51.100.1 5.7.1"] != 499 || counts["198.51.100.2 5.7.1"] != 2 {
			t.Errorf("after a minute: %v", counts)
		}
		flood("198.51.100.1", 20) // goes on: only counted
		if got := taken(); len(got) != 0 {
			t.Errorf("told of again: %+v", got)
		}
		time.Sleep(3 * time.Minute)
		if got := taken(); len(got) != 1 || got[0].Count != 20 {
			t.Errorf("%+v", got)
		}
		flood("198.51.100.1", 1) // begins anew
		if got := taken(); len(got) != 1 || got[0].Count > 1 {
			t.Errorf("%+v", got)
		}
		// Who may relay wants to know of each of its recipients.
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		for range 15 {
			p.cmd("RCPT TO:<ü@example.net>", "553")
		}
		if got := taken(); len(got) != 15 {
			t.Errorf("%d records", len(got))
		}
	})
}

// What was counted when the relay stops is written down.
func TestCountedRefusalsOutliveTheServer(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.dial("198.51.100.1")
		p.expect("220")
		p.cmd("EHLO x", "250")
		p.cmd("MAIL FROM:<a@example.org>", "250")
		for range 7 {
			p.cmd("RCPT TO:<b@example.net>", "550 5.7.1")
		}
		p.cmd("QUIT", "221")
		if err := r.srv.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		r.events.mu.Lock()
		defer r.events.mu.Unlock()
		sum := int64(0)
		for _, e := range r.events.rejected {
			sum += max(e.Count, 1)
		}
		if sum != 7 {
			t.Errorf("%d of 7 refusals were written down", sum)
		}
	})
}
