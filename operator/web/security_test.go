package web

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// TestCrossSite: another site's page makes no browser change anything, or log in.
func TestCrossSite(t *testing.T) {
	c := newConsole(t, nil)
	for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		for _, r := range eachRoute(c) {
			if r.method != "POST" {
				continue
			}
			b := c.as("ada")
			b.header.Set("Sec-Fetch-Site", "")
			b.header.Set(header[0], header[1])
			if a := b.post(r.path, "user", "ada", "password", "secret of ada", confirmParam, "yes"); a.StatusCode != http.StatusForbidden {
				t.Errorf("%s from %v: %s", r.path, header, a.Status)
			}
		}
	}
	if len(c.changes) > 0 {
		t.Error("something was changed")
	}
}

// TestRebinding: a stranger's name that was made to mean this address is refused, whatever it asks for.
func TestRebinding(t *testing.T) {
	c := newConsole(t, nil)
	for host, status := range map[string]int{
		"console.example": 200, "console.example:8026": 200, "CONSOLE.example": 200, "evil.example": 421, "console.example.evil.example": 421, "": 421,
		"127.0.0.1": 421, "localhost": 421, "[::1]:80": 421, "console.example@evil.example": 421,
	} {
		b := c.as("ada")
		b.header["Host"] = []string{host}
		if a := b.get("/"); a.StatusCode != status {
			t.Errorf("%q: %s, want %d", host, a.Status, status)
		}
	}
	c = newConsole(t, func(cfg *Config) { cfg.Hosts = nil })
	for host, status := range map[string]int{"127.0.0.1:8026": 303, "localhost:8026": 303, "[::1]:8026": 303, "127.9.9.9": 303, "evil.example": 421, "192.0.2.1": 421, "console.example": 421} {
		b := c.browser()
		b.header["Host"] = []string{host}
		if a := b.get("/"); a.StatusCode != status {
			t.Errorf("%q: %s, want %d", host, a.Status, status)
		}
	}
}

// TestUserHeader: who has logged in at the proxy counts from a trusted one only.
func TestUserHeader(t *testing.T) {
	c := newConsole(t, func(cfg *Config) {
		cfg.TrustedProxies, cfg.UserHeader = []netip.Prefix{netip.MustParsePrefix("192.0.2.80/32")}, "X-Remote-User"
	})
	for name, k := range map[string]struct {
		from, forwarded string
		users           []string
		role            Role
	}{
		"the proxy":                     {"192.0.2.80:1", "203.0.113.9", []string{"otto"}, Operator},
		"a stranger":                    {"192.0.2.1:1", "", []string{"otto"}, Anyone},
		"a stranger, claiming":          {"192.0.2.1:1", "192.0.2.80", []string{"otto"}, Anyone},
		"twice: one is the client's":    {"192.0.2.80:1", "203.0.113.9", []string{"otto", "ada"}, Anyone},
		"nobody logged in there":        {"192.0.2.80:1", "203.0.113.9", nil, Anyone},
		"a user without a role":         {"192.0.2.80:1", "203.0.113.9", []string{"eve"}, Anyone},
		"IPv4 in IPv6, as Linux has it": {"[::ffff:192.0.2.80]:1", "203.0.113.9", []string{"otto"}, Operator},
	} {
		b := c.browser()
		b.from = k.from
		if k.forwarded != "" {
			b.header.Set("X-Forwarded-For", k.forwarded)
		}
		for _, u := range k.users {
			b.header.Add("X-Remote-User", u)
		}
		a := b.get("/")
		switch {
		case k.role == Anyone && a.StatusCode != http.StatusSeeOther:
			t.Errorf("%s: %s", name, a.Status)
		case k.role != Anyone && (a.StatusCode != http.StatusOK || !strings.Contains(a.text, "otto, "+k.role.String()) || strings.Contains(a.text, "Log out")):
			t.Errorf("%s: %s\n%s", name, a.Status, a.text)
		case len(b.cookies) > 0:
			t.Errorf("%s: a cookie was set", name)
		}
	}
	b := c.browser()
	b.from = "192.0.2.80:1"
	b.header.Set("X-Remote-User", "eve")
	if a := b.get("/login"); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "mta console user add eve") {
		t.Errorf("without a role: %s\n%s", a.Status, a.text)
	}
}

