package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/request"
)

// someKeys are keys of tests by token.
type someKeys map[string]auth.Identity

func (k someKeys) Check(_ context.Context, token string, _ netip.Addr) (auth.Identity, error) {
	switch token {
	case "broken":
		return auth.Identity{}, auth.ErrNoKeys
	case "guess":
		return auth.Identity{}, auth.ErrTooManyWrongKeys
	case "expired":
		return auth.Identity{}, fmt.Errorf("%w: %w", auth.ErrRefused, auth.ErrExpired)
	}
	if id, ok := k[token]; ok {
		return id, nil
	}
	return auth.Identity{}, auth.ErrRefused
}

var testKeys = someKeys{
	"good":   {ID: "k1", Name: "shop", Tenant: "acme", Scopes: auth.MayAll},
	"reader": {ID: "k2", Tenant: "acme", Scopes: auth.MayRead},
	"other":  {ID: "k3", Tenant: "other", Scopes: auth.MayAll},
}

// testRoutes are some of each kind.
var testRoutes = []Route{
	{Method: "POST", Pattern: "/v1/messages", Scope: auth.MaySend, Mail: true, Handle: func(c *Call) error {
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusAccepted, map[string]any{"octets": len(body), "tenant": c.Identity.Tenant})
	}},
	{Method: "GET", Pattern: "/v1/messages/{id}", Scope: auth.MayRead, Handle: func(c *Call) error {
		return c.JSON(http.StatusOK, map[string]string{"id": c.Request.PathValue("id"), "client": c.Client.String(), "secure": fmt.Sprint(c.Secure)})
	}},
	{Method: "DELETE", Pattern: "/v1/messages/{id}", Scope: auth.MayCancel, Handle: func(c *Call) error {
		switch c.Request.PathValue("id") {
		case "panic":
			panic("secret of the handler")
		case "faulty":
			return request.Faults{{Pointer: "/to/0", Detail: "no address", Remedy: "write <a@b>"}}
		case "trouble":
			return errors.New("secret of the store")
		}
		return Problemf(http.StatusNotFound, "no such message")
	}},
	{Method: "GET", Pattern: "/open", Open: true, Handle: func(c *Call) error { return c.JSON(http.StatusOK, "<open>") }},
}

func testServer(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	c := Config{Keys: testKeys, Routes: testRoutes}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// ask has a request answered by the handler.
func ask(s *Server, method, target, token string, body io.Reader, fields ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, body)
	req.RemoteAddr = "127.0.0.1:999"
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	return w
}

func TestEachRequestIsCheckedBeforeItsHandler(t *testing.T) {
	s := testServer(t, func(c *Config) { c.MaxRequest = 100; c.Tenants = []string{"acme"} })
	basic := func(user, password string) []string {
		r := httptest.NewRequest("GET", "/", nil)
		r.SetBasicAuth(user, password)
		return []string{"Authorization", r.Header.Get("Authorization")}
	}
	for _, c := range []struct {
		method, target, token, body string
		fields                      []string
		status                      int
		header, value               string // of the answer
		detail                      string // in it
	}{
		{method: "POST", target: "/v1/messages", token: "good", body: "{}", status: 202},
		{method: "POST", target: "/v1/messages", fields: basic("any", "good"), body: "{}", status: 202},
		{method: "GET", target: "/open", status: 200},
		{method: "HEAD", target: "/v1/messages/x", token: "good", status: 200},
		{method: "GET", target: "/v1/messages/x", token: "good", body: "{}", status: 200},
		{method: "POST", target: "/v1/messages", body: "{}", status: 401, header: "Www-Authenticate", value: `Bearer realm="mta"`},
		{method: "POST", target: "/v1/messages", token: "bad", body: "{}", status: 401, detail: "not accepted"},
		{method: "POST", target: "/v1/messages", token: "expired", body: "{}", status: 401, detail: "not accepted"},
		{method: "POST", target: "/v1/messages", token: "guess", body: "{}", status: 429, header: "Retry-After", value: "60"},
		{method: "POST", target: "/v1/messages", token: "broken", body: "{}", status: 503, header: "Retry-After", value: "5"},
		{method: "POST", target: "/v1/messages", token: "reader", body: "{}", status: 403, detail: "scope"},
		{method: "POST", target: "/v1/messages", token: "other", body: "{}", status: 403, detail: "tenant"},
		{method: "POST", target: "/v1/messages?api_key=good", token: "good", body: "{}", status: 400, detail: "URL"},
		{method: "GET", target: "/v1/messages/mta_abcdef", token: "good", status: 400, detail: "URL"},
		{method: "GET", target: "/v1/messages/x?cursor=mta_abcdef", token: "good", status: 400, detail: "URL"},
		{method: "GET", target: "/v1/messages", token: "good", status: 405, header: "Allow", value: "POST, OPTIONS"},
		{method: "PUT", target: "/v1/messages/x", token: "good", status: 405, header: "Allow", value: "DELETE, GET, HEAD, OPTIONS"},
		{method: "OPTIONS", target: "/v1/messages/x", status: 204, header: "Allow", value: "DELETE, GET, HEAD, OPTIONS"},
		{method: "GET", target: "/nothing", status: 404},
		{method: "POST", target: "//v1/messages", token: "good", status: 404},
		{method: "POST", target: "/v1/../v1/messages", token: "good", status: 404},
		{method: "POST", target: "/v1/messages/", token: "good", status: 404},
		{method: "POST", target: "/v1/messages", token: "good", body: strings.Repeat("a", 101), status: 413, header: "Connection", value: "close"},
		{method: "POST", target: "/v1/messages", token: "good", body: "{}", fields: []string{"Content-Encoding", "br"}, status: 415, header: "Accept-Encoding", value: "gzip"},
		{method: "DELETE", target: "/v1/messages/x", token: "good", status: 404, detail: "no such message"},
		{method: "DELETE", target: "/v1/messages/faulty", token: "good", status: 400, detail: `"pointer":"/to/0","detail":"no address","remedy":"write <a@b>"`},
		{method: "DELETE", target: "/v1/messages/trouble", token: "good", status: 500},
		{method: "DELETE", target: "/v1/messages/panic", token: "good", status: 500},
	} {
		name := c.method + " " + c.target + " " + c.token
		w := ask(s, c.method, c.target, c.token, strings.NewReader(c.body), c.fields...)
		body := w.Body.String()
		if w.Code != c.status || c.header != "" && w.Header().Get(c.header) != c.value || !strings.Contains(body, c.detail) {
			t.Errorf("%s: %d %v %s, want %d, %s %q, %q", name, w.Code, w.Header(), body, c.status, c.header, c.value, c.detail)
		}
		if w.Header().Get("X-Request-Id") == "" {
			t.Errorf("%s: no id", name)
		}
		if strings.Contains(body, "secret") {
			t.Errorf("%s gives away %s", name, body)
		}
		var p struct {
			Type, Title string
			Status      int
		}
		if w.Code >= 400 && (w.Header().Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(body), &p) != nil || p.Status != w.Code || p.Type == "" || p.Title == "") {
			t.Errorf("%s: not a problem: %s %s", name, w.Header().Get("Content-Type"), body)
		}
	}
}

