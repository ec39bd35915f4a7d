package submission

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// The tests here stand for the points of the design's section on submission: what the library
// does by itself, and what a client sees all the same.

// The library would take what follows a time-out within DATA for commands (its issue 196).
func TestTimeoutInDataDoesNotTurnContentIntoCommands(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		p.send("Subject: half\r\n\r\n")
		time.Sleep(3*time.Minute + time.Second) // virtual
		p.expect("421 4.4.2 content came too slowly")
		// What still comes is lost on the server.
		p.send("MAIL FROM:<evil@example.org>\r\nRCPT TO:<victim@example.net>\r\nDATA\r\nevil\r\n.\r\n")
		if got := p.got(); got != "" {
			t.Errorf("server went on: %q", got)
		}
		p.mustBeClosed()
		r.store.none(t)
	})
}

// The same with what is to come after the time-out already on its way when it happens: the read
// error is sticky, so that not even octets in the server's own buffers are looked at.
func TestReadErrorsAreSticky(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		ours, theirs := r.pair("192.0.2.1")
		flaky := &flakyConn{pipeConn: theirs}
		r.l.conns <- flaky
		p := newPeer(t, ours)
		p.expect("220")
		p.cmd("EHLO app", "250")
		p.envelope()
		p.cmd("DATA", "354")
		flaky.fail = 1
		p.send("text\r\n")
		go io.WriteString(p.conn, "more\r\n.\r\nMAIL FROM:<evil@example.org>\r\n")
		if got := codes(p.got()); got != "421" {
			t.Errorf("codes %q, want one 421", got)
		}
		p.mustBeClosed()
		r.store.none(t)
	})
}

// flakyConn times out once and then has data again, as a socket does whose deadline was moved.
type flakyConn struct {
	*pipeConn
	fail int
}

func (c *flakyConn) Read(p []byte) (int, error) {
	n, err := c.pipeConn.Read(p)
	if c.fail > 0 && err == nil {
		c.fail--
		return 0, timeoutError{}
	}
	return n, err
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// The library writes each line of each reply by itself.
func TestRepliesAreWrittenTogether(t *testing.T) {
	group := "MAIL FROM:<a@example.org>\r\n" + strings.Repeat("RCPT TO:<b@example.net>\r\n", 10) + "DATA\r\n"
	t.Run("in clear", func(t *testing.T) {
		withRelay(t, Config{}, func(t *testing.T, r *relay) {
			ours, theirs := r.pair("192.0.2.1")
			r.l.conns <- theirs
			p := newPeer(t, ours)
			p.expect("220")
			p.cmd("EHLO app", "250")
			before := theirs.written()
			p.send(group)
			if got := codes(p.got()); got != strings.Repeat("250 ", 11)+"354" {
				t.Fatalf("codes %s", got)
			}
			if n := theirs.written() - before; n != 1 {
				t.Errorf("12 replies took %d writes", n)
			}
			// The final dot and the next message's group in one flight, too.
			before = theirs.written()
			p.send("text\r\n.\r\n" + group)
			if got := codes(p.got()); got != strings.Repeat("250 ", 12)+"354" {
				t.Fatalf("codes %s", got)
			}
			if n := theirs.written() - before; n != 1 {
				t.Errorf("13 replies took %d writes", n)
			}
			p.send(".\r\n")
		})
	})
	t.Run("under TLS", func(t *testing.T) {
		withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
			ours, theirs := r.pair("192.0.2.1")
			r.l.conns <- theirs
			p := newPeer(t, ours)
			p.expect("220")
			p.cmd("EHLO app", "250")
			p = p.startTLS()
			p.cmd("EHLO app", "250")
			before := theirs.written()
			p.send(group)
			if got := codes(p.got()); got != strings.Repeat("250 ", 11)+"354" {
				t.Fatalf("codes %s", got)
			}
			if n := theirs.written() - before; n != 1 {
				t.Errorf("12 replies took %d writes", n)
			}
			p.send(".\r\n")
		})
	})
}

// A client with a window of messages hears of the first before the second is committed.
func TestRepliesAreWrittenBeforeACommit(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		r.store.commit = make(chan struct{})
		p := r.greeted()
		message := "MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\nBDAT 6 LAST\r\ntext\r\n"
		go io.WriteString(p.conn, message+message)
		if got := codes(p.got()); got != "250 250" {
			t.Errorf("before the first commit: %s", got)
		}
		r.store.commit <- struct{}{}
		if got := codes(p.got()); got != "250 250 250" {
			t.Errorf("after the first commit: %s", got)
		}
		r.store.commit <- struct{}{}
		if got := codes(p.got()); got != "250" {
			t.Errorf("after the second commit: %s", got)
		}
	})
}

