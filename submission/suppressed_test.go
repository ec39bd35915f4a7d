package submission

import (
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// A recipient on the suppression list is refused with why, and what lifts it; the others of the
// transaction are taken, and so are reports.
func TestT3_SuppressedRecipientIsRefused(t *testing.T) {
	asked := 0
	cfg := Config{Intake: intake.Config{Tenant: "acme", Recipients: intake.Recipients{Suppressed: func(tenant string, a envelope.Address) (string, bool) {
		if asked++; tenant != "acme" {
			t.Errorf("asked for tenant %q", tenant)
		}
		return "since 2026-11-21: 550 5.1.1 no such\r\nuser «x»" + strings.Repeat("y", 600), strings.Contains(string(a), "gone")
	}}}}
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		got := p.cmd("RCPT TO:<gone@example.net>", "550 5.1.1 ")
		if !strings.Contains(got, "suppressed (since 2026-11-21: 550 5.1.1 no such  user  x y") || !strings.HasSuffix(got, "mta suppress remove gone@example.net\r\n") || len(got) > 512 {
			t.Errorf("%d octets: %q", len(got), got)
		}
		if got := p.cmd(`RCPT TO:<"gone; rm"@example.net>`, "550 5.1.1 "); !strings.HasSuffix(got, "mta suppress remove ADDRESS\r\n") {
			t.Errorf("%q", got)
		}
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.cmd("DATA", "354")
		p.send("Subject: x\r\n\r\n.\r\n")
		p.expect("250")
		if m := r.store.one(t); len(m.Recipients) != 1 || m.Recipients[0].Address != "b@example.net" {
			t.Errorf("stored for %v", m.Recipients)
		}
		before := asked
		p.cmd("MAIL FROM:<>", "250")
		p.cmd("RCPT TO:<gone@example.net>", "250")
		if asked != before {
			t.Error("the list was asked about the recipient of a report")
		}
	})
	withRelay(t, Config{Intake: intake.Config{Recipients: cfg.Intake.Recipients}}, func(t *testing.T, r *relay) { // strangers learn nothing of the list
		p := r.dial("203.0.113.9")
		p.expect("220")
		before := asked
		p.cmd("EHLO x.example", "250")
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd("RCPT TO:<gone@example.net>", "550 5.7.1")
		if asked != before {
			t.Error("the list was asked for somebody who may not relay")
		}
	})
}
