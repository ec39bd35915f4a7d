package sink

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/internal/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is one connection to a server, spoken to line by line.
type client struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// start runs a server of cfg on a pipe until the test's end, and gives a way to dial it.
func start(t *testing.T, cfg Config) (*Server, func() *client) {
	t.Helper()
	s, l := New(cfg), NewPipeListener()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, func() *client {
		conn, err := l.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return &client{t, conn, bufio.NewReader(conn)}
	}
}

// send writes all of text while the server may be answering.
func (c *client) send(text string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := io.WriteString(c.conn, text)
		done <- err
	}()
	return done
}

// reply reads one reply, its lines joined by "|".
func (c *client) reply() (string, error) {
	var lines []string
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return "", err
		}
		lines = append(lines, strings.TrimSuffix(line, "\r\n"))
		if len(line) < 4 || line[3] != '-' {
			return strings.Join(lines, "|"), nil
		}
	}
}

// want demands replies that begin so, in this order; "EOF" is the end of the connection.
func (c *client) want(prefixes ...string) {
	c.t.Helper()
	for _, p := range prefixes {
		got, err := c.reply()
		if err != nil {
			got = "EOF"
		}
		if !strings.HasPrefix(got, p) {
			c.t.Fatalf("reply is %q, want %q", got, p)
		}
	}
}

// talk sends text and demands the replies.
func (c *client) talk(text string, prefixes ...string) {
	c.t.Helper()
	done := c.send(text)
	c.want(prefixes...)
	if len(prefixes) > 0 && prefixes[len(prefixes)-1] == "EOF" {
		return
	}
	if err := <-done; err != nil {
		c.t.Fatalf("sending %q: %v", text, err)
	}
}

const (
	toData = "MAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.net>\r\nDATA\r\n"
	letter = "Message-ID: <1@example.com>\r\nSubject: x\r\n\r\nbody\r\n"
)

func TestMessageIsRecordedAsItWasSent(t *testing.T) {
	rec := NewRecorder(Contents, 0)
	_, dial := start(t, Config{Recorder: rec})
	c := dial()
	c.want("220 sink.example")
	c.talk("EHLO client.example\r\n", "250-sink.example|250-PIPELINING")
	c.talk("MAIL FROM:<\"a>b\"@example.com> BODY=8BITMIME RET=HDRS\r\n", "250 2.1.0")
	c.talk("rcpt to:<b@example.net> NOTIFY=NEVER\r\nRCPT TO:<c@example.net>\r\nDATA\r\n", "250", "250", "354")
	text := "X-Mta-Test-Id: 42\r\nMessage-ID: <7@x>\r\n\r\n..one dot\r\n...\r\nbare\n.\r\nlf before the dot\r\n"
	c.talk(text+".\r\n", "250 2.0.0")
	c.talk("QUIT\r\n", "221", "EOF")

	got := rec.Messages()
	if len(got) != 1 {
		t.Fatalf("%d messages, want 1", len(got))
	}
	m := got[0]
	want := "X-Mta-Test-Id: 42\r\nMessage-ID: <7@x>\r\n\r\n.one dot\r\n..\r\nbare\n\r\nlf before the dot\r\n"
	// "\n.\r\n" ends nothing, and the dot there is at no line's begin: it stays.
	want = strings.Replace(want, "bare\n\r\n", "bare\n.\r\n", 1)
	if string(m.Content) != want {
		t.Errorf("content is %q,\nwant %q", m.Content, want)
	}
	if m.ID != "42" || m.Sender != `"a>b"@example.com` || m.MailParams != "BODY=8BITMIME RET=HDRS" || m.Helo != "client.example" {
		t.Errorf("envelope is %+v", m)
	}
	if fmt.Sprint(m.Recipients, m.RcptParams) != "[b@example.net c@example.net] [NOTIFY=NEVER ]" {
		t.Errorf("recipients are %q with %q", m.Recipients, m.RcptParams)
	}
}

