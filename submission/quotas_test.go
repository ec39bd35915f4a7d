package submission

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/submission/intake"
)

// withQuotas runs a test of the listener of manyTenants, whose tenants have limits.
func withQuotas(t *testing.T, limits map[string]intake.QuotaLimits, test func(*testing.T, *relay, *intake.Quotas)) {
	withQuotasAndAdmission(t, limits, nil, test)
}

func withQuotasAndAdmission(t *testing.T, limits map[string]intake.QuotaLimits, a intake.Admission, test func(*testing.T, *relay, *intake.Quotas)) {
	var ignored atomic.Int64
	cfg := manyTenants(t, &ignored)
	cfg.Intake.Admission = a
	queued := map[string]intake.QuotaUsage{"near": {Messages: 3, Octets: 3000}}
	cfg.Intake.Quotas = intake.NewQuotas(func(name string) (intake.QuotaLimits, bool) {
		_, known := cfg.Intake.TenantOf(name)
		return limits[name], known
	}, func(name string) intake.QuotaUsage { return queued[name] }, func() time.Time { return time.Now() })
	withAuth(t, cfg, func(t *testing.T, r *relay) { test(t, r, cfg.Intake.Quotas) })
}

func quotaState(t *testing.T, b *intake.Quotas, tenant string) intake.QuotaState {
	t.Helper()
	s, known := b.State(tenant)
	if !known {
		t.Fatalf("no tenant %s", tenant)
	}
	return s
}

// A tenant over a limit is refused at MAIL, with what to do, and reports and postmasters' mail are not.
func TestTenantsLimitsAtMail(t *testing.T) {
	hourly := gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}
	for name, c := range map[string]struct {
		limits intake.QuotaLimits
		want   string
	}{
		"rate":     {intake.QuotaLimits{Rate: hourly}, "450 4.7.1 tenant near may submit 1/h; try again in 3600 seconds"},
		"messages": {intake.QuotaLimits{Messages: 4}, "450 4.7.1 tenant near has its 4 messages in the queue; try again when some have left it"},
		"octets":   {intake.QuotaLimits{Octets: 3500}, "450 4.7.1 tenant near has its 3500 bytes in the queue, or would with this message; try again when some have left it"},
	} {
		t.Run(name, func(t *testing.T) {
			withQuotas(t, map[string]intake.QuotaLimits{"near": c.limits}, func(t *testing.T, r *relay, b *intake.Quotas) {
				first, second := r.secured("198.51.100.1"), r.secured("198.51.100.1")
				first.cmd("MAIL FROM:<a@near.example> SIZE=400", "250")
				second.cmd("MAIL FROM:<a@near.example> SIZE=400", c.want)
				second.cmd("MAIL FROM:<> SIZE=400", "250")
				second.cmd("RSET", "250")
				second.cmd("MAIL FROM:<Postmaster@near.example> SIZE=400", "250")
				second.cmd("RSET", "250")
				first.cmd("RSET", "250") // what is given up costs nothing
				second.cmd("MAIL FROM:<a@near.example> SIZE=400", "250")
				second.cmd("QUIT", "221")
				second.mustBeClosed()
				third := r.secured("198.51.100.200") // another tenant's
				third.cmd("MAIL FROM:<a@x.example> SIZE=400", "250")
				if s := quotaState(t, b, "near"); s.Coming.Messages != 0 || sum(s.Refused) != 1 {
					t.Errorf("after all: %+v", s)
				}
			})
		})
	}
}

