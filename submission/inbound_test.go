package submission

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/submission/intake"
)

// mailroom is an Inbound with the domains b.example.com and bücher.example.
type mailroom struct {
	mu    sync.Mutex
	taken []Arrival
	err   error
}

func (m *mailroom) Recipient(a envelope.Address) Verdict {
	if d := a.Domain(); d != "b.example.com" && d != "xn--bcher-kva.example" {
		return Foreign
	}
	switch strings.ToLower(a.Local()) {
	case "b-good", "fbl", "postmaster":
		return Taken
	case "b-old":
		return Expired
	}
	return Unknown
}

func (m *mailroom) Postmaster() envelope.Address { return "postmaster@b.example.com" }

func (m *mailroom) Take(_ context.Context, a *Arrival) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	copied := *a
	copied.Content = append([]byte(nil), a.Content...)
	m.taken = append(m.taken, copied)
	return m.err
}

// withMailroom is withRelay for a listener with a mailroom. Its strangers connect from 198.51.100.1.
func withMailroom(t *testing.T, cfg Config, f func(t *testing.T, r *relay, room *mailroom)) {
	t.Helper()
	room := new(mailroom)
	cfg.Inbound = room
	withRelay(t, cfg, func(t *testing.T, r *relay) { f(t, r, room) })
}

const strangersAddress = "198.51.100.1"

func (r *relay) stranger() *peer {
	r.t.Helper()
	p := r.dial(strangersAddress)
	p.expect("220 ")
	p.cmd("EHLO mx.example.org", "250")
	return p
}

func TestStrangersMailIsTakenAndNothingIsRelayed(t *testing.T) {
	withMailroom(t, Config{}, func(t *testing.T, r *relay, room *mailroom) {
		p := r.stranger()
		p.cmd("MAIL FROM:<>", "250")
		p.cmd("RCPT TO:<B-Good@B.Example.Com>", "250 2.1.5")
		p.cmd("DATA", "354")
		p.send("Subject: x\n\x00 bare LF and NUL\r\n..dot\r\n.\r\n")
		p.expect("250 2.0.0 taken")
		if len(room.taken) != 1 || len(r.store.all(t)) != 0 {
			t.Fatalf("taken %d, queued %d", len(room.taken), len(r.store.all(t)))
		}
		got := room.taken[0]
		if want := "Subject: x\n\x00 bare LF and NUL\r\n.dot\r\n"; string(got.Content) != want || !got.Whole() {
			t.Errorf("content %q, want %q", got.Content, want)
		}
		if got.Sender != "" || got.Recipients[0] != "B-Good@B.Example.Com" || got.Peer.Addr() != netip.MustParseAddr(strangersAddress) || got.Helo != "mx.example.org" || got.Time.IsZero() {
			t.Errorf("arrival %+v", got)
		}
		// Twice on one connection, and by BDAT.
		p.cmd("MAIL FROM:<x@example.org>", "250")
		p.cmd("RCPT TO:<fbl@b.example.com>", "250")
		p.send("BDAT 4\r\na\r\nbBDAT 3 LAST\r\nc\r\n")
		if got := p.got(); codes(got) != "250 250" {
			t.Fatalf("BDAT: %q", got)
		}
		if got := room.taken[1]; string(got.Content) != "a\r\nbc\r\n" || got.Sender != "x@example.org" {
			t.Errorf("by BDAT %+v", got)
		}
	})
}

