package smtpclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
)

func TestStuffer(t *testing.T) {
	for _, test := range []struct {
		in, want string
		err      error
	}{
		{in: "", want: ".\r\n"},
		{in: "a\r\n", want: "a\r\n.\r\n"},
		{in: "a", want: "a\r\n.\r\n"},
		{in: ".\r\n", want: "..\r\n.\r\n"},
		{in: ".", want: "..\r\n.\r\n"},
		{in: "..\r\n.x\r\na.\r\n\r\n.\r\n", want: "...\r\n..x\r\na.\r\n\r\n..\r\n.\r\n"},
		{in: "\r\n", want: "\r\n.\r\n"},
		{in: "a\nb\r\n", err: errBareLF},
		{in: "\nb\r\n", err: errBareLF},
		{in: "a\rb\r\n", err: errBareCR},
		{in: "a\r\r\nb", err: errBareCR},
		{in: "a\r", err: errBareCR},
		{in: "a\r\n.\n.\r\n", err: errBareLF}, // smuggling: some would take the dot for the end
		{in: "a\r\n.\r.\r\n", err: errBareCR},
	} {
		for size := 1; size <= len(test.in)+1; size++ { // however it is cut into pieces
			var s stuffer
			var got []byte
			var err error
			for p := []byte(test.in); len(p) > 0 && err == nil; {
				n := min(size, len(p))
				got, err = s.append(got, p[:n])
				p = p[n:]
			}
			if err == nil {
				got, err = s.end(got)
			}
			if !errors.Is(err, test.err) || err == nil && string(got) != test.want {
				t.Errorf("%q in pieces of %d: %q, %v; want %q, %v", test.in, size, got, err, test.want, test.err)
			}
		}
	}
}

// FuzzStuffer checks that what is stuffed comes out again at a host, and that the end of the
// content is nowhere but at its end, for readers strict and sloppy.
func FuzzStuffer(f *testing.F) {
	f.Add([]byte("a\r\n.\r\n..b"), uint8(3))
	f.Add([]byte("a\n.\nb"), uint8(1))
	f.Add([]byte("\r\n.\r.\r\n"), uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		var s stuffer
		var out []byte
		var err error
		for p := in; len(p) > 0 && err == nil; {
			n := min(int(size)+1, len(p))
			out, err = s.append(out, p[:n])
			p = p[n:]
		}
		if err == nil {
			out, err = s.end(out)
		}
		bare := strings.NewReplacer("\r\n", "").Replace(string(in))
		if strings.ContainsAny(bare, "\r\n") != (err != nil) {
			t.Fatalf("%q: %v", in, err)
		}
		if err != nil {
			return
		}
		var back strings.Builder
		lines := strings.SplitAfter(string(out), "\r\n")
		for i, line := range lines {
			if line == ".\r\n" {
				if i != len(lines)-2 || lines[len(lines)-1] != "" {
					t.Fatalf("%q: the content ends early: %q", in, out)
				}
				break
			}
			back.WriteString(strings.TrimPrefix(line, "."))
		}
		want := string(in)
		if want != "" && !strings.HasSuffix(want, "\r\n") {
			want += "\r\n"
		}
		if back.String() != want {
			t.Fatalf("%q came back as %q", in, back.String())
		}
	})
}

// contentCase is a message whose content or body has something about it.
type contentCase struct {
	name   string
	mail   func() *mail
	script string
	want   string
}

func runContent(t *testing.T, ehlo string, cases []contentCase) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				// There is no room on the wire for a whole big content: it is on its way while the
				// host speaks.
				client, server := wire(0, 64<<10)
				h := play(t, server, script(greeted(ehlo)+test.script))
				c, err := Handshake(context.Background(), client, testConfig())
				if err != nil {
					t.Fatal(err)
				}
				m := test.mail()
				c.Send(&m.Transaction)
				if got := m.fates(t); got != test.want {
					t.Errorf("%s; want %s", got, test.want)
				}
				quit(t, c, h)
			})
		})
	}
}

func withContent(content string) func() *mail {
	return func() *mail { return newMail(content, "a@example.com") }
}

// withBody is a message whose body isn't what its size says.
func withBody(size int64, open func() (io.ReadCloser, error)) func() *mail {
	return func() *mail {
		m := newMail("", "a@example.com")
		m.Message.Size, m.Body = size, open
		return m
	}
}

func reading(r io.Reader) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(r), nil }
}

func cannotOpen() (io.ReadCloser, error) { return nil, errors.New("open /var/lib/mta/x: no such file") }

func failsAfter(n int) func() (io.ReadCloser, error) {
	return reading(io.MultiReader(strings.NewReader(strings.Repeat("0123456789abcd\r\n", n/16)), iotest.ErrReader(errors.New("bad disk"))))
}

