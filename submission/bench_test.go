package submission

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// discardStore forgets what it is given.
type discardStore struct{ ids envelope.IDs }

type discardDraft struct {
	s *discardStore
	n int64
}

func (s *discardStore) Begin(intake.Owner, int64) intake.Draft { return &discardDraft{s: s} }
func (d *discardDraft) Write(p []byte) (int, error)            { d.n += int64(len(p)); return len(p), nil }
func (d *discardDraft) Abort()                                 {}
func (d *discardDraft) Grow(int)                               {}
func (d *discardDraft) Commit(m *envelope.Message) error {
	m.ID, m.Size = d.s.ids.Next(time.Now()), d.n
	return nil
}

// BenchmarkAccept takes in messages of 2 KB, from the octets to the record, as fast as a client that
// keeps to RFC 2920 sends them: the final dot and the next message's MAIL, RCPT and DATA in one
// flight. In memory there is one connection without a network: what is left is our own code and
// the library's.
func BenchmarkAccept(b *testing.B) {
	b.Run("memory", benchmarkInMemory)
	for _, c := range []struct {
		name  string
		conns int
		tls   bool
		chunk bool
	}{
		{"tcp", 1, false, false}, {"tcp/connections=20", 20, false, false},
		{"tcp/tls", 1, true, false}, {"tcp/bdat", 1, false, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			counted := new(countedListener)
			addr := counted.start(b, Config{Intake: intake.Config{Store: new(discardStore), Log: slog.New(slog.DiscardHandler)}, TLS: testTLS()})
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i := range c.conns {
				n := b.N / c.conns
				if i == 0 {
					n += b.N % c.conns
				}
				wg.Go(func() { benchClient(b, addr, n, c.tls, c.chunk) })
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(counted.reads.Load())/float64(b.N), "reads/message")
			b.ReportMetric(float64(counted.writes.Load())/float64(b.N), "writes/message")
		})
	}
}

func benchmarkInMemory(b *testing.B) {
	client := &flights{left: b.N, over: make(chan struct{})}
	s := New(Config{Intake: intake.Config{Store: new(discardStore), Log: slog.New(slog.DiscardHandler)}, RelayFrom: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	b.ReportAllocs()
	b.ResetTimer()
	conns := make(chan net.Conn, 1)
	conns <- client
	go s.Serve(&oneClient{conns})
	<-client.over
	b.StopTimer()
	if n := client.taken.Load(); n != int64(b.N) {
		b.Errorf("%d of %d messages were taken", n, b.N)
	}
	s.Shutdown(context.Background())
}

// oneClient is a listener with one connection, which is in conns.
type oneClient struct{ conns chan net.Conn }

func (l *oneClient) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneClient) Close() error   { close(l.conns); return nil }
func (l *oneClient) Addr() net.Addr { return new(flights).LocalAddr() }

// flights is the connection of a client that has its next flight there whenever it is read from.
type flights struct {
	net.Conn     // nil: what isn't here isn't called
	left     int // messages to be sent
	sent     int // flights
	rest     []byte
	taken    atomic.Int64
	over     chan struct{}
	end      sync.Once
}

var (
	firstFlight = []byte("EHLO app\r\n")
	envelope1   = "MAIL FROM:<sender@example.org> BODY=8BITMIME\r\nRCPT TO:<recipient@example.net>\r\nDATA\r\n"
	firstMail   = []byte(envelope1)
	nextMail    = []byte(benchContent + ".\r\n" + envelope1)
	lastMail    = []byte(benchContent + ".\r\nQUIT\r\n")
)

func (f *flights) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		switch f.sent++; {
		case f.sent == 1:
			f.rest = firstFlight
		case f.sent == 2:
			f.rest = firstMail
		case f.left == 0:
			return 0, io.EOF
		default:
			if f.left--; f.left > 0 {
				f.rest = nextMail
			} else {
				f.rest = lastMail
			}
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// Write counts the replies that take a message.
func (f *flights) Write(p []byte) (int, error) {
	f.taken.Add(int64(bytes.Count(p, []byte("queued as"))))
	return len(p), nil
}

func (f *flights) Close() error {
	f.end.Do(func() { close(f.over) })
	return nil
}

func (f *flights) SetDeadline(time.Time) error      { return nil }
func (f *flights) SetReadDeadline(time.Time) error  { return nil }
func (f *flights) SetWriteDeadline(time.Time) error { return nil }
func (f *flights) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 25} }
func (f *flights) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 40000} }

// countedListener counts the reads and writes of its connections: system calls.
type countedListener struct {
	net.Listener
	reads, writes atomic.Int64
}

func (l *countedListener) start(b *testing.B, cfg Config) string {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	l.Listener = inner
	cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s := New(cfg)
	go s.Serve(l)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
	})
	return inner.Addr().String()
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &countedConn{c, l}, err
}

type countedConn struct {
	net.Conn
	l *countedListener
}

func (c *countedConn) Read(p []byte) (int, error)  { c.l.reads.Add(1); return c.Conn.Read(p) }
func (c *countedConn) Write(p []byte) (int, error) { c.l.writes.Add(1); return c.Conn.Write(p) }

func benchClient(b *testing.B, addr string, n int, secure, chunk bool) {
	var c net.Conn
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Error(err)
		return
	}
	defer c.Close()
	r := bufio.NewReader(c)
	replies := func(n int) {
		for n > 0 {
			line, err := r.ReadSlice('\n')
			if err != nil || line[0] > '3' {
				b.Errorf("%q, %v", line, err)
				return
			}
			if line[3] == ' ' {
				n--
			}
		}
	}
	replies(1)
	io.WriteString(c, "EHLO app\r\n")
	replies(1)
	if secure {
		io.WriteString(c, "STARTTLS\r\n")
		replies(1)
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		r = bufio.NewReader(c)
		io.WriteString(c, "EHLO app\r\n")
		replies(1)
	}
	head := "MAIL FROM:<sender@example.org> BODY=8BITMIME\r\nRCPT TO:<recipient@example.net>\r\n"
	if chunk {
		benchChunks(c, r, n, head, replies)
		return
	}
	head += "DATA\r\n"
	io.WriteString(c, head)
	replies(3)
	flight := []byte(benchContent + ".\r\n" + head)
	for range n - 1 {
		c.Write(flight)
		replies(4)
	}
	io.WriteString(c, benchContent+".\r\nQUIT\r\n")
	replies(2)
}

// benchChunks keeps a window of 16 messages in flight.
func benchChunks(c net.Conn, r *bufio.Reader, n int, head string, replies func(int)) {
	message := head + "BDAT " + strconv.Itoa(len(benchContent)) + " LAST\r\n" + benchContent
	flight := []byte(strings.Repeat(message, 8))
	sent := 0
	for done := 0; done < n; {
		burst := min(8, n-sent)
		if burst > 0 {
			c.Write(flight[:burst*len(message)])
			sent += burst
		}
		if sent-done >= 16 || sent == n {
			k := min(8, n-done)
			replies(3 * k)
			done += k
		}
	}
}

var benchContent = "From: a@example.org\r\nTo: b@example.net\r\nSubject: benchmark\r\nDate: Tue, 04 Mar 2025 05:06:07 +0100\r\nMessage-ID: <1@example.org>\r\n\r\n" +
	strings.Repeat(strings.Repeat("0123456789abcde", 5)+"\r\n", 24)