func TestAddressOfTheClient(t *testing.T) {
	c := newConsole(t, func(cfg *Config) { cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.80/31")} })
	for name, k := range map[string]struct{ from, forwarded, want string }{
		"direct":                       {"192.0.2.1:1", "", "192.0.2.1"},
		"a stranger who claims":        {"192.0.2.1:1", "127.0.0.1", "192.0.2.1"},
		"a proxy":                      {"192.0.2.80:1", "203.0.113.9", "203.0.113.9"},
		"what the client put in front": {"192.0.2.80:1", "127.0.0.1, 203.0.113.9", "203.0.113.9"},
		"two proxies":                  {"192.0.2.80:1", "203.0.113.9, 192.0.2.81", "203.0.113.9"},
		"junk":                         {"192.0.2.80:1", "203.0.113.9, junk", "192.0.2.80"},
	} {
		c.audit = nil
		c.clock.add(time.Second) // one refused login a second is on record
		b := c.browser()
		b.from = k.from
		b.header.Set("X-Forwarded-For", k.forwarded)
		b.post("/login", "user", "ada", "password", "wrong")
		if len(c.audit) != 1 || c.audit[0].Address.String() != k.want {
			t.Errorf("%s: %v, want %s", name, c.audit, k.want)
		}
	}
}

// TestBehindTLS: the cookie of a session by TLS, here or at the proxy, can't be set by anybody else.
func TestBehindTLS(t *testing.T) {
	c := newConsole(t, func(cfg *Config) { cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.80/32")} })
	b := c.browser()
	b.from = "192.0.2.80:1"
	b.header.Set("X-Forwarded-Proto", "https")
	a := b.post("/login", "user", "ada", "password", "secret of ada")
	if k := b.cookies["__Host-mta-console"]; k == nil || !k.Secure || k.Path != "/" || k.Domain != "" {
		t.Errorf("%s: %v", a.Status, b.cookies)
	}
	if a := b.get("/"); a.StatusCode != http.StatusOK {
		t.Errorf("%s", a.Status)
	}
	b.header.Del("X-Forwarded-Proto")
	if a := b.get("/"); a.StatusCode != http.StatusSeeOther {
		t.Errorf("the cookie counts in clear: %s", a.Status)
	}
}

func TestPrefix(t *testing.T) {
	c := newConsole(t, func(cfg *Config) { cfg.BasePath = "/mta" })
	b := c.browser()
	if a := b.get("/mta/?x=1"); a.Header.Get("Location") != "/mta/login?next=%2F%3Fx%3D1" {
		t.Errorf("%s, %s", a.Status, a.Header.Get("Location"))
	}
	if a := b.post("/mta/login", "user", "ada", "password", "secret of ada", "next", "/"); a.Header.Get("Location") != "/mta/" {
		t.Errorf("%s, %s", a.Status, a.Header.Get("Location"))
	}
	a := b.get("/mta/")
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	for _, m := range regexp.MustCompile(`(?:href|src|action|hx-get|data-stream)="([^"]*)"`).FindAllStringSubmatch(a.text, -1) {
		if u := m[1]; !strings.HasPrefix(u, "/mta/") && !strings.HasPrefix(u, "#") && !strings.HasPrefix(u, "?") {
			t.Errorf("%s leads out of the prefix", u)
		}
	}
	for path, status := range map[string]int{"/": 404, "/mta": 308, "/mtax/": 404, "/login": 404, "/mta/../": 404, "/mta//queue": 404, "/mta%2fqueue": 404} {
		if a := b.get(path); a.StatusCode != status {
			t.Errorf("%s: %s, want %d", path, a.Status, status)
		}
	}
}

// TestHeaders: all answers bind the browser, errors too.
func TestHeaders(t *testing.T) {
	c := newConsole(t, nil)
	b := c.as("ada")
	for _, path := range []string{"/", "/login", "/nowhere", "/?unknown=1", "/assets/0/none"} {
		h := b.get(path).Header
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
	}
}

// TestNothingInline: the policy forbids what a template must not have.
func TestNothingInline(t *testing.T) {
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	inline := regexp.MustCompile(`(?i)\sstyle=|<style|\son[a-z]+=|javascript:|<script(?:[^>]*)>[^<]|hx-on|hx-vals='?js:|<iframe|https?://`)
	for _, name := range names {
		text, err := templateFiles.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := inline.Find(text); at != nil {
			t.Errorf("%s has %q", name, at)
		}
	}
}

func TestOwnScriptIsShort(t *testing.T) {
	text, err := assetFiles.ReadFile("assets/console.js")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 500 {
		t.Errorf("console.js has %d lines: 500 at most", n)
	}
}

// TestFirstPageIsSmall: the first page and all that it loads, on the wire.
func TestFirstPageIsSmall(t *testing.T) {
	c := newConsole(t, nil)
	b := c.as("ada")
	b.header.Set("Accept-Encoding", "gzip")
	a := b.get("/")
	total := len(a.text)
	for _, x := range c.assets {
		total += len(x.gzip)
	}
	t.Logf("%d octets, %d of them the page", total, len(a.text))
	if total > 120<<10 {
		t.Errorf("%d octets: more than 120 KiB", total)
	}
}

func TestLargeForm(t *testing.T) {
	c := newConsole(t, nil)
	if a := c.browser().post("/login", "user", strings.Repeat("x", maxLogin)); a.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(a.Status)
	}
	if a := c.as("otto").post("/queue/hold", "id", strings.Repeat("x", maxBody)); a.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(a.Status)
	}
	if a := c.as("otto").post("/queue/hold", "id", strings.Repeat("x", maxLogin)); a.StatusCode == http.StatusRequestEntityTooLarge {
		t.Error("who has logged in may send no more than others")
	}
}

// TestStrangersText: what strangers write is shown as text, with what it hides visible.
func TestStrangersText(t *testing.T) {
	const evil = "<script>alert(1)</script>\"'`{{.}}\u202eevil\x1b[31m\u0000\u2066\x7f\u200b"
	c := newConsole(t, nil)
	c.answers["GET /v1/status"] = api.Status{Hostname: evil, Alarms: []api.Alarm{{Name: evil, Reason: strings.Repeat(evil, 100), Since: start}}}
	a := c.as("vera").get("/")
	if a.StatusCode != http.StatusOK {
		t.Fatalf("%s\n%s", a.Status, a.text)
	}
	for _, bad := range []string{"<script>alert", "\u202e", "\x1b", "\u2066", "\x00", "\x7f", "\u200b"} {
		if strings.Contains(a.text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, want := range []string{`\u202eevil`, `\u001b[31m`, `\u2066`, "&lt;script&gt;"} {
		if !strings.Contains(a.text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestStreamsAreBounded: a session has four streams.
func TestStreamsAreBounded(t *testing.T) {
	var st atOnce[string]
	for _, s := range []*session{{id: "a"}, {identity: Identity{User: "proxied"}}} {
		for range maxStreams {
			if !st.begin(s.key(), maxStreams) {
				t.Fatal("a stream was refused")
			}
		}
		if st.begin(s.key(), maxStreams) {
			t.Error("a fifth stream was let in")
		}
		st.end(s.key())
		if !st.begin(s.key(), maxStreams) {
			t.Error("a place that was given back is taken")
		}
	}
}

// TestOwnPagesOnly: a page of another site that makes the browser ask for what messages say leaves no line in the audit log
// that somebody has read it, and one that asks for streams and files takes none.
func TestOwnPagesOnly(t *testing.T) {
	c := newConsole(t, nil)
	asked := 0
	for _, r := range eachRoute(c) {
		if r.page != nil || r.role == Anyone || r.path == "/search" || r.method == "POST" {
			continue
		}
		asked++
		for _, site := range []string{"cross-site", "same-site"} {
			b := c.as("ada")
			b.header.Set("Sec-Fetch-Site", site)
			if a := b.get(r.path); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "another site") {
				t.Errorf("%s from %s: %s", r.path, site, a.Status)
			}
		}
		for _, site := range []string{"same-origin", "none", ""} {
			b := c.as("ada")
			b.header.Set("Sec-Fetch-Site", site)
			if strings.HasSuffix(r.path, "/follow") { // it doesn't end
				continue
			}
			if a := b.get(r.path); a.StatusCode != http.StatusOK {
				t.Errorf("%s from %q: %s", r.path, site, a.Status)
			}
		}
	}
	if asked != 6 {
		t.Errorf("%d routes were asked", asked)
	}
}

// TestStrangersOfTheProxy: whom the proxy has logged in and who has no role is on record, but can't fill the audit, where
// old lines make room for new ones.
func TestStrangersOfTheProxy(t *testing.T) {
	c := newConsole(t, func(cfg *Config) {
		cfg.TrustedProxies, cfg.UserHeader = []netip.Prefix{netip.MustParsePrefix("192.0.2.80/32")}, "X-Remote-User"
	})
	b := c.browser()
	b.from = "192.0.2.80:4711"
	b.header.Set("X-Remote-User", "eve")
	statuses := make(map[int]int)
	for range 50 {
		statuses[b.get("/login").StatusCode]++
	}
	c.clock.add(time.Second)
	statuses[b.get("/login").StatusCode]++
	if len(c.audit) != 2 || statuses[http.StatusForbidden] != 2 || statuses[http.StatusTooManyRequests] != 49 {
		t.Errorf("%d are on record, the answers were %v", len(c.audit), statuses)
	}
}

// TestFaultOfAPage: a panic is an error of the page, and the console goes on. It would end the relay.
func TestFaultOfAPage(t *testing.T) {
	table := append(slices.Clone(routes), route{method: "GET", path: "/fault", role: Viewer, title: "Fault", page: &page{"help.html", func(*request) (any, error) { panic("x5") }, 0}})
	c := newConsoleOf(t, table, nil)
	b := c.as("vera")
	b.get("/fault").wants(t, http.StatusInternalServerError, "The page has a fault: x5")
	b.get("/help").wants(t, http.StatusOK, "Help")
}

// TestStreamsOfAProxyEndWithIt: a reload that takes the header away takes what is followed, too.
func TestStreamsOfAProxyEndWithIt(t *testing.T) {
	c := newConsole(t, func(cfg *Config) {
		cfg.TrustedProxies, cfg.UserHeader = []netip.Prefix{netip.MustParsePrefix("192.0.2.80/32")}, "X-Remote-User"
	})
	ask := httptest.NewRequest("GET", "/log/follow", nil)
	ask.RemoteAddr = "192.0.2.80:4711"
	ask.Header.Set("X-Remote-User", "otto")
	r := c.newRequest(ask, nil)
	if !c.still(r) {
		t.Error("the proxy's user may not follow anything")
	}
	c.Set(Access{Hosts: []string{"console.example"}})
	if c.still(r) {
		t.Error("the proxy's user follows on after the reload")
	}
}

// differs returns where two texts begin to differ.
func differs(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-100)
	return fmt.Sprintf("%q and %q", a[from:min(len(a), i+100)], b[from:min(len(b), i+100)])
}

// TestViewsOfRolesAreApart: what is made once for all is for those of one role. Whoever looks first, nobody sees what
// another role may do or see.
func TestViewsOfRolesAreApart(t *testing.T) {
	users := []string{"vera", "otto", "ada"}
	alone := make(map[string]map[string]string) // by user and path, each in a console to themselves
	pages := func(c *console, b *browser) map[string]string {
		all := make(map[string]string)
		for _, r := range eachRoute(c) {
			if r.page != nil {
				b.header.Set("HX-Request", "true")
				a := b.get(r.path)
				all[r.path] = a.Status + a.text
			}
		}
		return all
	}
	sample := newSample(t).relay
	ofSample := func() *console {
		c := newConsole(t, nil)
		c.relay = sample
		c.answers["GET /v1/status"] = api.Status{State: api.Running} // without the memory, which changes,
		c.answers["GET /v1/history"] = api.History{}                 // and without the figures of each second
		return c
	}
	for _, user := range users {
		c := ofSample()
		alone[user] = pages(c, c.as(user))
	}
	if alone["vera"]["/queue"] == alone["ada"]["/queue"] || alone["vera"]["/actions"] == alone["ada"]["/actions"] {
		t.Fatal("the roles see the same")
	}
	for _, order := range [][]string{{"ada", "otto", "vera"}, {"vera", "otto", "ada"}} {
		c := ofSample()
		for _, user := range order {
			for path, got := range pages(c, c.as(user)) {
				if path != "/actions" && got != alone[user][path] { // which has the logins
					t.Errorf("%s, in the order %v, sees another %s than alone: %s", user, order, path,
						differs(alone[user][path], got))
				}
			}
		}
	}
}
