package milter

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-milter"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// asked makes a message as a desk has it, with a header and a body.
func asked() *intake.Filtered {
	return &intake.Filtered{ID: "01abc.1", Hostname: "relay.example.com", Tenant: "acme", Sender: "a@acme.example",
		Client: &intake.Client{Peer: netip.MustParseAddrPort("192.0.2.7:40000"), Helo: "app", User: "carl",
			TLS: &tls.ConnectionState{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256}},
		Recipients: []envelope.Recipient{{Address: "b@example.net"}, {Address: "c@example.net"}},
		Header:     []byte("Subject: a\r\n\tb\r\nX-A: 1\r\nx-a:2\r\n"), Body: []byte("hello\r\n"),
		Limits: intake.Limits{Size: 1 << 20, HeaderSize: 4 << 10, LineLength: 998},
		Take:   func(int64) bool { return true },
		Unfit: func(header []byte) error {
			if bytes.Contains(header, []byte("From")) {
				return errors.New("it makes a message that can't be signed")
			}
			return nil
		}}
}

// with makes milters that all reach one program, which serves each connection.
func with(serve func(net.Conn), settings ...Settings) *Milters {
	m := New(func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "away" {
			return nil, errors.New("connection refused")
		}
		near, far := net.Pipe()
		go func() { defer far.Close(); serve(far) }()
		return near, nil
	}, time.Now, slog.New(slog.DiscardHandler))
	for i := range settings {
		s := &settings[i]
		if s.Name == "" {
			s.Name = "scan"
		}
		if s.Timeout == 0 {
			s.Timeout = 30 * time.Second
		}
	}
	m.Set(settings)
	return m
}

// script is a milter of go-milter's server, which speaks version 2.
type script struct {
	milter.NoOpMilter
	heard []string
	end   func(*milter.Modifier) (milter.Response, error)
}

func (s *script) hear(format string, args ...any) {
	s.heard = append(s.heard, fmt.Sprintf(format, args...))
}

func (s *script) Connect(host, family string, port uint16, addr net.IP, m *milter.Modifier) (milter.Response, error) {
	s.hear("connect %s %s %d %v j=%s", host, family, port, addr, m.Macros["j"])
	return milter.RespContinue, nil
}

func (s *script) Helo(name string, m *milter.Modifier) (milter.Response, error) {
	s.hear("helo %s %s %s", name, m.Macros["{tls_version}"], m.Macros["{cipher}"])
	return milter.RespContinue, nil
}

func (s *script) MailFrom(from string, m *milter.Modifier) (milter.Response, error) {
	s.hear("mail %s i=%s %s %s", from, m.Macros["i"], m.Macros["{auth_authen}"], m.Macros["{mail_addr}"])
	return milter.RespContinue, nil
}

func (s *script) RcptTo(to string, m *milter.Modifier) (milter.Response, error) {
	s.hear("rcpt %s %s", to, m.Macros["{rcpt_addr}"])
	return milter.RespContinue, nil
}

func (s *script) Header(name, value string, _ *milter.Modifier) (milter.Response, error) {
	s.hear("%s=%q", name, value)
	return milter.RespContinue, nil
}

func (s *script) Headers(textproto.MIMEHeader, *milter.Modifier) (milter.Response, error) {
	s.hear("eoh")
	return milter.RespContinue, nil
}

func (s *script) BodyChunk(chunk []byte, _ *milter.Modifier) (milter.Response, error) {
	s.hear("body %q", chunk)
	return milter.RespContinue, nil
}

func (s *script) Body(m *milter.Modifier) (milter.Response, error) { return s.end(m) }

// listening runs a script behind a listener of pipes, and gives the milters that ask it.
func listening(t *testing.T, s *script, settings ...Settings) *Milters {
	t.Helper()
	ln := &pipes{in: make(chan net.Conn), done: make(chan struct{})}
	srv := &milter.Server{NewMilter: func() milter.Milter { return s },
		Actions: milter.OptAddHeader | milter.OptChangeBody | milter.OptChangeHeader | milter.OptQuarantine}
	go srv.Serve(ln)
	t.Cleanup(func() { ln.Close() })
	return with(func(c net.Conn) {
		ended := make(chan struct{})
		ln.in <- &closing{Conn: c, ended: ended}
		<-ended
	}, settings...)
}

