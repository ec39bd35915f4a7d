package submission

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
)

// The fields of another mail server count for named networks and for users, and never leave the relay.
func TestForeignFields(t *testing.T) {
	const all = "X-Virtual-MTA: blue\r\nX-Job: spring sale\r\nx-envid:\r\n order-1\r\n"
	for name, c := range map[string]struct {
		client, user, mail, fields string
		want                       string // the reply to the content
		pool, campaign, envID      string
		ignored                    int64
	}{
		"network":              {"192.0.2.1", "", "", all, "250", "blue", "spring sale", "order-1", 0},
		"no fields":            {"192.0.2.1", "", "", "", "250", "", "", "", 0},
		"somebody else":        {"198.51.100.1", "", "", all, "250", "", "", "", 3},
		"user":                 {"203.0.113.1", "carl", "", all, "250", "blue", "spring sale", "order-1", 0},
		"tenant without right": {"203.0.113.1", "bob", "", all, "550 5.7.1 X-Virtual-MTA names blue", "", "", "", 0},
		"other case":           {"192.0.2.1", "", "", "X-Virtual-MTA: Blue\r\n", "250", "blue", "", "", 0},
		"unknown pool":         {"192.0.2.1", "", "", "X-Virtual-MTA: red\r\n", "550 5.7.1 X-Virtual-MTA names red", "", "", "", 0},
		"unknown, ignored":     {"198.51.100.1", "", "", "X-Virtual-MTA: red\r\n", "250", "", "", "", 1},
		"two pools":            {"192.0.2.1", "", "", "X-Virtual-MTA: blue\r\nX-Virtual-MTA: blue\r\n", "554 5.5.4 X-Virtual-MTA must name one pool", "", "", "", 0},
		"empty pool":           {"192.0.2.1", "", "", "X-Virtual-MTA:\r\n", "554 5.5.4 X-Virtual-MTA", "", "", "", 0},
		"ENVID before field":   {"192.0.2.1", "", " ENVID=own", "X-Envid: other\r\n", "250", "", "", "own", 0},
		"bad envelope id":      {"192.0.2.1", "", "", "X-Envid: " + strings.Repeat("x", 101) + "\r\n", "250", "", "", "", 0},
		"own campaign first":   {"192.0.2.1", "", "", "X-Job: a\r\nX-MTA-Campaign: b\r\n", "250", "", "b", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var ignored atomic.Int64
			cfg := authConfig(t)
			cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24")}
			cfg.Intake.Ignored = &ignored
			f := &cfg.Intake.Foreign
			f.Pool, f.Campaign, f.EnvID = "X-Virtual-MTA", "X-Job", "X-Envid"
			f.From = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25")}
			f.MayUsePool = func(tenant, pool string) bool { return tenant == "" && pool == "blue" }
			withAuth(t, cfg, func(t *testing.T, r *relay) {
				p := r.secured(c.client)
				if c.user != "" {
					p.cmd("AUTH PLAIN "+b64("\x00"+c.user+"\x00secret"), "235")
				}
				p.cmd("MAIL FROM:<a@acme.example>"+c.mail, "250")
				p.cmd("RCPT TO:<b@example.net>", "250")
				p.cmd("DATA", "354")
				p.send("From: a@acme.example\r\n" + c.fields + "Subject: x\r\n\r\nhi\r\n.\r\n")
				if got := p.expect(""); !strings.HasPrefix(got, c.want) {
					t.Errorf("content: %q, want %q", got, c.want)
				}
				if ignored.Load() != c.ignored {
					t.Errorf("%d fields are counted as ignored, want %d", ignored.Load(), c.ignored)
				}
				if c.want != "250" {
					return
				}
				m := r.store.one(t)
				if m.Pool != c.pool || m.Campaign != c.campaign || m.EnvID != c.envID {
					t.Errorf("stored with pool %q, campaign %q, id %q", m.Pool, m.Campaign, m.EnvID)
				}
				for _, gone := range []string{"x-virtual-mta", "x-job", "x-envid", "order-1"} {
					if strings.Contains(strings.ToLower(m.content), gone) {
						t.Errorf("%s goes out:\n%s", gone, m.content)
					}
				}
			})
		})
	}
}
