package http

import (
	"encoding/json"
	"io"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"example.org/mta/internal/bubble"
)

// Whose address counts, and whether the client has used TLS, behind proxies and before them.
func TestWhoTheClientIs(t *testing.T) {
	s := testServer(t, func(c *Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	})
	for name, tc := range map[string]struct {
		peer   string
		fields []string
		status int
		client string
		secure string
	}{
		"this machine":                 {peer: "127.0.0.1:5", client: "127.0.0.1:5", secure: "false"},
		"this machine, IPv6":           {peer: "[::1]:5", client: "[::1]:5", secure: "false"},
		"a stranger in clear":          {peer: "198.51.100.7:5", status: 403},
		"a stranger who claims":        {peer: "198.51.100.7:5", fields: []string{"X-Forwarded-For", "127.0.0.1", "X-Forwarded-Proto", "https"}, status: 403},
		"a claim on this machine":      {peer: "127.0.0.1:5", fields: []string{"X-Forwarded-For", "203.0.113.9"}, client: "127.0.0.1:5", secure: "false"},
		"a proxy":                      {peer: "192.0.2.1:5", fields: []string{"X-Forwarded-For", "203.0.113.9", "X-Forwarded-Proto", "https"}, client: "203.0.113.9:0", secure: "true"},
		"a proxy asked in clear":       {peer: "192.0.2.1:5", fields: []string{"X-Forwarded-For", "203.0.113.9", "X-Forwarded-Proto", "http"}, status: 403},
		"a proxy that says nothing":    {peer: "192.0.2.1:5", client: "192.0.2.1:5", secure: "false"},
		"what the client put in front": {peer: "192.0.2.1:5", fields: []string{"X-Forwarded-For", "10.0.0.1, 203.0.113.9"}, client: "203.0.113.9:0", secure: "false"},
		"two proxies":                  {peer: "192.0.2.1:5", fields: []string{"X-Forwarded-For", "10.0.0.1, 203.0.113.9, 192.0.2.77"}, client: "203.0.113.9:0", secure: "false"},
		"two fields":                   {peer: "192.0.2.1:5", fields: []string{"X-Forwarded-For", "10.0.0.1", "X-Forwarded-For", "203.0.113.9"}, client: "203.0.113.9:0", secure: "false"},
		"only proxies":                 {peer: "192.0.2.1:5", fields: []string{"X-Forwarded-For", "192.0.2.3, 192.0.2.2"}, client: "192.0.2.3:0", secure: "false"},
		"junk":                         {peer: "192.0.2.1:5", fields: []string{"X-Forwarded-For", "203.0.113.9, junk"}, client: "192.0.2.1:5", secure: "false"},
		"Forwarded":                    {peer: "[2001:db8::1]:5", fields: []string{"Forwarded", `for=10.0.0.1, for="[2001:db8:1::7]:4711";proto=https;by=_x`}, client: "[2001:db8:1::7]:4711", secure: "true"},
		"Forwarded, hidden":            {peer: "192.0.2.1:5", fields: []string{"Forwarded", "for=_hidden;proto=https"}, client: "192.0.2.1:5", secure: "true"},
		"Forwarded, malformed":         {peer: "192.0.2.1:5", fields: []string{"Forwarded", "for"}, status: 400},
		"both, alike":                  {peer: "192.0.2.1:5", fields: []string{"Forwarded", "for=203.0.113.9", "X-Forwarded-For", "203.0.113.9"}, client: "203.0.113.9:0", secure: "false"},
		"both, unlike":                 {peer: "192.0.2.1:5", fields: []string{"Forwarded", "for=10.0.0.1", "X-Forwarded-For", "203.0.113.9"}, status: 400},
		"an address within IPv6":       {peer: "192.0.2.1:5", fields: []string{"X-Forwarded-For", "::ffff:203.0.113.9"}, client: "203.0.113.9:0", secure: "false"},
	} {
		req := httptest.NewRequest("GET", "/v1/messages/x", nil)
		req.RemoteAddr = tc.peer
		req.Header.Set("Authorization", "Bearer good")
		for i := 0; i < len(tc.fields); i += 2 {
			req.Header.Add(tc.fields[i], tc.fields[i+1])
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		var got map[string]string
		json.Unmarshal(w.Body.Bytes(), &got)
		if want := max(tc.status, 200); w.Code != want || w.Code == 200 && (got["client"] != tc.client || got["secure"] != tc.secure) {
			t.Errorf("%s: %d %s, want %d %s %s", name, w.Code, w.Body, want, tc.client, tc.secure)
		}
	}
}

// Connections from proxy_from must begin with a header; what it names is the client.
func TestThePROXYProtocol(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newLine(t, testServer(t, func(c *Config) { c.ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }))
		const get = "GET /v1/messages/x HTTP/1.1\r\n" + authorized + "Connection: close\r\n\r\n"
		if got := w.say("PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n" + get); !strings.Contains(got, `"client":"203.0.113.9:4711"`) {
			t.Errorf("with a header: %s", got)
		}
		if got := w.say(get); strings.Contains(got, "200 OK") {
			t.Errorf("without one: %s", got)
		}
	})
}

