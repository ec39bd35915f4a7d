package http

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/network"
	"example.org/mta/submission/auth"
)

// fromHere is a pipe that comes from this machine.
type fromHere struct{ net.Conn }

func (fromHere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4000} }

// line takes connections to a server without a network.
type line struct {
	t *testing.T
	*network.Handover
	server *Server
}

// newLine has a server serve until the test ends, in virtual time.
func newLine(t *testing.T, s *Server) *line {
	w := &line{t, network.NewHandover(), s}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(w) }()
	t.Cleanup(func() { s.Shutdown(t.Context()); <-done })
	return w
}

// dial opens a connection, and gives what the server answers on it until it closes.
func (w *line) dial() (net.Conn, *bufio.Reader) {
	ours, theirs := net.Pipe()
	if !w.Give(fromHere{theirs}) {
		w.t.Fatal("the server accepts nothing")
	}
	w.t.Cleanup(func() { ours.Close() })
	return ours, bufio.NewReader(ours)
}

// say sends something, whatever the server reads of it, and gives all that it answers until it closes,
// or for a minute.
func (w *line) say(text string) string {
	conn, in := w.dial()
	go io.WriteString(conn, text)
	conn.SetReadDeadline(time.Now().Add(10 * time.Minute))
	all, _ := io.ReadAll(in)
	conn.Close()
	return string(all)
}

const authorized = "Host: relay\r\nAuthorization: Bearer good\r\n"

// observed is what an observer has seen, by "status reason".
type observed struct {
	mu sync.Mutex
	by map[string]int
}

func (a *observed) Began() {}

func (a *observed) Answered(r Answered) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = make(map[string]int)
	}
	a.by[fmt.Sprintf("%s %d %s", r.Route, r.Status, r.Reason)]++
}

func (a *observed) saw(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.by[what] > 0
}

// Requests that two servers in a row could read differently are refused, or are the last on their
// connection: nothing of them becomes a second request.
func TestNothingIsSmuggled(t *testing.T) {
	const second = "GET /open HTTP/1.1\r\nHost: relay\r\n\r\n"
	const post = "POST /v1/messages HTTP/1.1\r\n" + authorized
	chunked := fmt.Sprintf("0\r\n\r\n%s", second)
	for name, text := range map[string]string{
		"length and chunks":            post + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n", len(chunked)) + chunked,
		"chunks and length":            post + fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n", len(chunked)) + chunked,
		"two lengths":                  post + "Content-Length: 0\r\nContent-Length: 40\r\n\r\n" + second,
		"a list of lengths":            post + "Content-Length: 0, 40\r\n\r\n" + second,
		"a signed length":              post + "Content-Length: +2\r\n\r\n{}" + second,
		"a negative length":            post + "Content-Length: -1\r\n\r\n" + second,
		"an unknown coding":            post + "Transfer-Encoding: identity, chunked\r\n\r\n" + chunked,
		"chunks twice":                 post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
		"a space before the colon":     post + "Transfer-Encoding : chunked\r\n\r\n" + chunked,
		"a folded field":               post + "Transfer-Encoding:\r\n chunked\r\nX: y\r\n\r\n" + chunked,
		"a chunk of a negative size":   post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + second,
		"a chunk that ends in LF":      post + "Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n" + second,
		"a chunk longer than its size": post + "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n" + second,
		"a field without a name":       post + ": x\r\nContent-Length: 0\r\n\r\n" + second,
		"a NUL":                        post + "X: a\x00b\r\nContent-Length: 0\r\n\r\n" + second,
		"a CR within":                  post + "X: a\rContent-Length: 40\r\nContent-Length: 0\r\n\r\n" + second,
		"no host":                      "POST /v1/messages HTTP/1.1\r\nAuthorization: Bearer good\r\nContent-Length: 0\r\n\r\n" + second,
		"two hosts":                    post + "Host: other\r\nContent-Length: 0\r\n\r\n" + second,
		"HTTP/1.0 with chunks":         "POST /v1/messages HTTP/1.0\r\n" + authorized + "Transfer-Encoding: chunked\r\n\r\n" + chunked,
	} {
		bubble.Test(t, func(t *testing.T) {
			w := newLine(t, testServer(t, nil))
			if got := w.say(text); strings.Contains(got, "<open>") || strings.Count(got, "HTTP/1.") != 1 {
				t.Errorf("%s:\n%s", name, got)
			}
		})
	}
	// A request line and fields that end in LF alone are read as RFC 9112, 2.2, allows: there is one way to
	// read them.
	bubble.Test(t, func(t *testing.T) {
		w := newLine(t, testServer(t, nil))
		got := w.say(strings.ReplaceAll(post+"Content-Length: 2\r\n\r\n", "\r\n", "\n") + "{}" + second + "GET /open HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")
		if strings.Count(got, "HTTP/1.1 ") != 3 {
			t.Errorf("bare LF:\n%s", got)
		}
	})
}

