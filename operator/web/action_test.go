package web

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/mta/operator/api"
)

// forms fill each action of the table with something of the sample relay.
var forms = map[string][]string{
	"/drain":                {},
	"/undrain":              {},
	"/queue/hold":           {"tenant", "acme"},
	"/queue/release":        {"tenant", "acme"},
	"/queue/retry":          {"tenant", "acme"},
	"/queue/reroute":        {"tenant", "acme", "pool", "default"},
	"/queue/bounce":         {"tenant", "acme"},
	"/queue/remove":         {"tenant", "acme"},
	"/sites/suspend":        {"site", "mx.grey.example", "for", "1h"},
	"/sites/resume":         {"site", "mx.grey.example"},
	"/hosts/suspend":        {"host", "mx1.slow.example", "for", "1h"},
	"/hosts/resume":         {"host", "mx1.slow.example"},
	"/hosts/forget":         {"host", "mx1.slow.example"},
	"/suppression/add":      {"addresses", "new@big.example", "tenant", "acme"},
	"/suppression/remove":   {"addresses", "former@acme.example"},
	"/suppression/accept":   {"provider", "huge"},
	"/suppression/drop":     {"provider", "huge"},
	"/configuration/reload": {},
	"/connections/close":    {"id", ""},
	"/pools/weight":         {"pool", "default", "source", "out1", "weight", "3"},
	"/warm-up/start":        {"source", "acme-1", "stage", "1"},
	"/warm-up/pause":        {"source", "acme-1"},
	"/warm-up/resume":       {"source", "acme-1"},
	"/warm-up/set-stage":    {"source", "acme-1", "stage", "2"},
	"/rules/add":            {"action", "suspend", "tenant", "acme", "for", "1h"},
	"/rules/end":            {"id", "1"},
	"/rules/pause":          {"action", "suspend", "tenant", "acme", "for", "1h"},
	"/rules/resume":         {"action", "suspend", "tenant", "acme"},
}

// undoes are the actions that need another one before them.
var undoes = map[string]string{"/undrain": "/drain", "/rules/end": "/rules/add", "/rules/resume": "/rules/pause", "/hosts/resume": "/hosts/suspend", "/warm-up/resume": "/warm-up/pause"}

// confirm does an action as somebody who agrees.
func (b *browser) confirm(path string, form ...string) answer {
	expect := between(b.post(path, form...).text, `name="expect" value="`, `"`)
	return b.post(path, append(form, "confirm", "yes", "expect", expect, "reason", "a test", "back", "/queue")...)
}

// TestFormsThatLackSomething: each form of the table, without one of its fields, is answered in whole sentences, and so is
// one that has the field with nothing in it.
func TestFormsThatLackSomething(t *testing.T) {
	c := newSample(t)
	refused := 0
	for path, form := range forms {
		for i := 0; i < len(form); i += 2 {
			without := slices.Delete(slices.Clone(form), i, i+2)
			for _, fields := range [][]string{without, append(without, form[i], "")} {
				a := c.as("ada").post(path, fields...)
				if a.StatusCode == 200 {
					continue
				}
				refused++
				said := between(a.text, "<strong>", "</strong>")
				if a.StatusCode >= 500 || said == "" || regexp.MustCompile(`  |&#34;&#34;|""| [.,:;]|\W$`).MatchString(strings.TrimSuffix(said, ".")) {
					t.Errorf("%s with %q answers %d %q", path, fields, a.StatusCode, said)
				}
			}
		}
	}
	if refused < len(forms) {
		t.Errorf("%d forms are refused", refused)
	}
	c.as("ada").post("/rules/pause", "tenant", "acme").wants(t, 400, "No action is given", "action=suspend")
}

// TestAfterAnActionPagesAreNew: whoever goes back sees what was done, however lately the page was made.
func TestAfterAnActionPagesAreNew(t *testing.T) {
	b := newSample(t).as("otto")
	const end = `<button>End</button>`
	if a := b.get("/rules"); strings.Contains(a.text, end) {
		t.Fatalf("something is paused:\n%s", a.text)
	}
	b.confirm("/rules/add", forms["/rules/add"]...).wants(t, 200, "Done")
	b.get("/rules").wants(t, 200, end)
}

// TestEachActionCountsAsksAndActs: the first form changes nothing, the second does what was confirmed, and a count that
// nobody has seen is never acted on.
func TestEachActionCountsAsksAndActs(t *testing.T) {
	for _, r := range routes {
		if r.action == nil {
			continue
		}
		t.Run(strings.TrimPrefix(r.path, "/"), func(t *testing.T) {
			form, ok := forms[r.path]
			if !ok {
				t.Fatalf("the table of forms lacks %s", r.path)
			}
			c := newSample(t)
			switch r.path {
			case "/configuration/reload":
				c.configure(`tier = 2`, `tier = 3`)
			case "/connections/close":
				l, err := api.OpConnections.Call(t.Context(), api.NewLocalClient(c.relay), api.ConnectionFilter{Paging: api.Paging{Limit: 1}})
				if err != nil {
					t.Fatal(err)
				}
				form = []string{"id", l.Connections[0].ID}
			}
			b := c.as("ada")
			if before := undoes[r.path]; before != "" {
				b.confirm(before, forms[before]...)
			}
			a := b.post(r.path, form...)
			a.wants(t, 200)
			expect := between(a.text, `name="expect" value="`, `"`)
			if strings.Contains(a.text, "there is nothing to do") {
				t.Fatalf("the sample relay has nothing for %v", form)
			}
			wrong := b.post(r.path, append(form, "confirm", "yes", "expect", "12345")...)
			wrong.wants(t, 200, "The count has changed", "Nothing is done yet")
			again := b.post(r.path, form...)
			if got := between(again.text, `name="expect" value="`, `"`); got != expect {
				t.Errorf("the count was %s and is %s: something was done unasked", expect, got)
			}
			b.confirm(r.path, form...).wants(t, 200, "Done", `href="/queue"`)
		})
	}
}

// TestWhereAChangeIsNotKnown: the page of a change in a cluster names the nodes that have not read it.
func TestWhereAChangeIsNotKnown(t *testing.T) {
	const behind = "node 3 of the cluster: the change is not known there yet"
	do := changes("rule", func(*request, api.EndRule) (api.RuleChanged, error) {
		return api.RuleChanged{Effect: api.Effect{Count: 1, Behind: behind}}, nil
	}, nil)
	o, err := do(&request{values: url.Values{}}, api.Intent{})
	if err != nil || o.Count != 1 || !slices.Equal(o.Lines, []string{behind}) {
		t.Errorf("%+v, %v", o, err)
	}
}
