package submission

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// shutdown starts a Shutdown and gives its result when it has come.
func (r *relay) shutdown(within time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		done <- r.srv.Shutdown(ctx)
	}()
	synctest.Wait()
	return done
}

func TestShutdownTellsIdleConnections(t *testing.T) {
	withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
		idle := r.greeted()
		mute := r.dial("192.0.2.1")
		mute.expect("220")
		halfLine := r.greeted()
		halfLine.send("MAIL FR")
		secure := r.greeted().startTLS()
		secure.cmd("EHLO app", "250")
		silent := r.greeted().startTLS() // nothing said since
		done := r.shutdown(time.Minute)
		for _, p := range []*peer{idle, mute, halfLine, secure, silent} {
			p.expect("421 4.3.2 this relay is shutting down")
			p.mustBeClosed()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := r.srv.Serve(newPipeListener()); !errors.Is(err, ErrServerClosed) {
			t.Errorf("serve after shutdown: %v", err)
		}
	})
}

func TestShutdownLetsTransactionsEnd(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		done := r.shutdown(time.Minute)
		if got := p.got(); got != "" {
			t.Fatalf("within the transaction: %q", got)
		}
		p.cmd("RCPT TO:<c@example.net>", "250")
		p.cmd("DATA", "354")
		time.Sleep(30 * time.Second)
		p.send("hi\r\n.\r\n")
		if got := p.got(); codes(got) != "250 421" || !strings.Contains(got, "421 4.3.2") {
			t.Errorf("got %q", got)
		}
		p.mustBeClosed()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if m := r.store.one(t); len(m.Recipients) != 2 {
			t.Errorf("%d recipients", len(m.Recipients))
		}
	})
}

// The library's Close does nothing after a Shutdown that timed out.
func TestShutdownCutsWhatTakesTooLong(t *testing.T) {
	for name, content := range map[string]string{"data": "DATA\r\n", "chunk": "BDAT 1000 LAST\r\nSubject: half\r\n\r\n", "rcpt": ""} {
		t.Run(name, func(t *testing.T) {
			withRelay(t, Config{}, func(t *testing.T, r *relay) {
				p := r.greeted()
				p.envelope()
				p.send(content)
				p.got()
				start := time.Now()
				err := <-r.shutdown(10 * time.Second)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
					t.Errorf("%v after %s", err, time.Since(start))
				}
				p.mustBeClosed()
				if n := r.srv.Connections(); n != 0 {
					t.Errorf("%d connections open", n)
				}
				r.store.none(t)
			})
		})
	}
}

// A commit can't be called back: Shutdown waits for it, within reason.
func TestShutdownWaitsForACommit(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		r.store.commit = make(chan struct{})
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		p.send("hi\r\n.\r\n")
		done := r.shutdown(10 * time.Second)
		time.Sleep(12 * time.Second)
		close(r.store.commit)
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "store") {
			t.Error(err)
		}
		r.store.one(t)
	})
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		r.store.commit = make(chan struct{})
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		p.send("hi\r\n.\r\n")
		err := <-r.shutdown(10 * time.Second)
		if err == nil || !strings.Contains(err.Error(), "1 still wait for the store") {
			t.Error(err)
		}
		close(r.store.commit)
	})
}

// A connection that was accepted gets a reply, however near the stop is: no client sees one that just ends.
func TestShutdownDuringPreflight(t *testing.T) {
	const replied = "421 4.3.2 this relay is shutting down"
	ended := func(t *testing.T, done <-chan error) {
		t.Helper()
		began := time.Now()
		if err := <-done; err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	}
	withRelay(t, Config{Timeouts: Timeouts{GreetDelay: time.Hour}}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		ended(t, r.shutdown(time.Minute))
		p.expect(replied)
		p.mustBeClosed()
	})
	withRelay(t, proxied, func(t *testing.T, r *relay) {
		p, silent := r.dial("203.0.113.1"), r.dial("203.0.113.1")
		done := r.shutdown(time.Minute)
		p.send(proxyHeader(2, "192.0.2.1:4711"))
		p.expect(replied)
		ended(t, done)
		p.mustBeClosed()
		silent.expect(replied)
		silent.mustBeClosed()
	})
	withRelay(t, Config{TLS: testTLS(), ImplicitTLS: true}, func(t *testing.T, r *relay) {
		ours, theirs := r.pair("192.0.2.1")
		r.l.conns <- theirs
		silent := r.dial("192.0.2.1")
		done := r.shutdown(time.Minute)
		p := newPeer(t, tlsClient(t, ours))
		p.expect(replied)
		ended(t, done)
		p.mustBeClosed()
		silent.mustBeClosed()
	})
}

func TestShutdownTwice(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		first, second := r.shutdown(time.Hour), r.shutdown(time.Second)
		if err := <-second; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		l := newPipeListener()
		l.Close()
		if err := r.srv.Serve(l); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// TestDrain: while the relay takes no new mail a client is sent away between transactions, and no report about mail
// that has left is refused; afterwards all is as before.
func TestDrain(t *testing.T) {
	const away = "421 4.3.2 this relay takes no new mail now"
	var on atomic.Bool
	cfg := Config{TLS: testTLS(), Draining: on.Load}
	withMailroom(t, cfg, func(t *testing.T, r *relay, room *mailroom) {
		idle, busy, stranger := r.greeted(), r.greeted(), r.stranger()
		secure := r.greeted().startTLS()
		busy.envelope()
		on.Store(true)
		r.srv.Drain()
		synctest.Wait()
		for _, p := range []*peer{idle, secure, r.dial("192.0.2.1")} {
			p.expect(away)
			p.mustBeClosed()
		}
		if got := busy.got() + stranger.got(); got != "" {
			t.Fatalf("amid a transaction, or to a stranger: %q", got)
		}
		busy.cmd("RCPT TO:<c@example.net>", "250")
		busy.cmd("DATA", "354")
		busy.send("hi\r\n.\r\nMAIL FROM:<next@example.org>\r\n")
		if got := busy.got(); codes(got) != "250 421" || !strings.Contains(got, away) {
			t.Errorf("got %q", got)
		}
		busy.mustBeClosed()
		for _, p := range []*peer{stranger, r.stranger()} {
			p.cmd("MAIL FROM:<>", "250")
			p.cmd("RCPT TO:<fbl@b.example.com>", "250")
			p.cmd("DATA", "354")
			p.send("x\r\n.\r\n")
			p.expect("250 2.0.0 taken")
		}
		if len(room.taken) != 2 {
			t.Errorf("%d reports", len(room.taken))
		}
		on.Store(false)
		r.greeted().cmd("MAIL FROM:<a@example.org>", "250")
		r.store.one(t)
	})
	withRelay(t, cfg, func(t *testing.T, r *relay) { // nobody brings reports here
		p := r.dial("198.51.100.1")
		p.expect("220")
		on.Store(true)
		r.srv.Drain()
		p.expect(away)
	})
}
