package submission

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"example.org/mta/submission/intake"
)

func TestConnectionLimit(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 2}}, func(t *testing.T, r *relay) {
		a, b := r.greeted(), r.dial("192.0.2.2")
		b.expect("220")
		c := r.dial("192.0.2.1")
		c.expect("421 4.3.2 too many connections")
		c.mustBeClosed()
		a.cmd("QUIT", "221")
		r.greeted()
		b.cmd("NOOP", "250")
		if n := len(r.events.rejected); n != 1 || r.events.rejected[0].Reply.Command != "connect" {
			t.Errorf("rejections %v", r.events.rejected)
		}
	})
}

func TestConnectionLimitPerClient(t *testing.T) {
	withRelay(t, Config{Limits: Limits{ConnectionsPerClient: 2}}, func(t *testing.T, r *relay) {
		for _, client := range []struct{ first, second, third, other string }{
			{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"},
			{"::ffff:192.0.2.9", "192.0.2.9", "192.0.2.9", "192.0.2.10"},
			{"2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1:ffff::3", "2001:db8:0:2::1"}, // a /64 is one client
		} {
			first := r.dial(client.first)
			first.expect("220")
			r.dial(client.second).expect("220")
			third := r.dial(client.third)
			third.expect("421 4.7.0 too many connections from ")
			third.mustBeClosed()
			r.dial(client.other).expect("220")
			first.conn.Close()
			synctest.Wait()
			r.dial(client.third).expect("220")
		}
	})
}

func TestClientsAreForgotten(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		for i := range 20 {
			p := r.dial(fmt.Sprintf("192.0.2.%d", i+1))
			p.expect("220")
			p.cmd("QUIT", "221")
		}
		if n := len(r.srv.mu.perClient); n != 0 {
			t.Errorf("%d clients remembered", n)
		}
	})
}

func TestRecipientLimit(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Limits: intake.Limits{Recipients: 3}}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		for i := range 3 {
			p.cmd(fmt.Sprintf("RCPT TO:<b%d@example.net>", i), "250")
		}
		p.cmd("RCPT TO:<b3@example.net>", "452 4.5.3")
		p.cmd("DATA", "354")
		p.send("hi\r\n.\r\n")
		p.expect("250")
		if n := len(r.store.one(t).Recipients); n != 3 {
			t.Errorf("%d recipients", n)
		}
		e := r.events.rejected[0]
		if e.Recipient != "b3@example.net" || e.Sender != "a@example.org" || e.Reply.Code != 452 || e.Reply.Command != "RCPT" {
			t.Errorf("rejection %+v", e)
		}
	})
}

func TestSizeLimit(t *testing.T) {
	limits := intake.Limits{Size: 1000}
	content := strings.Repeat(strings.Repeat("x", 98)+"\r\n", 10) // 1000 octets
	for name, send := range map[string]func(p *peer, content string) string{
		"data":  func(p *peer, content string) string { return p.data(content) },
		"chunk": (*peer).chunk,
	} {
		t.Run(name, func(t *testing.T) {
			withRelay(t, Config{Intake: intake.Config{Limits: limits}}, func(t *testing.T, r *relay) {
				p := r.greeted()
				if got := codes(send(p, content)); got != "250" {
					t.Errorf("at the limit: %s", got)
				}
				if got := send(p, "y\r\n"+content); !strings.HasPrefix(got, "552 5.3.4") {
					t.Errorf("over the limit: %s", got)
				}
				p.cmd("NOOP", "250") // the content was read to its end
				r.store.one(t)
			})
		})
	}
}

// Dots that were added for transparency don't count (RFC 1870, 5).
func TestSizeIsWithoutDotStuffing(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Limits: intake.Limits{Size: 30}}}, func(t *testing.T, r *relay) {
		if got := codes(r.greeted().data(strings.Repeat("..\r\n", 10))); got != "250" {
			t.Error(got)
		}
	})
}

// A client that never ends is not listened to for ever.
func TestContentThatGoesOnIsCut(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Limits: intake.Limits{Size: 1000}}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		sent := 0
		line := strings.Repeat(strings.Repeat("x", 98)+"\r\n", 100)
		for !p.closed() && sent < 10<<20 {
			n, _ := p.conn.Write([]byte(line))
			sent += n
		}
		p.expect("552 5.3.4 message far larger")
		if sent > 2<<20 {
			t.Errorf("cut after %d octets", sent)
		}
		r.store.none(t)
	})
}

func TestLineLimit(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Limits: intake.Limits{LineLength: 1000}}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		if got := codes(p.data("\r\n" + strings.Repeat("x", 1000) + "\r\n")); got != "250" {
			t.Errorf("at the limit: %s", got)
		}
		if got := p.data("\r\n" + strings.Repeat("x", 1001) + "\r\nmore\r\n"); !strings.HasPrefix(got, "550 5.6.0 message has a line longer than 1000") {
			t.Errorf("over the limit: %s", got)
		}
		p.cmd("NOOP", "250")
		r.store.one(t)
	})
}

// The default takes lines that no RFC allows but that applications send, as they are.
func TestLongLineArrivesAsItIs(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		body := "Subject: x\r\n\r\n" + strings.Repeat("y", 64<<10) + "\r\nend\r\n"
		if got := codes(r.greeted().data(body)); got != "250" {
			t.Fatal(got)
		}
		if r.store.one(t).body() != body {
			t.Error("content differs")
		}
	})
}

func TestHeaderLimit(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Limits: intake.Limits{HeaderSize: 2000}}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		field := "X-F: " + strings.Repeat("x", 93) + "\r\n" // 100 octets
		if got := codes(p.data(strings.Repeat(field, 19) + "\r\nbody\r\n")); got != "250" {
			t.Errorf("below the limit: %s", got)
		}
		if got := p.data(strings.Repeat(field, 21) + "\r\nbody\r\n"); !strings.HasPrefix(got, "552 5.3.4 header section") {
			t.Errorf("above the limit: %s", got)
		}
	})
}

func TestHopLimit(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Limits: intake.Limits{Hops: 50}}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		hop := "Received: from a by b;\r\n\tsome day\r\n"
		if got := codes(p.data(strings.Repeat(hop, 49) + "received : from c\r\n\r\nReceived: not a hop\r\n")); got != "250" {
			t.Errorf("50 hops: %s", got)
		}
		if got := p.data(strings.Repeat(hop, 51) + "\r\n"); !strings.HasPrefix(got, "554 5.4.6") {
			t.Errorf("51 hops: %s", got)
		}
	})
}
