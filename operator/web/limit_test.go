package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/testca"
)

// TestStrangersKeepNobodyOut: strangers open more connections than there may be, from few addresses or many, and say
// nothing, too little or enough. Operators log in all the same, and the connection of one who has is kept.
func TestStrangersKeepNobodyOut(t *testing.T) {
	const half, whole = "GET /login HTTP/1.1\r\nHost: consol", "GET /login HTTP/1.1\r\nHost: console.example\r\n\r\n"
	for _, x := range []struct {
		addresses int
		secure    bool
		said      string
	}{{1, true, ""}, {2, false, half}, {2, true, ""}, {10, false, whole}, {200, false, ""}, {200, true, ""}, {300, false, half}} {
		t.Run(fmt.Sprintf("%d addresses, TLS %v, %d octets", x.addresses, x.secure, len(x.said)), func(t *testing.T) {
			at := serveConsole(t, x.secure)
			crowd(t, at, x.addresses, x.said)
			first := newOperator(t, at, x.secure)
			first.login("otto")
			crowd(t, at, x.addresses, x.said)
			newOperator(t, at, x.secure).login("ada") // once her connection is taken, so are those before it
			first.sees("/queue")
			if first.dialed > 1 {
				t.Errorf("the connection of somebody who was signed in was closed: %d were opened", first.dialed)
			}
		})
	}
}

// serveConsole serves a console on loopback.
func serveConsole(t *testing.T, secure bool) (address string) {
	t.Helper()
	c := newConsole(t, func(cfg *Config) {
		if secure {
			cfg.TLS = &tls.Config{Certificates: []tls.Certificate{*testca.New(t).Issue(t, []string{"console.example"})}}
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Serve(l) }()
	t.Cleanup(func() {
		c.http.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// crowd opens some more connections than there may be, and leaves them open.
func crowd(t *testing.T, at string, addresses int, said string) {
	t.Helper()
	for i := range maxConnections + 8 {
		n := i % addresses
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 77, byte(n/250), byte(1+n%250))}}
		conn, err := d.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = conn.Write([]byte(said)) // an error: it was closed already
	}
}

// operator is somebody with a browser.
type operator struct {
	t      *testing.T
	http   http.Client
	home   string
	dialed int
}

func newOperator(t *testing.T, at string, secure bool) *operator {
	jar, _ := cookiejar.New(nil)
	o := &operator{t: t, home: "http://console.example"}
	if secure {
		o.home = "https://console.example"
	}
	way := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			o.dialed++
			return (&net.Dialer{}).DialContext(ctx, "tcp", at)
		},
	}
	t.Cleanup(way.CloseIdleConnections)
	o.http = http.Client{Transport: way, Jar: jar, Timeout: time.Minute}
	return o
}

func (o *operator) login(user string) {
	o.t.Helper()
	answer, err := o.http.PostForm(o.home+"/login", url.Values{"user": {user}, "password": {"secret of " + user}})
	o.isAt("/", answer, err)
}

func (o *operator) sees(path string) {
	o.t.Helper()
	answer, err := o.http.Get(o.home + path)
	o.isAt(path, answer, err)
}

// isAt reads an answer to its end, so that the connection is used again.
func (o *operator) isAt(path string, answer *http.Response, err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Request.URL.Path != path {
		o.t.Fatalf("want %s, at %s, %s, %v", path, answer.Request.URL, answer.Status, err)
	}
}

// TestWhoMakesRoom: of strangers' connections, then idle ones, then all, the client that has the most loses its oldest.
func TestWhoMakesRoom(t *testing.T) {
	for _, x := range []struct{ open, loses string }{ // client and state; the oldest first
		{"a? b? c?", "a? 0"},
		{"a? b? c? b?", "b? 1"},
		{"a! a! a! b?", "b? 3"},
		{"a- a! b? a-", "b? 2"},
		{"a! b- a! c- c- b!", "c- 3"},
		{"p? a- p? p?", "a- 1"},
		{"a! b! b!", "b! 1"},
		{"2001:db8::1? 192.0.2.1? 2001:db8::2?", "2001:db8::1? 0"},
		{"192.0.2.1? 192.0.2.2? 192.0.2.2?", "192.0.2.2? 1"},
	} {
		words := strings.Fields(x.open)
		proxy := netip.MustParseAddr("192.0.2.80")
		l := limit(nil, len(words), func(a netip.Addr) bool { return a == proxy })
		names := map[string]string{"a": "198.51.100.1", "b": "198.51.100.2", "c": "198.51.100.3", "p": "192.0.2.80"}
		var all []*standIn
		for _, word := range words {
			name, state := word[:len(word)-1], word[len(word)-1]
			if names[name] != "" {
				name = names[name]
			}
			c := &standIn{from: netip.MustParseAddr(name)}
			own := l.enter(c)
			own.signed, own.idle = state != '?', state == '-'
			all = append(all, c)
		}
		l.enter(&standIn{from: netip.MustParseAddr("203.0.113.1")})
		for i, c := range all {
			if want := fmt.Sprintf("%s %d", words[i], i) == x.loses; c.closed != want {
				t.Errorf("%s: %s (%d) is closed: %v", x.open, words[i], i, c.closed)
			}
		}
		if len(l.open) != len(words) {
			t.Errorf("%s: %d are open", x.open, len(l.open))
		}
	}
}

// standIn is a connection from an address.
type standIn struct {
	net.Conn
	from   netip.Addr
	closed bool
}

func (c *standIn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 25))
}
func (c *standIn) Close() error { c.closed = true; return nil }

// TestConnectionsThatEndLeaveRoom: what was closed is no longer counted, once.
func TestConnectionsThatEndLeaveRoom(t *testing.T) {
	l := limit(nil, 2, func(netip.Addr) bool { return false })
	var all []*limitedConn
	for range 2 {
		all = append(all, l.enter(&standIn{from: netip.MustParseAddr("192.0.2.1")}))
	}
	var twice sync.WaitGroup
	for range 2 {
		twice.Go(func() { all[1].Close() })
	}
	twice.Wait()
	if !slices.Equal(l.open, all[:1]) {
		t.Errorf("open: %v", l.open)
	}
	l.enter(&standIn{from: netip.MustParseAddr("192.0.2.2")})
	if all[0].Conn.(*standIn).closed {
		t.Error("a connection was closed though there was room")
	}
}