type pipes struct {
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

type closing struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *closing) Close() error { c.once.Do(func() { close(c.ended) }); return c.Conn.Close() }

func TestConversation(t *testing.T) {
	s := &script{end: func(m *milter.Modifier) (milter.Response, error) { return milter.RespAccept, nil }}
	ms := listening(t, s, Settings{Tenants: []string{"acme"}, Listeners: []string{"smtp"}})
	if ms.Of("smtp").For("other") || ms.Of("web").For("acme") || !ms.Of("smtp").For("acme") {
		t.Error("it is not asked about the mail that it is for")
	}
	m := asked()
	if v := ms.Of("smtp").Filter(t.Context(), m); v != (intake.Verdict{}) || m.Changed {
		t.Fatalf("%+v", v)
	}
	const want = `connect [192.0.2.7] tcp4 40000 192.0.2.7 j=relay.example.com
helo app TLSv1.3 TLS_AES_128_GCM_SHA256
mail a@acme.example i=01abc.1 carl a@acme.example
rcpt b@example.net b@example.net
rcpt c@example.net c@example.net
Subject="a\n\tb"
X-A="1"
x-a="2"
eoh
body "hello\r\n"`
	if got := strings.Join(s.heard, "\n"); got != want {
		t.Errorf("heard:\n%s", got)
	}
	if n := ms.Counts()["scan"]; n.Asked.Load() != 1 || n.Failed.Load() != 0 {
		t.Errorf("counts: asked %d, failed %d", n.Asked.Load(), n.Failed.Load())
	}
}

