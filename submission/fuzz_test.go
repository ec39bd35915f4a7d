package submission

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"

	"github.com/pires/go-proxyproto"
)

// scriptConn is a client that says its parts, each after a reply to the one before, in pieces of
// at most size octets, and then leaves.
type scriptConn struct {
	remote string
	parts  []string
	size   int
	done   chan struct{}
	once   sync.Once

	mu  sync.Mutex
	out bytes.Buffer
}

func (c *scriptConn) Read(p []byte) (int, error) {
	for len(c.parts) > 0 && c.parts[0] == "" {
		c.parts = c.parts[1:]
	}
	if len(c.parts) == 0 {
		return 0, fmt.Errorf("reading: %w", net.ErrClosed)
	}
	n := copy(p[:min(len(p), c.size)], c.parts[0])
	c.parts[0] = c.parts[0][n:]
	return n, nil
}

func (c *scriptConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(p)
}

func (c *scriptConn) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

func (c *scriptConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.ParseIP(c.remote), Port: 1} }
func (c *scriptConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *scriptConn) SetDeadline(time.Time) error      { return nil }
func (c *scriptConn) SetReadDeadline(time.Time) error  { return nil }
func (c *scriptConn) SetWriteDeadline(time.Time) error { return nil }

// errorLog fails the test when the library logs: it does so when a handler panicked.
type errorLog struct {
	slog.Handler
	t *testing.T
}

func (l errorLog) Enabled(context.Context, slog.Level) bool { return true }
func (l errorLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError || strings.HasPrefix(r.Message, "the SMTP library gave") {
		l.t.Errorf("logged: %s", r.Message)
	}
	return nil
}

