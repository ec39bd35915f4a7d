package submission

import (
	"net/netip"
	"strings"
	"testing"
)

// Named fields of clients are removed whole, this relay's are not, and loops are counted before that.
func TestRemovedFields(t *testing.T) {
	var cfg Config
	cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	cfg.Intake.Remove = []string{"received", "X-Internal-*", "Date", "List-Unsubscribe"}
	cfg.Intake.Copies = []string{"X-Internal-Order", "Subject"}
	cfg.Intake.Limits.Hops = 2
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		p.cmd("EHLO app", "250")
		send := func(content, want string) {
			t.Helper()
			p.cmd("MAIL FROM:<a@example.org>", "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			p.send(content + ".\r\n")
			p.expect(want)
		}
		const ours = "Received: from elsewhere\r\n by relay.example.com\r\n with ESMTP; yesterday\r\n"
		send("RECEIVED: from secret ([10.0.0.1])\r\n\tby app.internal; today\r\n"+ours+"Date: mine\r\nSubject: x\r\n"+
			"x-internal-order:\r\n 42\r\nX-Internal: stays\r\nMessage-ID: <1@app>\r\n\r\nX-Internal-Body: stays\r\n", "250")
		m := r.store.one(t)
		_, rest, _ := strings.Cut(m.content, "+0000\r\n") // of the Received field that was added
		date, rest, _ := strings.Cut(rest, "\r\n")
		if want := ours + "Subject: x\r\nX-Internal: stays\r\nMessage-ID: <1@app>\r\n\r\nX-Internal-Body: stays\r\n"; rest != want ||
			!strings.HasPrefix(date, "Date: ") || date == "Date: mine" {
			t.Errorf("stored:\n%s", m.content)
		}
		if want := `{"X-Internal-Order":"42","Subject":"x"}`; m.Headers != want {
			t.Errorf("copies: %s, want %s", m.Headers, want)
		}
		send(strings.Repeat("Received: from a by b; c\r\n", 3)+"\r\n", "554 5.4.6")
	})
}
