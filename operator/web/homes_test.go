package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// mesh is what the nodes of a test ask each other by.
type mesh struct {
	mu    sync.Mutex // guards what follows
	nodes map[int]*console
	down  map[int]bool
	asked int
	slow  chan bool // nobody is answered before it is closed; nil: all are
}

// at is a node's end of it.
type at struct {
	*mesh
	self int
}

func (n at) Self() int { return n.self }

func (n at) Ask(_ context.Context, node int, r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	n.asked++
	slow := n.slow
	n.mu.Unlock()
	if slow != nil {
		<-slow
	}
	n.mu.Lock()
	to, down := n.nodes[node], n.down[node] || n.nodes[node] == nil
	n.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	to.FromNode(w, r)
	return w.Result(), nil
}

func (n *mesh) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// newNodes makes the consoles of three nodes.
func newNodes(t *testing.T) *mesh {
	n := &mesh{nodes: make(map[int]*console), down: make(map[int]bool)}
	for i := 1; i <= 3; i++ {
		n.nodes[i] = newConsole(t, func(cfg *Config) { cfg.Nodes = at{n, i} })
	}
	for i := 2; i <= 3; i++ {
		n.nodes[i].clock = n.nodes[1].clock
		n.nodes[i].cfg.Now, n.nodes[i].sessions.now = n.nodes[1].clock.Now, n.nodes[1].clock.Now
	}
	return n
}

// goTo has a browser ask another node from now on, with its cookies.
func (b *browser) goTo(c *console) *browser {
	b.c = c
	return b
}

// in checks who is logged in at some nodes, "" for nobody.
func (n *mesh) in(t *testing.T, what string, b *browser, want string, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		a := b.goTo(n.nodes[i]).get("/help")
		if in := a.StatusCode == http.StatusOK; in != (want != "") || in && !strings.Contains(a.text, want) {
			t.Errorf("%s: node %d answers %s; want %q", what, i, a.Status, want)
		}
	}
}

func TestALoginHoldsAtAllNodes(t *testing.T) {
	n := newNodes(t)
	b := n.nodes[1].as("otto")
	n.in(t, "after the login", b, "otto, operator", 2, 3, 1)
	var who string

	n.nodes[2].answers["POST /v1/drain"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who = api.ActorOf(r.Context()).Name()
		fmt.Fprint(w, `{}`)
	})
	if a := b.goTo(n.nodes[2]).post("/drain", "confirm", "1", "reason", "x"); who != "otto" {
		t.Errorf("%s: the action is of %q\n%s", a.Status, who, a.text)
	}
	b.header.Set("Sec-Fetch-Site", "cross-site")
	if a := b.do("POST", "/drain", ""); a.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another site: %s", a.Status)
	}
	b.header.Del("Sec-Fetch-Site")
	n.in(t, "of an admin", n.nodes[3].as("ada"), "ada, admin", 1, 2)
	if len(n.nodes[1].audit)+len(n.nodes[2].audit)+len(n.nodes[3].audit) != 2 {
		t.Error("each login is once in the audit")
	}
}

func TestSessionsEndAtAllNodes(t *testing.T) {
	for name, end := range map[string]func(n *mesh, b *browser){
		"logout at another node": func(n *mesh, b *browser) {
			stolen := *b.cookies["mta-console"]
			if a := b.goTo(n.nodes[2]).post("/logout"); a.StatusCode != http.StatusSeeOther || len(b.cookies) != 0 {
				t.Errorf("logout: %s", a.Status)
			}
			b.cookies[stolen.Name] = &stolen
		},
		"a login at another node": func(n *mesh, b *browser) {
			first := *b.cookies["mta-console"]
			b.goTo(n.nodes[3]).post("/login", "user", "ada", "password", "secret of ada")
			if v := b.cookies["mta-console"].Value; !strings.HasPrefix(v, "3.") {
				t.Errorf("the new session is %s", v)
			}
			b.cookies[first.Name] = &first
		},
		"the user is removed":  func(n *mesh, _ *browser) { n.nodes[1].logins.change("otto", Identity{}) },
		"the role changes":     func(n *mesh, _ *browser) { n.nodes[1].logins.change("otto", Identity{User: "otto", Role: Admin}) },
		"the password changes": func(n *mesh, _ *browser) { n.nodes[1].logins.change("otto", Identity{"otto", Operator, "new"}) },
		"idle":                 func(n *mesh, _ *browser) { n.nodes[1].clock.add(maxIdle) },
		"a page refreshes itself at another node": func(n *mesh, b *browser) {
			b.header.Set("HX-Request", "true")
			for range 6 {
				n.nodes[1].clock.add(maxIdle / 6)
				b.goTo(n.nodes[2]).get("/help")
			}
			b.header.Del("HX-Request")
		},
		"old": func(n *mesh, b *browser) {
			for range 48 {
				n.nodes[1].clock.add(maxLife / 48)
				b.goTo(n.nodes[2]).get("/help")
			}
		},
		"the node is started again": func(n *mesh, _ *browser) { n.nodes[1].sessions.by = nil },
	} {
		n := newNodes(t)
		b := n.nodes[1].as("otto")
		for range 3 { // use at another node is use
			n.nodes[1].clock.add(maxIdle - time.Second)
			n.in(t, name+": before", b, "otto, operator", 2)
		}
		n.in(t, name+": before", b, "otto, operator", 1, 3)
		end(n, b)
		n.in(t, name, b, "", 2, 3, 1)
	}
}