// play runs one scripted session to its end and gives what the server said.
func play(t *testing.T, cfg Config, c *scriptConn) string {
	cfg.Intake.Hostname = "relay.example.com"
	cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	cfg.Intake.Log = slog.New(errorLog{slog.DiscardHandler, t})
	c.done = make(chan struct{})
	l := newPipeListener()
	s := New(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	l.conns <- c
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		t.Fatal("session hangs")
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// FuzzSession sends raw octets after EHLO. Whatever they are, the server's replies must fit what
// an independent reading of the octets says are commands and contents, and what it accepts must
// be what that reading says was sent.
func FuzzSession(f *testing.F) {
	envelope := "MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\n"
	for _, s := range []string{
		envelope + "DATA\r\nSubject: x\r\n\r\nhello\r\n.\r\nQUIT\r\n",
		envelope + "DATA\r\n..\r\n.\r\n" + envelope + "BDAT 3\r\nabcBDAT 2 LAST\r\n\r\nNOOP\r\n",
		envelope + "DATA\r\nx\n.\r\nMAIL FROM:<c@example.org>\r\n.\r\n",
		envelope + "DATA\r\nx\r\r\n.\r\nRSET\r\n",
		envelope + "DATA\r\n.\rx\r\n.\r\n",
		envelope + "DATA\r\nhalf",
		envelope + "BDAT 100 LAST\r\nhalf",
		envelope + "BDAT 0 LAST\r\nRSET\r\nDATA\r\nQUIT\r\n",
		envelope + "BDAT x\r\nQUIT\r\n",
		envelope + "BDAT 0\r\nDATA\r\nx\r\n.\r\n",
		envelope + "bdat 4 last\r\n\xff\r\n\x00data\r\n",
		"MAIL FROM:<>\r\nRCPT TO:<\"a b\"@[192.0.2.1]> NOTIFY=NEVER\r\nDATA \r\nReceived: x\r\n\r\n.\r\nNOOP\r\n",
		strings.Repeat("FOO\r\n", 30), strings.Repeat("NOOP\r\n", 500),
		envelope + "DATA\r\n.\r\nNOOP " + strings.Repeat("x", 9000) + "\r\nNOOP\r\n",
		strings.Repeat("x", 9000) + "\r\nNOOP\r\n",
		"NOOP\nQUIT\r\n", "\x00\r\n\r\n \r\n", "EHLO \r\nHELO x\r\nEHLO y z\r\nMAIL FROM:<a@b.example> SIZE=99999999999 BODY=FOO\r\n",
		"STARTTLS\r\nAUTH PLAIN AGEAYg==\r\nVRFY x\r\nEXPN x\r\nHELP\r\n",
	} {
		f.Add([]byte(s), byte(0), false)
		f.Add([]byte(s), byte(3), false)
		f.Add([]byte(s), byte(0), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, size byte, normalise bool) {
		if len(raw) > 64<<10 {
			return
		}
		store := new(memStore)
		cfg := Config{Intake: intake.Config{Store: store}}
		if normalise {
			cfg.BareNewlines = intake.NormaliseBareNewlines
		}
		c := &scriptConn{remote: "192.0.2.1", parts: []string{"EHLO app\r\n", string(raw)}, size: int(size)}
		if size == 0 {
			c.size = 1 << 20
		}
		said := play(t, cfg, c)
		var got []string
		for _, m := range store.all(t) {
			if hasBareNewline(m.content) || strings.Contains(m.content, "\x00") {
				t.Errorf("stored %q", m.content)
			}
			got = append(got, m.content)
		}
		if normalise {
			return // the reading below knows no other line end than CRLF
		}
		ref := reading{rest: string(raw), replies: finalReplies(said)}
		if err := ref.run(); err != nil {
			t.Fatalf("%v\nclient %q\nserver %q", err, raw, said)
		}
		if len(got) != len(ref.accepted) {
			t.Fatalf("%d messages stored, %d sent and accepted\nclient %q\nserver %q", len(got), len(ref.accepted), raw, said)
		}
		for i := range got {
			if rest, ok := cutTrace(got[i]); !ok || rest != withSeparator(ref.accepted[i]) {
				t.Errorf("stored %q, sent %q", got[i], ref.accepted[i])
			}
		}
	})
}

// reading is an independent reading of a session: what are commands, what is content. It takes
// from the server only whether it said yes or no.
type reading struct {
	rest     string
	replies  []string
	chunks   string
	accepted []string
}

var chunkLine = regexp.MustCompile(`^(?i:bdat) +([0-9]{1,10})(?: +(?i:last))?[ \t]*$`)

// run reads to the end of the session.
func (r *reading) run() error {
	r.next() // banner
	r.next() // EHLO
	for {
		line, rest, ok := strings.Cut(r.rest, "\n")
		code := r.next()
		if !ok || code == "" || code == "421" {
			return r.end(code, ok)
		}
		r.rest = rest
		verb := strings.ToUpper(strings.TrimRight(line, " \t\r"))
		chunk := chunkLine.FindStringSubmatch(strings.TrimSuffix(line, "\r"))
		switch {
		case verb == "QUIT" && code == "221":
			return r.end(r.next(), false)
		case verb == "DATA" && code == "354":
			text, after, found := cutData(r.rest)
			r.rest = after
			switch code = r.next(); {
			case !found && code == "421":
				return r.end(r.next(), false)
			case !found:
				return fmt.Errorf("half a message was answered %q", code)
			case code == "250":
				r.accepted = append(r.accepted, text)
			case code == "550" && len(r.replies) == 0: // a bare newline ends the session
				return nil
			}
		case chunk != nil && strings.HasSuffix(line, "\r"):
			n, _ := strconv.Atoi(chunk[1])
			if n > len(r.rest) {
				return r.end(code, false)
			}
			r.chunks += r.rest[:n]
			r.rest = r.rest[n:]
			last := strings.HasSuffix(verb, "LAST")
			if last && code == "250" {
				r.accepted = append(r.accepted, r.chunks)
			}
			if last || code != "250" {
				r.chunks = ""
			}
		case (verb == "RSET" || strings.HasPrefix(verb, "EHLO") || strings.HasPrefix(verb, "HELO")) && code == "250":
			r.chunks = ""
		}
		if len(r.replies) == 0 && isLastWord(verb, code) {
			return nil
		}
	}
}

// end checks that the server has stopped where it may: after 421, or when the client had left.
func (r *reading) end(code string, more bool) error {
	switch {
	case len(r.replies) > 0:
		return fmt.Errorf("replies left: %q", r.replies)
	case more && code == "":
		return fmt.Errorf("no reply to %q", r.rest)
	case code != "" && code != "421" && !strings.HasPrefix(code, "5"):
		return fmt.Errorf("a reply to nothing: %s", code)
	}
	return nil
}

// isLastWord reports which refusals end a session: those after which it is not known what comes.
func isLastWord(verb, code string) bool {
	return strings.HasPrefix(verb, "BDAT") && (code == "501" || code == "552" || code == "550") || strings.HasPrefix(verb, "DATA") && strings.HasPrefix(code, "5")
}

func (r *reading) next() string {
	if len(r.replies) == 0 {
		return ""
	}
	code := r.replies[0]
	r.replies = r.replies[1:]
	return code
}

func finalReplies(said string) []string { return strings.Fields(codes(said)) }

// cutData is RFC 5321, 4.5.2 by the letter.
func cutData(s string) (text, rest string, ok bool) {
	text, rest, ok = strings.Cut("\r\n"+s, "\r\n.\r\n")
	return strings.ReplaceAll(text+"\r\n", "\r\n.", "\r\n")[2:], rest, ok
}

var traceFields = regexp.MustCompile(`^Received: from [^\r\n]*\r\n(?:\t[^\r\n]*\r\n){3,4}`)

// cutTrace takes the fields away that the relay has added.
func cutTrace(s string) (string, bool) {
	m := traceFields.FindString(s)
	if m == "" {
		return "", false
	}
	s = s[len(m):]
	head := s
	for _, name := range []string{"Date", "Message-ID"} {
		if line, after, _ := strings.Cut(s, "\r\n"); strings.HasPrefix(line, name+": ") && !hasField(strings.TrimPrefix(head, line+"\r\n"), name) {
			s, head = after, after
		}
	}
	return s, true
}

var fieldLine = regexp.MustCompile(`^[!-9;-~]+[ \t]*:`)

// withSeparator puts a blank line where the header section ends without one.
func withSeparator(s string) string {
	if s != "" && !strings.HasSuffix(s, "\r\n") {
		s += "\r\n"
	}
	if n, blank := headerEnd(s); !blank {
		return s[:n] + "\r\n" + s[n:]
	}
	return s
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"<a@b.example>", "<>", `<"a b"@b.example> SIZE=1`, "<@x:a@b.example>", "<ü@ü.example>", "<postmaster>", "a@b", `<"\"@x>"@y>`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePath(s)
		if err != nil {
			return
		}
		if hasControl([]byte(p.address)) && !hasControl([]byte(s)) || strings.ContainsAny(string(p.address), "\r\n\x00") {
			t.Errorf("%q: address %q", s, p.address)
		}
		if p.address == "" {
			return
		}
		again, err := parsePath("<" + string(p.address) + ">" + p.params)
		if err != nil || again != p {
			t.Errorf("%q: %+v, then %+v, %v", s, p, again, err)
		}
		if _, err := envelope.ParseAddress(string(p.address)); err != nil {
			t.Errorf("%q: %q: %v", s, p.address, err)
		}
	})
}