// Each line is a try to have a stranger's mail relayed, or taken for an address that there is not.
func TestInboundIsNoOpenRelay(t *testing.T) {
	withMailroom(t, Config{Postmaster: "postmaster@corp.example"}, func(t *testing.T, r *relay, room *mailroom) {
		for rcpt, want := range map[string]string{
			"<victim@example.net>":                      "550 5.7.1 relaying denied",
			"<@b.example.com:victim@example.net>":       "550 5.7.1",
			"<@b.example.com,@x.example:v@example.net>": "550 5.7.1",
			"<victim%example.net@b.example.com>":        "550 5.1.1 there is no such address",
			"<example.net!victim@b.example.com>":        "550 5.1.1",
			`<"victim@example.net"@b.example.com>`:      "550 5.1.1",
			`<"b-good@b.example.com"@example.net>`:      "550 5.7.1",
			`<"b-good@b.example.com>,<v"@example.net>`:  "550 5.7.1",
			"<b-good@b.example.com.example.net>":        "550 5.7.1",
			"<b-good@xb.example.com>":                   "550 5.7.1",
			"<b-good@[192.0.2.250]>":                    "550 5.7.1",
			"<b-good@relay.example.com>":                "550 5.7.1",
			"<b-good@b.example.com@example.net>":        "501 5.1.3",
			"<b-good@example.net,b.example.com>":        "501 5.1.3",
			"<b-forged@b.example.com>":                  "550 5.1.1 there is no such address",
			"<b-old@b.example.com>":                     "550 5.1.1 this return path has expired",
			"<victim@b.example.com>":                    "550 5.1.1",
			"<b-good@b\u3002example\u3002com.evil.net>": "550 5.7.1",
			"<b-good@\uff42.example.com>":               "250", // full-width b: IDNA maps it
			"<b-good@b.example.com.>":                   "250",
			`<"b-good"@b.example.com>`:                  "250",
			`<"b\-good"@b.example.com>`:                 "250",
			"<@example.net:b-good@b.example.com>":       "250",
			"<postmaster>":                              "250",
			"<b-good@XN--BCHER-KVA.example>":            "250",
		} {
			p := r.stranger()
			p.cmd("MAIL FROM:<>", "250")
			p.cmd("RCPT TO:"+rcpt, want)
			p.cmd("RCPT TO:<victim@example.net>", "550 5.7.1")
			p.conn.Close()
		}
		p := r.stranger()
		p.cmd("MAIL FROM:<> SMTPUTF8", "250")
		p.cmd("RCPT TO:<fbl@bücher.example>", "250")
		p.cmd("RCPT TO:<fbl@bücher.example.net>", "550 5.7.1")
		p.cmd("XCLIENT ADDR=192.0.2.1", "500")
		p.cmd("DATA", "354")
		p.send("x\r\n.\r\n")
		p.expect("250 2.0.0 taken")
		if got := room.taken; len(got) != 1 || len(got[0].Recipients) != 1 {
			t.Errorf("taken %+v", got)
		}
		if n := len(r.store.all(t)); n != 0 {
			t.Errorf("%d messages were queued", n)
		}
	})
}

// A transaction is either relayed or taken: a client that may do both is told to send the rest apart.
func TestRecipientsElsewhereNeedAnotherTransaction(t *testing.T) {
	withMailroom(t, Config{}, func(t *testing.T, r *relay, room *mailroom) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd("RCPT TO:<b-forged@b.example.com>", "550 5.1.1")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.cmd("RCPT TO:<b-good@b.example.com>", "452 4.5.3 send this recipient in another transaction")
		p.cmd("DATA", "354")
		p.send("x\r\n.\r\n")
		p.expect("250 2.0.0 queued as")
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd("RCPT TO:<b-good@b.example.com>", "250")
		p.cmd("RCPT TO:<b@example.net>", "452 4.5.3")
		p.cmd("RSET", "250")
		p.envelope() // nothing is left of it
		p.cmd("RSET", "250")
		if len(room.taken) != 0 || len(r.store.all(t)) != 1 {
			t.Errorf("taken %d, queued %d", len(room.taken), len(r.store.all(t)))
		}
	})
}

func TestInboundRecipientsAreBounded(t *testing.T) {
	withMailroom(t, Config{}, func(t *testing.T, r *relay, room *mailroom) {
		p := r.stranger()
		p.cmd("MAIL FROM:<>", "250")
		for range arrivalRecipients {
			p.cmd("RCPT TO:<b-good@b.example.com>", "250")
		}
		p.cmd("RCPT TO:<b-good@b.example.com>", "452 4.5.3")
	})
}

func TestInboundTroubleIsAnswered(t *testing.T) {
	for want, err := range map[string]error{
		"451 4.3.0 ": errors.New("disk on fire"),
		"452 4.3.1 ": fullDisk{},
		"552 5.3.4 ": fmt.Errorf("forwarding: %w", ErrTooLarge),
		"554 5.4.6 ": ErrLoop,
	} {
		withMailroom(t, Config{}, func(t *testing.T, r *relay, room *mailroom) {
			room.err = err
			p := r.stranger()
			p.cmd("MAIL FROM:<>", "250")
			p.cmd("RCPT TO:<b-good@b.example.com>", "250")
			p.cmd("DATA", "354")
			p.send("x\r\n.\r\n")
			p.expect(want)
		})
	}
}