func TestDataContent(t *testing.T) {
	const start = "> MAIL*\n> RCPT*\n> DATA\n< 250 ok\n< 250 ok\n< 354 go\n"
	big := strings.Repeat("0123456789abcd\r\n.", 1<<14)
	runContent(t, pipelining, []contentCase{
		{"dots", withContent(".\r\n..\r\na\r\n"), start + "content: ..|...|a\n< 250 ok\n" + goodbye, "answered 250"},
		{"no line end at the end", withContent("a\r\nb"), start + "content: a|b\n< 250 ok\n" + goodbye, "answered 250"},
		{"empty", withContent(""), start + "content: \n< 250 ok\n" + goodbye, "answered 250"},
		{"big", withContent(big), start + "content\n< 250 ok\n" + goodbye, "answered 250"},
		{"bare LF", withContent("a\nb\r\n"), start + "eof\n", "answered 550"},
		{"bare CR", withContent("a\rb\r\n"), start + "eof\n", "answered 550"},
		{"can't be opened", withBody(5, cannotOpen), start + "eof\n", "failed 451"},
		{"fails in the middle", withBody(1<<19, failsAfter(1<<17)), start + strings.Repeat("> 0123456789abcd\n", 1<<13) + "eof\n", "failed 451"},
		{"shorter than its size", withBody(50, reading(strings.NewReader("a\r\n"))), start + "eof\n", "failed 451"},
		{"longer than its size", withBody(2, reading(strings.NewReader("a\r\n"))), start + "eof\n", "failed 451"},
		{"in small pieces", withBody(9, func() (io.ReadCloser, error) {
			return io.NopCloser(iotest.OneByteReader(strings.NewReader("a\r\n.b\r\nc\r\n"[:9]))), nil
		}), start + "eof\n", "answered 550"}, // ends in a CR
		{"refused while it is sent", withContent(big), start + "> 0123456789abcd\n< 552 5.3.4 too big\nclose\n", "answered 552"},
		{"421 while it is sent", withContent(big), start + "> 0123456789abcd\n< 421 4.3.2 restart\nclose\n", "answered 421"},
		{"out of step while it is sent", withContent(big), start + "> 0123456789abcd\n< 250 ok\nclose\n", "failed 451"},
		{"cut while it is sent", withContent(big), start + "> 0123456789abcd\nreset\n", "failed 421"},
	})
}

func TestChunkedContent(t *testing.T) {
	const (
		start = "> MAIL*\n> RCPT*\n"
		yes   = "< 250 ok\n< 250 ok\n< 250 ok\n"
	)
	big := strings.Repeat("0123456789abcd\r\n", 5<<10) // 80 KiB: 32 + 32 + 16
	runContent(t, chunking, []contentCase{
		{"dots are left alone", withContent(".\r\n..\r\n"), start + "> BDAT 7 LAST\n> .\n> ..\n" + yes + goodbye, "answered 250"},
		{"no line end at the end", withContent("a\r\nb"), start + "> BDAT 6 LAST\n> a\n> b\n" + yes + goodbye, "answered 250"},
		{"empty", withContent(""), start + "> BDAT 0 LAST\n" + yes + goodbye, "answered 250"},
		{"big", withContent(big), start + "> BDAT 32768\noctets 32768\n> BDAT 32768\noctets 32768\n> BDAT 16384 LAST\noctets 16384\n< 250 ok\n< 250 ok\n" + yes + goodbye, "answered 250"},
		{"bare LF: RSET before any content", withContent("a\nb\r\n"), start + "> RSET\n" + yes + goodbye, "answered 550"},
		{"bare CR at the end", withContent("a\r"), start + "> RSET\n" + yes + goodbye, "answered 550"},
		{"can't be opened", withBody(5, cannotOpen), start + "> RSET\n" + yes + goodbye, "failed 451"},
		{"fails in the middle: RSET, the connection lives", withBody(1<<19, failsAfter(1<<16)), start + "> BDAT 32768\noctets 32768\n> BDAT 32768\noctets 32768\n> RSET\n< 250 ok\n< 250 ok\n" + yes + goodbye, "failed 451"},
		{"shorter than its size", withBody(50, reading(strings.NewReader("a\r\n"))), start + "> RSET\n" + yes + goodbye, "failed 451"},
		{"longer than its size", withBody(3, reading(strings.NewReader("a\r\n\r\n"))), start + "> RSET\n" + yes + goodbye, "failed 451"},
		{"recipient refused, then trouble here", withBody(50, cannotOpen), start + "> RSET\n< 250 ok\n< 550 who\n< 250 ok\n" + goodbye, "answered 550"},
		{"a chunk refused", withContent(big), start + "> BDAT 32768\noctets 32768\n> BDAT 32768\noctets 32768\n> BDAT 16384 LAST\noctets 16384\n< 250 ok\n< 250 ok\n< 250 ok\n< 552 5.2.2 full\n< 503 no\n" + goodbye, "answered 552"},
		{"a chunk refused, the last taken", withContent(big), start + "> BDAT 32768\noctets 32768\n> BDAT 32768\noctets 32768\n> BDAT 16384 LAST\noctets 16384\n< 250 ok\n< 250 ok\n< 552 full\n< 250 ok\n< 250 ok\neof\n", "answered 552"},
	})
}