func TestCommandsOutOfOrderAreRefused(t *testing.T) {
	long := strings.Repeat("x", inputSize)
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"MAIL before EHLO", "MAIL FROM:<a@b.example>\r\n", []string{"503"}},
		{"nested MAIL", "EHLO x\r\nMAIL FROM:<>\r\nMAIL FROM:<>\r\nRCPT TO:<a@b.example>\r\n", []string{"250", "250", "503", "250"}},
		{"DATA without recipients leaves the transaction open", "EHLO x\r\nMAIL FROM:<>\r\nDATA\r\nMAIL FROM:<>\r\nRSET\r\nMAIL FROM:<>\r\n",
			[]string{"250", "250", "554", "503", "250", "250"}},
		{"BDAT without recipients is read, and ends the transaction", "EHLO x\r\nMAIL FROM:<>\r\nBDAT 6 LAST\r\nQUIT\r\nMAIL FROM:<>\r\n",
			[]string{"250", "250", "554", "250"}},
		{"unknown MAIL parameter", "EHLO x\r\nMAIL FROM:<> X=1\r\n", []string{"250", "555"}},
		{"UTF-8 without SMTPUTF8", "EHLO x\r\nMAIL FROM:<ä@b.example>\r\nMAIL FROM:<ä@b.example> SMTPUTF8\r\n", []string{"250", "553 5.6.7", "250"}},
		{"no path", "EHLO x\r\nMAIL FROM:a@b\r\nRCPT TO:<>\r\n", []string{"250", "501", "503"}},
		{"unknown command", "XYZZY\r\nLONGCOMMANDNAME\r\n", []string{"502", "502"}},
		{"long line", long + "\r\n", []string{"500", "EOF"}},
		{"chunk that can't be measured", "EHLO x\r\nBDAT -1\r\n", []string{"250", "501", "EOF"}},
		{"STARTTLS that was not offered", "EHLO x\r\nSTARTTLS\r\n", []string{"250", "502"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, dial := start(t, Config{})
			c := dial()
			c.want("220")
			c.talk(tc.text, tc.want...)
		})
	}
}

func TestWithoutExtensionsNothingIsOffered(t *testing.T) {
	_, dial := start(t, Config{Without: Pipelining | Chunking | EightBitMIME | SMTPUTF8 | DSN | Size | EnhancedCodes})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\n", "250 sink.example")
	c.talk("MAIL FROM:<a@b.example> BODY=8BITMIME\r\n", "555")
	c.talk("MAIL FROM:<a@b.example> SIZE=3\r\n", "555")
	c.talk("MAIL FROM:<a@b.example>\r\n", "250")
	c.talk("RCPT TO:<a@b.example> NOTIFY=NEVER\r\n", "555")
	c.talk("BDAT 2 LAST\r\n", "501", "EOF")
}

func TestHeloOnlyServerRefusesEHLO(t *testing.T) {
	_, dial := start(t, Config{Without: EHLO})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\nHELO x\r\n", "502", "250 sink.example")
}

func TestLimitsAreAnsweredAsProvidersDo(t *testing.T) {
	_, dial := start(t, Config{MaxConnections: 1, MaxMessages: 1, MaxRecipients: 1, MaxSize: 60})
	c := dial()
	c.want("220")
	crowded := dial()
	crowded.want("421 4.7.0", "EOF")
	c.talk("EHLO x\r\nMAIL FROM:<> SIZE=61\r\n", "250", "552 5.3.4")
	c.talk("MAIL FROM:<>\r\nRCPT TO:<a@b.example>\r\nRCPT TO:<b@b.example>\r\nDATA\r\n", "250", "250", "452 4.5.3", "354")
	c.talk(strings.Repeat("x", 60)+"\r\n.\r\n", "552 5.3.4")
	c.talk(toData, "250", "250", "354")
	c.talk("x\r\n.\r\nMAIL FROM:<>\r\n", "250", "421 4.7.0", "EOF")

	dial().want("220")
}

