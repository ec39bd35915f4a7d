package delivery

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/lab/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is how long a test may take when something is wrong.
const limit = time.Minute

// host is a server that tells each client its address.
func host(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(nc, nc.RemoteAddr().(*net.TCPAddr).IP.String()+"\r\n")
			nc.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return netip.MustParseAddrPort(l.Addr().String())
}

// closed is an address at which nobody listens.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}

func running(t *testing.T, s *sink.Proxy, err error) *sink.Proxy {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// seenFrom gives the address that the host sees, or the error.
func seenFrom(t *testing.T, dial Dialer, to netip.AddrPort) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	nc, err := dial(ctx, to)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(limit))
	said, err := io.ReadAll(nc)
	return strings.TrimSpace(string(said)), err
}

func TestDirectConnectsFromItsAddress(t *testing.T) {
	to := host(t)
	for _, from := range []string{"127.0.0.2", "::ffff:127.0.0.3"} {
		a := netip.MustParseAddr(from)
		if got, err := seenFrom(t, Direct(a), to); err != nil || got != a.Unmap().String() {
			t.Errorf("from %s the host sees %q, %v", from, got, err)
		}
	}
	if got, err := seenFrom(t, Direct(netip.Addr{}), to); err != nil || got != "127.0.0.1" {
		t.Errorf("from wherever the system likes the host sees %q, %v", got, err)
	}
}

func TestSOCKS5(t *testing.T) {
	to, via := host(t), netip.MustParseAddr("127.0.0.7")
	open, err := sink.SOCKS5Proxy(via, "", "", 0)
	running(t, open, err)
	locked, err := sink.SOCKS5Proxy(via, "relay", "s3cret", 0)
	running(t, locked, err)
	broken, err := sink.SOCKS5Proxy(via, "", "", 4)
	running(t, broken, err)
	nowhere := closed(t)
	for _, x := range []struct {
		what string
		dial Dialer
		to   netip.AddrPort
		seen string
		want string // error
	}{
		{"open", SOCKS5(open.Addr, "", ""), to, "127.0.0.7", ""},
		{"an IPv4 address in IPv6's clothes", SOCKS5(open.Addr, "", ""), netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.1"), to.Port()), "127.0.0.7", ""},
		{"with credentials", SOCKS5(locked.Addr, "relay", "s3cret"), to, "127.0.0.7", ""},
		{"wrong credentials", SOCKS5(locked.Addr, "relay", "guess"), to, "", "socks5 proxy " + locked.Addr + ": username/password authentication failed"},
		{"no credentials", SOCKS5(locked.Addr, "", ""), to, "", "socks5 proxy " + locked.Addr + ": no acceptable authentication methods"},
		{"unreachable", SOCKS5(broken.Addr, "", ""), to, "", "socks5 proxy " + broken.Addr + ": host unreachable"},
		{"host refuses", SOCKS5(open.Addr, "", ""), netip.MustParseAddrPort(closed(t)), "", "socks5 proxy " + open.Addr + ": connection refused"},
		{"no proxy", SOCKS5(nowhere, "", ""), to, "", "socks5 proxy " + nowhere + ": connect: connection refused"},
	} {
		got, err := seenFrom(t, x.dial, x.to)
		if got != x.seen || errorText(err) != x.want {
			t.Errorf("%s: seen from %q, error %v; want %q, %s", x.what, got, err, x.seen, x.want)
		}
	}
	if got := locked.Requests(); len(got) != 1 || got[0].Username != "relay" || got[0].To != to {
		t.Errorf("asked for %+v", got)
	}
}

func TestPROXY(t *testing.T) {
	to := host(t)
	p, err := sink.HAProxy()
	running(t, p, err)
	from := netip.MustParseAddr("127.0.0.8")
	if got, err := seenFrom(t, PROXY(p.Addr, from), to); err != nil || got != "127.0.0.8" {
		t.Errorf("the host sees %q, %v", got, err)
	}
	if got := p.Requests(); len(got) != 1 || got[0] != (sink.ProxyRequest{From: from, To: to}) {
		t.Errorf("the header says %+v", got)
	}
	if got, err := seenFrom(t, PROXY(p.Addr, from), netip.MustParseAddrPort(closed(t))); got != "" || err != nil {
		t.Errorf("of a host that refuses comes %q, %v; want an end without a word", got, err)
	}
	nowhere := closed(t)
	for _, x := range []struct {
		dial Dialer
		to   netip.AddrPort
		want string
	}{
		{PROXY(nowhere, from), to, "haproxy " + nowhere + ": connect: connection refused"},
		{PROXY(p.Addr, from), netip.MustParseAddrPort("[2001:db8::1]:25"), "source address 127.0.0.8 reaches no host of the other family, as 2001:db8::1 is"},
	} {
		if _, err := seenFrom(t, x.dial, x.to); errorText(err) != x.want {
			t.Errorf("got %v, want %s", err, x.want)
		}
	}
}

// TestAMuteProxy proves that the deadline covers the proxy's part.
func TestAMuteProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts in the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = SOCKS5(l.Addr().String(), "", "")(ctx, netip.MustParseAddrPort("192.0.2.1:25"))
	if want := "socks5 proxy " + l.Addr().String() + ": timed out"; errorText(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
