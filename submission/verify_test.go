package submission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// directory is a Verifier: no.example does not exist, slow.example takes five seconds to say so,
// later.example is trouble that may pass, and the rest takes mail.
type directory struct {
	asked []string
	kept  time.Duration // that slow.example has had callers wait
}

func (d *directory) Verify(ctx context.Context, domain string) *reply.Reply {
	d.asked = append(d.asked, domain)
	refuse := reply.Local(550, reply.Enhanced{5, 1, 2}, "route", "the domain %s does not exist", domain)
	switch {
	case domain == "no.example":
		return &refuse
	case domain == "later.example":
		refuse.Code = 451
		return &refuse
	case strings.HasSuffix(domain, "slow.example"):
		defer func(began time.Time) { d.kept += time.Since(began) }(time.Now())
		select {
		case <-time.After(5 * time.Second):
			return &refuse
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func TestRecipientsAreVerified(t *testing.T) {
	d := new(directory)
	withRelay(t, Config{Intake: intake.Config{Recipients: intake.Recipients{Verify: true, Verifier: d}}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd("RCPT TO:<b@no.example>", "550 5.1.2 the domain no.example does not exist")
		p.cmd("RCPT TO:<b@later.example>", "250")
		p.cmd("RCPT TO:<b@EXAMPLE.net>", "250")
		if got := strings.Join(d.asked, " "); got != "no.example later.example example.net" {
			t.Errorf("asked about %s", got)
		}
		if len(r.events.rejected) != 1 || r.events.rejected[0].Recipient != "b@no.example" {
			t.Errorf("told of %+v", r.events.rejected)
		}
		if s := r.dial("198.51.100.1"); s != nil { // who may not relay asks nothing
			s.expect("220 ")
			s.cmd("EHLO stranger.example", "250")
			s.cmd("MAIL FROM:<a@example.org>", "250")
			s.cmd("RCPT TO:<b@example.com>", "550 5.7.1")
			if len(d.asked) != 3 {
				t.Errorf("a stranger made the relay ask about %v", d.asked[3:])
			}
		}
	})
}

// A client is kept waiting for 2 s for an answer, and for 10 s for those of a transaction.
func TestVerificationHasAnEnd(t *testing.T) {
	d := new(directory)
	withRelay(t, Config{Intake: intake.Config{Recipients: intake.Recipients{Verify: true, Verifier: d}}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		for range 2 { // a new transaction has new patience
			p.cmd("MAIL FROM:<a@example.org>", "250")
			d.kept = 0
			began := time.Now()
			for i := range 20 {
				p.send(fmt.Sprintf("RCPT TO:<b@%d.slow.example>\r\n", i))
				time.Sleep(2 * time.Second)
				p.expect("250")
				if i == 0 && time.Since(began) != 2*time.Second {
					t.Errorf("the first took %v", time.Since(began))
				}
			}
			if kept := d.kept; kept < 10*time.Second || kept > 10*time.Second+time.Millisecond {
				t.Errorf("20 silent domains kept the client waiting for %v, want 10 s", kept)
			}
			p.cmd("RSET", "250")
		}
	})
}

func TestVerificationIsOffByDefault(t *testing.T) {
	d := new(directory)
	withRelay(t, Config{Intake: intake.Config{Recipients: intake.Recipients{Verifier: d}}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd("RCPT TO:<b@no.example>", "250")
		if len(d.asked) > 0 {
			t.Errorf("asked about %v", d.asked)
		}
	})
}
