package submission

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mta/internal/envelope"

	"go.uber.org/goleak"
)

// The tests here use the real loopback, for what memory can't show.

// onLoopback runs a server on 127.0.0.1 whose clients may relay, and gives its address.
func onLoopback(t testing.TB, cfg Config) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Hostname = "relay.example.com"
	if cfg.RelayFrom == nil {
		cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	s := New(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, l.Addr().String()
}

// dialog sends all of script at once on a new connection and gives everything that the server
// says until it closes.
func dialog(t testing.TB, addr, script string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(c)
	banner, _ := r.ReadString('\n')
	io.WriteString(c, "EHLO app\r\n")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "250 ") {
			break
		}
	}
	go io.WriteString(c, script)
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("reading replies: %v after %q", err, rest)
	}
	return banner + string(rest)
}

func TestOverLoopback(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("session", func(t *testing.T) {
		store := new(memStore)
		_, addr := onLoopback(t, Config{Store: store})
		body := "Subject: x\r\n\r\n" + strings.Repeat(".0123456789\xff\r\n", 100_000)
		got := dialog(t, addr, "MAIL FROM:<a@example.org> BODY=8BITMIME\r\nRCPT TO:<b@example.net>\r\nDATA\r\n"+stuff(body)+".\r\nQUIT\r\n")
		if codes(got) != "220 250 250 354 250 221" {
			t.Errorf("codes %s", codes(got))
		}
		if m := store.one(t); m.body() != body || m.Peer.Addr() != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("%d octets from %s", len(m.content), m.Peer)
		}
	})
}

// A client that is told to go gets the words even while it still sends: the socket is not reset
// over unread data.
func TestLastWordsArrive(t *testing.T) {
	_, addr := onLoopback(t, Config{Store: new(memStore), Admit: admitNone(shuttingDown.reply())})
	got := dialog(t, addr, "MAIL FROM:<a@example.org>\r\n"+strings.Repeat("NOOP\r\n", 20_000))
	if codes(got) != "220 421" {
		t.Errorf("codes %s", codes(got))
	}
}

func TestCertificateIsAskedForEachHandshake(t *testing.T) {
	var asked atomic.Int32
	get := testTLS().GetCertificate
	_, addr := onLoopback(t, Config{Store: new(memStore), TLS: &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		asked.Add(1)
		return get(h)
	}}})
	for range 3 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		io.WriteString(c, "") // the banner comes first
		for _, line := range []string{"", "EHLO app\r\n", "STARTTLS\r\n"} {
			io.WriteString(c, line)
			for {
				reply, err := r.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if reply[3] == ' ' {
					break
				}
			}
		}
		s := tlsClient(t, c)
		if v := s.ConnectionState().Version; v < tls.VersionTLS12 {
			t.Errorf("version %x", v)
		}
		s.Close()
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("asked %d times", n)
	}
}

// Half-open sessions cost a bounded amount of memory each: those that have said nothing, those
// within a command, and those within content.
func TestMemoryOfManySessions(t *testing.T) {
	for _, c := range []struct {
		name, script string
		sessions     int
		limit        uint64 // bytes for each, the client's end included
	}{
		{"idle", "EHLO app\r\n", 10_000, 32 << 10},
		{"in a command", "EHLO app\r\n|MAIL FR", 2000, 40 << 10},
		{"in content", "EHLO app\r\n|MAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.net>\r\nDATA\r\n|Subject: x\r\n", 1000, 96 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := min(c.sessions, openFiles(t)/2-100)
			_, addr := onLoopback(t, Config{Store: new(memStore), Limits: Limits{ConnectionsPerClient: 1 << 20, Connections: 1 << 20}})
			before := memory()
			conns := openSessions(t, addr, n, c.script)
			each := (memory() - before) / uint64(n)
			t.Logf("%d sessions: %d bytes each, the client's end included", n, each)
			if each > c.limit {
				t.Errorf("%d bytes a session, limit %d", each, c.limit)
			}
			for _, conn := range conns {
				conn.Close()
			}
		})
	}
}

// openSessions opens n connections and sends each the parts of script, each part after the
// replies to the one before.
func openSessions(t *testing.T, addr string, n int, script string) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			b := make([]byte, 1024)
			for i := w; i < n; i += 8 {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				conns[i] = conn
				conn.Read(b) // banner
				for j, part := range strings.Split(script, "|") {
					if j > 0 {
						conn.Read(b)
					}
					io.WriteString(conn, part)
				}
				if !strings.Contains(script, "|") {
					conn.Read(b)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return conns
}

// memory is what the process uses for heap and stacks.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func openFiles(t *testing.T) int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	return int(min(l.Cur, 1<<20))
}

// discardStore forgets what it is given.
type discardStore struct{ ids envelope.IDs }

type discardDraft struct {
	s *discardStore
	n int64
}

func (s *discardStore) Begin() Draft                { return &discardDraft{s: s} }
func (d *discardDraft) Write(p []byte) (int, error) { d.n += int64(len(p)); return len(p), nil }
func (d *discardDraft) Abort()                      {}
func (d *discardDraft) Commit(m *envelope.Message) error {
	m.ID, m.Size = d.s.ids.Next(time.Now()), d.n
	return nil
}

// BenchmarkPipelined sends 2 KB messages as fast as they are taken, by the rules of RFC 2920: the
// final dot and the next message's MAIL, RCPT and DATA in one flight.
func BenchmarkPipelined(b *testing.B) {
	for _, c := range []struct {
		name  string
		conns int
		tls   bool
		chunk bool
	}{
		{"1 connection", 1, false, false}, {"20 connections", 20, false, false},
		{"1 connection, TLS", 1, true, false}, {"1 connection, BDAT", 1, false, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			counted := new(countedListener)
			addr := counted.start(b, Config{Store: new(discardStore), TLS: testTLS(), Log: slog.New(slog.DiscardHandler)})
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
