package submission

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/submission/intake"
)

// exemptBurst is how many exempt messages a tenant can submit at once, and one a second after that.
const exemptBurst = 100

// A tenant's reports and postmasters' mail pass its limits and Admission up to a rate. Beyond that a client
// that claims to be a postmaster in every MAIL is held to both.
func TestExemptMailIsBounded(t *testing.T) {
	f := admitNone(intake.Refused{})
	limits := map[string]intake.QuotaLimits{"near": {Rate: gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}}}
	withQuotasAndAdmission(t, limits, f, func(t *testing.T, r *relay, b *intake.Quotas) {
		taken := func(client string, senders ...string) (n int) {
			t.Helper()
			p := r.secured(client)
			for i := range 3 * exemptBurst {
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
		if n := taken("198.51.100.1", "", "Postmaster@near.example"); n < exemptBurst || n > exemptBurst+5 {
			t.Errorf("%d messages of a tenant were exempt, want %d and hardly more", n, exemptBurst)
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
	withQuotasAndAdmission(t, map[string]intake.QuotaLimits{"far": {Messages: 1}}, admitNone(intake.Refused{}), func(t *testing.T, r *relay, b *intake.Quotas) {
		p := r.secured("192.0.2.1")
		submit := func(field, want string) {
			t.Helper()
			p.cmd("MAIL FROM:<>", "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			p.send(field + "Subject: x\r\n\r\nhi\r\n.\r\n")
			p.expect(want)
		}
		for range exemptBurst {
			submit("X-MTA-Tenant: far\r\n", "250")
		}
		submit("X-MTA-Tenant: far\r\n", "451 4.3.2")
		submit("X-MTA-Tenant: home\r\n", "250")
	})
}

// A stranger's MAIL is not put to Admission: it would count as the listener's tenant's, and displace mail
// that may come in.
func TestStrangersAreNotPutToAdmission(t *testing.T) {
	f := admitNone(intake.Refused{})
	cfg := Config{Intake: intake.Config{Admission: f, Tenant: "acme"}, RelayFrom: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
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
		if len(f.asked) != 0 {
			t.Errorf("Admission was asked %d times for strangers", len(f.asked))
		}
	})
}

// A command that is refused amid a transfer is written down while the message is looked at: by another goroutine,
// which must not see the client change.
func TestRefusalAmidChunks(t *testing.T) {
	withQuotas(t, nil, func(t *testing.T, r *relay, b *intake.Quotas) {
		p := r.secured("192.0.2.1")
		p.cmd("MAIL FROM:<>", "250")
		p.cmd("RCPT TO:<b@example.net>", "250")
		const header = "X-MTA-Tenant: home\r\n\r\n"
		p.send(fmt.Sprintf("BDAT %d\r\n%s", len(header), header) + "RCPT TO:<c@example.net>\r\nBDAT 0 LAST\r\n")
		if got := codes(p.got()); got != "250 503 250" {
			t.Errorf("replies %s", got)
		}
	})
}

// Mail that is large or has many recipients is not exempt, whether its client declares that or not: a tenant would fill
// the disk with it.
func TestLargeMailIsNotExempt(t *testing.T) {
	const over = "450 4.7.1 tenant near has its 524288 bytes in the queue"
	f := admitNone(intake.Refused{})
	withQuotasAndAdmission(t, map[string]intake.QuotaLimits{"near": {Octets: 1 << 19}, "far": {}}, f, func(t *testing.T, r *relay, b *intake.Quotas) {
		p := r.secured("198.51.100.1")
		send := func(mail string, recipients, octets int) string {
			t.Helper()
			p.cmd("MAIL FROM:"+mail, "250")
			for i := range recipients {
				p.cmd(fmt.Sprintf("RCPT TO:<b%d@example.net>", i), "250")
			}
			p.cmd("DATA", "354")
			p.send("Subject: x\r\n\r\n" + strings.Repeat(strings.Repeat("x", 62)+"\r\n", octets/64) + ".\r\n")
			return p.got()
		}
		p.cmd("MAIL FROM:<postmaster@near.example> SIZE=1048577", over)
		for _, c := range []struct {
			mail               string
			recipients, octets int
			want               string
		}{
			{"<>", 10, 1 << 19, "250"},
			{"<>", 1, 1<<20 + 1<<10, over},
			{"<postmaster@near.example> SIZE=100", 1, 1<<20 + 1<<10, over},
			{"<> SIZE=524288", 11, 1 << 19, over},
			{"<>", 10, 1 << 10, "250"},
		} {
			if got := send(c.mail, c.recipients, c.octets); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, %d recipients, %d octets: %s", c.mail, c.recipients, c.octets, got)
			}
		}
		if s := quotaState(t, b, "near"); s.Coming != (intake.QuotaUsage{}) {
			t.Errorf("after all: %+v", s)
		}
		p = r.secured("198.51.100.200") // a tenant without quotas, of which Admission takes nothing
		if got := send("<>", 11, 1<<10); !strings.HasPrefix(got, "451 4.3.2") {
			t.Errorf("beyond Admission: %s", got)
		}
		if got := send("<>", 1, 1<<10); !strings.HasPrefix(got, "250") {
			t.Errorf("a report: %s", got)
		}
	})
}