func sum(counts [intake.QuotaReasons]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// The mail of a tenant that is named in the header is held to that tenant's limits, at the end of the header.
func TestTenantsLimitsByHeader(t *testing.T) {
	withQuotas(t, map[string]intake.QuotaLimits{"far": {Messages: 1}, "near": {Messages: 1}}, func(t *testing.T, r *relay, b *intake.Quotas) {
		p := r.secured("192.0.2.1") // in near's network, which is over its quota
		submit := func(field, want string) {
			t.Helper()
			p.cmd("MAIL FROM:<a@near.example>", "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			if s := quotaState(t, b, "near"); s.Coming.Messages != 0 {
				t.Errorf("near is charged before the header: %+v", s)
			}
			p.send(field + "Subject: x\r\n\r\nhi\r\n.\r\n")
			p.expect(want)
		}
		submit("X-MTA-Tenant: far\r\n", "250")
		submit("", "450 4.7.1 tenant near has its 1 messages in the queue")
		if s := quotaState(t, b, "far"); s.Coming.Messages != 0 || s.Connections != 0 {
			t.Errorf("far: %+v", s)
		}
	})
}

// By BDAT the claim ends with the message, too.
func TestTenantsLimitsByChunks(t *testing.T) {
	withQuotas(t, map[string]intake.QuotaLimits{"home": {Messages: 1}}, func(t *testing.T, r *relay, b *intake.Quotas) {
		p := r.secured("198.51.100.200")
		for range 2 { // the test's queue stays empty
			p.cmd("MAIL FROM:<a@x.example>", "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.send("BDAT 6 LAST\r\nA: b\r\n")
			p.expect("250")
		}
		if s := quotaState(t, b, "home"); s.Coming.Messages != 0 || sum(s.Refused) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// With over_quota = "lower" the mail is taken, in the last tier, whatever priority it asks for.
func TestOverQuotaLowersTheTier(t *testing.T) {
	withQuotas(t, map[string]intake.QuotaLimits{"near": {Messages: 3, Lower: true}}, func(t *testing.T, r *relay, b *intake.Quotas) {
		p := r.secured("198.51.100.1")
		p.cmd("MAIL FROM:<a@near.example>", "250")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.cmd("DATA", "354")
		p.send("MT-Priority: 6\r\nSubject: x\r\n\r\nhi\r\n.\r\n")
		p.expect("250")
		if m := r.store.one(t); m.Tier != 5 {
			t.Errorf("taken in tier %d, want 5", m.Tier)
		}
		if s := quotaState(t, b, "near"); sum(s.Lowered) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A tenant's connections are counted from the greeting or the login on, and never those of whoever can't send.
func TestTenantsConnections(t *testing.T) {
	limits := map[string]intake.QuotaLimits{"near": {Connections: 2}, "acme": {Connections: 1}}
	withQuotas(t, limits, func(t *testing.T, r *relay, b *intake.Quotas) {
		first, second := r.secured("198.51.100.1"), r.secured("198.51.100.1")
		third := r.dial("198.51.100.1")
		third.expect("421 4.7.1 too many connections of tenant near (2), close some")
		third.mustBeClosed()
		first.cmd("QUIT", "221")
		first.mustBeClosed()
		r.secured("198.51.100.1")
		second.cmd("AUTH PLAIN "+b64("\x00bob\x00secret"), "235") // who is of acme
		if near, acme := quotaState(t, b, "near"), quotaState(t, b, "acme"); near.Connections != 1 || acme.Connections != 1 {
			t.Errorf("near has %d, acme %d", near.Connections, acme.Connections)
		}
		other := r.secured("203.0.113.1")
		other.cmd("AUTH PLAIN "+b64("\x00bob\x00secret"), "421 4.7.1 too many connections of tenant acme (1), close some")
		other.mustBeClosed()
		second.cmd("QUIT", "221")
		second.mustBeClosed()
		if acme := quotaState(t, b, "acme"); acme.Connections != 0 || acme.Refused[intake.OverConnections] != 1 {
			t.Errorf("acme: %+v", acme)
		}
		stranger := r.secured("203.0.113.2") // the listener's tenant, but may not relay
		stranger.cmd("MAIL FROM:<a@x.example>", "")
		if home := quotaState(t, b, "home"); home.Connections != 0 || home.Coming.Messages != 0 {
			t.Errorf("a stranger counts: %+v", home)
		}
	})
}

// While connections are scarce, a tenant that has many gets no more, and another one does.
func TestTenantsShareOfConnections(t *testing.T) {
	var ignored atomic.Int64
	cfg := manyTenants(t, &ignored)
	cfg.Intake.Quotas = intake.NewQuotas(func(string) (intake.QuotaLimits, bool) { return intake.QuotaLimits{}, true },
		func(string) intake.QuotaUsage { return intake.QuotaUsage{} }, time.Now)
	cfg.Limits.Connections = 8
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		r.secured("198.51.100.200") // home's
		for i := range 5 {
			r.secured(fmt.Sprintf("198.51.100.%d", i)) // near's
		}
		got := r.dial("198.51.100.9").expect("")
		if !strings.HasPrefix(got, "421 4.7.1 connections are scarce and tenant near has its share of them, close some") {
			t.Errorf("near, with 5 of 8: %q", got)
		}
		r.dial("198.51.100.201").expect("220") // home's second
	})
}