// A host that refuses a chunk is sent no more of the message (RFC 3030, 2).
func TestRefusedChunkEndsContent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		content := strings.Repeat("0123456789abcd\r\n", 6<<10)
		refused := make(chan struct{})
		m := newMail(content, "a@example.com")
		m.Body = func() (io.ReadCloser, error) {
			// The rest of the content is not there before the host has refused the first chunk.
			return io.NopCloser(io.MultiReader(strings.NewReader(content[:40000]), after{refused}, strings.NewReader(content[40000:]))), nil
		}
		c, h := connect(t, testConfig(), script(greeted(chunking)+
			"> MAIL*\n> RCPT*\n> BDAT 32768\noctets 32768\npause 1s\n< 250 ok\n< 250 ok\n< 552 full\n> BDAT 32768\noctets 32768\n> RSET\n< 503 no\n< 250 ok\n"+goodbye))
		c.Send(&m.Transaction)
		time.AfterFunc(2*time.Second, func() { close(refused) })
		if got := m.fates(t); got != "answered 552" {
			t.Error(got)
		}
		quit(t, c, h)
	})
}

// after is an empty reader that ends when the channel is closed.
type after struct{ c chan struct{} }

func (a after) Read([]byte) (int, error) {
	<-a.c
	return 0, io.EOF
}

func TestBinaryMIME(t *testing.T) {
	const binary = "< 250-mx\n< 250-CHUNKING\n< 250-BINARYMIME\n< 250-8BITMIME\n< 250 PIPELINING\n"
	content := "a\nb\r\x00c"
	send := "> MAIL FROM:<s@example.org> BODY=BINARYMIME\n%> RCPT*\n%> BDAT 6 LAST\noctets 6\n%"
	mail := func() *mail {
		m := newMail(content, "a@example.com")
		m.Message.Body = envelope.BodyBinaryMIME
		return m
	}
	for _, test := range []struct {
		mode   Mode
		script string
	}{
		{Chunked, strings.ReplaceAll(send, "%", "") + "< 250 ok\n< 250 ok\n< 250 ok\n"},
		{Pipelined, strings.ReplaceAll(send, "%", "silence\n< 250 ok\n")},
		{LockStep, strings.ReplaceAll(send, "%", "silence\n< 250 ok\n")},
	} {
		t.Run(test.mode.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				cfg := testConfig()
				cfg.MaxMode = test.mode
				c, h := connect(t, cfg, script(greeted(binary)+test.script+goodbye))
				m := mail()
				c.Send(&m.Transaction)
				if got := m.fates(t); got != "answered 250" {
					t.Error(got)
				}
				quit(t, c, h)
			})
		})
	}
	runContent(t, pipelining, []contentCase{{"not offered", mail, goodbye, "answered 554"}})
}

func TestScan(t *testing.T) {
	for _, test := range []struct {
		content        string
		header, anyAll bool
	}{
		{"A: b\r\n\r\nc\r\n", false, false},
		{"A: b\r\n\r\n\xc3\xa4\r\n", false, true},
		{"A: \xc3\xa4\r\n\r\nc\r\n", true, true},
		{"", false, false},
	} {
		m := newMail(test.content, "a@b")
		header, err1 := scan(&m.Transaction, true)
		anywhere, err2 := scan(&m.Transaction, false)
		if header != test.header || anywhere != test.anyAll || err1 != nil || err2 != nil {
			t.Errorf("%q: header %v, anywhere %v (%v, %v)", test.content, header, anywhere, err1, err2)
		}
	}
}

func TestAtEnd(t *testing.T) {
	if err := atEnd(bytes.NewReader(nil), nil); err != nil {
		t.Error(err)
	}
	if err := atEnd(bytes.NewReader([]byte{1}), nil); !errors.Is(err, errTooLong) {
		t.Error(err)
	}
	if err := atEnd(iotest.ErrReader(io.ErrClosedPipe), nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
