package submission

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// manyTenants is a listener of tenant "home". "near" has the network 192.0.2.0/25, and clients in
// 192.0.2.0/24 may name tenants.
func manyTenants(t *testing.T, ignored *atomic.Int64) Config {
	cfg := authConfig(t)
	cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24")}
	cfg.Intake.Tenant, cfg.Intake.Tier, cfg.Intake.Ignored = "home", 4, ignored
	cfg.Intake.TenantFieldFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	cfg.Intake.TenantAt = func(a netip.Addr) string {
		if netip.MustParsePrefix("192.0.2.0/25").Contains(a) || netip.MustParsePrefix("198.51.100.0/25").Contains(a) {
			return "near"
		}
		return ""
	}
	cfg.Intake.TenantOf = func(name string) (intake.Tenant, bool) {
		all := map[string]intake.Tenant{
			"home": {Tier: 3}, "near": {Tier: 1, Senders: auth.Senders{"near.example"}},
			"acme": {Tier: 2, Senders: auth.Senders{"acme.example"}}, "far": {Tier: 5},
		}
		found, ok := all[name]
		return found, ok
	}
	return cfg
}

// The tenant is the user's, else that of the field, else that of the network, else the listener's.
func TestTenantOfAMessage(t *testing.T) {
	const field = "X-MTA-Tenant: far\r\n"
	for name, c := range map[string]struct {
		client, user, sender, fields string
		want                         string // the tenant, or the reply
		ignored                      int64
	}{
		"listener":                        {"198.51.100.200", "", "a@x.example", "", "home", 0},
		"network":                         {"198.51.100.1", "", "a@near.example", "", "near", 0},
		"network's senders":               {"198.51.100.1", "", "a@x.example", "", "550 5.7.1 you may not send as a@x.example", 0},
		"field before network":            {"192.0.2.1", "", "a@x.example", field, "far", 0},
		"no field where one is taken":     {"192.0.2.1", "", "a@near.example", "", "near", 0},
		"network's senders without field": {"192.0.2.1", "", "a@x.example", "", "550 5.7.1 you may not send as a@x.example", 0},
		"field's senders":                 {"192.0.2.1", "", "a@near.example", "X-MTA-Tenant: acme\r\n", "550 5.7.1 you may not send as a@near.example", 0},
		"field in pieces":                 {"192.0.2.200", "", "a@x.example", "x-mta-tenant:\r\n\tfar\r\n", "far", 0},
		"unknown tenant":                  {"192.0.2.1", "", "a@x.example", "X-MTA-Tenant: fra\r\n", "550 5.7.1 X-MTA-Tenant names fra", 0},
		"empty field":                     {"192.0.2.1", "", "a@x.example", "X-MTA-Tenant:\r\n", "554 5.5.4 X-MTA-Tenant", 0},
		"two fields":                      {"192.0.2.1", "", "a@x.example", field + field, "554 5.5.4 X-MTA-Tenant", 0},
		"field of somebody else":          {"198.51.100.1", "", "a@near.example", field, "near", 1},
		"user before field":               {"192.0.2.1", "bob", "a@acme.example", field, "acme", 1},
		"user without a tenant":           {"192.0.2.1", "carl", "a@x.example", field, "far", 0},
		"user from anywhere":              {"203.0.113.1", "carl", "a@x.example", field, "home", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var ignored atomic.Int64
			withAuth(t, manyTenants(t, &ignored), func(t *testing.T, r *relay) {
				p := r.secured(c.client)
				if c.user != "" {
					p.cmd("AUTH PLAIN "+b64("\x00"+c.user+"\x00secret"), "235")
				}
				if got := p.cmd("MAIL FROM:<"+c.sender+">", ""); !strings.HasPrefix(got, "250") {
					if !strings.HasPrefix(got, c.want) {
						t.Errorf("MAIL: %q, want %q", got, c.want)
					}
					return
				}
				p.cmd("RCPT TO:<b@example.net>", "250")
				p.cmd("DATA", "354")
				p.send("From: " + c.sender + "\r\n" + c.fields + "Subject: x\r\n\r\nhi\r\n.\r\n")
				got := p.expect("")
				if ignored.Load() != c.ignored {
					t.Errorf("%d fields are counted as ignored, want %d", ignored.Load(), c.ignored)
				}
				if !strings.HasPrefix(got, "250") {
					if !strings.HasPrefix(got, c.want) {
						t.Errorf("content: %q, want %q", got, c.want)
					}
					return
				}
				m := r.store.one(t)
				tiers := map[string]uint8{"home": 3, "near": 1, "acme": 2, "far": 5}
				if m.Tenant != c.want || m.Tier != tiers[c.want] || m.User != c.user {
					t.Errorf("stored for tenant %q and user %q in tier %d, want %q", m.Tenant, m.User, m.Tier, c.want)
				}
				if strings.Contains(strings.ToLower(m.content), "x-mta-tenant") {
					t.Errorf("the field goes out:\n%s", m.content)
				}
			})
		})
	}
}

// With CheckFrom the authors are held to the senders of tenant and user, however From is written.
func TestAuthorsAreHeldToSenders(t *testing.T) {
	cfg := authConfig(t)
	cfg.Intake.CheckFrom = true
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		for _, c := range []struct{ user, from, want string }{
			{"ann", "From: a@acme.example\r\n", "250"},
			{"ann", "From: Ann <A@ACME.example>,\r\n \"b, c\" <b@acme.example>\r\n", "250"},
			{"ann", "from : =?iso-2022-jp?B?GyRCJCIbKEI=?= <a@acme.example>\r\n", "250"},
			{"ann", "From: a@other.example\r\n", "550 5.7.1 you may not send as a@other.example"},
			{"ann", "From: news@b.example\r\n", "550 5.7.1"}, // the tenant's, not the user's
			{"bob", "From: news@b.example\r\n", "250"},
			{"bob", "From: \"a@acme.example\" <x@other.example>\r\n", "550 5.7.1"},
			{"bob", "From: a@acme.example, x@other.example\r\n", "550 5.7.1 you may not send as x@other.example"},
			{"bob", "From: a@acme.example\r\nFrom: x@other.example\r\n", "550 5.7.1 message must have one From"},
			{"bob", "From: a@acme.example\r\nSubject: x\r\nFROM: a@acme.example\r\n", "550 5.7.1 message must have one From"},
			{"bob", "From: x@other.example <a@acme.example\r\n", "550 5.7.1 message must have one From"},
			{"bob", "From: nobody:;\r\n", "550 5.7.1 message must have one From"},
			{"bob", "Subject: x\r\n", "550 5.7.1 message must have one From"},
			{"carl", "Subject: x\r\n", "250"},
			{"carl", "From: anybody@other.example\r\n", "250"},
		} {
			p := r.secured("192.0.2.1")
			p.cmd("AUTH PLAIN "+b64("\x00"+c.user+"\x00secret"), "235")
			p.cmd("MAIL FROM:<>", "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			p.send(c.from + "\r\nFrom: x@other.example in the body\r\n.\r\n")
			if got := p.expect(""); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, %q: %q, want %q", c.user, c.from, got, c.want)
			}
			p.cmd("QUIT", "221")
		}
	})
}