// TestUsersOfEachNode: who has no role in the users of a node does nothing there, and who has a lesser one no more.
func TestUsersOfEachNode(t *testing.T) {
	n := newNodes(t)
	b := n.nodes[1].as("ada")
	n.nodes[2].logins.change("ada", Identity{})
	n.nodes[3].logins.change("ada", Identity{User: "ada", Role: Viewer})
	n.in(t, "removed there", b, "", 2)
	n.in(t, "with another role there", b, "ada, viewer", 3)
	n.in(t, "where it began", b, "ada, admin", 1)
	low := n.nodes[3].as("ada")
	n.in(t, "of a viewer", low, "ada, viewer", 1)
}

// TestANodeThatIsDown: its sessions are good nowhere then, anybody can log in elsewhere, and a logout says what it can't
// end.
func TestANodeThatIsDown(t *testing.T) {
	n := newNodes(t)
	b := n.nodes[1].as("otto")
	n.in(t, "before", b, "otto, operator", 2)
	n.set(func() { n.down[1] = true })
	const form = "Node 1, where you logged in, can&#39;t be asked now."
	a := b.goTo(n.nodes[2]).get("/help")
	if a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), "/login") {
		t.Errorf("%s", a.Status)
	}
	for range 10 {
		b.get("/login").wants(t, http.StatusOK, form, `name="password"`)
	}
	if n.set(func() {}); n.asked > 3 {
		t.Errorf("a node that does not answer is asked %d times", n.asked)
	}
	n.set(func() { n.down[1] = false })
	n.nodes[1].clock.add(askAgain)
	n.in(t, "when it is back", b, "otto, operator", 2)

	n.set(func() { n.down[1] = true })
	a = b.goTo(n.nodes[2]).post("/logout")
	a.wants(t, http.StatusServiceUnavailable, "the session may go on there")
	if len(b.cookies) != 0 {
		t.Error("the browser keeps the session that it has logged out of")
	}
	b = n.nodes[3].as("otto")
	n.in(t, "a login elsewhere", b, "otto, operator", 3, 2)
}

