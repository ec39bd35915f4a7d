package mta

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/submission/auth"
)

// apiKeysFile is a keys file that has no key.
func apiKeysFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("keys { file = %q }\n", path)
}

// httpClient is one connection to an api listener, on which requests can be sent in parts.
type httpClient struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func dialHTTP(t *testing.T, address string) *httpClient {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(limit))
	return &httpClient{t, c, bufio.NewReader(c)}
}

func (c *httpClient) say(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		c.t.Fatal(err)
	}
}

// hear gives the next answer's status.
func (c *httpClient) hear() *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	return resp
}

const getNowhere = "GET /nowhere HTTP/1.1\nHost: relay.example\n\n"

func (c *httpClient) ask() *http.Response {
	c.t.Helper()
	c.say(getNowhere)
	return c.hear()
}

// A reload leaves connections of a listener alone that it doesn't change; on one that changed, the
// next request is answered, and the connection closes.
func TestReloadDisturbsNoAPIThatStays(t *testing.T) {
	file := apiKeysFile(t)
	w := newWorld(t, sink.Config{}, file+`api "web" { address = "127.0.0.1:0" }`)
	a, b := freePort(t), freePort(t)
	block := func(name, port, more string) string {
		return fmt.Sprintf("api %q {\n address = \"127.0.0.1:%s\"\n %s\n}\n", name, port, more)
	}
	reload := func(text string) {
		t.Helper()
		w.rewrite("api", file+text)
		if _, err := w.Reload(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	reload(block("stays", a, "") + block("changes", b, ""))
	if got := strings.Join(w.Status().HTTP, " "); got != fmt.Sprintf("127.0.0.1:%s 127.0.0.1:%s", a, b) {
		t.Errorf("status has %s", got)
	}
	stays, changes := dialHTTP(t, "127.0.0.1:"+a), dialHTTP(t, "127.0.0.1:"+b)
	stays.ask()
	changes.ask()
	reload(block("stays", a, "") + block("changes", b, "max_request = \"1KiB\""))
	if resp := stays.ask(); resp.StatusCode != 404 || resp.Close {
		t.Errorf("a listener that stays: %d, close %v", resp.StatusCode, resp.Close)
	}
	if resp := changes.ask(); resp.StatusCode != 404 || !resp.Close {
		t.Errorf("a listener that changed: %d, close %v", resp.StatusCode, resp.Close)
	}
	if resp := dialHTTP(t, "127.0.0.1:"+b).ask(); resp.StatusCode != 404 || resp.Close {
		t.Errorf("its successor: %d, close %v", resp.StatusCode, resp.Close)
	}
	reload("")
	if c, err := net.Dial("tcp", "127.0.0.1:"+a); err == nil {
		c.Close()
		t.Error("a listener that is gone still takes connections")
	}
}

// Draining ends requests under way and refuses others.
func TestDrainOfAPI(t *testing.T) {
	w := newWorld(t, sink.Config{}, apiKeysFile(t)+`api "web" { address = "127.0.0.1:0" }`)
	kept := dialHTTP(t, w.Status().HTTP[0])
	kept.ask()
	if text := w.scrape(); !strings.Contains(text, `mta_http_requests_total{route="none",status="404"} 1`+"\n") {
		t.Error("the metrics lack the request")
	}
	if n := w.Status().Connections.In; n != 1 {
		t.Errorf("%d connections of clients are open", n)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); w.stop() }()
	for { // until the server drains
		if resp := kept.ask(); resp.StatusCode == http.StatusServiceUnavailable {
			if !resp.Close || resp.Header.Get("Retry-After") == "" {
				t.Errorf("while draining: %v", resp.Header)
			}
			break
		}
	}
	<-stopped
	if _, err := net.Dial("tcp", w.Status().HTTP[0]); err == nil {
		t.Error("the socket is open after the drain")
	}
}

func TestHTTPS(t *testing.T) {
	cert, key, pool := certificateFiles(t, "relay.example")
	w := newWorld(t, sink.Config{}, apiKeysFile(t)+`api "web" {
		address = "127.0.0.1:0"
		tls {
			certificate = "`+cert+`"
			key         = "`+key+`"
		}
	}`)
	for _, proto := range []string{"HTTP/2.0", "HTTP/1.1"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "relay.example"}, ForceAttemptHTTP2: proto == "HTTP/2.0"}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + w.Status().HTTP[0] + "/nowhere")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 404 || resp.Proto != proto {
			t.Errorf("%s %d, want %s", resp.Proto, resp.StatusCode, proto)
		}
		transport.CloseIdleConnections()
	}
	// A certificate that replaces this one is shown without a reload.
	newCert, newKey, newPool := certificateFiles(t, "relay.example")
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	w.until("the new certificate is shown", func() bool {
		c, err := tls.Dial("tcp", w.Status().HTTP[0], &tls.Config{RootCAs: newPool, ServerName: "relay.example"})
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// The limits of a tenant hold for its keys at once, and end with a reload, which disturbs no connection.
func TestTenantsRequestsAreLimited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	token, _, err := auth.AddKey(path, auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MayAll}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	text := func(limit string) string {
		return fmt.Sprintf("keys { file = %q }\ntenant \"acme\" {\n%s\n}\napi \"web\" { address = \"127.0.0.1:%s\" }\n", path, limit, port)
	}
	w := newWorld(t, sink.Config{}, text(`max_request_rate = "1/h"`))
	c := dialHTTP(t, w.Status().HTTP[0])
	ask := func() *http.Response {
		c.say("GET /v1/suppressions HTTP/1.1\nHost: relay.example\nAuthorization: Bearer " + token + "\n\n")
		return c.hear()
	}
	if resp := ask(); resp.StatusCode != 200 || resp.Header.Get("RateLimit") != `"tenant-requests";r=0;t=3600` {
		t.Errorf("the first request: %s %v", resp.Status, resp.Header)
	}
	if resp := ask(); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "3600" && resp.Header.Get("Retry-After") != "3599" {
		t.Errorf("the second request: %s %v", resp.Status, resp.Header)
	}
	w.rewrite("free", text(""))
	if _, err := w.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	if resp := ask(); resp.StatusCode != 200 || resp.Close || resp.Header.Get("RateLimit") != "" {
		t.Errorf("without the limit: %s %v", resp.Status, resp.Header)
	}
}
