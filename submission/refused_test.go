package submission

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// noted makes a listener collect its refusals, as "address reason". A test reads them between commands.
func noted(cfg Config) (Config, *[]string) {
	var lines []string
	cfg.Refused = func(client netip.Addr, why intake.Intrusion) {
		lines = append(lines, client.String()+" "+string(why))
	}
	return cfg, &lines
}

// relay asks to relay without a login.
func (p *peer) relay() {
	p.expect("220")
	p.cmd("EHLO app.example.org", "250")
	p.cmd("MAIL FROM:<a@acme.example>", "250")
	p.cmd("RCPT TO:<b@example.net>", "530")
	p.cmd("QUIT", "221")
}

// babble talks no SMTP.
func (p *peer) babble() {
	p.expect("220")
	p.send("\x16\x03\x01\r\n")
	p.mustBeClosed()
}

// TestMistakesBesideUsersAreNoAttacks: an address from where a user logs in is blocked for guessed passwords only, and one
// from where too many passwords were wrong is a stranger's again.
func TestMistakesBesideUsersAreNoAttacks(t *testing.T) {
	cfg, lines := noted(authConfig(t))
	cfg.Limits.ConnectionsPerClient = 1
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		want := func(what string, want ...string) {
			t.Helper()
			if !slices.Equal(*lines, want) {
				t.Errorf("%s: %q, want %q", what, *lines, want)
			}
			*lines = nil
		}
		crowd := func(addr string) {
			held := r.dial(addr)
			held.expect("220")
			r.dial(addr).expect("421")
			held.cmd("QUIT", "221")
		}
		r.dial("198.51.100.1").relay()
		r.dial("198.51.100.1").babble()
		crowd("198.51.100.1")
		want("a stranger", "198.51.100.1 relay", "198.51.100.1 protocol", "198.51.100.1 connections")

		user := r.secured("198.51.100.1")
		user.cmd("AUTH PLAIN "+b64("\x00ann\x00secret"), "235")
		user.cmd("QUIT", "221")
		r.dial("198.51.100.1").relay()
		r.dial("198.51.100.1").babble()
		crowd("198.51.100.1")
		want("beside a user")

		for range 2 {
			guesser := r.secured("198.51.100.1")
			for range 3 {
				guesser.send("AUTH PLAIN " + b64("\x00ann\x00guess") + "\r\n")
				time.Sleep(time.Minute) // failures are answered late
			}
			guesser.mustBeClosed()
		}
		if !slices.Contains(*lines, "198.51.100.1 login") {
			t.Errorf("guesses beside a user: %q", *lines)
		}
		*lines = nil
		r.dial("198.51.100.1").relay()
		r.dial("198.51.100.1").babble()
		want("after guesses", "198.51.100.1 relay", "198.51.100.1 protocol")
	})
}

// TestProxiesAreNoAttackers: whoever blocked the address of a proxy would block everybody behind it.
func TestProxiesAreNoAttackers(t *testing.T) {
	cfg, lines := noted(authConfig(t))
	cfg.ProxyFrom = proxied.ProxyFrom
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		r.dialProxy("PROXY UNKNOWN\r\n").relay()
		r.dialProxy("PROXY UNKNOWN\r\n").babble()
		r.dialProxy("GET / HTTP/1.1\r\n").mustBeClosed()
		if len(*lines) > 0 {
			t.Errorf("the proxy is an attacker: %q", *lines)
		}
		r.dialProxy(proxyHeader(1, "198.51.100.1:4711")).relay()
		r.dialProxy(proxyHeader(1, "198.51.100.1:4711")).babble()
		if want := []string{"198.51.100.1 relay", "198.51.100.1 protocol"}; !slices.Equal(*lines, want) {
			t.Errorf("the proxy's client: %q, want %q", *lines, want)
		}
	})
}

// TestBouncesToForgedAddressesAreNoAttack: a host that returns mail with a forged sender has many recipients refused, and
// brings bounces and complaints as well.
func TestBouncesToForgedAddressesAreNoAttack(t *testing.T) {
	cfg, lines := noted(Config{})
	withMailroom(t, cfg, func(t *testing.T, r *relay, _ *mailroom) {
		p := r.stranger()
		p.cmd("MAIL FROM:<>", "250")
		for range 19 {
			p.cmd("RCPT TO:<b-forged@b.example.com>", "550")
		}
		p.send("RCPT TO:<b-forged@b.example.com>\r\n")
		p.mustBeClosed()
		if len(*lines) > 0 {
			t.Errorf("refused as an attacker: %q", *lines)
		}
		p = r.stranger()
		p.cmd("MAIL FROM:<>", "250")
		p.cmd("RCPT TO:<b@example.net>", "550")
		if want := []string{strangersAddress + " relay"}; !slices.Equal(*lines, want) {
			t.Errorf("mail for elsewhere: %q, want %q", *lines, want)
		}
	})
}

// TestWhoeverHasNoTurnIsNoGuesser: while others guess a user's password in the same region, the user is put off at
// another address.
func TestWhoeverHasNoTurnIsNoGuesser(t *testing.T) {
	cfg, lines := noted(authConfig(t))
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		var guessing sync.WaitGroup
		for i := range 40 {
			network := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + i)}), 32)
			guessing.Go(func() {
				_, _ = cfg.Auth.Password(t.Context(), auth.Client{Network: network}, "ann", "guess")
			})
		}
		p := r.secured("198.51.100.1")
		synctest.Wait()
		p.send("AUTH PLAIN " + b64("\x00ann\x00secret") + "\r\n")
		guessing.Wait()
		time.Sleep(time.Minute)
		p.expect("454")
		if len(*lines) > 0 {
			t.Errorf("the user is an attacker: %q", *lines)
		}
	})
}