// What a milter may do is done, in order; what makes no message, or none within the limits, is its failure.
func TestAnswers(t *testing.T) {
	const header, body = "Subject: a\r\n\tb\r\nX-A: 1\r\nx-a:2\r\n", "hello\r\n"
	accept := func(change func(m *milter.Modifier) error) func(m *milter.Modifier) (milter.Response, error) {
		return func(m *milter.Modifier) (milter.Response, error) { return milter.RespAccept, change(m) }
	}
	respond := func(r milter.Response) func(m *milter.Modifier) (milter.Response, error) {
		return func(*milter.Modifier) (milter.Response, error) { return r, nil }
	}
	reply := func(text string) func(m *milter.Modifier) (milter.Response, error) {
		return respond(milter.NewResponseStr('y', text))
	}
	const failed = "451 4.3.0 message can't be checked by filter scan now, try again later"
	for name, c := range map[string]struct {
		end          func(m *milter.Modifier) (milter.Response, error)
		refused      string
		held         string
		header, body string
	}{
		"reject":     {respond(milter.RespReject), "550 5.7.1 message refused by filter scan", "", header, body},
		"tempfail":   {respond(milter.RespTempFail), "451 4.7.1 message deferred by filter scan, try again later", "", header, body},
		"reply":      {reply("554 5.6.0 no\x01 such thing"), "554 5.6.0 no  such thing", "", header, body},
		"lines":      {reply("550-5.7.1 first\r\n550 5.7.1 second"), "550 5.7.1 first second", "", header, body},
		"plain":      {reply("452 later"), "452 4.7.1 later", "", header, body},
		"closing":    {reply("421 4.3.2 bye"), "451 4.3.2 bye", "", header, body},
		"not one":    {reply("250 2.0.0 fine"), failed, "", header, body},
		"discard":    {respond(milter.RespDiscard), "", "554 5.7.1 discarded by milter scan", header, body},
		"quarantine": {accept(func(m *milter.Modifier) error { return m.Quarantine("odd\r\nthing") }), "", "450 4.7.1 quarantined by milter scan: odd  thing", header, body},
		"fields": {accept(func(m *milter.Modifier) error {
			return errors.Join(m.AddHeader("X-New", "1\n\t2"), m.InsertHeader(0, "X-Top", "t"), m.InsertHeader(3, "X-Third", "3"),
				m.InsertHeader(99, "X-Last", "l"), m.ChangeHeader(1, "X-A", ""), m.ChangeHeader(2, "x-A", "two"), m.ChangeHeader(1, "X-B", "b"),
				m.ChangeHeader(1, "X-None", ""))
		}), "", "", "X-Top: t\r\nSubject: a\r\n\tb\r\nX-Third: 3\r\nx-A: two\r\nX-New: 1\r\n\t2\r\nX-Last: l\r\nX-B: b\r\n", body},
		"own fields": {accept(func(m *milter.Modifier) error {
			return errors.Join(m.AddHeader("X-MTA-Pace", "1/h"), m.InsertHeader(1, "x-hold-for", "1h"), m.AddHeader("MT-Priority", "9"),
				m.ChangeHeader(1, "X-MTA-Other", "a"), m.AddHeader("X-New", "1"))
		}), "", "", header + "X-New: 1\r\n", body},
		"body": {accept(func(m *milter.Modifier) error {
			return errors.Join(m.ReplaceBody([]byte("a\nb")), m.ReplaceBody([]byte("c")))
		}), "", "", header, "a\r\nbc\r\n"},
		"no body":  {accept(func(m *milter.Modifier) error { return m.ReplaceBody(nil) }), "", "", header, ""},
		"NUL":      {accept(func(m *milter.Modifier) error { return m.ReplaceBody([]byte("a\x00")) }), failed, "", header, body},
		"long":     {accept(func(m *milter.Modifier) error { return m.ReplaceBody(bytes.Repeat([]byte("a"), 999)) }), failed, "", header, body},
		"smuggled": {accept(func(m *milter.Modifier) error { return m.AddHeader("X", "a\nBcc: b") }), failed, "", header, body},
		"bad name": {accept(func(m *milter.Modifier) error { return m.AddHeader("X: a", "b") }), failed, "", header, body},
		"large field": {accept(func(m *milter.Modifier) error {
			return m.AddHeader("X", strings.Repeat(strings.Repeat("a", 500)+"\n ", 9))
		}),
			failed, "", header, body},
		"long field": {accept(func(m *milter.Modifier) error { return m.AddHeader("X", strings.Repeat("a", 999)) }),
			failed, "", header, body},
		"large body": {accept(func(m *milter.Modifier) (err error) {
			for range 17 {
				err = errors.Join(err, m.ReplaceBody(bytes.Repeat([]byte(strings.Repeat("a", 511)+"\n"), 127)))
			}
			return err
		}), failed, "", header, body},
		"unfit":    {accept(func(m *milter.Modifier) error { return m.AddHeader("From", "x@acme.example") }), failed, "", header, body},
		"envelope": {accept(func(m *milter.Modifier) error { return m.AddRecipient("<x@example.net>") }), failed, "", header, body},
		"many": {accept(func(m *milter.Modifier) (err error) {
			for range 201 {
				err = errors.Join(err, m.AddHeader("X", "y"))
			}
			return err
		}), failed, "", header, body},
	} {
		t.Run(name, func(t *testing.T) {
			for _, accept := range []bool{false, true} {
				ms := listening(t, &script{end: c.end}, Settings{Accept: accept})
				m := asked()
				v := ms.Of("smtp").Filter(t.Context(), m)
				if got := text(v.Refused); got != c.refused && !(accept && c.refused == failed && got == "") {
					t.Errorf("refused: %q, want %q", got, c.refused)
				}
				if got := text(v.Held); got != c.held || v.Discarded != (name == "discard") {
					t.Errorf("held: %q, want %q", got, c.held)
				}
				if string(m.Header) != c.header || string(m.Body) != c.body || m.Changed != (c.header+c.body != header+body) {
					t.Errorf("changed %v:\n%s\n%s", m.Changed, m.Header, m.Body)
				}
				if (c.refused == failed) != (ms.Counts()["scan"].Failed.Load() == 1) || (c.refused == failed) != (ms.Trouble() != "") {
					t.Errorf("failures are counted wrongly: %q", ms.Trouble())
				}
			}
		})
	}
}