// The library gives DATA one ReadTimeout for everything.
func TestContentMayTakeLongWhileItKeepsPace(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		block := strings.Repeat(strings.Repeat("x", 70)+"\r\n", 1000) // 72,000 octets: 140 s worth
		for range 10 {
			p.send(block)
			time.Sleep(2 * time.Minute)
		}
		p.send(".\r\n")
		p.expect("250")
		if got := len(r.store.one(t).body()); got < 720_000 {
			t.Errorf("%d octets stored", got)
		}
	})
}

func TestContentOfOneByteASecondIsCut(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		start := time.Now()
		for !p.closed() && time.Since(start) < time.Hour {
			io.WriteString(p.conn, "x")
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took < 3*time.Minute || took > 3*time.Minute+3*time.Second {
			t.Errorf("cut after %s, want 3m and the 180/512 s that 180 octets give", took)
		}
		p.expect("421 4.4.2")
		r.store.none(t)
	})
}

func TestChunksOfOneByteASecondAreCut(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		start := time.Now()
		for !p.closed() && time.Since(start) < time.Hour {
			io.WriteString(p.conn, "BDAT 1\r\nx")
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took > 3*time.Minute+3*time.Second {
			t.Errorf("cut after %s", took)
		}
		if got := p.got(); !strings.HasSuffix(got, "421 4.4.2 content came too slowly, closing connection\r\n") {
			t.Errorf("last words %q", got)
		}
		r.store.none(t)
	})
}

func TestContentHasATotalBound(t *testing.T) {
	withRelay(t, Config{Timeouts: Timeouts{Content: 10 * time.Minute}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		start := time.Now()
		line := strings.Repeat("x", 70) + "\r\n"
		for !p.closed() && time.Since(start) < time.Hour {
			io.WriteString(p.conn, strings.Repeat(line, 100))
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took < 10*time.Minute || took > 10*time.Minute+2*time.Second {
			t.Errorf("cut after %s, want 10m", took)
		}
		p.expect("421 4.4.2")
	})
}

func TestContentMayHaveNoPace(t *testing.T) {
	withRelay(t, Config{Timeouts: Timeouts{MinRate: -1, Content: 10 * time.Minute}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		start := time.Now()
		for !p.closed() && time.Since(start) < time.Hour {
			io.WriteString(p.conn, "x")
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took < 10*time.Minute || took > 10*time.Minute+2*time.Second {
			t.Errorf("cut after %s, want 10m", took)
		}
	})
}

func TestCommandOfOneByteASecondIsCut(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		start := time.Now()
		for !p.closed() && time.Since(start) < time.Hour {
			io.WriteString(p.conn, "N")
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took < 5*time.Minute || took > 5*time.Minute+2*time.Second {
			t.Errorf("cut after %s, want 5m", took)
		}
		p.expect("421 4.4.2 no command within 5m0s")
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		time.Sleep(5*time.Minute - time.Second)
		p.mustBeOpen()
		time.Sleep(2 * time.Second)
		p.expect("421 4.4.2")
		p.mustBeClosed()
	})
}

// A client that does not read its replies can't hold more of them than a buffer.
func TestClientThatDoesNotReadIsCut(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		ours, theirs := r.pair("192.0.2.1")
		r.l.conns <- theirs
		b := make([]byte, 4096)
		ours.Read(b)
		go func() {
			for {
				if _, err := io.WriteString(ours, "NOOP\r\n"); err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if n := r.srv.Connections(); n != 0 {
			t.Errorf("%d connections open", n)
		}
		ours.Close()
	})
}

// A 421 from the session leaves the library's session open.
func TestSessions421ClosesTheConnection(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Admission: admitNone(intake.Refused{Close: true})}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		// What is in flight behind it is not looked at: a message could be taken and its reply lost.
		p.send("MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\nNOOP\r\n")
		p.expect("421 4.3.2 too many tries")
		p.mustBeClosed()
	})
}

// The fourth unknown command makes the library say "500 5.5.1 Too many errors. Quiting now" after
// its reply to the command: two replies to one command, and a 5xx where a 421 is due.
func TestTooManyErrorsEndIn421(t *testing.T) {
	withRelay(t, Config{Limits: Limits{ErrorsPerSession: 6}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		for range 5 {
			p.cmd("FOO", "500 5.5.2")
		}
		p.send("BAR\r\nNOOP\r\n")
		if got := codes(p.got()); got != "500 421" {
			t.Errorf("codes %q", got)
		}
		p.mustBeClosed()
	})
}