func TestLatencyDelaysFlightsAndNotCommands(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const latency = 100 * time.Millisecond
		rec := NewRecorder(Hashes, 0)
		_, dial := start(t, Config{Latency: latency, Recorder: rec})
		began := time.Now()
		since := func(want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("after %v, want %v", got, want)
			}
		}
		c := dial()
		c.want("220")
		since(latency)
		c.talk("EHLO x\r\n", "250")
		since(2 * latency)
		// One round trip for each message: the content rides with the next one's envelope.
		c.talk(toData, "250", "250", "354")
		since(3 * latency)
		c.talk(letter+".\r\n"+toData, "250", "250", "250", "354")
		since(4 * latency)
		c.talk(strings.ReplaceAll(letter, "1@", "2@")+".\r\n", "250")
		since(5 * latency)
		// Ten whole messages in one.
		chunked := fmt.Sprintf("MAIL FROM:<>\r\nRCPT TO:<b@example.net>\r\nBDAT %d LAST\r\n%s", len(letter), letter)
		for i := range 10 {
			done := c.send(strings.ReplaceAll(chunked, "1@", fmt.Sprintf("%d@", i)))
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			c.want("250", "250", "250")
		}
		since(6 * latency)
		if got := rec.Tally(); got.Messages != 12 || got.Unique != 10 || got.Duplicates() != 2 {
			t.Errorf("tally is %+v", got)
		}
	})
}

func TestWorkKeepsLaterRepliesWaiting(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, dial := start(t, Config{Work: map[Phase]time.Duration{Greeting: 5 * time.Second, End: time.Second}})
		began := time.Now()
		c := dial()
		c.want("220")
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("banner after %v, want 5s", d)
		}
		c.talk("EHLO x\r\n"+toData, "250", "250", "250", "354")
		began = time.Now()
		c.talk(letter+".\r\n"+toData+letter+".\r\n", "250", "250", "250", "354", "250")
		if d := time.Since(began); d != 2*time.Second {
			t.Errorf("two messages after %v, want 2s", d)
		}
	})
}

func TestGreylistLetsATriplePassInTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, dial := start(t, Config{Greylist: time.Minute})
		c := dial()
		c.want("220")
		c.talk("EHLO x\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\n", "250", "250",
			"450 4.7.1 <c@d.example>: Recipient address rejected: Greylisted, please try again in 60 seconds")
		time.Sleep(59 * time.Second)
		c.talk("RCPT TO:<c@d.example>\r\nRCPT TO:<e@d.example>\r\n", "450", "450")
		time.Sleep(time.Second)
		c.talk("RCPT TO:<c@d.example>\r\nRCPT TO:<e@d.example>\r\n", "250", "450")
		if n := s.Stats().Greylisted; n != 4 {
			t.Errorf("%d greylisted, want 4", n)
		}
	})
}

func TestIdleClientIsToldSo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, dial := start(t, Config{IdleTimeout: time.Minute, Latency: time.Second})
		c := dial()
		c.want("220", "421 4.4.2", "EOF")
	})
}