func TestErrorsHaveTheFormOfTheirPath(t *testing.T) {
	s := testServer(t, func(c *Config) {
		c.Forms = []Form{{Path: "/v1", Write: func(c *Call, p *Problem) {
			c.Writer.WriteHeader(p.Status)
			io.WriteString(c.Writer, "form:"+p.Detail)
		}}}
	})
	for target, want := range map[string]bool{"/v1/messages": true, "/v1": true, "/v1/nothing": true, "/v10": false, "/nothing": false} {
		w := ask(s, "POST", target, "", nil)
		if got := strings.HasPrefix(w.Body.String(), "form:"); got != want {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

// serve has a server take connections on loopback, and gives the URL.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(l) }()
	t.Cleanup(func() { s.Shutdown(context.Background()); <-done })
	return "http://" + l.Addr().String()
}

func TestServesHTTP1AndHTTP2(t *testing.T) {
	url := serve(t, testServer(t, nil))
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	for major, transport := range map[int]*http.Transport{1: {}, 2: {Protocols: &h2}} {
		req, _ := http.NewRequest("POST", url+"/v1/messages", strings.NewReader("{}"))
		req.SetBasicAuth("x", "good")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 202 || resp.ProtoMajor != major || string(body) != `{"octets":2,"tenant":"acme"}` {
			t.Errorf("HTTP/%d: %d %s", major, resp.StatusCode, body)
		}
		transport.CloseIdleConnections()
	}
}

// TestWhoGuessesKeys is an attacker, but neither whoever has an expired key nor a proxy that names no client.
func TestWhoGuessesKeys(t *testing.T) {
	var refused []string
	s := testServer(t, func(c *Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		c.Refused = func(client netip.Addr, why intake.Intrusion) {
			refused = append(refused, client.String()+" "+string(why))
		}
	})
	for _, c := range []struct{ token, client, want string }{
		{"bad", "192.0.2.1", "[192.0.2.1 login]"},
		{"guess", "192.0.2.1", "[192.0.2.1 login]"},
		{"expired", "192.0.2.1", "[]"},
		{"good", "192.0.2.1", "[]"},
		{"", "192.0.2.1", "[]"},
		{"bad", "", "[]"},
	} {
		refused = nil
		fields := []string{"X-Forwarded-Proto", "https"}
		if c.client != "" {
			fields = append(fields, "X-Forwarded-For", c.client)
		}
		ask(s, "GET", "/v1/messages/x", c.token, nil, fields...)
		if got := fmt.Sprint(refused); got != c.want {
			t.Errorf("key %q of %q: %s, want %s", c.token, c.client, got, c.want)
		}
	}
}