func TestAcceptedMessageClearsErrors(t *testing.T) {
	withRelay(t, Config{Limits: Limits{ErrorsPerSession: 3}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		for range 4 {
			p.cmd("FOO", "500")
			p.cmd("FOO", "500")
			if got := codes(p.data("hi\r\n")); got != "250" {
				t.Fatalf("codes %q", got)
			}
		}
	})
}

// MaxLineLength 0 in the library is unbounded memory; its limit also applies to content.
func TestLongCommandLine(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.send(strings.Repeat("NOOP ", 1<<20) + "\r\nNOOP\r\n")
		if got := p.got(); codes(got) != "500 250" || !strings.HasPrefix(got, "500 5.5.2 command line longer than 4096") {
			t.Errorf("got %q", got)
		}
		p.mustBeOpen()
	})
}

// In the library, a chunk that the end of the connection cuts short is a whole one.
func TestChunkCutShortIsNotAccepted(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.send("BDAT 1000 LAST\r\nSubject: half\r\n\r\n")
		p.conn.Close()
		p.mustBeClosed()
		synctest.Wait()
		r.store.none(t)
		if len(r.events.rejected) != 1 || r.events.rejected[0].Reply.Code != 421 {
			t.Errorf("rejections %v", r.events.rejected)
		}
	})
}

// Under TLS the client can end its half of the connection and still get replies.
func TestChunkCutShortUnderTLSIsNotAccepted(t *testing.T) {
	withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
		p := r.greeted().startTLS()
		p.cmd("EHLO app", "250")
		p.envelope()
		p.send("BDAT 1000 LAST\r\nSubject: half\r\n\r\n")
		p.conn.(interface{ CloseWrite() error }).CloseWrite() // close_notify
		p.expect("421 4.4.2 connection lost within content")
		r.store.none(t)
	})
}

func TestDataCutShortIsNotAccepted(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		p.send("Subject: half\r\n\r\nhalf\r\n")
		p.conn.Close()
		synctest.Wait()
		r.store.none(t)
	})
}

// The library answers 501 to a BDAT that it can't read, and takes the content for commands.
func TestMalformedChunkClosesTheConnection(t *testing.T) {
	for _, arg := range []string{"", "x", "-1", "+1", "1x LAST", "99999999999999999999999 LAST", "10 FIRST", "10 LAST LAST", "5000000000 LAST"} {
		t.Run(arg, func(t *testing.T) {
			withRelay(t, Config{}, func(t *testing.T, r *relay) {
				p := r.greeted()
				p.envelope()
				p.send("BDAT " + arg + "\r\nNOOP\r\nRSET\r\n")
				got := p.expect("5")
				if !strings.HasPrefix(got, "501 5.5.4") && !strings.HasPrefix(got, "552 5.3.4") {
					t.Errorf("got %q", got)
				}
				p.mustBeClosed()
				r.store.none(t)
			})
		})
	}
}

// Content that comes with DATA is against RFC 2920, and harmless while DATA is accepted. When it
// is refused, the content must not be taken for commands.
func TestContentBehindARefusedDATA(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.send("DATA\r\nRSET\r\nMAIL FROM:<evil@example.org>\r\n")
		p.expect("554 5.5.1 no valid recipients")
		p.mustBeClosed()
	})
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.send("DATA\r\ncontent\r\n.\r\n")
		if got := codes(p.got()); got != "354 250" {
			t.Errorf("codes %q", got)
		}
		r.store.one(t)
	})
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.send("BDAT 0\r\nRCPT TO:<c@example.net>\r\nDATA\r\nRSET\r\nNOOP\r\n")
		if got := codes(p.got()); got != "250 503 503" {
			t.Errorf("codes %q", got)
		}
		p.mustBeClosed()
		r.store.none(t)
	})
}

// The library leaves a nested MAIL's predecessor's recipients in place.
func TestNestedMailIsRefused(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("MAIL FROM:<c@example.org>", "503 5.5.1")
		p.cmd("RSET", "250")
		p.cmd("MAIL FROM:<c@example.org>", "250")
		p.cmd("DATA", "554")
	})
}

// The library reads SIZE with 32 bits only.
func TestHugeDeclaredSize(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org> SIZE=52428801", "552 5.3.4")
		p.cmd("MAIL FROM:<a@example.org> SIZE=5000000000", "552 5.3.4")
		p.cmd("MAIL FROM:<a@example.org> SIZE=99999999999999999999", "552 5.3.4")
		p.cmd("MAIL FROM:<a@example.org> SIZE=52428800", "250")
	})
}

