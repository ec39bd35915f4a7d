package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// start is when the sample relay has all that is in it.
var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Sample is the sample relay with an entry of the suppression list that was set aside.
type Sample struct {
	http.Handler
	IDs  []string // of the messages in its queue, the oldest first
	Dir  string   // data_dir
	Pass func(time.Duration)
}

// OpenSample makes one. Package web_test sets it: this one can't import the relay, which has the console.
var OpenSample func(*testing.T) *Sample

// console is a server under test. Behind it is nothing that answers more than an empty object, or the sample relay.
type console struct {
	*Server
	t       testing.TB
	relay   *Sample        // nil: none
	answers map[string]any // other than the relay's, by method and path: an object, an *api.Error or a handler
	logins  *fakeLogins
	clock   *clockOf
	down    bool // the relay does not answer

	mu         sync.Mutex // guards changes and audit
	changes    []api.Change
	audit      []Login
	auditFails bool
}

type clockOf struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clockOf) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clockOf) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fakeLogins has a user for each role, whose password is the name backwards.
type fakeLogins struct {
	mu    sync.Mutex // guards users
	users map[string]Identity
	takes time.Duration // to check a password
}

// change makes a user another, or removes one whose identity is zero.
func (f *fakeLogins) change(user string, id Identity) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users[user] = id; id == (Identity{}) {
		delete(f.users, user)
	}
}

var errDenied = errors.New("user name or password is wrong")

func (f *fakeLogins) Login(_ context.Context, _ netip.Addr, user, password string) (Identity, error) {
	time.Sleep(f.takes)
	id, ok := f.Known(user)
	if !ok || password != "secret of "+user {
		return Identity{}, errDenied
	}
	return id, nil
}

func (f *fakeLogins) Known(user string) (Identity, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := f.users[user]
	return id, ok
}

func (f *fakeLogins) Still(id Identity) bool {
	now, ok := f.Known(id.User)
	return ok && now == id
}

// newConsole makes a console; change sets what is other than usual.
func newConsole(t testing.TB, change func(*Config)) *console {
	t.Helper()
	return newConsoleOf(t, routes, change)
}