// Content beyond what is kept is read and dropped; beyond the listener's limit it is refused.
func TestInboundContentIsBounded(t *testing.T) {
	memory := intake.NewMemory(3 << 20)
	cfg := Config{InboundMemory: memory, Intake: intake.Config{Limits: intake.Limits{Size: 3 << 20}}}
	withMailroom(t, cfg, func(t *testing.T, r *relay, room *mailroom) {
		p := r.stranger()
		send := func(size int) string {
			p.cmd("MAIL FROM:<>", "250")
			p.cmd("RCPT TO:<b-good@b.example.com>", "250")
			p.cmd("DATA", "354")
			p.send(strings.Repeat(strings.Repeat("x", 1022)+"\r\n", size>>10) + ".\r\n")
			return p.got()
		}
		if got := send(2 << 20); codes(got) != "250" {
			t.Fatalf("2 MiB: %q", got)
		}
		if a := room.taken[0]; len(a.Content) != ArrivalContent || a.Size != 2<<20 || a.Whole() {
			t.Errorf("kept %d of %d octets", len(a.Content), a.Size)
		}
		if got := send(4 << 20); codes(got) != "552" {
			t.Fatalf("4 MiB: %q", got)
		}
		if memory.Used() != 0 {
			t.Errorf("%d octets are held for nothing", memory.Used())
		}
		memory.Take(3<<20-100<<10, fair.Part[intake.Owner]{Key: intake.Owner{Tenant: "others"}, Times: 100})
		if got := send(200 << 10); codes(got) != "452" {
			t.Fatalf("without memory: %q", got)
		}
	})
}

// One stranger who brings much mail at a time, slowly, doesn't keep the reports of others out.
func TestInboundMemoryIsShared(t *testing.T) {
	for _, attacker := range []string{"203.0.113.9", "2001:db9:1:%x::1"} { // one address, and a /48
		cfg := Config{InboundMemory: intake.NewMemory(8 << 20)}
		withMailroom(t, cfg, func(t *testing.T, r *relay, room *mailroom) {
			for i := range 80 {
				address := attacker
				if strings.Contains(address, "%") {
					address = fmt.Sprintf(address, i)
				}
				p := r.dial(address)
				p.expect("220")
				p.cmd("EHLO x", "250")
				p.cmd("MAIL FROM:<>", "250")
				p.cmd("RCPT TO:<b-good@b.example.com>", "250")
				p.cmd("DATA", "354")
				p.send(strings.Repeat(strings.Repeat("x", 1022)+"\r\n", 600))
			}
			others := 0
			for i := range 5 { // from anywhere else, each with 100 KiB
				p := r.dial(fmt.Sprintf("198.18.%d.1", i))
				p.expect("220")
				p.cmd("EHLO x", "250")
				p.cmd("MAIL FROM:<>", "250")
				p.cmd("RCPT TO:<b-good@b.example.com>", "250")
				p.cmd("DATA", "354")
				p.send(strings.Repeat(strings.Repeat("x", 1022)+"\r\n", 100) + ".\r\n")
				if codes(p.got()) == "250" {
					others++
				}
			}
			if others != 5 {
				t.Errorf("%s: %d of 5 reports of others are taken", attacker, others)
			}
		})
	}
}

// Who has to log in before relaying need not to bring a report.
func TestInboundNeedsNoLogin(t *testing.T) {
	cfg := authConfig(t)
	cfg.AuthRequired, cfg.ClearOnLoopback = true, true
	room := new(mailroom)
	cfg.Inbound = room
	withAuth(t, cfg, func(t *testing.T, r *relay) {
		for _, from := range []string{strangersAddress, "203.0.113.1"} {
			p := r.dial(from)
			p.expect("220 ")
			p.cmd("EHLO mx.example.org", "250")
			p.cmd("MAIL FROM:<>", "250")
			p.cmd("RCPT TO:<v@example.net>", "530 5.7.0 log in first")
			p.cmd("RCPT TO:<b-good@b.example.com>", "250")
			p.cmd("RCPT TO:<v@example.net>", "530 5.7.0 log in first")
			p.conn.Close()
		}
		p := r.dial("127.0.0.1")
		p.expect("220 ")
		p.cmd("EHLO app.example.org", "250")
		p.cmd("AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00ann\x00secret")), "235")
		p.cmd("MAIL FROM:<a@acme.example>", "250")
		p.cmd("RCPT TO:<b-good@b.example.com>", "250")
		p.cmd("RCPT TO:<v@example.net>", "452 4.5.3")
	})
}
