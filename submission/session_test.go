package submission

import (
	"strings"
	"testing"

	"example.org/mta/submission/intake"
)

func TestMessageIsTakenAndStored(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		got := p.data("Subject: hi\r\nDate: now\r\nMessage-ID: <1@x>\r\n\r\nhello\r\n..dots\r\n")
		m := r.store.one(t)
		if want := "250 2.0.0 queued as " + m.ID.String() + "\r\n"; got != want {
			t.Errorf("reply %q, want %q", got, want)
		}
		if want := "Subject: hi\r\nDate: now\r\nMessage-ID: <1@x>\r\n\r\nhello\r\n.dots\r\n"; m.body() != want {
			t.Errorf("stored %q, want %q", m.body(), want)
		}
		p.cmd("QUIT", "221")
		p.mustBeClosed()
	})
}

// A panic in one session leaves the others alone.
func TestPanicEndsOneSession(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Events: panicEvents{}}}, func(t *testing.T, r *relay) {
		other := r.greeted()
		p := r.dial("192.0.2.1")
		p.expect("220")
		p.send("GET / HTTP/1.1\r\n") // reported to Events by the gate
		p.mustBeClosed()
		other.cmd("NOOP", "250")
		if n := r.srv.Connections(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

type panicEvents struct{ intake.Events }

func (panicEvents) Rejected(intake.Rejection) { panic("no events today") }

func TestExtensionsAreOffered(t *testing.T) {
	withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.got()
		p.send("EHLO app.example.org\r\n")
		want := `250-relay.example.com
250-STARTTLS
250-PIPELINING
250-8BITMIME
250-ENHANCEDSTATUSCODES
250-CHUNKING
250-SMTPUTF8
250-DSN
250-SIZE 52428800
250-LIMITS RCPTMAX=1000
250-DELIVERBY 1
250 MT-PRIORITY STANAG4406
`
		if got := strings.ReplaceAll(p.got(), "\r\n", "\n"); got != want {
			t.Errorf("in clear:\n%s", got)
		}
		p = p.startTLS()
		p.send("EHLO app.example.org\r\n")
		want = strings.Replace(strings.Replace(want, "250-STARTTLS\n", "", 1), "\n", "\n250-REQUIRETLS\n", 1)
		if got := strings.ReplaceAll(p.got(), "\r\n", "\n"); got != want {
			t.Errorf("under TLS:\n%s", got)
		}
	})
}
