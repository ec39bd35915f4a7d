package submission

import (
	"strings"
	"testing"
)

// REQUIRETLS is offered and taken on sessions with TLS only (RFC 8689, 2 and 4.1).
func TestREQUIRETLSNeedsTLS(t *testing.T) {
	withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		p.send("EHLO app\r\n")
		if got := p.got(); strings.Contains(got, "REQUIRETLS") {
			t.Errorf("in clear text it is offered:\n%s", got)
		}
		p.cmd("MAIL FROM:<a@example.org> REQUIRETLS", "555 5.5.4")
		p = p.startTLS()
		p.send("EHLO app\r\n")
		if got := p.got(); !strings.Contains(got, "250-REQUIRETLS\r\n") {
			t.Errorf("over TLS it is not offered:\n%s", got)
		}
		p.cmd("MAIL FROM:<a@example.org> REQUIRETLS=YES", "501 5.5.4")
		p.cmd("MAIL FROM:<a@example.org> REQUIRETLS REQUIRETLS", "501 5.5.4")
		p.cmd("MAIL FROM:<a@example.org> requiretls SIZE=5", "250")
		p.cmd("RCPT TO:<b@example.net> REQUIRETLS", "555 5.5.4")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.cmd("DATA", "354")
		p.send("hi\r\n.\r\n")
		p.expect("250")
		if m := r.store.one(t); !m.RequireTLS {
			t.Error("the message doesn't keep it")
		}
	})
}

func TestTLSRequiredNo(t *testing.T) {
	for header, want := range map[string]bool{
		"TLS-Required: No\r\n": true, "tls-required:no\r\n": true, "TLS-Required:  NO \r\n": true,
		"TLS-Required: Yes\r\n": false, "X-TLS-Required: No\r\n": false, "Subject: x\r\n\r\nTLS-Required: No\r\n": false,
	} {
		withRelay(t, Config{}, func(t *testing.T, r *relay) {
			if got := codes(r.greeted().data(header + "\r\nhi\r\n")); got != "250" {
				t.Fatalf("codes %q", got)
			}
			if m := r.store.one(t); m.TLSOptional != want {
				t.Errorf("%q: %v", header, m.TLSOptional)
			}
		})
	}
}