// FuzzProxy sends raw octets from a network that must send a PROXY header. Only an address in a
// valid header may relay.
func FuzzProxy(f *testing.F) {
	for _, s := range []string{
		proxyHeader(1, "192.0.2.1:1"), proxyHeader(2, "192.0.2.1:1"), proxyHeader(2, "[2001:db8::1]:1"), proxyHeader(1, "198.51.100.1:1"),
		"PROXY UNKNOWN\r\n", "PROXY TCP4 \r\n", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", "EHLO x\r\n", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 4096 {
			return
		}
		store := new(memStore)
		c := &scriptConn{remote: "203.0.113.1", size: 1 << 16, parts: []string{
			string(raw), "EHLO app\r\n", "MAIL FROM:<a@example.org>\r\n", "RCPT TO:<b@example.net>\r\n", "BDAT 0 LAST\r\n", "QUIT\r\n",
		}}
		play(t, Config{Intake: intake.Config{Store: store}, ProxyFrom: proxied.ProxyFrom}, c)
		if len(store.all(t)) == 0 {
			return
		}
		h, err := proxyproto.Read(newReader(raw))
		if err != nil || !h.Command.IsProxy() {
			t.Fatalf("%q may relay: %v, %v", raw, h, err)
		}
		src, _, ok := h.TCPAddrs()
		if !ok || !netip.MustParsePrefix("192.0.2.0/24").Contains(src.AddrPort().Addr().Unmap()) {
			t.Fatalf("%q may relay from %v", raw, src)
		}
	})
}

func newReader(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }

// headerEnd finds where the header section of s ends, and whether a blank line ends it.
func headerEnd(s string) (n int, blank bool) {
	for line := range strings.Lines(s) {
		switch {
		case strings.TrimRight(line, "\r\n") == "":
			return n + len(line), true
		case n > 0 && (line[0] == ' ' || line[0] == '\t'), fieldLine.MatchString(line):
			n += len(line)
		default:
			return n, false
		}
	}
	return n, n > 0
}

func hasField(s, name string) bool {
	n, _ := headerEnd(s)
	for line := range strings.Lines(s[:n]) {
		if field, _, ok := strings.Cut(line, ":"); ok && strings.EqualFold(strings.TrimRight(field, " \t"), name) {
			return true
		}
	}
	return false
}