// A body that is shorter than it claims, or too slow, is an answer or nothing, and frees the connection.
func TestBodiesThatDoNotCome(t *testing.T) {
	const post = "POST /v1/messages HTTP/1.1\r\n" + authorized
	for name, tc := range map[string]struct {
		send   func(conn net.Conn)
		seen   string
		within time.Duration
	}{
		"cut": {func(conn net.Conn) {
			io.WriteString(conn, post+"Content-Length: 100\r\n\r\n{")
			conn.Close()
		}, "POST /v1/messages 400 cut", time.Second},
		"silent": {func(conn net.Conn) {
			io.WriteString(conn, post+"Content-Length: 100\r\n\r\n{")
		}, "POST /v1/messages 408 slow", 2 * time.Minute},
		"octet by octet": {func(conn net.Conn) {
			io.WriteString(conn, post+"Content-Length: 100000\r\n\r\n")
			for {
				if _, err := io.WriteString(conn, "a"); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}, "POST /v1/messages 408 slow", 2 * time.Minute},
		"refused, and not sent": {func(conn net.Conn) {
			io.WriteString(conn, "POST /v1/messages HTTP/1.1\r\nHost: relay\r\nContent-Length: 100000\r\n\r\n")
		}, "POST /v1/messages 401 key", 10 * time.Second},
	} {
		bubble.Test(t, func(t *testing.T) {
			seen := new(observed)
			w := newLine(t, testServer(t, func(c *Config) { c.Observer = seen }))
			conn, in := w.dial()
			go io.Copy(io.Discard, in)
			go tc.send(conn)
			time.Sleep(tc.within)
			synctest.Wait()
			if !seen.saw(tc.seen) {
				t.Errorf("%s: %v, want %s", name, seen.by, tc.seen)
			}
			if n := w.server.Connections(); n != 0 && name != "refused, and not sent" {
				t.Errorf("%s: %d connections are open", name, n)
			}
		})
	}
}

// A slow body that keeps the pace is waited for, and a client that waits for its answer is not taken for
// one that has left.
func TestAPatientClient(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		routes := []Route{{Method: "POST", Pattern: "/slow", Open: true, Handle: func(c *Call) error {
			body, err := io.ReadAll(c.Request.Body)
			if err != nil {
				return err
			}
			select {
			case <-c.Context().Done():
				return c.Context().Err()
			case <-time.After(5 * time.Minute):
			}
			return c.JSON(200, len(body))
		}}}
		w := newLine(t, testServer(t, func(c *Config) { c.Routes = routes }))
		conn, in := w.dial()
		go func() {
			fmt.Fprintf(conn, "POST /slow HTTP/1.1\r\nHost: relay\r\nContent-Length: 100000\r\n\r\n")
			for range 100 {
				conn.Write(make([]byte, 1000))
				time.Sleep(time.Second)
			}
		}()
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		io.Copy(io.Discard, resp.Body)
	})
}

func TestHugeHeadersAndSlowOnes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newLine(t, testServer(t, nil))
		if got := w.say("GET /open HTTP/1.1\r\nHost: relay\r\nX: " + strings.Repeat("a", 100<<10) + "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431 ") {
			t.Errorf("a header of 100 KiB: %.100s", got)
		}
		began := time.Now()
		if got := w.say("GET /open HTTP/1.1\r\nHost: rel"); got != "" && !strings.Contains(got, "408") || time.Since(began) > time.Minute {
			t.Errorf("half a header: %q after %v", got, time.Since(began))
		}
	})
}