// The Received fields of this relay end mail loops: they stay as they are.
func TestTraceStays(t *testing.T) {
	ms := listening(t, &script{end: func(m *milter.Modifier) (milter.Response, error) {
		return milter.RespAccept, errors.Join(m.ChangeHeader(1, "received", ""), m.ChangeHeader(1, "Received", "from nobody"),
			m.ChangeHeader(3, "Received", "from nobody"), m.ChangeHeader(2, "Received", ""))
	}}, Settings{})
	const first, last = "Received: from a\r\n\tby relay.example.com with HTTP; x\r\n", "RECEIVED: from b by relay.example.com with SMTP; y\r\n"
	m := asked()
	m.Header = []byte(first + "Received: from c by other.example; y\r\n" + last)
	if v := ms.Of("smtp").Filter(t.Context(), m); v.Refused != nil || string(m.Header) != first+last {
		t.Errorf("%v\n%s", v.Refused, m.Header)
	}
}

// A message that is large by itself is at fault where it exceeds a limit with a milter's changes. That is no failure of
// the milter, and does not say that it works either. The number of its changes is the milter's fault alone.
func TestLargeMessages(t *testing.T) {
	for want, c := range map[string]struct {
		header, body string
		fields       int // that the milter adds, of 200 octets
	}{
		"552 5.3.4 with the changes of filter scan: header section larger than 4096 octets": {strings.Repeat("X: y\r\n", 400), "", 20},
		"552 5.3.4 with the changes of filter scan: message larger than 10000 octets":       {"", strings.Repeat("a\r\n", 3000), 10},
		"451 4.3.0 message can't be checked by filter scan now, try again later":            {strings.Repeat("X: y\r\n", 300), "", 201},
	} {
		ms := listening(t, &script{end: func(m *milter.Modifier) (_ milter.Response, err error) {
			for range c.fields {
				err = errors.Join(err, m.AddHeader("X", strings.Repeat("z", 197)))
			}
			return milter.RespAccept, err
		}}, Settings{})
		m := asked()
		m.Header, m.Body, m.Limits.Size = []byte(c.header), []byte(c.body), 10_000
		got := text(ms.Of("smtp").Filter(t.Context(), m).Refused)
		n := ms.Counts()["scan"]
		if failed := want[0] == '4'; got != want || failed != (n.Failed.Load() == 1) || failed != (n.Stopped.Load() == 0) || failed != (ms.Trouble() != "") {
			t.Errorf("%q, want %q, trouble %q", got, want, ms.Trouble())
		}
		if !(*ms.all.Load())[0].decided.IsZero() {
			t.Errorf("%s: the milter counts as one that works", want)
		}
	}
}

func text(r interface{ String() string }) string {
	if s := fmt.Sprint(r); s != "<nil>" {
		return r.String()
	}
	return ""
}

// negotiated reads the client's offer and answers with a version, actions and a protocol.
func negotiated(c net.Conn, version, actions, protocol uint32) error {
	io.ReadFull(c, make([]byte, 4+13))
	b := append([]byte{0, 0, 0, 13}, 'O')
	for _, n := range []uint32{version, actions, protocol} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	_, err := c.Write(b)
	return err
}

// deaf reads all that comes and answers nothing.
func deaf(c net.Conn) { io.Copy(io.Discard, c) }

