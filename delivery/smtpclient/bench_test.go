package smtpclient

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

// fastHost takes everything and allocates nothing for a message, so that what a benchmark counts is
// the client's.
func fastHost(nc net.Conn, ehlo string) {
	defer nc.Close()
	in, out := bufio.NewReaderSize(nc, 64<<10), bufio.NewWriterSize(nc, 16<<10)
	_, _ = out.WriteString("220 fast ESMTP\r\n")
	for {
		if in.Buffered() == 0 {
			_ = out.Flush()
		}
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		switch line[0] {
		case 'E':
			for l := range strings.Lines(ehlo) {
				_, _ = out.WriteString(strings.TrimSpace(strings.TrimPrefix(l, "< ")) + "\r\n")
			}
		case 'B':
			n, _ := strconv.Atoi(string(bytes.TrimSuffix(line[5:], []byte(" LAST\r\n"))))
			_, _ = in.Discard(n)
			_, _ = out.WriteString("250 2.0.0 queued as 4XyZ0123456789\r\n")
		case 'D':
			_, _ = out.WriteString("354 go\r\n")
			_ = out.Flush()
			for line, err = in.ReadSlice('\n'); err == nil && string(line) != ".\r\n"; {
				line, err = in.ReadSlice('\n')
			}
			_, _ = out.WriteString("250 2.0.0 queued as 4XyZ0123456789\r\n")
		case 'Q':
			_, _ = out.WriteString("221 bye\r\n")
			_ = out.Flush()
			return
		default:
			_, _ = out.WriteString("250 2.1.5 Ok\r\n")
		}
	}
}

func content2K() []byte {
	line := strings.Repeat("x", 70) + "\r\n"
	return []byte("Subject: benchmark\r\n\r\n" + strings.Repeat(line, 28))
}

// body is a reader over the same octets again and again.
type body struct{ bytes.Reader }

func (b *body) Close() error { return nil }

// BenchmarkSend sends 2 KB messages with one recipient down one connection over loopback TCP.
func BenchmarkSend(b *testing.B) {
	for _, test := range []struct {
		name, ehlo string
		window     int
	}{
		{"lock-step", ehloOnly, 0},
		{"pipelining", pipelining, 0},
		{"chunking/window=1", chunking, 1},
		{"chunking/window=16", chunking, 16},
		{"chunking/window=64", chunking, 64},
	} {
		b.Run(test.name, func(b *testing.B) { benchmarkSend(b, test.ehlo, test.window, 1) })
	}
	b.Run("chunking/window=16/recipients=50", func(b *testing.B) { benchmarkSend(b, chunking, 16, 50) })
}

func loopback(b testing.TB, ehlo string) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		nc, err := l.Accept()
		l.Close() // not before: a connection that isn't accepted yet would be reset
		if err == nil {
			fastHost(nc, ehlo)
		}
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	return nc
}

func benchmarkSend(b *testing.B, ehlo string, window, recipients int) {
	cfg := testConfig()
	cfg.Window = Window{Messages: window}
	cfg.MaxWindow = cfg.Window
	c, err := Handshake(context.Background(), loopback(b, ehlo), cfg)
	if err != nil {
		b.Fatal(err)
	}
	content := content2K()
	message := &envelope.Message{Sender: "sender@example.org", Size: int64(len(content))}
	var indexes []int
	for i := range recipients {
		message.Recipients = append(message.Recipients, envelope.Recipient{Address: envelope.Address(fmt.Sprintf("user%d@example.com", i))})
		indexes = append(indexes, i)
	}
	var wg sync.WaitGroup
	left := b.N
	var mu sync.Mutex
	done := func(t *Transaction, o Outcome) {
		if o.Results[0].Fate != Answered || !o.Results[0].Reply.OK() {
			b.Errorf("%+v", o.Results[0])
		}
		mu.Lock()
		left--
		again := left >= c.Depth()
		mu.Unlock()
		if !again || !c.Send(t) {
			wg.Done()
		}
	}
	depth := min(c.Depth(), b.N)
	b.ReportAllocs()
	b.SetBytes(int64(len(content)))
	b.ResetTimer()
	start := time.Now()
	wg.Add(depth)
	for range depth {
		r := &body{}
		t := &Transaction{Message: message, Recipients: indexes, Done: done, Body: func() (io.ReadCloser, error) {
			r.Reset(content)
			return r, nil
		}}
		if !c.Send(t) {
			b.Fatal("Send refused")
		}
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "msg/s")
	b.StopTimer()
	_ = c.quitWithin(context.Background())
}

// A message costs no allocation but the text of its final reply.
func TestAllocations(t *testing.T) {
	for _, ehlo := range []string{ehloOnly, pipelining, chunking} {
		c, err := Handshake(context.Background(), loopback(t, ehlo), testConfig())
		if err != nil {
			t.Fatal(err)
		}
		content := content2K()
		m := &envelope.Message{Sender: "s@example.org", Size: int64(len(content)), Recipients: []envelope.Recipient{{Address: "a@example.com"}}}
		done := make(chan Fate, 1)
		r := &body{}
		x := &Transaction{
			Message: m, Recipients: []int{0},
			Body: func() (io.ReadCloser, error) { r.Reset(content); return r, nil },
			Done: func(_ *Transaction, o Outcome) { done <- o.Results[0].Fate },
		}
		n := testing.AllocsPerRun(200, func() {
			if !c.Send(x) || <-done != Answered {
				t.Error("not sent")
			}
		})
		if n > 1.5 && !raceDetector { // which makes sync.Pool forget
			t.Errorf("%v: %.1f allocations a message", c.Mode(), n)
		}
		if err := c.quitWithin(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkStuffer(b *testing.B) {
	content := content2K()
	dst := make([]byte, 0, 4096)
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		var s stuffer
		dst, _ = s.append(dst[:0], content)
	}
}

func BenchmarkReply(b *testing.B) {
	in := []byte("250 2.1.5 Ok\r\n")
	src := &again{in: in}
	r := replyReader{src: src}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.next(); err != nil {
			b.Fatal(err)
		}
	}
}

type again struct{ in []byte }

func (a *again) Read(p []byte) (int, error) {
	n := 0
	for len(p)-n >= len(a.in) {
		n += copy(p[n:], a.in)
	}
	return n, nil
}