// TestMadeUpSessions: nobody gets in by an id that no node has given, nor has the nodes ask each other all the time; and
// those who have logged in are not kept out meanwhile.
func TestMadeUpSessions(t *testing.T) {
	n := newNodes(t)
	good := n.nodes[1].as("otto")
	n.in(t, "before", good, "otto, operator", 2)
	id := good.cookies["mta-console"].Value
	for _, v := range []string{id + "A", "1" + id, "01." + id[2:], "2." + id[2:], "3." + id[2:], "+" + id, "1.", "1." + id, "9.A", "2000.A", "-1.A"} {
		b := n.nodes[2].browser()
		b.cookies["mta-console"] = &http.Cookie{Name: "mta-console", Value: v}
		n.in(t, v, b, "", 1, 2, 3)
	}
	n.nodes[1].clock.add(time.Minute)
	n.set(func() { n.asked = 0 })
	for i := range 1000 {
		b := n.nodes[2].browser()
		b.cookies["mta-console"] = &http.Cookie{Name: "mta-console", Value: fmt.Sprintf("1.GUESS%d", i)}
		n.in(t, "a guess", b, "", 2)
	}
	if n.asked != strange.Burst {
		t.Errorf("node 1 was asked about %d guesses", n.asked)
	}
	n.in(t, "meanwhile", good, "otto, operator", 2)
	other := n.nodes[1].as("ada")
	other.from = "192.0.2.2:4711"
	n.in(t, "another client meanwhile, for the first time", other, "ada, admin", 2)
	w := httptest.NewRecorder()
	before := n.asked
	n.nodes[3].FromNode(w, httptest.NewRequest("POST", "/session", strings.NewReader(`{"id":"`+id+`"}`)))
	if n.asked != before || strings.TrimSpace(w.Body.String()) != "{}" {
		t.Errorf("a node that is asked about another one's session answers %s", w.Body)
	}
	for _, text := range []string{"", "x", `{"id":"` + strings.Repeat("A", 2*maxQuestion) + `"}`} {
		w := httptest.NewRecorder()
		if n.nodes[3].FromNode(w, httptest.NewRequest("POST", "/session", strings.NewReader(text))); w.Code != http.StatusBadRequest {
			t.Errorf("%.20q: %d", text, w.Code)
		}
	}
}

// TestMadeUpSessionsOfASlowNode: the node that is asked about them does not count as silent for those who have logged in
// there, and has no more than some of them at a time; the log has nothing of them.
func TestMadeUpSessionsOfASlowNode(t *testing.T) {
	n := newNodes(t)
	var log bytes.Buffer
	n.nodes[2].cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	good := n.nodes[1].as("otto")
	n.in(t, "before", good, "otto, operator", 2)
	guess := func(id string) bool {
		b := n.nodes[2].browser()
		b.cookies["mta-console"] = &http.Cookie{Name: "mta-console", Value: id}
		return b.get("/help").StatusCode == http.StatusSeeOther
	}
	n.set(func() { n.asked, n.slow = 0, make(chan bool) })
	done := make(chan bool)
	for range 2 * strangeAtOnce {
		go func() { done <- guess("1.GUESS") }()
	}
	for range strangeAtOnce {
		if !<-done { // at once: there are enough
			t.Error("a guess is good")
		}
	}
	slow := n.slow
	n.set(func() { n.slow, n.down[1] = nil, true })
	close(slow)
	for range strangeAtOnce {
		<-done
	}
	n.set(func() {
		if n.asked != strangeAtOnce {
			t.Errorf("%d questions at a time", n.asked)
		}
		n.down[1] = false
	})
	for i := range 9 {
		guess(fmt.Sprintf("%d.GUESS", i+4))
	}
	if n.in(t, "meanwhile", good, "otto, operator", 2); log.Len() > 0 {
		t.Errorf("the log has %s", log.String())
	}
	n.set(func() { n.down[1] = true })
	if n.in(t, "when it is down", good, "", 2); strings.Count(log.String(), "not good here now") != 1 {
		t.Errorf("the log has %s", log.String())
	}
}

// TestAnswersThatGoOn end with the session of another node, within a second.
func TestAnswersThatGoOn(t *testing.T) {
	n := newNodes(t)
	b := n.nodes[1].as("otto")
	ask := httptest.NewRequest("GET", "http://console.example/log/follow", nil)
	ask.AddCookie(b.cookies["mta-console"])
	r := n.nodes[2].newRequest(ask, nil)
	for range 1000 {
		if !n.nodes[2].still(r) {
			t.Fatal("the session has ended")
		}
		n.nodes[1].clock.add(time.Millisecond)
	}
	if n.asked > 4 {
		t.Errorf("node 1 was asked %d times in a second", n.asked)
	}
	b.post("/logout")
	n.nodes[1].clock.add(time.Second)
	if n.nodes[2].still(r) {
		t.Error("it goes on after the logout")
	}
}

// TestAloneNobodyIsAsked: without a cluster ids are as they were.
func TestAloneNobodyIsAsked(t *testing.T) {
	c := newConsole(t, nil)
	b := c.as("ada")
	if v := b.cookies["mta-console"].Value; strings.Contains(v, ".") {
		t.Errorf("the id is %s", v)
	}
	b.cookies["mta-console"].Value = "1." + b.cookies["mta-console"].Value
	if a := b.get("/help"); a.StatusCode != http.StatusSeeOther {
		t.Error(a.Status)
	}
}
