package submission

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/submission/quota"
)

// A tenant's reports and postmasters' mail pass its limits and Admission up to a rate. Beyond that a client
// that claims to be a postmaster in every MAIL is held to both.
func TestExemptMailIsBounded(t *testing.T) {
	f := admitNone(Refused{})
	limits := map[string]quota.Limits{"near": {Rate: gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}}}
	withQuotas(t, limits, func(t *testing.T, r *relay, b *quota.Book) {
		r.srv.cfg.Admission = f
		taken := func(client string, senders ...string) (n int) {
			t.Helper()
			p := r.secured(client)
			for i := range 3 * exemptRate.Burst {
				p.send("MAIL FROM:<" + senders[i%len(senders)] + ">\r\n")
				if !strings.HasPrefix(p.got(), "250") {
					continue
				}
				n++
				p.cmd("RSET", "250")
				if i%50 == 0 { // within the limits of a session
					p = r.secured(client)
				}
			}
			return n
		}
		if n := taken("198.51.100.1", "", "Postmaster@near.example"); n < exemptRate.Burst || n > exemptRate.Burst+5 {
			t.Errorf("%d messages of a tenant were exempt, want %d and hardly more", n, exemptRate.Burst)
		}
		r.secured("198.51.100.200").cmd("MAIL FROM:<>", "250") // another tenant has its own
		time.Sleep(time.Minute)
		if n := taken("198.51.100.1", "postmaster@near.example"); n < 60 || n > 65 {
			t.Errorf("%d messages were exempt after a minute, want 60", n)
		}
	})
}

// What a tenant that is named in the header has used up is its own.
func TestExemptMailByHeader(t *testing.T) {
	withQuotas(t, map[string]quota.Limits{"far": {Messages: 1}}, func(t *testing.T, r *relay, b *quota.Book) {
		r.srv.cfg.Admission = &fakeAdmission{refuse: func(r AdmitRequest) *Refused {
			return &Refused{}
		}}
		for range exemptRate.Burst {
			r.srv.exempted.take(r.srv.cfg.Now(), "far")
		}
		p := r.secured("192.0.2.1")
		submit := func(field, want string) {
			t.Helper()
			p.cmd("MAIL FROM:<>", "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			p.send(field + "Subject: x\r\n\r\nhi\r\n.\r\n")
			p.expect(want)
		}
		submit("X-MTA-Tenant: far\r\n", "451 4.3.2")
		submit("X-MTA-Tenant: home\r\n", "250")
	})
}

// The exemptions come back after a clock was set back, and the tenants that need none are forgotten.
func TestExemptionsKeep(t *testing.T) {
	var e exemptions
	now := time.Unix(1e9, 0)
	for range exemptRate.Burst {
		e.take(now, "a")
	}
	if e.take(now, "a") || !e.take(now.Add(-24*time.Hour), "a") {
		t.Error("after a clock was set back a tenant has no exemption")
	}
	for i := range 3 * maxPaces {
		e.take(now.Add(time.Duration(i)*time.Minute), strings.Repeat("x", i))
	}
	if len(e.paces) > maxPaces {
		t.Errorf("%d tenants are kept", len(e.paces))
	}
}

// A stranger's MAIL is not put to Admission: it would count as the listener's tenant's, and displace mail
// that may come in.
func TestStrangersAreNotPutToAdmission(t *testing.T) {
	f := admitNone(Refused{})
	cfg := Config{Admission: f, RelayFrom: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Tenant: "acme"}
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		p.cmd("EHLO app.example.org", "250")
		for _, sender := range slices.Repeat([]string{"a@example.org", ""}, 20) {
			p.cmd("MAIL FROM:<"+sender+">", "250")
			p.cmd("RCPT TO:<b@example.net>", "550")
			p.cmd("RSET", "250")
			if p = r.dial("192.0.2.1"); true {
				p.expect("220")
				p.cmd("EHLO app.example.org", "250")
			}
		}
		if len(f.asked) != 0 || len(r.srv.exempted.paces) != 0 {
			t.Errorf("Admission was asked %d times for strangers; exemptions: %d", len(f.asked), len(r.srv.exempted.paces))
		}
	})
}