func TestCodesOfCommandsOutOfOrder(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		for _, c := range []string{"MAIL FROM:<a@b.example>", "RCPT TO:<a@b.example>", "DATA", "BDAT 0 LAST"} {
			p.cmd(c, "503 5.5.1")
		}
		p.cmd("AUTH PLAIN", "502 5.5.1")
		p.cmd("HELP", "502 5.5.1")
		p.cmd("VRFY a", "252")
		p.cmd("NOOP", "250")
		p.cmd("RSET", "250")
		p.cmd("RSET now", "501 5.5.4")
		p.cmd("QUIT now", "501 5.5.4")
		p.cmd("HELO", "501 5.5.4")
		p.cmd("EHLO \xff", "501 5.5.4")
		p.cmd("HELO app", "250")
		p.cmd("MAIL FROM:<a@b.example> FOO=BAR", "555 5.5.4")
		p.cmd("MAIL FROM:<a@b.example>  BODY=8BITMIME  ", "250")
		p.cmd("DATA x", "501 5.5.4")
		p.cmd("BDAT 0 LAST", "554 5.5.1")
	})
}

// RFC 2920: who sends more than EHLO before its reply does not speak our SMTP, or any.
func TestGarbageBeforeEHLO(t *testing.T) {
	for name, text := range map[string]string{
		"http":     "POST / HTTP/1.1\r\nHost: 127.0.0.1:2525\r\n\r\nEHLO x\r\nMAIL FROM:<a@b.example>\r\n",
		"tls":      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh\r\n",
		"proxy v1": "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nEHLO x\r\n",
		"proxy v2": "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x00\x01\x00\x02EHLO x\r\n",
		"xclient":  "XCLIENT ADDR=192.0.2.1\r\n",
		"group":    "EHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<b@b.example>\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			withRelay(t, Config{}, func(t *testing.T, r *relay) {
				p := r.dial("198.51.100.1")
				p.expect("220")
				p.send(text)
				p.expect("50")
				p.mustBeClosed()
			})
		})
	}
}

func TestEarlyTalkerIsCut(t *testing.T) {
	withRelay(t, Config{Timeouts: Timeouts{GreetDelay: 2 * time.Second}}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.send("EHLO app\r\n")
		p.expect("554 5.5.1 you spoke before the greeting")
		p.mustBeClosed()

		p = r.dial("192.0.2.1")
		if got := p.got(); got != "" {
			t.Errorf("banner before its time: %q", got)
		}
		time.Sleep(2 * time.Second)
		p.expect("220")
		p.cmd("EHLO app", "250")
	})
}

func TestBareLFAndControlsInCommandLines(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.send("NOOP\n")
		p.expect("500 5.5.2 command line must end in CRLF")
		p.send("NOOP\rRSET\r\n")
		p.expect("500 5.5.2")
		p.send("NOOP \x00\r\n")
		p.expect("500 5.5.2 control character")
		p.send("MAIL FROM:<a\x00@example.org>\r\n")
		p.expect("500 5.5.2 control character")
		p.send("\r\n")
		p.expect("500 5.5.2")
		p.send("DATAX\r\n")
		p.expect("500 5.5.2")
		p.send("DATA\r\r\n")
		p.expect("500 5.5.2")
	})
	withRelay(t, Config{BareNewlines: intake.NormaliseBareNewlines}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.send("NOOP\n")
		p.expect("250")
	})
}

// The library's own TLS code must not be reachable: conn would be below it.
func TestStartTLSIsAnsweredHere(t *testing.T) {
	withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		p.cmd("STARTTLS", "503 5.5.1")
		p.cmd("EHLO app", "250")
		p.cmd("STARTTLS now", "501 5.5.4")
		p.cmd("STARTTLSX", "500 5.5.2")
		p.send("STARTTLS\r\nMAIL FROM:<evil@example.org>\r\n") // CVE-2011-0411
		p.expect("503 5.5.1 STARTTLS must be the last")
		p.mustBeClosed()

		p = r.greeted()
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p = p.startTLS()
		p.cmd("RCPT TO:<b@example.net>", "503") // all is forgotten (RFC 3207, 4.2)
		p.cmd("MAIL FROM:<a@example.org>", "503 5.5.1 EHLO first")
		p.cmd("EHLO app", "250")
		p.cmd("STARTTLS", "503 5.5.1 TLS is already on")
		if got := codes(p.data("hi\r\n")); got != "250" {
			t.Fatalf("codes %q", got)
		}
		if m := r.store.one(t); m.Protocol != "ESMTPS" {
			t.Errorf("protocol %s", m.Protocol)
		}
		if n := r.srv.Connections(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("STARTTLS", "502 5.5.1")
	})
}

