package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAClusterAnswers: by commands at one of three relays an operator sees the queues of all, and acts on them; a node
// that is stopped is named after 5 s, with what the others have answered.
func TestAClusterAnswers(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	primary.schema(t)
	users := scratch(t) + "/console-users"
	relays := members(t, []*database{primary, standby}, "127.0.0.1:1", "25", `
tenant "acme" {}
keys { file = "KEYS" }
api "web" { address = "WEB" }
console {
  address = "CONSOLE"
  users   = "`+users+`"
}
`, 3)
	ids := map[int][]string{}
	for i, r := range relays {
		r.submit(t, 2+i, func(n int) (string, []string, string) {
			return hello(fmt.Sprintf("X-MTA-Tenant: acme\r\nX-Mta-Test-Id: %d-%d\r\n", i, n), fmt.Sprintf("a%d@all.example", n))
		})
		for line := range strings.Lines(r.mta(t, "queue", "list", "--json")) {
			var m struct{ ID string }
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			ids[i+1] = append(ids[i+1], m.ID)
		}
	}
	meet(t, relays)
	one := relays[0]
	env := []string{"MTA_CONFIG=" + one.config}
	does := func(args ...string) string { return one.mta(t, append(args, "--cluster")...) }
	has := func(what, out string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %q is not in:\n%s", what, w, out)
			}
		}
	}
	// nodes are those of the rows of a listing of the queue, page by page.
	nodes := func(limit string) (all []int) {
		args, pages := []string{"queue", "list", "--cluster", "--json", "--limit", limit}, 0
		for pages = 0; pages < 20; pages++ {
			out, err := mta(env, args...)
			if err != nil {
				t.Fatal(out)
			}
			more := ""
			for line := range strings.Lines(out) {
				var m struct {
					Node int
					ID   string
				}
				if _, after, ok := strings.Cut(line, "--after "); ok {
					more = strings.TrimSpace(after)
				} else if json.Unmarshal([]byte(line), &m) == nil {
					if !strings.Contains(strings.Join(ids[m.Node], " "), m.ID) {
						t.Errorf("%s is not of node %d", m.ID, m.Node)
					}
					all = append(all, m.Node)
				}
			}
			if more == "" {
				return all
			}
			args = append(args[:6], "--after", more)
		}
		return all
	}
	for _, limit := range []string{"0", "2", "5", "9"} {
		if got := nodes(limit); fmt.Sprint(got) != "[1 1 2 2 2 3 3 3 3]" {
			t.Errorf("--limit %s lists messages of nodes %v", limit, got)
		}
	}
	has("queue list", does("queue", "list"), "NODE  ID", "<a3@all.example>")
	has("queue summary", does("queue", "summary", "--by", "tenant"), "TOTAL   9", "acme    9")
	has("queue summary", does("queue", "summary", "--by", "domain", "--older", "0s", "--tenant", "acme"), "all.example  9")
	has("tenants", does("tenants"), "   1  acme", "   2  acme", "   3  acme")
	has("status", does("status"), "node        1", "node        2", "node        3")
	login, console := runConsole(t, one)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := http.Client{Jar: jar, Timeout: patience}
	for i, page := range []string{login, "http://" + console + "/queue", "http://" + console + "/node/2/queue", "http://" + console + "/node/3/queue"} {
		a, err := browser.Get(page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err != nil || a.StatusCode != http.StatusOK || !strings.Contains(string(text), "Node 3") {
			t.Errorf("%s: %s %s %v", page, a.Status, text, err)
		}
		for n := 1; n <= 3 && i > 0; n++ {
			if strings.Contains(string(text), ids[n][0]) != (n == i) {
				t.Errorf("%s has the mail of node %d or lacks its own: %s", page, n, text)
			}
		}
	}
	for _, list := range []string{"sites", "hosts", "sources", "pools", "connections"} {
		does(list)
	}
	does("rule", "list")
	does("streams")
	does("warmup", "list")
	last := ids[3][0]
	has("queue show", does("queue", "show", last), "node        3", last)
	has("explain", does("explain", last), "node        3")
	if out, err := mta(env, "queue", "show", "--cluster", "0000000000001"); err == nil || !strings.Contains(out, "is not in the queue") {
		t.Errorf("an unknown id: %s %v", out, err)
	}
	for _, shared := range []string{"suppress list", "rule add", "key list"} {
		if out, err := mta(env, append(strings.Fields(shared), "--cluster")...); err == nil || !strings.Contains(out, "all nodes share") {
			t.Errorf("%s: %s %v", shared, out, err)
		}
	}

	has("a dry run", does("queue", "hold", "--tenant", "acme", "--dry-run"), "9 recipients would be held")
	has("hold", does("queue", "hold", "--tenant", "acme", "--reason", "look"), "9 recipients held")
	has("release of two", does("queue", "release", ids[1][0], last), "2 recipients released")
	if out, err := mta(env, "queue", "release", "--cluster", ids[1][1], "0000000000001"); err == nil || !strings.Contains(out, "message 0000000000001 is in no node's queue") {
		t.Errorf("an unknown id: %s %v", out, err)
	}
	has("hold again", does("queue", "hold", "--tenant", "acme"), "2 recipients held")
	for i, r := range relays {
		who := "root at node 1"
		if i == 0 {
			who = "root"
		}
		out := r.mta(t, "actions")
		if has("actions", out, "queue hold", who, "look"); (i == 1) == strings.Contains(out, "queue release") {
			t.Errorf("node %d has on record:\n%s", i+1, out)
		}
	}

	if out := does("actions", "--action", "queue"); strings.Count(out, "queue release") != 2 || strings.Count(out, "queue hold") != 6 {
		t.Errorf("the actions of all nodes:\n%s", out)
	}
	for i := range relays {
		out, own := does("log", "--type", "Reception", "--json"), fmt.Sprintf(`{"node":%d,"type":"Reception"`, i+1)
		if strings.Count(out, own) != 2+i {
			t.Errorf("node %d's records:\n%s", i+1, out)
		}
	}
	has("log", does("log", "--id", last), "   3  2", "Reception", "<a0@all.example>")
	has("admission", does("admission"), "node        1", "node        2", "node        3")
	has("top", does("top", "--once", "--table", "tenants"), "3 nodes", "   1  acme", "   2  acme", "   3  acme")
	has("log --count-by", does("log", "--count-by", "type"), "Reception             9")
	follows := start(t, "log", slices.Concat([]string{"env"}, one.env, []string{binary, "log", "--follow", "--cluster", "--json",
		"--type", "Reception", "--last", "1", "--config", one.config})...)
	followed := func(want ...string) {
		t.Helper()
		eventually(t, patience, func() error {
			text, err := os.ReadFile(follows.log)
			for _, w := range want {
				if strings.Count(string(text), w) != 1 && err == nil {
					err = fmt.Errorf("%s is not there once:\n%s", w, text)
				}
			}
			return err
		})
	}
	followed(`"type":"Reception"`)

	// Clients, who may ask any node about mail of all, also under the ids that it had before it moved.
	key := one.newKey(t)
	asks := func(status int, words string, node int, method, path, body string) string {
		t.Helper()
		q, err := http.NewRequest(method, "http://"+relays[node-1].web+"/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return ""
		}
		q.Header.Set("Authorization", "Bearer "+key)
		q.Header.Set("Content-Type", "application/json")
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		if err != nil || a.StatusCode != status || !strings.Contains(string(text), words) {
			t.Errorf("%s %s at node %d: %d %s %v; want %d and %q", method, path, node, a.StatusCode, text, err, status, words)
		}
		return string(text)
	}
	events := asks(200, `"next":"`, 2, "GET", "/events?limit=1000", "")
	if n := strings.Count(events, `"type":"Reception"`); n != 9 || strings.Contains(events, "unanswered") {
		t.Errorf("%d receptions at all nodes:\n%s", n, events)
	}
	if all := asks(200, `"messages":[`, 3, "GET", "/messages?limit=9", ""); strings.Count(all, `"accepted_at"`) != 9 || strings.Contains(all, `"next"`) {
		t.Errorf("the list of all nodes: %s", all)
	}
	for n := 1; n <= 3; n++ {
		asks(202, `"id"`, n, "POST", "/messages", fmt.Sprintf(`{"from":"shop@acme.example","to":"f%d@all.example","subject":"x","text":"x","campaign":"followed","send_at":%q}`,
			n, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	}
	followed(`{"node":1,"type":"Reception"`, `{"node":2,"type":"Reception"`, `"recipient":"f1@all.example"`, `"recipient":"f2@all.example"`, `"recipient":"f3@all.example"`)
	if !follows.stop(patience) {
		t.Error("'mta log --follow' does not end")
	}
	asks(200, `"cancelled":3,`, 2, "POST", "/messages/cancel", `{"campaign":"followed"}`)
	asks(200, `"held"`, 1, "GET", "/messages/"+last, "")
	asks(200, `"cancelled"`, 2, "POST", "/messages/"+last+"/cancel", "")
	asks(200, `"cancelled"`, 1, "GET", "/messages/"+last, "")
	asks(404, "no such message", 1, "GET", "/messages/0000000000001", "")
	asks(404, "no such message", 1, "POST", "/messages/0000000000001/cancel", "")
	var moving []string
	for n := range 12 {
		text := asks(202, `"id"`, 1+n%3, "POST", "/messages", fmt.Sprintf(`{"from":"shop@acme.example","to":"b%d@all.example","subject":"x","text":"x","campaign":"spring","send_at":%q}`,
			n, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
		var sent struct{ Messages []struct{ ID string } }
		if err := json.Unmarshal([]byte(text), &sent); err != nil {
			t.Fatal(err)
		}
		moving = append(moving, sent.Messages[0].ID)
	}
	for _, n := range []string{"1", "2"} { // some messages move twice
		one.mta(t, "cluster", "drain", n)
		one.mta(t, "cluster", "undrain", n)
	}
	for i, id := range moving {
		asks(200, `"scheduled"`, 1+i%3, "GET", "/messages/"+id, "")
		if i < 6 {
			asks(200, `"cancelled"`, 1+(i+1)%3, "POST", "/messages/"+id+"/cancel", "")
		}
	}
	asks(200, `"cancelled":6,`, 2, "POST", "/messages/cancel", `{"campaign":"spring"}`)
	for i, id := range moving {
		asks(200, `"cancelled"`, 1+i%3, "GET", "/messages/"+id, "")
	}

	ann := loginsHold(t, relays)

	// A stopped node.
	asks(202, `"id"`, 1, "POST", "/messages", `{"from":"shop@acme.example","to":"c@all.example","subject":"x","text":"x"}`)
	relays[2].pause(t)
	defer relays[2].resume()
	// On a busy machine a question comes after others have waited in vain.
	silent := regexp.MustCompile("mta: node 3: (no answer within 5s|not asked: earlier questions to it have taken 5s)\n")
	var all sync.WaitGroup
	for _, args := range [][]string{{"queue", "list"}, {"queue", "release", "--tenant", "acme"}} {
		all.Go(func() {
			began := time.Now()
			out, err := mta(env, append(args, "--cluster")...)
			if d := time.Since(began); err == nil || d > 9*time.Second || !silent.MatchString(out) || strings.Count(out, "\n") < 2 {
				t.Errorf("%v with a stopped node: %s %v, after %s", args, out, err, d)
			}
		})
	}
	all.Go(func() {
		if out, err := mta(env, "queue", "show", "--cluster", ids[3][1]); err == nil || !silent.MatchString(out) || strings.Contains(out, "mta: see") {
			t.Errorf("a message of a stopped node: %s %v", out, err)
		}
	})
	all.Go(func() { asks(200, `"unanswered":[3]`, 1, "POST", "/messages/cancel", `{"campaign":"spring"}`) })
	all.Go(func() { asks(503, `"unanswered":[3]`, 1, "GET", "/messages/0000000000001", "") })
	all.Wait()

	// Nobody is kept out by the node of their login.
	ann.page(1, "/login", "Node 3, where you logged in, can&#39;t be asked now.")
	ann.logIn(2, "/queue", "ann, operator")
	ann.page(1, "/queue", "ann, operator")
}

// visitor is a browser at the consoles of a cluster.
type visitor struct {
	http.Client
	t      *testing.T
	relays []*relay
}

// wants checks where an answer was given in the end, and its words.
func (v *visitor) wants(node int, path, words string, a *http.Response, err error) {
	v.t.Helper()
	if err != nil {
		v.t.Error(err)
		return
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil || a.Request.URL.Path != path || !strings.Contains(string(text), words) {
		v.t.Errorf("node %d answers %s at %s; want %q at %s:\n%s %v", node, a.Status, a.Request.URL.Path, words, path, text, err)
	}
}

func (v *visitor) url(node int, path string) string {
	return "http://" + v.relays[node-1].console + path
}

func (v *visitor) page(node int, path, words string) {
	v.t.Helper()
	a, err := v.Get(v.url(node, path))
	v.wants(node, path, words, a, err)
}

func (v *visitor) logIn(node int, path, words string) {
	v.t.Helper()
	a, err := v.PostForm(v.url(node, "/login"), url.Values{"user": {"ann"}, "password": {"open sesame"}, "next": {path}})
	v.wants(node, path, words, a, err)
}

// comes waits until a visitor who asks a node for the queue comes to a path: each node knows the users within a second.
func (v *visitor) comes(node int, path string) {
	v.t.Helper()
	eventually(v.t, 3*time.Second, func() error {
		a, err := v.Get(v.url(node, "/queue"))
		if err != nil {
			return err
		}
		a.Body.Close()
		if a.Request.URL.Path != path {
			return fmt.Errorf("node %d answers %s at %s; want %s", node, a.Status, a.Request.URL.Path, path)
		}
		return nil
	})
}

func (v *visitor) out(node int) { v.t.Helper(); v.comes(node, "/login") }

func (v *visitor) in(node int) { v.t.Helper(); v.comes(node, "/queue") }

// loginsHold has a user log in at the console of one node, and out at another; a user who is removed is out at all. The
// visitor whom it returns has logged in at node 3.
func loginsHold(t *testing.T, relays []*relay) *visitor {
	t.Helper()
	user := func(args ...string) {
		t.Helper()
		c := exec.Command(binary, append([]string{"console", "user"}, append(args, "--config", relays[0].config)...)...)
		c.Env, c.Stdin = append(os.Environ(), relays[0].env...), strings.NewReader("open sesame\n")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	user("add", "ann", "--role", "operator")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{http.Client{Jar: jar, Timeout: patience}, t, relays}
	v.logIn(3, "/queue", "ann, operator")
	for n := 1; n <= 3; n++ {
		v.in(n)
		v.page(n, "/queue", "ann, operator")
	}
	a, err := v.PostForm(v.url(2, "/logout"), nil)
	v.wants(2, "/login", "password", a, err)
	v.out(3)
	v.out(1)
	v.logIn(3, "/queue", "ann, operator")
	v.page(2, "/queue", "ann, operator")
	user("remove", "ann")
	v.out(1)
	v.out(3)
	user("add", "ann", "--role", "operator")
	v.out(2)
	v.logIn(3, "/queue", "ann, operator")
	v.in(1)
	v.in(2)
	return v
}
