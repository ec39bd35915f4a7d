package submission

import (
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Commands that carry nothing end the session, whichever they are; a message gives the client all
// of them back.
func TestIdleCommandsAreBounded(t *testing.T) {
	for _, command := range []string{"NOOP", "RSET", "VRFY x", "EHLO again", "HELO again"} {
		withRelay(t, Config{Limits: Limits{IdleCommands: 5}}, func(t *testing.T, r *relay) {
			p := r.greeted()
			for range 3 {
				p.cmd(command, "25")
			}
			if got := codes(p.data("hi\r\n")); got != "250" {
				t.Fatal(got)
			}
			for range 4 {
				p.cmd(command, "25")
			}
			p.send(command + "\r\n" + command + "\r\n")
			if got := p.got(); !strings.HasSuffix(got, "421 4.7.0 too many commands without a message, closing connection\r\n") {
				t.Errorf("%s: %q", command, got)
			}
			p.mustBeClosed()
		})
	}
}

// Strangers together never get the last quarter of a listener's connections, and relay clients find a place however
// many those try to have.
func TestSlotsAreKeptForRelayClients(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 20}}, func(t *testing.T, r *relay) {
		var strangers []*peer
		for i := range 20 {
			p := r.dial(fmt.Sprintf("198.51.%d.1", i))
			if i < 15 {
				p.expect("220")
				strangers = append(strangers, p)
				continue
			}
			p.expect("421 4.3.2 too many connections")
			p.mustBeClosed()
		}
		for i := range 8 { // the last ones in the place of strangers
			p := r.greeted()
			if got := codes(p.data("hi\r\n")); got != "250" {
				t.Errorf("relay client %d: %s", i, got)
			}
		}
		lost := 0
		for _, p := range strangers {
			if got := p.got(); got != "" {
				lost++
				if !strings.HasPrefix(got, "421 4.3.2 connections are scarce and others have fewer") {
					t.Errorf("a stranger hears %q", got)
				}
			}
		}
		if lost == 0 || lost > 5 {
			t.Errorf("%d strangers have lost their places", lost)
		}
	})
}

// One that takes all it can get, whoever it is, leaves room for the next one, which then gets as many as it has.
func TestSlotsAreShared(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, next string // addresses
		alone       int    // how many of 200 the first one gets
		each        int    // at least, of either when both try
	}{
		{"tenants", "198.51.100.1", "192.0.2.5", 150, 90},
		{"clients without a tenant", "203.0.113.1", "203.0.113.2", 150, 90},
		{"strangers", "100.64.1.1", "100.65.1.1", 133, 70},
		{"neighbours", "100.64.1.1", "100.64.1.2", 133, 65},
		{"strangers with many /64s of one /48", "2001:db9:1:%x::1", "2001:db9:2::1", 142, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ignored atomic.Int64
			cfg := manyTenants(t, &ignored)
			cfg.Intake.Tenant, cfg.Intake.TenantFieldFrom = "", nil
			cfg.Intake.TenantAt = func(a netip.Addr) string {
				return map[string]string{"198.51.100.1": "near", "192.0.2.5": "far"}[a.String()]
			}
			cfg.RelayFrom = append(cfg.RelayFrom, netip.MustParsePrefix("203.0.113.0/24"))
			cfg.Limits.Connections = 200
			withAuth(t, cfg, func(t *testing.T, r *relay) {
				try := func(address string, i int) bool {
					if strings.Contains(address, "%") {
						address = fmt.Sprintf(address, i)
					}
					return strings.HasPrefix(r.dial(address).expect(""), "220")
				}
				first := 0
				for i := range 300 {
					if try(c.first, i) {
						first++
					}
				}
				if first != c.alone {
					t.Errorf("alone: %d of 200, want %d", first, c.alone)
				}
				next := 0
				for i := range 200 {
					if try(c.next, i) {
						next++
					}
					try(c.first, i) // which tries to keep what it has
				}
				if next < c.each {
					t.Errorf("the next: %d of 200, want %d at least", next, c.each)
				}
				for i := range 5 { // and there is room for others still
					if !try(fmt.Sprintf("203.0.113.%d", 10+i), 0) {
						t.Errorf("%d more are here, and another one finds no place", i)
					}
				}
			})
		})
	}
}