// Connections that bring no request make room for others, however many there are.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newLine(t, testServer(t, func(c *Config) { c.MaxConnections = 100 }))
		busy, in := w.dial()
		request := func() string {
			go io.WriteString(busy, "GET /open HTTP/1.1\r\nHost: relay\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return err.Error()
			}
			io.Copy(io.Discard, resp.Body)
			return resp.Status
		}
		if got := request(); got != "200 OK" {
			t.Fatal(got)
		}
		for i := range 10_000 {
			conn, in := w.dial()
			if i%100 == 0 {
				time.Sleep(2 * time.Second)
			}
			go func() {
				conn.SetReadDeadline(time.Now().Add(time.Second))
				io.ReadAll(in) // that it is turned away
			}()
			synctest.Wait()
			if i%50 == 0 {
				if got := request(); got != "200 OK" { // one that is used stays
					t.Fatalf("after %d: %s", i, got)
				}
			}
		}
		if n := w.server.Connections(); n > 100 {
			t.Errorf("%d connections are open", n)
		}
		time.Sleep(2 * time.Second)
		if got := w.say("GET /open HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("a new client: %s", got)
		}
	})
}

// What is under way may end, while other requests get 503 and their connections close.
func TestShutdownAndRetire(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(*Server, context.Context) error
		status int
	}{"shutdown": {(*Server).Shutdown, 503}, "retire": {(*Server).Retire, 200}} {
		bubble.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			routes := append([]Route{{Method: "GET", Pattern: "/slow", Open: true, Handle: func(c *Call) error {
				<-release
				return c.JSON(200, nil)
			}}}, testRoutes...)
			w := newLine(t, testServer(t, func(c *Config) { c.Routes = routes }))
			ask := func(conn net.Conn, in *bufio.Reader, path string) *http.Response {
				go fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: relay\r\n\r\n", path)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				io.Copy(io.Discard, resp.Body)
				return resp
			}
			kept, keptIn := w.dial()
			ask(kept, keptIn, "/open")
			busy, busyIn := w.dial()
			got := make(chan *http.Response)
			go func() { got <- ask(busy, busyIn, "/slow") }()
			synctest.Wait()
			ended := make(chan error, 1)
			go func() { ended <- tc.end(w.server, t.Context()) }()
			synctest.Wait()
			if resp := ask(kept, keptIn, "/open"); resp.StatusCode != tc.status || !resp.Close {
				t.Errorf("%s: another request: %s, close %v", name, resp.Status, resp.Close)
			}
			time.Sleep(time.Minute)
			close(release)
			if resp := <-got; resp.StatusCode != 200 {
				t.Errorf("%s: the request under way: %s", name, resp.Status)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A stop doesn't wait for the spare connections of clients, not even for those that came a moment before.
func TestShutdownDoesNotWaitForSpareConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newLine(t, testServer(t, func(*Config) {}))
		w.dial()
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		time.AfterFunc(farewell-100*time.Millisecond, func() { w.dial() })
		if err := w.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > farewell+slack+time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

// A drain that lasts too long cuts what is under way; a handler that was cut is waited for.
func TestShutdownCuts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		finished := false
		routes := []Route{{Method: "GET", Pattern: "/slow", Open: true, Handle: func(c *Call) error {
			<-c.Context().Done()
			time.Sleep(time.Second) // a commit
			finished = true
			return c.Context().Err()
		}}}
		w := newLine(t, testServer(t, func(c *Config) { c.Routes = routes }))
		go w.say("GET /slow HTTP/1.1\r\nHost: relay\r\n\r\n")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := w.server.Shutdown(ctx); err == nil || !finished {
			t.Errorf("%v, finished: %v", err, finished)
		}
	})
}