// A milter that hangs, lies, floods or dies gets the message refused, or passed, in its time and in bounded memory.
func TestHostileMilters(t *testing.T) {
	flood := func(c net.Conn, packet []byte) {
		negotiated(c, 6, 0x33, 0x7f) // it wants the end alone
		go io.Copy(io.Discard, c)
		for {
			if _, err := c.Write(packet); err != nil {
				return
			}
		}
	}
	framed := func(code byte, data string) []byte {
		return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(data)+1)), code), data...)
	}
	for name, c := range map[string]struct {
		serve func(net.Conn)
		took  time.Duration // it fails before that
		why   string
	}{
		"silent":         {deaf, 30 * time.Second, "no answer in time"},
		"silent later":   {func(c net.Conn) { negotiated(c, 6, 0, 0); deaf(c) }, 30 * time.Second, "no answer in time"},
		"reads nothing":  {func(c net.Conn) { negotiated(c, 6, 0x33, 0); time.Sleep(time.Minute) }, 30 * time.Second, "no answer in time"},
		"closes":         {func(net.Conn) {}, 0, "closed pipe"},
		"dies mid-way":   {func(c net.Conn) { negotiated(c, 6, 0, 0); io.ReadFull(c, make([]byte, 50)) }, 0, "closed pipe"},
		"HTTP":           {func(c net.Conn) { go deaf(c); c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); deaf(c) }, 0, "exceeds"},
		"4 GiB":          {func(c net.Conn) { go deaf(c); c.Write([]byte{0xff, 0xff, 0xff, 0xff, 'O'}); deaf(c) }, 0, "exceeds"},
		"empty packet":   {func(c net.Conn) { go deaf(c); c.Write([]byte{0, 0, 0, 0, 0}); deaf(c) }, 0, "zero-length"},
		"version 1":      {func(c net.Conn) { negotiated(c, 1, 0, 0); deaf(c) }, 0, "unsupported milter version"},
		"more protocol":  {func(c net.Conn) { negotiated(c, 6, 0, 1<<20); deaf(c) }, 0, "not offered"},
		"out of order":   {func(c net.Conn) { negotiated(c, 6, 0x33, 0); go deaf(c); c.Write(framed('h', "X\x00y\x00")); deaf(c) }, 0, "unexpected code"},
		"unknown answer": {func(c net.Conn) { negotiated(c, 6, 0x33, 0x7f); go deaf(c); c.Write(framed('z', "")); deaf(c) }, 0, "unexpected code"},
		"progress, ever": {func(c net.Conn) { flood(c, framed('p', "")) }, time.Second, "more than a message can have"},
		"body, 100 MB":   {func(c net.Conn) { flood(c, framed('b', strings.Repeat("x", 64<<10))) }, time.Second, "more than a message can have"},
		"tiny changes":   {func(c net.Conn) { flood(c, framed('h', "X\x00\x00")) }, time.Second, "more than a message can have"},
		"slow drops": {func(c net.Conn) {
			negotiated(c, 6, 0x33, 0x7f)
			go deaf(c)
			drip(c, framed('b', strings.Repeat("x", 64)))
		}, 30 * time.Second, "no answer in time"},
		"malformed reply": {func(c net.Conn) {
			negotiated(c, 6, 0x33, 0x7f)
			go deaf(c)
			c.Write(framed('y', "abc no\x00"))
			deaf(c)
		}, 0, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				for _, accept := range []bool{false, true} {
					ms := with(c.serve, Settings{Accept: accept})
					taken := int64(0)
					m := asked()
					m.Take = func(n int64) bool { taken += n; return taken < 3<<20 }
					began := time.Now()
					v := ms.Of("smtp").Filter(t.Context(), m)
					if got := text(v.Refused); accept != (got == "") || !accept && !strings.HasPrefix(got, "451 4.3.0") {
						t.Errorf("accept %v: %q", accept, got)
					}
					if took := time.Since(began); took > c.took {
						t.Errorf("took %v", took)
					}
					trouble := ms.Trouble()
					if !strings.Contains(trouble, c.why) || strings.Contains(trouble, "passes unchecked") != accept {
						t.Errorf("trouble: %q", trouble)
					}
					if m.Changed || taken > 3<<20 {
						t.Errorf("changed %v, %d octets taken", m.Changed, taken)
					}
				}
				time.Sleep(time.Minute) // until the last of them ends
				synctest.Wait()
			})
		})
	}
}

func drip(c net.Conn, b []byte) {
	for i := 0; ; i++ {
		time.Sleep(time.Second)
		if _, err := c.Write(b[i%len(b):][:1]); err != nil {
			return
		}
	}
}

