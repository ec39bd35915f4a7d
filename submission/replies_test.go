package submission

import (
	"strings"
	"testing"

	"example.org/mta/submission/intake"
)

// Each step of a session has its enhanced code (RFC 2034, 3463) and our own words, those of the
// library nowhere.
func TestRepliesOfASession(t *testing.T) {
	const envid100 = "ENVID=" + "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
	orcpt500 := "ORCPT=rfc822;" + strings.Repeat("a", 500-len("rfc822;"))
	withRelay(t, Config{Intake: intake.Config{Limits: intake.Limits{Recipients: 2, Size: 1000}}, Limits: Limits{ErrorsPerSession: 100}}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		if got, want := p.got(), "220 relay.example.com ESMTP ready\r\n"; got != want {
			t.Errorf("greeting %q, want %q", got, want)
		}
		for _, step := range []struct{ send, want string }{
			{"HELO app.example.org", "250 relay.example.com"},
			{"NOOP", "250 2.0.0 ok"},
			{"NOOP with an argument", "250 2.0.0 ok"},
			{"RSET", "250 2.0.0 ok"},
			{"VRFY someone", "252 2.0.0 addresses are not verified, send mail to find out"},
			{"EXPN list", "502 5.5.1 command not implemented"},
			{"NONSENSE", "500 5.5.2 command not recognised"},
			{"DATA", "503 5.5.1 MAIL first"},
			{"BDAT 3 LAST\r\nabc", "503 5.5.1 MAIL first"},
			{"MAIL FROM:<a@example.org> SIZE=1001", "552 5.3.4 message larger than 1000 octets"},
			{"MAIL FROM:<a@example.org> SIZE=x", "501 5.5.4 parameter SIZE has a malformed value"},
			{"MAIL FROM:<a@example.org> BODY=9BIT", "501 5.5.4 parameter BODY has a malformed value"},
			{"MAIL FROM:<a@example.org> BODY=BINARYMIME", "555 5.5.4 parameter BODY=BINARYMIME is not supported"},
			{"MAIL FROM:<a@example.org> RET=SOME", "501 5.5.4 parameter RET has a malformed value"},
			{"MAIL FROM:<a@example.org> ENVID=+0", "501 5.5.4 parameter ENVID has a malformed value"},
			{"MAIL FROM:<a@example.org> " + envid100 + "0", "501 5.5.4 parameter ENVID is longer than 100 characters"},
			{"MAIL FROM:<a@example.org> ENVID=1 RET=FULL envid=2", "501 5.5.4 parameter ENVID is given twice"},
			{"MAIL FROM:<a@example.org> SIZE=1=2", "501 5.5.4 parameter SIZE has a malformed value"},
			{"MAIL FROM:<a@example.org> FOO=bar", "555 5.5.4 parameter FOO is not supported"},
			{"MAIL FROM:<a@example.org> REQUIRETLS", "555 5.5.4 parameter REQUIRETLS is not supported"},
			{"MAIL FROM:<a@example.org> SIZE=10 BODY=8BITMIME RET=HDRS AUTH=<> " + envid100, "250 2.1.0 sender ok"},
			{"MAIL FROM:<a@example.org>", "503 5.5.1 a transaction is open, end it or send RSET"},
			{"DATA", "554 5.5.1 no valid recipients"},
			{"BDAT 6 LAST\r\nQUIT\r\n", "554 5.5.1 no valid recipients"},
			{"RCPT TO:<b@example.net> NOTIFY=NEVER,DELAY", "501 5.5.4 parameter NOTIFY has a malformed value"},
			{"RCPT TO:<b@example.net> NOTIFY=DELAY NOTIFY=NEVER", "501 5.5.4 parameter NOTIFY is given twice"},
			{"RCPT TO:<b@example.net> ORCPT=b@example.net", "501 5.5.4 parameter ORCPT has a malformed value"},
			{"RCPT TO:<b@example.net> " + orcpt500 + "a", "501 5.5.4 parameter ORCPT is longer than 500 characters"},
			{"RCPT TO:<b@example.net> RRVS=now", "555 5.5.4 parameter RRVS is not supported"},
			{"RCPT TO:<b@example.net> NOTIFY=NEVER " + orcpt500, "250 2.1.5 recipient ok"},
			{"RCPT TO:<c@example.net>", "250 2.1.5 recipient ok"},
			{"RCPT TO:<d@example.net>", "452 4.5.3 limit of 2 recipients reached, send the rest in another transaction"},
			{"DATA", "354 end data with <CR><LF>.<CR><LF>"},
			{"Subject: x\r\n.", "250 2.0.0 queued as *"},
			{"MAIL FROM:<>", "250 2.1.0 sender ok"},
			{"RCPT TO:<b@example.net>", "250 2.1.5 recipient ok"},
			{"BDAT 0", "250 2.0.0 chunk received"},
			{"BDAT 4\r\nA: b", "250 2.0.0 chunk received"},
			{"BDAT 2000\r\n" + strings.Repeat("x", 2000), "552 5.3.4 message larger than the SIZE limit"},
			{"STARTTLS", "502 5.5.1 TLS is not available"},
			{"QUIT", "221 2.0.0 closing connection"},
		} {
			if _, chunk, _ := strings.Cut(step.send, "\r\n"); !strings.HasPrefix(step.send, "BDAT") || chunk == "" {
				step.send += "\r\n"
			}
			p.send(step.send)
			got := p.got()
			want, open := strings.CutSuffix(step.want, "*")
			if !strings.HasPrefix(got, want) || lastLines(got) != 1 || !open && got != want+"\r\n" {
				t.Errorf("%.60q: got %q, want %q", step.send, got, step.want)
			}
		}
		p.mustBeClosed()
	})
}
