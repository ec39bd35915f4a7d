package http

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/submission/auth"
)

// TestOpenConnectionsAreListedAndClosed: one without a request at once, one with a request when that is answered.
func TestOpenConnectionsAreListedAndClosed(t *testing.T) {
	s := testServer(t, nil)
	address := strings.TrimPrefix(serve(t, s), "http://")
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		return c, bufio.NewReader(c)
	}
	// of waits until a client's connection is as it should be.
	of := func(c net.Conn, ok func(ConnectionInfo) bool) ConnectionInfo {
		t.Helper()
		for range 6000 {
			for _, x := range s.OpenConnections() {
				if x.Peer.String() == c.LocalAddr().String() && ok(x) {
					return x
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%+v", s.OpenConnections())
		return ConnectionInfo{}
	}
	ended := func(r *bufio.Reader) {
		t.Helper()
		if b, err := io.ReadAll(r); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%q, %v", b, err)
		}
	}
	idle, fromIdle := dial()
	x := of(idle, func(x ConnectionInfo) bool { return !x.Idle.IsZero() && x.Requests == 0 })
	if known, later := s.CloseConnections(map[string]bool{x.ID.String(): true}); known != 1 || later != 0 {
		t.Errorf("%d known, %d later", known, later)
	}
	ended(fromIdle)

	busy, fromBusy := dial()
	fmt.Fprintf(busy, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: 2\r\n\r\n{")
	x = of(busy, func(x ConnectionInfo) bool { return x.Idle.IsZero() && x.Requests == 1 })
	if known, later := s.CloseConnections(map[string]bool{x.ID.String(): true}); known != 1 || later != 1 {
		t.Errorf("%d known, %d later", known, later)
	}
	of(busy, func(x ConnectionInfo) bool { return x.Closing })
	fmt.Fprint(busy, "}")
	resp, err := http.ReadResponse(fromBusy, nil)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp, err)
	}
	io.Copy(io.Discard, resp.Body)
	ended(fromBusy)
	for range 6000 {
		if s.Connections() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d connections are left", s.Connections())
}

// TestStrangersMakeRoom: clients without a key hold all places by what takes long before and after a refusal. Whoever has a
// key gets a place all the same, and keeps it.
func TestStrangersMakeRoom(t *testing.T) {
	for name, head := range map[string]string{
		"a body that comes slowly after the refusal": "POST /v1/messages HTTP/1.1\r\nHost: relay\r\nContent-Length: 100000\r\n\r\n",
		"no such page":                "POST /nowhere HTTP/1.1\r\nHost: relay\r\nContent-Length: 100000\r\n\r\n",
		"a key that does not hold":    "POST /v1/messages HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer wrong\r\nContent-Length: 100000\r\n\r\n",
		"a guess that has to wait":    "POST /v1/messages HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer slow\r\nContent-Length: 100000\r\n\r\n",
		"an answer that nobody reads": "GET /open HTTP/1.1\r\nHost: relay\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newLine(t, testServer(t, func(c *Config) { c.MaxConnections, c.Keys = 20, slowKeys{testKeys} }))
				const keyed = "POST /v1/messages HTTP/1.1\r\nHost: relay\r\nAuthorization: Bearer good\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
				before, fromBefore := w.dial()
				io.WriteString(before, keyed+"{")
				var strangers sync.WaitGroup
				defer strangers.Wait()
				for i := range 40 {
					conn, in := w.dial()
					defer conn.Close()
					if i%10 == 0 {
						time.Sleep(2 * time.Second)
					}
					strangers.Go(func() {
						_, err := io.WriteString(conn, head)
						if strings.HasPrefix(head, "GET") {
							return
						}
						go io.Copy(io.Discard, in)
						for err == nil {
							time.Sleep(3 * time.Second)
							_, err = io.WriteString(conn, "x")
						}
					})
					synctest.Wait()
				}
				time.Sleep(2 * time.Second)
				if got := w.say(keyed + "{ }"); !strings.HasPrefix(got, "HTTP/1.1 202 ") {
					t.Errorf("a client with a key: %.100s", got)
				}
				io.WriteString(before, " }")
				if resp, err := http.ReadResponse(fromBefore, nil); err != nil || resp.StatusCode != http.StatusAccepted {
					t.Errorf("the client before: %v, %v", resp, err)
				}
			})
		})
	}
}

// TestManyConnectionsMakeRoom: a client that connects again and again, so that none of its connections is old, keeps
// nobody else out, and costs nobody a connection.
func TestManyConnectionsMakeRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newConnections(20, new(atomic.Int64))
		from := func(client string) *link {
			conn, other := net.Pipe()
			t.Cleanup(func() { conn.Close(); other.Close() })
			return &link{conn: conn, from: netip.MustParseAddrPort(client)}
		}
		usual := from("198.51.100.7:1")
		c.add(usual)
		c.move(usual, &c.idle)
		time.Sleep(5 * time.Second)
		for range 100 {
			c.add(from("203.0.113.9:1"))
		}
		for i := range 5 {
			if !c.add(from(fmt.Sprintf("198.51.100.%d:1", 10+i))) {
				t.Errorf("client %d got no connection", i)
			}
			c.add(from("203.0.113.9:1"))
		}
		if c.all[usual.conn] == nil {
			t.Error("a client has lost its only connection")
		}
		if open := c.open(); open != 20 {
			t.Errorf("%d connections are open", open)
		}
	})
}

// slowKeys has whoever guesses wait.
type slowKeys struct{ someKeys }

func (k slowKeys) Check(ctx context.Context, token string, from netip.Addr) (auth.Identity, error) {
	if token == "slow" {
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Second):
		}
	}
	return k.someKeys.Check(ctx, token, from)
}

// TestKeysCountByEveryProtocol: a connection with a key has to make room in none of them, and one without in all.
func TestKeysCountByEveryProtocol(t *testing.T) {
	for _, version := range []int{1, 2} {
		var s *Server
		where := func(c *Call) error {
			l := linkOf(c.Request)
			s.conns.mu.Lock()
			defer s.conns.mu.Unlock()
			return c.JSON(http.StatusOK, fmt.Sprintf("HTTP/%d %t", c.Request.ProtoMajor, l.list == &s.conns.keyless))
		}
		s = testServer(t, func(c *Config) {
			c.Routes = []Route{
				{Method: "GET", Pattern: "/keyed", Scope: auth.MayRead, Handle: where},
				{Method: "GET", Pattern: "/open", Open: true, Handle: where},
			}
		})
		var protocols http.Protocols
		protocols.SetHTTP1(version == 1)
		protocols.SetUnencryptedHTTP2(version == 2)
		way := &http.Transport{Protocols: &protocols}
		home := serve(t, s)
		for _, path := range []string{"/open", "/keyed", "/open"} {
			req, _ := http.NewRequest(http.MethodGet, home+path, nil)
			req.Header.Set("Authorization", "Bearer good")
			resp, err := way.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprintf("%q", fmt.Sprintf("HTTP/%d %t", version, path == "/open")); strings.TrimSpace(string(got)) != want {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
		way.CloseIdleConnections()
	}
}