// rspamd wants all actions and answers no steps, whatever is offered.
func TestWantsMoreThanIsOffered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ms := with(func(c net.Conn) {
			negotiated(c, 6, 0x1ff, 0xff080)
			go deaf(c)
			c.Write([]byte{0, 0, 0, 1, 'r'})
		}, Settings{})
		if got := text(ms.Of("smtp").Filter(t.Context(), asked()).Refused); got != "550 5.7.1 message refused by filter scan" {
			t.Errorf("%q: %s", got, ms.Trouble())
		}
		synctest.Wait()
	})
}

// A milter that fails again and again is left alone for a while, and then asked again.
func TestPause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var works atomic.Bool
		ms := with(func(c net.Conn) {
			if !works.Load() {
				deaf(c)
				return
			}
			negotiated(c, 6, 0, 0x7f)
			go deaf(c)
			c.Write([]byte{0, 0, 0, 1, 'a'})
		}, Settings{}, Settings{Name: "away", Address: "away", Tenants: []string{"other"}})
		ask := func() (time.Duration, bool) {
			began := time.Now()
			v := ms.Of("smtp").Filter(t.Context(), asked())
			return time.Since(began), v.Refused == nil
		}
		for i := range 10 {
			took, passed := ask()
			if want := 30 * time.Second; i < failuresInRow && took != want || i >= failuresInRow && took != 0 || passed {
				t.Errorf("message %d took %v", i, took)
			}
		}
		works.Store(true)
		if _, passed := ask(); passed {
			t.Error("it is asked although it was to be left alone")
		}
		time.Sleep(pause)
		if took, passed := ask(); !passed || took != 0 {
			t.Errorf("after the pause: passed %v in %v", passed, took)
		}
		if got := ms.Trouble(); got != "" {
			t.Errorf("trouble: %q", got)
		}
		synctest.Wait()
	})
}

// of makes a message of a tenant.
func of(tenant string) *intake.Filtered {
	m := asked()
	m.Tenant = tenant
	return m
}

// What one tenant's mail does to a milter is nothing to others: the milter is asked about theirs.
func TestFailuresAreOfATenant(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		hangs.Store(true)
		ms := with(func(c net.Conn) {
			negotiated(c, 6, 0, 0x7f)
			go deaf(c)
			if hangs.Load() {
				time.Sleep(time.Minute)
			}
			c.Write([]byte{0, 0, 0, 1, 'r'})
		}, Settings{Accept: true})
		for range failuresInRow {
			if v := ms.Of("smtp").Filter(t.Context(), of("evil")); v.Refused != nil {
				t.Errorf("%v", v.Refused)
			}
		}
		hangs.Store(false)
		if v := ms.Of("smtp").Filter(t.Context(), of("evil")); v.Refused != nil {
			t.Error("it is asked about the mail that it fails on")
		}
		if v := ms.Of("smtp").Filter(t.Context(), of("acme")); v.Refused == nil {
			t.Error("another tenant's mail passes unchecked")
		}
		if got := ms.Trouble(); !strings.Contains(got, "mail of tenant evil passes unchecked: no answer in time") {
			t.Errorf("trouble: %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// Connections are bounded, and one tenant's mail doesn't have all: who comes finds one at once. Who waits too long is
// the relay's trouble, and no failure of the milter: nothing passes unchecked.
func TestConnectionsAreShared(t *testing.T) {
	for _, accept := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			var open atomic.Int64
			ms := with(func(c net.Conn) {
				negotiated(c, 6, 0, 0x7f)
				go deaf(c)
				if n := open.Add(1); n > connections {
					t.Errorf("%d connections", n)
				}
				time.Sleep(time.Second)
				open.Add(-1)
				c.Write([]byte{0, 0, 0, 1, 'a'})
			}, Settings{Accept: accept, Timeout: 6 * time.Second})
			var all sync.WaitGroup
			var refused atomic.Int64
			for range 720 {
				all.Go(func() {
					if v := ms.Of("smtp").Filter(t.Context(), of("evil")); v.Refused != nil {
						refused.Add(1)
						if got := text(v.Refused); got != "451 4.3.2 filter scan has too many messages to check, try again in a few minutes" {
							t.Errorf("%q", got)
						}
					}
				})
			}
			synctest.Wait()
			for range 9 {
				began := time.Now()
				if v := ms.Of("smtp").Filter(t.Context(), of("acme")); v.Refused != nil || time.Since(began) != time.Second {
					t.Errorf("another tenant's mail took %v: %v", time.Since(began), v.Refused)
				}
			}
			all.Wait()
			if n := refused.Load(); n < 720-7*75 || n > 720-5*75 {
				t.Errorf("%d were refused", n)
			}
			if n := ms.Counts()["scan"].Failed.Load(); n != 0 || ms.Trouble() != "" {
				t.Errorf("%d failures, trouble %q", n, ms.Trouble())
			}
			synctest.Wait()
		})
	}
}