// Without a certificate STARTTLS would end in an alert: it is offered, and taken, once there is one (RFC 3207, 4).
func TestSTARTTLSWaitsForACertificate(t *testing.T) {
	var there atomic.Bool
	logins := auth.New(auth.Config{File: usersFile(t)})
	cfg := Config{TLS: testTLS(), Certified: there.Load, Auth: logins, Mechanisms: []string{"PLAIN"}}
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		ehlo := func(p *peer) string {
			p.send("EHLO app.example.org\r\n")
			return p.got()
		}
		p := r.greeted()
		if got := ehlo(p); strings.Contains(got, "STARTTLS") {
			t.Errorf("without a certificate: %s", got)
		}
		p.cmd("AUTH PLAIN AGEAYg==", "454 4.7.0 TLS has no certificate yet")
		p.cmd("STARTTLS", "454 4.7.0 TLS has no certificate yet")
		there.Store(true)
		if got := ehlo(p); !strings.Contains(got, "250-STARTTLS\r\n") {
			t.Errorf("with one: %s", got)
		}
		p.cmd("AUTH PLAIN AGEAYg==", "538 5.7.11 logins need TLS")
		p.cmd("STARTTLS", "220")
	})
}

func TestFailedHandshakeEndsTheConnection(t *testing.T) {
	withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("STARTTLS", "220")
		p.send("NOOP\r\n")
		p.mustBeClosed()
	})
	withRelay(t, Config{TLS: testTLS()}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("STARTTLS", "220")
		time.Sleep(31 * time.Second)
		p.mustBeClosed()
	})
}

func TestImplicitTLS(t *testing.T) {
	withRelay(t, Config{TLS: testTLS(), ImplicitTLS: true}, func(t *testing.T, r *relay) {
		ours, theirs := r.pair("192.0.2.1")
		r.l.conns <- theirs
		p := newPeer(t, tlsClient(t, ours))
		p.expect("220")
		p.cmd("EHLO app", "250")
		if got := codes(p.data("hi\r\n")); got != "250" {
			t.Fatalf("codes %q", got)
		}
		if m := r.store.one(t); m.Protocol != "ESMTPS" {
			t.Errorf("protocol %s", m.Protocol)
		}
	})
}

// More replies than the buffer holds, by commands that came in one piece.
func TestManyRepliesInOneGo(t *testing.T) {
	withRelay(t, Config{Limits: Limits{IdleCommands: 10_000}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.send(strings.Repeat("NOOP\r\n", 5000))
		if got := strings.Count(p.got(), "250 2.0.0"); got != 5000 {
			t.Errorf("%d replies", got)
		}
		p.send(strings.Repeat("FOO\r\n", 10) + "NOOP\r\n") // by the gate, too
		if got := codes(p.got()); got != strings.Repeat("500 ", 10)+"250" {
			t.Errorf("codes %s", got)
		}
	})
}

// The limit on command lines does not depend on the size of the buffer that they come in.
func TestLongCommandLineBehindContent(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.envelope()
		p.cmd("DATA", "354")
		for _, n := range []int{4094 - 5, 4095 - 5, 9000} {
			p.send(".\r\nNOOP " + strings.Repeat("x", n) + "\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\nDATA\r\n")
			want := "250 500 250 250 354"
			if n == 4094-5 {
				want = "250 250 250 250 354"
			}
			if got := codes(p.got()); got != want {
				t.Errorf("NOOP with %d octets: codes %s", n, got)
			}
		}
		p.send(".\r\n")
	})
}

// Should the library refuse a DATA that the gate let through, what came behind it is not taken
// for commands either.
func TestDataRefusedByTheLibrary(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		ours, theirs := r.pair("192.0.2.1")
		p := newPeer(t, ours)
		c := newConn(r.srv, theirs)
		c.phase, c.early = phaseReply, true
		c.Write([]byte("503 5.5.1 no\r\n"))
		if err := c.SetReadDeadline(time.Time{}); err != net.ErrClosed {
			t.Errorf("got %v", err)
		}
		if got := codes(p.got()); got != "503 503" {
			t.Errorf("codes %s", got)
		}
	})
}