// What the server refuses is counted by reason, and logged at debug without the key.
func TestRequestsAreObserved(t *testing.T) {
	seen := new(observed)
	s := testServer(t, func(c *Config) { c.Observer, c.MaxRequest = seen, 10 })
	ask(s, "GET", "/open", "", nil)
	ask(s, "GET", "/nowhere", "", nil)
	ask(s, "PUT", "/open", "", nil)
	ask(s, "POST", "/v1/messages", "bad", nil)
	ask(s, "POST", "/v1/messages", "good", strings.NewReader(strings.Repeat("a", 11)))
	ask(s, "POST", "/v1/messages", "good", io.MultiReader(strings.NewReader(strings.Repeat("a", 11))))
	ask(s, "POST", "/v1/messages?key=good", "good", nil)
	ask(s, "DELETE", "/v1/messages/panic", "good", nil)
	s.stage.Store(draining)
	ask(s, "GET", "/open", "", nil)
	for _, want := range []string{
		"GET /open 200 ", "none 404 ", "none 405 ", "POST /v1/messages 401 key", "POST /v1/messages 413 too_large",
		"none 400 key_in_url", "DELETE /v1/messages/{id} 500 panic", "none 503 draining",
	} {
		if !seen.saw(want) {
			t.Errorf("%q was not seen: %v", want, seen.by)
		}
	}
	if n := seen.by["POST /v1/messages 413 too_large"]; n != 2 {
		t.Errorf("%d of 2 bodies were too large", n)
	}
	if s.calls.open() != 0 {
		t.Errorf("%d requests are under way", s.calls.open())
	}
}

// Whatever a field has, the result is an address that somebody named or the proxy's.
func FuzzForwarded(f *testing.F) {
	f.Add("for=1.2.3.4, for=\"[2001:db8::1]:5\";proto=https", "1.2.3.4, junk")
	f.Add("for", ",,")
	s := New(Config{Keys: testKeys, Routes: testRoutes, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	f.Fuzz(func(t *testing.T, forwarded, others string) {
		req := httptest.NewRequest("GET", "/open", nil)
		req.RemoteAddr = "192.0.2.1:5"
		req.Header = map[string][]string{"Forwarded": {forwarded}, "X-Forwarded-For": {others}}
		c := s.newCall(httptest.NewRecorder(), req)
		if err := s.whence(c); err == nil && !c.Client.Addr().IsValid() {
			t.Errorf("%q and %q lead to nobody", forwarded, others)
		}
	})
}

func BenchmarkRequest(b *testing.B) {
	s := New(Config{Keys: testKeys, Routes: testRoutes})
	body := strings.Repeat("a", 2048)
	b.ReportAllocs()
	for b.Loop() {
		if w := ask(s, "POST", "/v1/messages", "good", strings.NewReader(body)); w.Code != 202 {
			b.Fatal(w.Code)
		}
	}
}
