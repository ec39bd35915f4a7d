package http

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
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
