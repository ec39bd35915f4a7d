package submission

import (
	"testing"
	"testing/synctest"
	"time"
)

func (r *relay) only(t *testing.T) ConnectionInfo {
	t.Helper()
	synctest.Wait()
	list := r.srv.OpenConnections()
	if len(list) != 1 {
		t.Fatalf("%d connections, want 1", len(list))
	}
	return list[0]
}

func TestOpenConnectionsShowTheirSession(t *testing.T) {
	withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		began := time.Now()
		if c := r.only(t); c.State != Idle || c.Helo != "" || c.Last.Code != 220 || c.Peer.Addr().String() != "192.0.2.1" || c.Session == "" {
			t.Errorf("after the banner: %+v", c)
		}
		p.cmd("EHLO app", "250")
		p = p.startTLS()
		p.cmd("EHLO app", "250")
		time.Sleep(time.Minute)
		if c := r.only(t); c.State != Idle || c.Helo != "app" || c.TLS == nil || !c.Idle.Equal(began) || c.Messages != 0 {
			t.Errorf("after STARTTLS: %+v", c)
		}
		p.envelope()
		if c := r.only(t); c.State != Busy || !c.Idle.IsZero() || c.Messages != 1 || c.Last.Code != 250 {
			t.Errorf("within a transaction: %+v", c)
		}
	})
}

// TestAClosedConnectionHears421: at once while it waits for a command, within a transaction too, and else after the
// message that is coming in, which is accepted.
func TestAClosedConnectionHears421(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		for _, c := range []struct {
			where string
			begin func(p *peer)
		}{
			{"idle", func(*peer) {}},
			{"half a line", func(p *peer) { p.send("MAIL FR") }},
			{"transaction", func(p *peer) { p.envelope() }},
		} {
			p := r.greeted()
			c.begin(p)
			if known, later := r.srv.CloseConnections(map[string]bool{r.only(t).Session: true}); known != 1 || later != 0 {
				t.Fatalf("%s: %d known, %d later", c.where, known, later)
			}
			p.expect("421 4.3.2 closed by the operator")
			p.mustBeClosed()
		}
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		p.send("Subject: half\r\n")
		if known, later := r.srv.CloseConnections(map[string]bool{r.only(t).Session: true}); known != 1 || later != 1 {
			t.Fatalf("content: %d known, %d later", known, later)
		}
		if c := r.only(t); c.State != Closing {
			t.Errorf("state %v, want closing", c.State)
		}
		p.send("\r\nthe rest\r\n.\r\n")
		if got := p.got(); codes(got) != "250 421" {
			t.Errorf("got %q", got)
		}
		p.mustBeClosed()
		r.store.one(t)
		if known, _ := r.srv.CloseConnections(map[string]bool{"nobody": true}); known != 0 {
			t.Errorf("%d unknown connections closed", known)
		}
	})
}
