package web

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
)

func TestLoginAndLogout(t *testing.T) {
	c := newConsole(t, nil)
	b := c.browser()
	if a := b.get("/?x=1"); a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/login?next=%2F%3Fx%3D1" {
		t.Errorf("without a session: %s, %s", a.Status, a.Header.Get("Location"))
	}
	a := b.post("/login", "user", "ada", "password", "secret of ada", "next", "/?y=2")
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/?y=2" {
		t.Errorf("login: %s, %s", a.Status, a.Header.Get("Location"))
	}
	k := b.cookies["mta-console"]
	if k == nil || !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/" || k.Domain != "" || len(k.Value) < 26 {
		t.Fatalf("cookie: %+v", k)
	}
	if a := b.get("/"); a.StatusCode != http.StatusOK || !strings.Contains(a.text, "ada, admin") {
		t.Errorf("%s\n%s", a.Status, a.text)
	}
	stolen := *k
	b.post("/logout")
	if len(b.cookies) != 0 {
		t.Error("the cookie stays after the logout")
	}
	b.cookies[stolen.Name] = &stolen
	if a := b.get("/"); a.StatusCode != http.StatusSeeOther {
		t.Errorf("the session is good after the logout: %s", a.Status)
	}
}

func TestSessionsEnd(t *testing.T) {
	for name, end := range map[string]func(*console, *browser){
		"idle": func(c *console, _ *browser) { c.clock.add(maxIdle) },
		"idle, the page refreshed": func(c *console, b *browser) {
			b.header.Set("HX-Request", "true")
			for range 6 {
				c.clock.add(maxIdle / 6)
				b.get("/")
			}
			b.header.Del("HX-Request")
		},
		"old": func(c *console, b *browser) {
			for range 48 {
				c.clock.add(maxLife / 48)
				b.get("/")
			}
		},
		"the role changed": func(c *console, _ *browser) {
			c.logins.users["otto"] = Identity{User: "otto", Role: Viewer}
		},
		"the password changed": func(c *console, _ *browser) {
			c.logins.users["otto"] = Identity{User: "otto", Role: Operator, Stamp: "new"}
		},
		"the user removed": func(c *console, _ *browser) { delete(c.logins.users, "otto") },
		"a thousand others": func(c *console, _ *browser) {
			c.clock.add(time.Second)
			for range maxSessions {
				c.sessions.begin(Identity{User: "vera", Role: Viewer})
			}
			if n := len(c.sessions.by); n != maxSessions {
				c.t.Errorf("there are %d sessions", n)
			}
		},
	} {
		c := newConsole(t, nil)
		b := c.as("otto")
		c.clock.add(maxIdle / 2)
		if a := b.get("/"); a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s before", name, a.Status)
		}
		end(c, b)
		if a := b.get("/"); a.StatusCode != http.StatusSeeOther {
			t.Errorf("%s: the session goes on: %s", name, a.Status)
		}
		b.header.Set("HX-Request", "true")
		if a := b.get("/"); a.StatusCode != http.StatusUnauthorized || a.Header.Get("HX-Redirect") != "/login" {
			t.Errorf("%s: the refresh gets %s, %s", name, a.Status, a.Header.Get("HX-Redirect"))
		}
	}
}

// TestFixation: an id that a stranger has planted, or had before, is worth nothing after the login.
func TestFixation(t *testing.T) {
	c := newConsole(t, nil)
	b := c.browser()
	b.cookies["mta-console"] = &http.Cookie{Name: "mta-console", Value: "PLANTED"}
	b.post("/login", "user", "otto", "password", "secret of otto")
	if v := b.cookies["mta-console"].Value; v == "PLANTED" {
		t.Error("the planted id became a session")
	}
	first := *b.cookies["mta-console"]
	b.post("/login", "user", "ada", "password", "secret of ada")
	if v := b.cookies["mta-console"].Value; v == first.Value {
		t.Error("a login kept the id")
	}
	old := c.browser()
	old.cookies[first.Name] = &first
	for _, v := range []string{first.Value, "PLANTED"} {
		old.cookies[first.Name].Value = v
		if a := old.get("/"); a.StatusCode != http.StatusSeeOther {
			t.Errorf("%s is a session: %s", v, a.Status)
		}
	}
}

func TestForgedCookies(t *testing.T) {
	c := newConsole(t, nil)
	good := c.as("ada").cookies["mta-console"].Value
	for _, v := range []string{"", "0", strings.ToLower(good), good + "A", good[1:], strings.Repeat("A", 5000), "../../etc"} {
		b := c.browser()
		b.cookies["mta-console"] = &http.Cookie{Name: "mta-console", Value: v}
		if a := b.get("/"); a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), "/login") {
			t.Errorf("%.30q: %s", v, a.Status)
		}
	}
}

func FuzzCookies(f *testing.F) {
	f.Add("mta-console=ABC; x=y")
	f.Add(`__Host-mta-console="; mta-console=`)
	b := newConsole(f, nil).browser()
	f.Fuzz(func(t *testing.T, header string) {
		b.header.Set("Cookie", header)
		if a := b.get("/"); a.StatusCode != http.StatusSeeOther {
			t.Errorf("%q: %s", header, a.Status)
		}
	})
}