// newConsoleOf makes a console with other routes.
func newConsoleOf(t testing.TB, table []route, change func(*Config)) *console {
	t.Helper()
	c := &console{t: t, answers: make(map[string]any), clock: &clockOf{now: start}}
	c.logins = &fakeLogins{users: map[string]Identity{"vera": {User: "vera", Role: Viewer}, "otto": {User: "otto", Role: Operator}, "ada": {User: "ada", Role: Admin}}}
	cfg := Config{
		Relay:  api.NewLocalClient(http.HandlerFunc(c.ask)),
		Logins: c.logins, Access: Access{Hosts: []string{"console.example"}}, Now: c.clock.Now,
		Audit: func(_ context.Context, l Login) error {
			if c.auditFails {
				return errors.New("disk full")
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.audit = append(c.audit, l)
			return nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if c.Server, err = newServer(cfg, table); err != nil {
		t.Fatal(err)
	}
	return c
}

// newSample makes a console of the sample relay.
func newSample(t *testing.T) *console {
	t.Helper()
	c := newConsole(t, nil)
	c.relay = OpenSample(t)
	return c
}

// configure replaces texts by others in the configuration file of the sample relay.
func (c *console) configure(oldnew ...string) {
	c.t.Helper()
	file := filepath.Join(c.relay.Dir, "mta.conf")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// ask answers a request to the relay.
func (c *console) ask(w http.ResponseWriter, r *http.Request) {
	if c.down {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path == "/v1/messages/change" {
		c.note(r)
	}
	answer := c.answers[r.Method+" "+r.URL.Path]
	switch a := answer.(type) {
	case nil:
		if c.relay != nil {
			c.relay.ServeHTTP(w, r)
			return
		}
		answer = struct{}{}
	case http.HandlerFunc:
		a(w, r)
		return
	case *api.Error:
		w.WriteHeader(a.Status)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// note keeps the change that is asked for.
func (c *console) note(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	var asked api.Change
	if err == nil {
		err = json.Unmarshal(body, &asked)
	}
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, asked)
}

// browser keeps cookies, as one does.
type browser struct {
	c       *console
	cookies map[string]*http.Cookie
	from    string
	header  http.Header
}

func (c *console) browser() *browser {
	return &browser{c, map[string]*http.Cookie{}, "192.0.2.1:4711", http.Header{}}
}

// as gives a browser in which a user has logged in.
func (c *console) as(user string) *browser {
	c.t.Helper()
	b := c.browser()
	if a := b.post("/login", "user", user, "password", "secret of "+user); a.StatusCode != http.StatusSeeOther {
		c.t.Fatalf("login of %s: %s", user, a.Status)
	}
	return b
}

type answer struct {
	*http.Response
	text string
}

func (b *browser) get(path string) answer { return b.do("GET", path, "") }

func (b *browser) post(path string, pairs ...string) answer {
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return b.do("POST", path, form.Encode())
}

func (b *browser) do(method, path, body string) answer {
	r := httptest.NewRequest(method, "http://console.example"+path, strings.NewReader(body))
	r.RemoteAddr = b.from
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for name, values := range b.header {
		r.Header[name] = values
		if name == "Host" {
			r.Host = values[0]
		}
	}
	for _, k := range b.cookies {
		r.AddCookie(k)
	}
	w := httptest.NewRecorder()
	b.c.Handler().ServeHTTP(w, r)
	a := answer{w.Result(), ""}
	text, _ := io.ReadAll(a.Body)
	a.text = string(text)
	for _, k := range a.Cookies() {
		if k.MaxAge < 0 {
			delete(b.cookies, k.Name)
		} else {
			b.cookies[k.Name] = k
		}
	}
	return a
}

// eachRoute fills the paths of the table with something.
func eachRoute(c *console) (all []route) {
	id := "1m7yzmdk00000"
	if c.relay != nil {
		id = c.relay.IDs[3]
	}
	for _, r := range c.routes {
		r.path = strings.NewReplacer("{hash}", "0", "{name}", "none", "{id}", id).Replace(r.path)
		switch r.path { // pages of one of something
		case "/site":
			r.path += "?name=mx.grey.example"
		case "/warm-up":
			r.path += "?source=acme-1"
		}
		all = append(all, r)
	}
	return all
}

func TestRolesOfAllRoutes(t *testing.T) {
	c := newConsole(t, nil)
	for user, role := range map[string]Role{"": Anyone, "vera": Viewer, "otto": Operator, "ada": Admin} {
		for _, r := range eachRoute(c) {
			if r.serve != nil && r.method == "POST" || r.path == "/login" {
				continue // log in and out: their own tests
			}
			if strings.HasSuffix(r.path, "/follow") && role >= r.role {
				continue // a stream has no end
			}
			b := c.browser()
			if user != "" {
				b = c.as(user)
			}
			a := b.do(r.method, r.path, "")
			switch in := role >= r.role; {
			case in && (a.StatusCode == http.StatusForbidden || strings.Contains(a.Header.Get("Location"), "/login")):
				t.Errorf("%s %s for %v: %s", r.method, r.path, role, a.Status)
			case !in && role == Anyone && (a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), "/login")):
				t.Errorf("%s %s without a session: %s, %s", r.method, r.path, a.Status, a.Header.Get("Location"))
			case !in && role > Anyone && a.StatusCode != http.StatusForbidden:
				t.Errorf("%s %s for %v: %s", r.method, r.path, role, a.Status)
			}
		}
	}
}

func TestPagesFullEmptyAndWithoutRelay(t *testing.T) {
	for name, make := range map[string]func() *console{
		"full":  func() *console { return newSample(t) },
		"empty": func() *console { return newConsole(t, nil) },
		"gone":  func() *console { return newConsole(t, nil) },
	} {
		c := make()
		c.down = name == "gone"
		b := c.as("ada")
		for _, r := range eachRoute(c) {
			if r.page == nil || name == "gone" && (r.path == "/help" || r.path == "/trace") { // they ask nothing
				continue
			}
			a := b.get(r.path)
			if name == "gone" && (a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.text, "The relay does not answer")) {
				t.Errorf("%s, %s: %s\n%s", r.path, name, a.Status, a.text)
			}
			if name != "gone" && a.StatusCode >= 500 {
				t.Errorf("%s, %s: %s\n%s", r.path, name, a.Status, a.text)
			}
		}
	}
}

func TestBannerGivesTheAgeWhenTheRelayIsGone(t *testing.T) {
	c := newConsole(t, nil)
	c.answers["GET /v1/status"] = api.Status{Hostname: "relay.example"}
	b := c.as("vera")
	if a := b.get("/"); a.StatusCode != 200 || strings.Contains(a.text, "does not answer") {
		t.Fatalf("%s\n%s", a.Status, a.text)
	}
	c.down = true
	c.clock.add(35 * time.Second)
	b.header.Set("HX-Request", "true")
	a := b.get("/")
	for _, want := range []string{"The relay does not answer", "35s ago", "relay.example"} {
		if a.StatusCode != 200 || !strings.Contains(a.text, want) {
			t.Errorf("%s lacks %q:\n%s", a.Status, want, a.text)
		}
	}
	if strings.Contains(a.text, "<html") {
		t.Error("the refresh got the whole page")
	}
}

func TestUnknownParametersAreRefused(t *testing.T) {
	c := newConsole(t, nil)
	if a := c.as("vera").get("/?sitte=x"); a.StatusCode != http.StatusBadRequest || !strings.Contains(a.text, "sitte") {
		t.Errorf("%s\n%s", a.Status, a.text)
	}
}

// TestUnknownPathsAreAPage: whoever mistypes an address has the menu to go on with.
func TestUnknownPathsAreAPage(t *testing.T) {
	newConsole(t, nil).as("vera").get("/nowhere").wants(t, http.StatusNotFound, "There is no page /nowhere", `<nav aria-label="Pages">`)
}