// A client that leaves, or a budget that is used up, is no failure of the milter, and lets nothing through.
func TestOthersFaults(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, accept := range []bool{false, true} {
			ms := with(deaf, Settings{Accept: accept})
			ctx, leave := context.WithTimeout(t.Context(), time.Second)
			defer leave()
			if v := ms.Of("smtp").Filter(ctx, asked()); text(v.Refused) == "" || ms.Trouble() != "" {
				t.Errorf("%v, trouble %q", v.Refused, ms.Trouble())
			}
			m := asked()
			m.Take = func(int64) bool { return false }
			ms = with(func(c net.Conn) { answer(c, 0) }, Settings{Accept: accept})
			if v := ms.Of("smtp").Filter(t.Context(), m); text(v.Refused) == "" || ms.Trouble() != "" {
				t.Errorf("%v, trouble %q", v.Refused, ms.Trouble())
			}
		}
		synctest.Wait()
	})
}

// A reload keeps the milters whose settings stay, with what is known of them.
func TestSet(t *testing.T) {
	ms := with(deaf, Settings{}, Settings{Name: "b"})
	before := *ms.all.Load()
	ms.Set([]Settings{{Name: "b", Timeout: time.Minute}, before[0].Settings})
	if after := *ms.all.Load(); after[1] != before[0] || after[0] == before[1] {
		t.Error("not kept by settings")
	}
}

// A single thread serves a milter's connections one after another, with a backlog as unix sockets have it: who finds it
// full is refused at once. However much mail one tenant has, another's is checked, soon; and nothing passes unchecked.
func TestLoadOfOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		backlog := make(chan net.Conn, 20)
		var done atomic.Bool
		go func() {
			for c := range backlog {
				answer(c, 300*time.Millisecond)
			}
		}()
		ms := with(nil, Settings{Accept: true})
		(*ms.all.Load())[0].dial = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			select {
			case backlog <- far:
				return near, nil
			default:
				return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EAGAIN)}
			}
		}
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				for !done.Load() {
					switch got := text(ms.Of("smtp").Filter(t.Context(), of("evil")).Refused); got[:min(9, len(got))] {
					case "550 5.7.1", "451 4.3.2":
					default:
						t.Errorf("%q, trouble %q", got, ms.Trouble())
						return
					}
				}
			})
		}
		time.Sleep(time.Minute)
		for range 9 {
			began := time.Now()
			got := text(ms.Of("smtp").Filter(t.Context(), of("acme")).Refused)
			if took := time.Since(began); !strings.HasPrefix(got, "550") || took > 10*time.Second {
				t.Errorf("another tenant's mail took %v: %q", took, got)
			}
		}
		if n := ms.Counts()["scan"].Failed.Load(); n != 0 || ms.Trouble() != "" {
			t.Errorf("%d failures, trouble %q", n, ms.Trouble())
		}
		done.Store(true)
		all.Wait()
		close(backlog)
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// answer refuses a message, after a while.
func answer(c net.Conn, after time.Duration) {
	defer c.Close()
	if negotiated(c, 6, 0, 0x7f) != nil { // the client has left
		return
	}
	go deaf(c)
	time.Sleep(after)
	c.Write([]byte{0, 0, 0, 1, 'r'})
}

