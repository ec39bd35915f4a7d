package web

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.org/mta/operator/api"
)

// TestPagesOfNodes asks each page of another node, and of no other: its links and forms lead to pages of that node.
func TestPagesOfNodes(t *testing.T) {
	c := newConsole(t, func(cfg *Config) { cfg.BasePath = "/mta" })
	c.answers["GET /v1/cluster"] = api.Cluster{On: true, Node: 1, Members: []api.ClusterMember{{Node: 1}, {Node: 2}, {Node: 3, Forgotten: true}}}
	var mu sync.Mutex
	var asked []string
	for op, answer := range map[string]any{
		"GET /v1/messages":         api.List{Messages: []api.Item{{ID: "1m7yzmdk00000"}}},
		"POST /v1/messages/change": api.Changed{Effect: api.Effect{Count: 1}, Recipients: 1},
	} {
		c.answers[op] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, op+" of "+r.Header.Get("Mta-Node"))
			_ = json.NewEncoder(w).Encode(answer)
		})
	}
	b := c.browser()
	b.post("/mta/node/2/login", "user", "ada", "password", "secret of ada")
	links := regexp.MustCompile(`(?:href|action|hx-get)="([^"?]*)`)
	for _, path := range []string{"/queue", "/node/2/queue"} {
		asked = nil
		prefix := "/mta" + strings.TrimSuffix(path, "/queue") + "/"
		read := b.get("/mta" + path)
		form := b.post("/mta"+path+"/hold", "id", "1m7yzmdk00000", "back", "/queue")
		done := b.post("/mta"+path+"/hold", "id", "1m7yzmdk00000", "back", "/queue", "confirm", "true", "expect", "1")
		for _, page := range []answer{read, form, done} {
			if page.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s: %s", path, page.Status, page.text)
			}
			for _, link := range links.FindAllStringSubmatch(page.text, -1) {
				to := link[1]
				switch {
				case strings.HasPrefix(to, "#"), to == "", strings.HasPrefix(to, "/mta/assets/"):
				case to == "/mta/queue", to == "/mta/node/2/queue", to == "/mta/", to == "/mta/node/2/": // of the nodes
				case !strings.HasPrefix(to, prefix), path == "/queue" && strings.Contains(to, "/node/"):
					t.Errorf("%s has a link to %s", path, to)
				}
			}
			if strings.Contains(page.text, "Node 3") || !strings.Contains(page.text, "Node 2") {
				t.Errorf("the nodes of %s: %s", path, page.text)
			}
		}
		if back := `<a href="` + prefix + `queue">Back`; !strings.Contains(done.text, back) {
			t.Errorf("no %s after an action: %s", back, done.text)
		}
		of := map[string]string{"/queue": "", "/node/2/queue": "2"}[path]
		want := "GET /v1/messages of X, POST /v1/messages/change of X, POST /v1/messages/change of X, POST /v1/messages/change of X"
		if got := strings.Join(asked, ", "); got != strings.ReplaceAll(want, "X", of) {
			t.Errorf("%s asks %s", path, got)
		}
	}
	for _, path := range []string{"/mta/queue", "/mta/node/2/queue", "/mta/node/3/queue"} { // one after the other: none is another's
		asked = nil
		node := strings.TrimPrefix(strings.TrimSuffix(path, "/queue"), "/mta")
		if b.get(path); !slices.Equal(asked, []string{"GET /v1/messages of " + strings.TrimPrefix(node, "/node/")}) {
			t.Errorf("%s asks %q", path, asked)
		}
	}
	for _, path := range []string{"/node/0/queue", "/node/1024/", "/node/x/", "/node/02/queue", "/node/2/node/3/queue", "/node/2/none"} {
		if a := b.get("/mta" + path); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, a.Status)
		}
	}
	if a := b.get("/mta/node/2"); a.Header.Get("Location") != "/mta/node/2/" {
		t.Errorf("a path without its end: %s %s", a.Status, a.Header.Get("Location"))
	}
	if a := c.browser().get("/mta/node/2/queue"); a.Header.Get("Location") != "/mta/node/2/login?next=%2Fqueue" {
		t.Errorf("without a session: %s %s", a.Status, a.Header.Get("Location"))
	}
}