// TestGuessing: a wrong password and an unknown user get the same words, and no name that is unknown is written
// down.
func TestGuessing(t *testing.T) {
	c := newConsole(t, nil)
	b := c.browser()
	wrong := b.post("/login", "user", "ada", "password", "guess")
	c.clock.add(time.Second)
	unknown := b.post("/login", "user", "eve", "password", "guess")
	if wrong.StatusCode != http.StatusForbidden || strings.ReplaceAll(wrong.text, "ada", "eve") != unknown.text {
		t.Errorf("%s\n%s\n%s\n%s", wrong.Status, wrong.text, unknown.Status, unknown.text)
	}
	if len(b.cookies) != 0 {
		t.Error("a refused login set a cookie")
	}
	want := fmt.Sprint([]Login{{"ada", netip.MustParseAddr("192.0.2.1"), "password", errDenied.Error()}, {"", netip.MustParseAddr("192.0.2.1"), "password", errDenied.Error()}})
	if got := fmt.Sprint(c.audit); got != want {
		t.Errorf("audit: %s, want %s", got, want)
	}
}

// TestGuessesDontFillTheAudit: old lines make room for new ones there, and anybody can guess.
func TestGuessesDontFillTheAudit(t *testing.T) {
	c := newConsole(t, nil)
	b := c.browser()
	for i := range 50 {
		if a := b.post("/login", "user", []string{"ada", "eve"}[i%2], "password", "guess"); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "is wrong") {
			t.Errorf("%s", a.Status)
		}
	}
	c.clock.add(time.Second)
	b.post("/login", "user", "ada", "password", "guess")
	if len(c.audit) != 2 || !strings.Contains(c.audit[1].Refused, "49 logins refused before it") {
		t.Errorf("%d lines: %v", len(c.audit), c.audit)
	}
}

// TestLoginsAtATime: one client has few passwords checked at a time, which takes memory and long waits, and others are let in
// meanwhile.
func TestLoginsAtATime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newConsole(t, nil)
		c.logins.takes = time.Minute
		var all sync.WaitGroup
		var refused, denied atomic.Int32
		for range 100 {
			all.Go(func() {
				switch a := c.browser().post("/login", "user", "ada", "password", "guess"); a.StatusCode {
				case http.StatusTooManyRequests:
					refused.Add(1)
				case http.StatusForbidden:
					denied.Add(1)
				}
			})
		}
		all.Go(func() {
			b := c.browser()
			b.from = "192.0.2.2:4711"
			if a := b.post("/login", "user", "otto", "password", "secret of otto"); a.StatusCode != http.StatusSeeOther {
				t.Errorf("another client: %s", a.Status)
			}
		})
		all.Wait()
		if refused.Load() != 100-maxLogins || denied.Load() != maxLogins {
			t.Errorf("%d are refused, and %d checked", refused.Load(), denied.Load())
		}
		if a := c.browser().post("/login", "user", "ada", "password", "secret of ada"); a.StatusCode != http.StatusSeeOther {
			t.Errorf("afterwards: %s", a.Status)
		}
	})
}

// TestNothingCountsBeforeTheAudit: a login that can't be written down is refused.
func TestNothingCountsBeforeTheAudit(t *testing.T) {
	c := newConsole(t, nil)
	c.auditFails = true
	b := c.browser()
	if a := b.post("/login", "user", "ada", "password", "secret of ada"); a.StatusCode != http.StatusServiceUnavailable || len(b.cookies) != 0 {
		t.Errorf("%s, %v", a.Status, b.cookies)
	}
}

func TestTickets(t *testing.T) {
	c := newConsole(t, func(cfg *Config) { cfg.Logins, cfg.Hosts, cfg.CookieSuffix = nil, []string{"console.example"}, "-8026" })
	link := c.Ticket(Identity{User: "root", Role: Admin})
	b := c.browser()
	if a := b.get(link); a.StatusCode != http.StatusSeeOther || b.cookies["mta-console-8026"] == nil {
		t.Fatalf("%s, %v", a.Status, b.cookies)
	}
	if a := b.get("/"); !strings.Contains(a.text, "root, admin") {
		t.Errorf("%s\n%s", a.Status, a.text)
	}
	if a := c.browser().get(link); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "good once") {
		t.Errorf("the second time: %s", a.Status)
	}
	late := c.Ticket(Identity{User: "root", Role: Admin})
	c.clock.add(ticketLife)
	if a := c.browser().get(late); a.StatusCode != http.StatusForbidden {
		t.Errorf("after a minute: %s", a.Status)
	}
	c.clock.add(time.Second)
	if a := c.browser().get("/login?ticket=GUESSED"); a.StatusCode != http.StatusForbidden {
		t.Errorf("guessed: %s", a.Status)
	}
	before := len(c.audit)
	if a := c.browser().get("/login?ticket=GUESSED"); a.StatusCode != http.StatusTooManyRequests || len(c.audit) != before {
		t.Errorf("guessed again at once: %s, %d lines in the audit", a.Status, len(c.audit)-before)
	}
	if a := c.browser().post("/login", "user", "", "password", ""); a.StatusCode != http.StatusNotFound {
		t.Errorf("a password where there are none: %s", a.Status)
	}
}

func TestReadOnly(t *testing.T) {
	c := newConsole(t, func(cfg *Config) { cfg.ReadOnly = true })
	b := c.as("ada")
	for _, r := range eachRoute(c) {
		if r.role > Viewer {
			if a := b.do(r.method, r.path, ""); a.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s: %s", r.method, r.path, a.Status)
			}
		}
	}
}

// TestNextStaysHere: the page after the login is one of the console.
func TestNextStaysHere(t *testing.T) {
	c := newConsole(t, nil)
	for next, want := range map[string]string{
		"/queue?domain=a.example": "/queue?domain=a.example", "": "/", "//evil.example/": "/", "https://evil.example/": "/", `/\evil.example`: "/",
		"/login?next=/login": "/", "javascript:alert(1)": "/", "/%2fevil": "/", "/../other": "/", "\t//evil.example": "/",
	} {
		a := c.browser().post("/login", "user", "ada", "password", "secret of ada", "next", next)
		if got := a.Header.Get("Location"); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}