func TestRefusalsFitTheirAddresses(t *testing.T) {
	_, dial := start(t, Config{Seed: 1, Refusals: []Refusal{
		UnknownUsers("unknown"),
		UnknownShare(0.5),
		{Phase: Mail, Prefix: "spam", Reply: "550 5.7.1 [{address}] Our system has detected that this message is\nlikely unsolicited mail."},
		{Phase: End, Prefix: "later", Reply: "421 4.7.28 rate limited"},
	}})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\nMAIL FROM:<spam@b.example>\r\nMAIL FROM:<later@b.example>\r\n", "250",
		"550-5.7.1 [spam@b.example] Our system has detected that this message is|550 likely unsolicited mail.", "250")
	c.talk("RCPT TO:<unknown.1@c.example>\r\n", "550 5.1.1 <unknown.1@c.example>")
	refused := make(map[string]bool)
	for round := range 2 {
		for i := range 50 {
			rcpt := fmt.Sprintf("u%d@c.example", i)
			done := c.send("RCPT TO:<" + rcpt + ">\r\n")
			got, err := c.reply()
			if err != nil {
				t.Fatal(err)
			}
			<-done
			if no := got[0] == '5'; round == 0 {
				refused[rcpt] = no
			} else if refused[rcpt] != no {
				t.Errorf("%s is refused once and not the other time", rcpt)
			}
		}
	}
	n := 0
	for _, no := range refused {
		if no {
			n++
		}
	}
	if n < 15 || n > 35 {
		t.Errorf("%d of 50 recipients are refused, want about 25", n)
	}
	c.talk("DATA\r\n", "354")
	c.talk(letter+".\r\n", "421 4.7.28", "EOF")
}

func TestConnectionDropsWhereAsked(t *testing.T) {
	whole := "EHLO x\r\nMAIL FROM:<a@b.example> SIZE=52\r\nRCPT TO:<b@example.net>\r\nDATA\r\n"
	for _, tc := range []struct {
		phase   Phase
		replies int // before the end
		kept    int64
	}{
		{Connect, 0, 0}, {Greeting, 1, 0}, {Hello, 1, 0}, {Mail, 2, 0}, {Rcpt, 3, 0}, {Data, 4, 0},
		{Content, 5, 0}, {End, 5, 0}, {Kept, 5, 1}, {Quit, 6, 1},
	} {
		for _, latency := range []time.Duration{0, time.Millisecond} {
			t.Run(fmt.Sprint(tc.phase, latency), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					rec := NewRecorder(Deliveries, 0)
					s, dial := start(t, Config{Recorder: rec, Latency: latency, Drop: map[Phase]float64{tc.phase: 1}})
					c := dial()
					got := 0
					for _, text := range []string{"", whole, strings.Repeat("x", 60) + "\r\n.\r\n", "QUIT\r\n"} {
						c.send(text)
						for range max(1, strings.Count(text, "\r\n")-boolInt(strings.Contains(text, "\r\n.\r\n"))) {
							if _, err := c.reply(); err != nil {
								break
							}
							got++
						}
					}
					if got != tc.replies {
						t.Errorf("%d replies, want %d", got, tc.replies)
					}
					synctest.Wait()
					st := s.Stats()
					if st.Messages != tc.kept || st.Dropped[tc.phase] != 1 {
						t.Errorf("stats are %+v", st)
					}
					for _, d := range rec.Deliveries() {
						if d.Answered != (tc.phase == Quit) {
							t.Errorf("delivery is %+v", d)
						}
					}
				})
			})
		}
	}
}

