package submission

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/submission/intake"
)

// T6: a relay at its limits says so at once, whatever its disk does: with a store that hangs and all
// connections taken, new clients hear 421, one client's further connections too, and those that are
// connected hear 452 at MAIL when the store takes no more. The p99 of all these replies is below
// 100 ms, and nobody is kept waiting for the disk who has not handed over a message.
func TestT6_OverloadIsAnsweredAtOnce(t *testing.T) {
	const (
		all     = 200 // connections that the relay takes
		waiting = 150 // of them, with a message that the disk is to take
		late    = 500 // connections that clients try when all is taken
	)
	var full error
	cfg := Config{Intake: intake.Config{Ready: func(intake.Owner, int64) error { return full }}, Limits: Limits{Connections: all}}
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		r.store.commit = make(chan struct{})
		var stuck, idle []*peer
		for i := range all {
			p := r.dial(fmt.Sprintf("192.0.2.%d", 1+i)) // each has as many as the others
			p.expect("220")
			p.cmd("EHLO app.example.org", "250")
			if i >= waiting {
				idle = append(idle, p)
				continue
			}
			p.envelope()
			p.cmd("DATA", "354")
			p.send("hi\r\n.\r\n")
			stuck = append(stuck, p)
		}
		var took []time.Duration
		timed := func(p *peer, command, want string) {
			t.Helper()
			began := time.Now()
			io.WriteString(p.conn, command)
			took = append(took, p.await(t, want).Sub(began))
		}
		for i := range late {
			began := time.Now()
			p := r.dial(fmt.Sprintf("192.0.2.%d", 1+i%all))
			took = append(took, p.await(t, "421 4.3.2 too many connections").Sub(began))
			p.mustBeClosed()
			time.Sleep(3 * time.Millisecond)
		}
		full = diskIsFull{errors.New("no room")}
		for range 5 {
			for _, p := range idle {
				timed(p, "MAIL FROM:<a@example.org>\r\n", "452 4.3.1 ")
			}
			time.Sleep(time.Second)
		}
		full = nil
		// Those that have handed over a message wait for the disk, and hear of nothing else.
		for _, p := range stuck {
			if got := p.got(); got != "" {
				t.Fatalf("a client whose message is not on the disk hears %q", got)
			}
		}
		slices.Sort(took)
		if p99 := took[len(took)*99/100]; p99 >= 100*time.Millisecond || took[len(took)-1] >= time.Second {
			t.Errorf("p99 of %d overload replies is %v, the slowest took %v; want less than 100 ms", len(took), p99, took[len(took)-1])
		}
		close(r.store.commit)
		for _, p := range stuck {
			p.expect("250 2.0.0 queued as ")
		}
		if n := len(r.store.all(t)); n != waiting {
			t.Errorf("%d messages are stored, want %d", n, waiting)
		}
		// There is room again at once.
		stuck[0].cmd("QUIT", "221")
		r.dial("192.0.2.1").expect("220")
		if r.dial("192.0.2.2").expect("421"); r.srv.Connections() != all {
			t.Errorf("%d connections", r.srv.Connections())
		}
	})
}

// One client that has all that it may have is told so while others are served.
func TestT6_OneClientsOverloadIsItsOwn(t *testing.T) {
	withRelay(t, Config{Limits: Limits{ConnectionsPerClient: 5}}, func(t *testing.T, r *relay) {
		for range 5 {
			r.dial("192.0.2.1").expect("220")
		}
		var took []time.Duration
		for range 200 {
			began := time.Now()
			p := r.dial("192.0.2.1")
			took = append(took, p.await(t, "421 4.7.0 too many connections from ").Sub(began))
			p.mustBeClosed()
		}
		slices.Sort(took)
		if p99 := took[len(took)*99/100]; p99 >= 100*time.Millisecond {
			t.Errorf("p99 is %v, want less than 100 ms", p99)
		}
		p := r.dial("192.0.2.2")
		p.expect("220")
		p.cmd("EHLO other.example.org", "250")
		if got := codes(p.data("hi\r\n")); got != "250" {
			t.Errorf("another client's message: %s", got)
		}
	})
}

// await lets time pass until the server has said something, which must begin with want, and gives
// the time of it.
func (p *peer) await(t *testing.T, want string) time.Time {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		synctest.Wait()
		if got := p.got(); got != "" {
			if !strings.HasPrefix(got, want) {
				t.Fatalf("server said %q, want %q", got, want)
			}
			return time.Now()
		}
		if time.Now().After(end) {
			t.Fatalf("no reply within a minute, want %q", want)
		}
	}
}

type diskIsFull struct{ error }

func (diskIsFull) DiskFull() bool { return true }