// Requests under way hold no more than the budget, and it is whole again afterwards.
func TestRequestsUnderWayFitIntoMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const size, most = 300 << 10, 8 * (500 << 10)
		memory := NewMemory(most)
		var mu sync.Mutex
		status := make(map[int]int)
		hold := make(chan struct{})
		routes := []Route{{Method: "POST", Pattern: "/hold", Open: true, Handle: func(c *Call) error {
			if _, err := io.ReadAll(c.Request.Body); err != nil {
				return err
			}
			<-hold
			return c.JSON(200, nil)
		}}, {Method: "POST", Pattern: "/stream", Open: true, Streamed: func(*http.Request) bool { return true }, Handle: func(c *Call) error {
			_, err := io.Copy(io.Discard, c.Request.Body)
			return err
		}}}
		s := testServer(t, func(c *Config) { c.Routes, c.Memory, c.MaxRequest = routes, memory, 500<<10 })
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				var body io.Reader = bytes.NewReader(make([]byte, size))
				if i%2 == 0 {
					body = io.MultiReader(body) // of unknown length
				}
				w := ask(s, "POST", "/hold", "", body)
				mu.Lock()
				defer mu.Unlock()
				status[w.Code]++
			})
		}
		synctest.Wait()
		if used := memory.Used(); used > most || used < most/2 {
			t.Errorf("%d octets are taken, of %d", used, most)
		}
		close(hold)
		all.Wait()
		if status[200] < 2 || status[503] < 90 || status[200]+status[503] != 100 {
			t.Errorf("answers: %v", status)
		}
		if memory.Used() != 0 {
			t.Errorf("%d octets are not given back", memory.Used())
		}
		memory.Resize(2 << 20)
		if w := ask(s, "POST", "/stream", "", bytes.NewReader(make([]byte, 499<<10))); w.Code != 200 {
			t.Errorf("a stream: %d", w.Code)
		}
	})
}

// TestATenantLeavesMemoryToOthers: what one tenant declares of bodies that never come doesn't refuse others.
func TestATenantLeavesMemoryToOthers(t *testing.T) {
	m := NewMemory(800)
	part := func(tenant string) fair.Part[string] {
		return (&Call{Identity: auth.Identity{Tenant: tenant}}).part()
	}
	if !m.Take(400, part("acme")) || m.Take(300, part("acme")) || !m.Take(200, part("acme")) || !m.Take(100, part("other")) || !m.Take(50, part("third")) {
		t.Error("a tenant has more or less than three quarters, or leaves nothing to others")
	}
	m.Give(600, part("acme"))
	if m.Give(100, part("other")); m.Used() != 50 || !m.Take(500, part("fourth")) {
		t.Errorf("%d octets are not given back", m.Used())
	}
}

func TestCompressedBodies(t *testing.T) {
	zip := func(content []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(content)
		z.Close()
		return b.Bytes()
	}
	s := testServer(t, func(c *Config) { c.MaxRequest = 1 << 20 })
	good, bomb := zip([]byte("hello")), bytes.Repeat(zip(make([]byte, 1<<20)), 100)
	for name, tc := range map[string]struct {
		body   []byte
		status int
	}{
		"good": {good, 202}, "a bomb": {bomb, 413}, "cut": {good[:len(good)-4], 400}, "no gzip": {[]byte("{}"), 400},
		"damaged": {append(bytes.Clone(good[:len(good)-8]), 0, 0, 0, 0, 5, 0, 0, 0), 400},
	} {
		if w := ask(s, "POST", "/v1/messages", "good", bytes.NewReader(tc.body), "Content-Encoding", "gzip"); w.Code != tc.status {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, tc.status)
		}
	}
}

// A client that sends all of a refused body before it reads gets the answer all the same; one that asks
// before sending (Expect) is answered before it sends anything.
func TestARefusedBodyIsReadToItsEnd(t *testing.T) {
	address := strings.TrimPrefix(serve(t, testServer(t, nil)), "http://")
	const size = 20 << 20
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /v1/messages HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\n%s\r\n", size, expect)
		if expect == "" {
			if _, err := conn.Write(make([]byte, size)); err != nil {
				t.Errorf("sending: %v", err)
			}
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || !resp.Close {
			t.Errorf("%q: %v %v", expect, resp, err)
		}
	}
}