// One that tries again and again ends no more of another's busy connections than it takes for both to have as many.
func TestNotAllBusyConnectionsEndForAnother(t *testing.T) {
	var ignored atomic.Int64
	cfg := manyTenants(t, &ignored)
	cfg.Intake.Tenant, cfg.Intake.TenantFieldFrom = "", nil
	cfg.Intake.TenantAt = func(a netip.Addr) string {
		return map[string]string{"198.51.100.1": "near", "192.0.2.5": "far"}[a.String()]
	}
	cfg.Limits.Connections = 40
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		var busy []*peer
		for range 30 {
			p := r.dial("198.51.100.1")
			p.expect("220")
			p.cmd("EHLO x", "250")
			p.cmd("MAIL FROM:<a@near.example>", "250")
			p.cmd("RCPT TO:<b@x.example>", "250")
			p.cmd("DATA", "354")
			busy = append(busy, p)
		}
		far := 0
		for range 60 {
			if strings.HasPrefix(r.dial("192.0.2.5").expect(""), "220") {
				far++
			}
		}
		ended := 0
		for _, p := range busy {
			p.send("Subject: x\r\n\r\nx\r\n.\r\n")
			got := p.got()
			if !strings.HasPrefix(got, "250") {
				t.Errorf("a message got %q", got)
			}
			if strings.Contains(got, "421") {
				ended++
			}
		}
		if ended == 0 || len(busy)-ended <= far {
			t.Errorf("of %d busy connections %d end for one that has %d", len(busy), ended, far)
		}
	})
}

// While slots are scarce, who has sent no mail must hurry, and those that were there before, too;
// a client that sends may be idle as ever.
func TestIdleClientsYieldScarceSlots(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 16}}, func(t *testing.T, r *relay) {
		sender := r.greeted()
		sender.data("hi\r\n")
		early := r.greeted()
		begun := r.dial("198.51.100.1")
		begun.expect("220")
		begun.cmd("EHLO x", "250")
		begun.cmd("MAIL FROM:<>", "250") // MAIL is taken from anybody, so it proves nothing
		time.Sleep(2 * time.Minute)
		early.mustBeOpen()
		begun.mustBeOpen()
		var busy []*peer
		for i := range 9 { // 12 of 16 are taken
			p := r.dial(fmt.Sprintf("198.51.100.%d", 2+i))
			p.expect("220")
			p.cmd("EHLO x", "250")
			busy = append(busy, p)
		}
		time.Sleep(11 * time.Second)
		for _, p := range append(busy, early, begun) {
			if got := p.got(); !strings.HasPrefix(got, "421 4.3.2 connections are scarce") {
				t.Errorf("an idle client hears %q", got)
			}
			p.mustBeClosed()
		}
		sender.cmd("NOOP", "250")
		late := r.greeted()
		time.Sleep(2 * time.Minute)
		late.mustBeOpen() // there is room again
	})
}

// A client that has had a recipient accepted is not hurried, however long it has been there and however
// scarce slots are.
func TestSendersAreNotHurried(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 4}}, func(t *testing.T, r *relay) {
		sender := r.greeted()
		for i := range 3 { // all senders, so that slots stay scarce
			r.greetedFrom(fmt.Sprintf("192.0.2.%d", 2+i)).data("hi\r\n")
		}
		for range 8 {
			if got := codes(sender.data("hi\r\n")); got != "250" {
				t.Fatal(got)
			}
			time.Sleep(crowdedIdle + time.Second)
		}
		sender.cmd("NOOP", "250")
	})
}

// A word now and then doesn't help.
func TestScarceSlotsAreNotKeptByTrickling(t *testing.T) {
	withRelay(t, Config{Limits: Limits{Connections: 4}}, func(t *testing.T, r *relay) {
		for range 2 {
			r.greeted().data("hi\r\n")
		}
		p := r.greeted()
		for range 7 {
			time.Sleep(9 * time.Second)
			if p.closed() {
				break
			}
			p.send("NOOP\r\n")
		}
		p.mustBeClosed()
		if got := p.got(); !strings.Contains(got, "421 4.3.2 connections are scarce") {
			t.Errorf("%q", got)
		}
	})
}