func TestConnectionIsNotCutBeforeItsTime(t *testing.T) {
	s, dial := start(t, Config{DropAfter: 2, Drop: map[Phase]float64{Hello: 1, Mail: 1, Kept: 1}})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\n"+toData, "250", "250", "250", "354")
	c.talk(letter+".\r\n"+toData, "250", "250", "250", "354")
	c.talk(letter+".\r\n"+toData, "250", "EOF")
	if st := s.Stats(); st.Messages != 2 || st.Dropped[Mail] != 1 {
		t.Errorf("stats are %+v", st)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestSecondCopyIsExcusedWhenTheFirstWasNotAnswered(t *testing.T) {
	drop := true
	rec := NewRecorder(Hashes, 0)
	hook := func(c Command) Answer { return Answer{Drop: c.Phase == Kept && drop} }
	_, dial := start(t, Config{Recorder: rec, Hook: hook})
	for i := range 3 {
		drop = i == 0
		c := dial()
		c.want("220")
		c.talk("EHLO x\r\n"+toData, "250", "250", "250", "354")
		c.talk("Message-ID: <1>\r\n\r\n.\r\n", []string{"EOF", "250", "250"}[i])
		c.conn.Close()
	}
	if got := rec.Tally(); got.Deliveries != 3 || got.Unique != 1 || got.Excused != 1 || got.Duplicates() != 1 {
		t.Errorf("tally is %+v with %d duplicates", got, got.Duplicates())
	}
}

func TestAnswersOutOfStep(t *testing.T) {
	_, dial := start(t, Config{Stray: map[Phase]float64{Mail: 1}, Swallow: map[Phase]float64{Rcpt: 1}})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\n"+toData, "250", "250 2.0.0 this is not", "250 2.1.0", "354")
}

func TestHookDecidesFirst(t *testing.T) {
	var lines []string
	_, dial := start(t, Config{Hook: func(c Command) Answer {
		lines = append(lines, c.Phase.String())
		switch c.Phase {
		case Rcpt:
			return Answer{Reply: "450 4.2.1 not now"}
		case Hello:
			return Answer{Reply: "250 only me"}
		}
		return Answer{}
	}})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\n"+toData, "250 only me", "250", "450 4.2.1", "554")
	if got := strings.Join(lines, " "); got != "connect greeting EHLO MAIL RCPT DATA" {
		t.Errorf("phases are %s", got)
	}
}

func TestSTARTTLSAndAUTH(t *testing.T) {
	cert, pool, err := SelfSigned("mx.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, latency := range []time.Duration{0, time.Millisecond} {
		s, dial := start(t, Config{TLS: cert, TLSOnly: true, Latency: latency,
			Auth: func(u, p string) bool { return u == "user" && p == "secret" }})
		c := dial()
		c.want("220")
		c.talk("EHLO x\r\nMAIL FROM:<>\r\n", "250", "530 5.7.0 Must issue")
		c.talk("STARTTLS\r\n", "220")
		tc := tls.Client(c.conn, &tls.Config{ServerName: "mx.example", RootCAs: pool})
		if err := tc.Handshake(); err != nil {
			t.Fatal(err)
		}
		c.conn, c.r = tc, bufio.NewReader(tc)
		c.talk("MAIL FROM:<>\r\n", "503")
		c.talk("EHLO x\r\nMAIL FROM:<>\r\n", "250", "530 5.7.0 Authentication")
		c.talk("AUTH PLAIN AHVzZXIAd3Jvbmc=\r\n", "535 5.7.8")
		c.talk("AUTH PLAIN\r\n", "334 ")
		c.talk("AHVzZXIAc2VjcmV0\r\n", "235")
		c.talk(toData, "250", "250", "354")
		c.talk(letter+".\r\nQUIT\r\n", "250", "221", "EOF")
		s.Close()
		if got := s.Connections(); len(got) != 1 || !got[0].TLS || got[0].Messages != 1 || got[0].End != "QUIT" {
			t.Errorf("connections are %+v", got)
		}
	}
}

func TestAUTHLOGIN(t *testing.T) {
	_, dial := start(t, Config{Auth: func(u, p string) bool { return u == "user" && p == "secret" }})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\nAUTH LOGIN\r\n", "250", "334 VXNlcm5hbWU6")
	c.talk("dXNlcg==\r\n", "334 UGFzc3dvcmQ6")
	c.talk("c2VjcmV0\r\n", "235")
}

func TestClearTextAfterSTARTTLSEndsTheSession(t *testing.T) {
	cert, _, err := SelfSigned("mx.example")
	if err != nil {
		t.Fatal(err)
	}
	s, dial := start(t, Config{TLS: cert})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\nSTARTTLS\r\nMAIL FROM:<>\r\n", "250", "220", "EOF")
	if s.Stats().Faults["commands pipelined after STARTTLS"] != 1 {
		t.Errorf("faults are %v", s.Stats().Faults)
	}
}

func TestInspectNotesWhatClientsShouldNotDo(t *testing.T) {
	s, dial := start(t, Config{Inspect: true})
	c := dial()
	c.want("220")
	c.talk("EHLO x\r\n", "250")
	c.talk(toData, "250", "250", "354")
	c.talk("a\rb\nc\x00\xe4"+strings.Repeat("x", 1000)+"\r\n.\r\n", "250")
	c.talk("NOOP\r\nNOOP\n", "250", "250")
	got := s.Stats().Faults
	for _, f := range []string{"a bare CR in content", "a bare LF in content", "a NUL in content",
		"a line of content over 998 octets", "8-bit content without BODY=8BITMIME", "pipelined after NOOP", "a command that ends in a bare LF"} {
		if got[f] != 1 {
			t.Errorf("%s: seen %d times, want once", f, got[f])
		}
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	rec := NewRecorder(Hashes, 0)
	s, l := New(Config{Latency: time.Hour, Recorder: rec}), NewPipeListener()
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	for range 3 {
		conn, err := l.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "EHLO x\r\n"+toData); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := s.Serve(NewPipeListener()); err != ErrClosed {
		t.Errorf("Serve after Close: %v, want ErrClosed", err)
	}
	if st := s.Stats(); st.Open != 0 || st.Connections != 3 || st.Peak != 3 {
		t.Errorf("stats are %+v", st)
	}
}

func TestRecorderStopsAtItsLimitAndSaysSo(t *testing.T) {
	rec := NewRecorder(Hashes, 2)
	for i := range 5 {
		rec.mu.Lock()
		rec.deliver(Delivery{ID: fmt.Sprint(i % 3), Recipient: "a", Answered: true})
		rec.mu.Unlock()
	}
	if got := rec.Tally(); got.Unique != 2 || got.Untracked != 1 || got.Duplicates() != 2 {
		t.Errorf("tally is %+v", got)
	}
	if !rec.Has("1", "a") || rec.Has("2", "a") || rec.Has("1", "b") {
		t.Error("the recorder has what it should not, or lacks what it should have")
	}
}

func TestWaitEndsWithTheNumberOrTheContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rec := NewRecorder(Hashes, 0)
		_, dial := start(t, Config{Recorder: rec})
		waited := make(chan error, 1)
		go func() { waited <- rec.Wait(t.Context(), 1) }()
		c := dial()
		c.want("220")
		c.talk("EHLO x\r\n"+toData, "250", "250", "250", "354")
		c.talk(letter+".\r\n", "250")
		if err := <-waited; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := rec.Wait(ctx, 2); err != context.DeadlineExceeded {
			t.Errorf("waiting for too many: %v", err)
		}
	})
}

// FuzzSession feeds a session any bytes: it must end, and never keep more than was sent.
func FuzzSession(f *testing.F) {
	f.Add([]byte("EHLO x\r\n" + toData + letter + ".\r\nQUIT\r\n"))
	f.Add([]byte("EHLO x\r\nMAIL FROM:<> SIZE=9\r\nRCPT TO:<\"a>b\"@c>\r\nBDAT 3\r\nabcBDAT 0 LAST\r\nAUTH PLAIN =\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := New(Config{Inspect: true, Recorder: NewRecorder(Contents, 10), MaxSize: 1 << 20, Auth: nil})
		conn := &script{in: in}
		s.start(conn)
		s.wait.Wait()
		if st := s.Stats(); st.Octets > int64(len(in)) {
			t.Errorf("%d octets were kept of %d", st.Octets, len(in))
		}
	})
}

// script is a connection on which everything was said already.
type script struct {
	net.Conn
	in []byte
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.in)
	s.in = s.in[n:]
	return n, nil
}
func (s *script) Write(p []byte) (int, error)     { return len(p), nil }
func (s *script) Close() error                    { return nil }
func (s *script) SetReadDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr            { return pipeAddr{} }