// What the relay lacks for a connection is waited for, and reported. Nothing passes unchecked, and no mail of others
// goes without the milter.
func TestLacks(t *testing.T) {
	for _, lack := range lacks {
		bubble.Test(t, func(t *testing.T) {
			ms := with(func(c net.Conn) { answer(c, 0) }, Settings{Accept: true})
			s := (*ms.all.Load())[0]
			dial, until := s.dial, new(moment)
			s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if until.ahead() {
					return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", lack)}
				}
				return dial(ctx, network, address)
			}
			for range 2 * failuresInRow {
				until.set(time.Minute)
				if got := text(ms.Of("smtp").Filter(t.Context(), of("acme")).Refused); !strings.HasPrefix(got, "451 4.3.0") {
					t.Errorf("%v: %q", lack, got)
				}
			}
			if got, want := ms.Trouble(), "mail of tenant acme is answered 451: dial: connect: "+lack.Error(); !strings.Contains(got, want) {
				t.Errorf("trouble: %q", got)
			}
			until.set(time.Second)
			if got := text(ms.Of("smtp").Filter(t.Context(), of("acme")).Refused); !strings.HasPrefix(got, "550") || ms.Trouble() != "" {
				t.Errorf("%v, when there is room: %q", lack, got)
			}
			synctest.Wait()
		})
	}
}

// A look-up that fails says nothing of the milter, whatever it hides: here the relay has no file left to ask a server.
func TestLookUpFails(t *testing.T) {
	ms := with(nil, Settings{Accept: true})
	(*ms.all.Load())[0].dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Name: "filter.example", Err: "dial udp: socket: too many open files"}
	}
	for range 2 * failuresInRow {
		if got := text(ms.Of("smtp").Filter(t.Context(), asked()).Refused); !strings.HasPrefix(got, "451 4.3.0") {
			t.Fatalf("%q", got)
		}
	}
	if got := ms.Trouble(); !strings.Contains(got, "is answered 451: lookup filter.example: dial udp: socket: too many open files") {
		t.Errorf("trouble: %q", got)
	}
}

// An answer that is late, or does not come since the connection breaks, is a failure of the milter only where that had
// no other mail meanwhile. Otherwise it gets one message at a time until it decides on one.
func TestLateAnswers(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"hangs":  deaf,
		"closes": func(c net.Conn) { time.Sleep(time.Second) },
	} {
		bubble.Test(t, func(t *testing.T) {
			var works atomic.Bool
			var open, most, late atomic.Int64
			ms := with(func(c net.Conn) {
				time.Sleep(time.Millisecond) // whoever closes a connection at this moment has done so
				if n := open.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer open.Add(-1)
				if works.Load() {
					answer(c, time.Second)
				} else if negotiated(c, 6, 0, 0) == nil {
					serve(c)
					late.Add(1)
				}
			}, Settings{Accept: true})
			s := (*ms.all.Load())[0]
			several := func(n int, want string) {
				t.Helper()
				var all sync.WaitGroup
				most.Store(0)
				for range n {
					all.Go(func() {
						if got := tell(ms, t.Context(), "acme"); !strings.Contains(want, got) || got == "" && want != "" {
							t.Errorf("%s: %q, want %q", name, got, want)
						}
					})
				}
				all.Wait()
			}
			several(10, "451 4.3.0")
			if most.Load() != 10 || s.turns.number != 1 || ms.Counts()["scan"].Failed.Load() != 10 {
				t.Errorf("%s: of 10 at once %d are asked about, %v are next", name, most.Load(), s.turns.number)
			}
			several(3, "451 4.3.0, or 451 4.3.2 for those that had no turn")
			if most.Load() != 1 {
				t.Errorf("%s: one at a time, and %d are asked about", name, most.Load())
			}
			works.Store(true)
			several(20, "550 5.7.1")
			if n := most.Load(); n < 4 || n > 16 || s.turns.calm != connections/2 {
				t.Errorf("%s: it gets up to %d at a time again, and soon %v", name, n, s.turns.calm)
			}
			works.Store(false)
			time.Sleep(longestStrain * 30 * time.Second)
			several(1, "")
			if got := ms.Trouble(); !strings.Contains(got, "mail of tenant acme passes unchecked") {
				t.Errorf("%s: trouble %q", name, got)
			}
			synctest.Wait()
		})
	}
}
