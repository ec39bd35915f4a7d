package submission

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/submission/intake"
)

// The tests here use the real loopback, for what memory can't show.

// onLoopback runs a server on 127.0.0.1 whose clients may relay, and gives its address.
func onLoopback(t testing.TB, cfg Config) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Intake.Hostname = "relay.example.com"
	if cfg.RelayFrom == nil {
		cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	}
	s := New(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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
	c.SetDeadline(time.Now().Add(time.Minute))
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
		_, addr := onLoopback(t, Config{Intake: intake.Config{Store: store}})
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
	_, addr := onLoopback(t, Config{Intake: intake.Config{Store: new(memStore), Admission: admitNone(intake.Refused{Close: true})}})
	got := dialog(t, addr, "MAIL FROM:<a@example.org>\r\n"+strings.Repeat("NOOP\r\n", 20_000))
	if codes(got) != "220 421" {
		t.Errorf("codes %s", codes(got))
	}
}

// A load balancer checks by connections that it resets: each was an error in the log.
func TestResetsAreNoErrors(t *testing.T) {
	var out bytes.Buffer
	l := libraryLog{slog.New(slog.NewTextHandler(&out, nil))}
	for _, lost := range []syscall.Errno{syscall.ECONNRESET, syscall.EPIPE} {
		l.Printf("error handling %v: %s", "192.0.2.1:1", &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", lost)})
	}
	if out.Len() > 0 {
		t.Errorf("logged: %s", &out)
	}
	l.Printf("accept error: %s; retrying in %s", syscall.EMFILE, time.Second)
	if !strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("a failing accept: %q", &out)
	}
}

func TestCertificateIsAskedForEachHandshake(t *testing.T) {
	var asked atomic.Int32
	get := testTLS().GetCertificate
	_, addr := onLoopback(t, Config{Intake: intake.Config{Store: new(memStore)}, TLS: &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
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

// Strangers who are turned away, linger, and come again at once leave the slots of relay clients alone.
func TestStrangersWhoAreTurnedAwayHoldNothing(t *testing.T) {
	s, addr := onLoopback(t, Config{
		Intake: intake.Config{Store: new(memStore)}, Limits: Limits{Connections: 20}, RelayFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	hears := func(from string) string {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line
	}
	for i := range 40 {
		if got := hears(fmt.Sprintf("127.1.%d.1", i)); strings.HasPrefix(got, "220") != (i < 15) {
			t.Fatalf("stranger %d: %q", i, got)
		}
	}
	for i := range 8 {
		if got := hears("127.0.0.1"); !strings.HasPrefix(got, "220") {
			t.Errorf("relay client %d: %q", i, got)
		}
	}
	if n := s.Connections(); n > 20 {
		t.Errorf("%d connections, want 20 at most", n)
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
			_, addr := onLoopback(t, Config{Intake: intake.Config{Store: new(memStore)}, Limits: Limits{ConnectionsPerClient: 1 << 20, Connections: 1 << 20}})
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
