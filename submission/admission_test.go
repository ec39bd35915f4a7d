package submission

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

func TestAdmissionAtMail(t *testing.T) {
	f := &fakeAdmission{refuse: func(r intake.AdmitRequest) *intake.Refused {
		if r.Sender.Local() == "shed" {
			return &intake.Refused{}
		}
		return nil
	}}
	withRelay(t, Config{Intake: intake.Config{Tenant: "acme", Tier: 3, TierCeiling: 3, Admission: f}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org> SIZE=1234", "250")
		p.cmd("RSET", "250")
		p.cmd("MAIL FROM:<shed@example.org>", "451 4.3.2 this relay is overloaded")
		p.cmd("RCPT TO:<b@example.net>", "503")
		p.cmd("MAIL FROM:<shed@example.org>", "451")
		if got := p.data("MT-Priority: -5\r\n\r\nhi\r\n"); !strings.HasPrefix(got, "250") {
			t.Fatal(got)
		}
		p.cmd("MAIL FROM:<>", "250")
		p.cmd("RSET", "250")
		p.cmd("MAIL FROM:<Postmaster@example.org>", "250")
		p.cmd("RSET", "250")
		p.cmd("MAIL FROM:<c@example.org>", "250")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.conn.Close()
		want := intake.AdmitRequest{
			Session: f.asked[0].Session, Peer: netip.MustParseAddrPort("192.0.2.1:40000"), Network: netip.MustParsePrefix("192.0.2.1/32"),
			Sender: "a@example.org", Tenant: "acme", Tier: 3, Size: 1234,
		}
		if len(f.asked) != 5 || f.asked[0] != want || len(want.Session) != 13 {
			t.Errorf("asked %+v", f.asked)
		}
		if f.asked[1].Refused != 0 || f.asked[2].Refused != 1 || f.asked[3].Refused != 2 || f.asked[4].Refused != 0 {
			t.Errorf("refusals in a row are miscounted: %+v", f.asked)
		}
		if e := r.events.rejected[0]; e.Sender != envelope.Address("shed@example.org") || e.Reply.Command != "MAIL" || e.Reply.Code != 451 {
			t.Errorf("rejection %+v", e)
		}
		r.srv.Shutdown(t.Context())
		if len(f.committed) != 1 || f.committed[0] != 5 || f.dropped != 2 {
			t.Errorf("committed %v, dropped %d; want one of tier 5 and the two that ended without content", f.committed, f.dropped)
		}
	})
}

// A message whose header can lift it is asked for when that is known, and once.
func TestAdmissionByHeader(t *testing.T) {
	f := &fakeAdmission{refuse: func(r intake.AdmitRequest) *intake.Refused {
		if r.Tier > 1 {
			return &intake.Refused{}
		}
		return nil
	}}
	withRelay(t, Config{Intake: intake.Config{Tier: 3, TierCeiling: 1, Admission: f}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		message := func(content, want string) {
			t.Helper()
			if got := p.data(content); !strings.HasPrefix(got, want) {
				t.Errorf("%s: want %s", got, want)
			}
		}
		message("Subject: x\r\n\r\n"+strings.Repeat("hi\r\n", 100_000), "451 4.3.2")
		message("MT-Priority: 5\r\nX-MTA-Campaign: c\r\n\r\nhi\r\n", "250")
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.send("BDAT 12\r\nSubject: x\r\n")
		p.expect("250")
		p.send("BDAT 4 LAST\r\n\r\nhi")
		p.expect("451 4.3.2")
		if len(f.asked) != 3 || f.asked[1].Tier != 1 || f.asked[1].Campaign != "c" || f.asked[1].Recipient != "b@example.net" || f.asked[0].Tier != 3 {
			t.Errorf("asked %+v", f.asked)
		}
		if len(f.committed) != 1 || f.dropped != 0 {
			t.Errorf("committed %v, dropped %d", f.committed, f.dropped)
		}
	})
}

// A message that would wait for too long is refused before its content comes.
func TestAdmissionAtData(t *testing.T) {
	f := &fakeAdmission{full: &intake.Refused{}}
	withRelay(t, Config{Intake: intake.Config{Admission: f}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.cmd("DATA", "451 4.3.2")
		f.full = nil
		p.cmd("DATA", "354")
		p.cmd("hi\r\n.", "250")
		if e := r.events.rejected; len(e) != 1 || e[0].Reply.Command != "DATA" {
			t.Errorf("rejections %+v", e)
		}
		if len(f.asked) != 1 || len(f.committed) != 1 {
			t.Errorf("asked %d times, committed %d", len(f.asked), len(f.committed))
		}
	})
}

func TestAdmissionInLine(t *testing.T) {
	f := &fakeAdmission{line: &intake.Refused{}}
	withRelay(t, Config{Intake: intake.Config{Admission: f}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		if got := p.data("hi\r\n"); !strings.HasPrefix(got, "451 4.3.2") {
			t.Error(got)
		}
		if n := len(r.store.all(t)); n != 0 {
			t.Errorf("%d messages are stored", n)
		}
	})
}

// A client that is kept waiting has got all earlier replies, and does not keep the relay from
// shutting down.
func TestAdmissionHolds(t *testing.T) {
	var ended bool
	f := admitNone(intake.Refused{Hold: func(ctx context.Context) { <-ctx.Done(); ended = true }})
	withRelay(t, Config{Intake: intake.Config{Admission: f}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.send("NOOP\r\nMAIL FROM:<a@example.org>\r\n")
		p.expect("250")
		time.Sleep(time.Second)
		if ended {
			t.Fatal("it is not kept waiting")
		}
		go r.srv.Shutdown(t.Context())
		if got := p.got(); !strings.HasPrefix(got, "451 4.3.2") {
			t.Error(got)
		}
		if !ended {
			t.Error("it got its reply too early")
		}
	})
}

func TestAdmissionReplies(t *testing.T) {
	for want, r := range map[string]intake.Refused{"452 4.3.1": {Disk: true}, "451 4.3.2": {}, "421 4.3.2": {Close: true}} {
		withRelay(t, Config{Intake: intake.Config{Admission: admitNone(r)}}, func(t *testing.T, r *relay) {
			r.greeted().cmd("MAIL FROM:<a@example.org>", want)
		})
	}
}

// A client that gives up its chunks and goes on at once meets nothing of them.
func TestChunksGivenUpAreOver(t *testing.T) {
	f := admitNone(intake.Refused{})
	withRelay(t, Config{Intake: intake.Config{Tier: 3, TierCeiling: 1, Admission: f}}, func(t *testing.T, r *relay) {
		for range 20 {
			p := r.greeted()
			p.envelope()
			const header = "Subject: x\r\n\r\nhi\r\n"
			p.send(fmt.Sprintf("BDAT %d\r\n%sRSET\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\nDATA\r\n%s.\r\nQUIT\r\n", len(header), header, header))
			p.mustBeClosed()
		}
		if len(f.asked) < 20 {
			t.Errorf("Admission was asked %d times", len(f.asked))
		}
	})
}
