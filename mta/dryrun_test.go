package mta

import (
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
)

// dryRuns has, for each route that changes something, requests that the relay refuses and one that it carries out; the
// table is held to the API's own. In the path, what stands in the place of {name}.
var dryRuns = map[string]struct {
	refused []string // bodies; "PATH body" for another path
	done    string
}{
	"/v1/messages/change": {[]string{
		`{"action":"hold"}`, `{"action":"fly","all":true}`, `{"action":"hold","filter":{"ids":["x"]}}`, `{"action":"hold","filter":{"ids":["1kjmma2g00007"]}}`,
		`{"action":"hold","all":true,"now":true}`, `{"action":"reroute","all":true}`, `{"action":"reroute","all":true,"pool":"nobody"}`,
		`{"action":"reroute","all":true,"route":"nowhere.example"}`, `{"action":"hold","filter":{"state":"odd"}}`, `{"unknown":1}`,
		`{"action":"retry","now":true,"filter":{"ids":["1kjmma2g00007"]}}`, `{"action":"reroute","pool":"default","filter":{"ids":["1kjmma2g00007"]}}`,
	}, `{"action":"hold","filter":{"domain":"box.example"}}`},
	"/v1/cluster/drain":   {[]string{`{}`, `{"node":2}`, `{"node":"x"}`}, ""},
	"/v1/cluster/adopt":   {[]string{`{}`, `{"dir":"data"}`, `{"dir":"/none"}`, `{"dir":"/none","node":2}`}, ""},
	"/v1/cluster/reset":   {[]string{`{}`, `{"keys":true}`}, ""},
	"/v1/cluster/undrain": {[]string{`{}`, `{"node":2}`}, ""},
	"/v1/queue/remove-moved": {[]string{
		`{"receipt":[{"id":"1kjmma2g00007"}]}`, `{"receipt":[{"id":"1kjmma2g00007","recipients":[1,0]}]}`, `{"receipt":[{"node":"relay.example","id":"x","recipients":[0]}]}`,
	}, `{"receipt":[{"node":"relay.example","id":"1kjmma2g00007","recipients":[0]}]}`},
	"/v1/sites/suspend":     {[]string{`{}`, `{"site":"mx.box.example"}`, `{"site":"mx.box.example","for":"31d"}`, `{"site":"nowhere.example","for":"1h"}`, `{"site":"box.example","for":"1h","source":"nobody"}`}, `{"site":"box.example","for":"1h"}`},
	"/v1/sites/resume":      {[]string{`{}`, `{"site":"nowhere.example"}`}, `{"site":"box.example"}`},
	"/v1/connections/close": {[]string{`{}`, `{"ids":["nobody"]}`}, ""},
	"/v1/hosts/suspend":     {[]string{`{}`, `{"hosts":["mx.box.example"]}`, `{"hosts":["nowhere.example"],"for":"1h"}`, `{"hosts":["mx.box.example"],"for":"1h","source":"nobody"}`}, `{"hosts":["mx.box.example"],"for":"1h"}`},
	"/v1/hosts/resume":      {[]string{`{}`, `{"hosts":["nowhere.example"]}`}, `{"hosts":["mx.box.example"]}`},
	"/v1/hosts/forget":      {[]string{`{}`, `{"hosts":["nowhere.example"]}`}, `{"hosts":["mx.box.example"]}`},
	"/v1/pools/{name}/weight": {[]string{
		`{}`, `{"source":"nobody","weight":1}`, `{"source":"old","weight":-1}`, `{"source":"old","weight":1001}`, `/v1/pools/nobody/weight {"source":"old","weight":1}`,
	}, `{"source":"old","weight":2}`},
	"/v1/rules/add": {[]string{
		`{}`, `{"action":"fly","all":true}`, `{"action":"suspend"}`, `{"action":"bounce","tenant":""}`, `{"action":"suspend","all":true,"tenant":"acme"}`,
		`{"action":"bounce","tenant":"nobody"}`, `{"action":"suspend","source":"nobody"}`, `{"action":"hold","pool":"nobody"}`, `{"action":"slow","provider":"nobody","rate":"1/s"}`,
		`{"action":"bounce","domain":"a..b"}`, `{"action":"suspend","tenant":"acme","for":"-1h"}`, `{"action":"slow","tenant":"acme"}`, `{"action":"slow","tenant":"acme","rate":"none"}`,
		`{"action":"slow","tenant":"acme","rate":"0/s"}`, `{"action":"slow","tenant":"acme","rate":"9999999999999/s"}`, `{"action":"slow","campaign":"x","domain":"y.example","rate":"1/s"}`,
		`{"action":"bounce","source":"old"}`, `{"action":"suspend","source":"old","tenant":"acme"}`, `{"action":"suspend","tenant":"acme","rate":"1/s"}`,
		`{"action":"reroute","tenant":"acme"}`, `{"action":"reroute","tenant":"acme","host":"a b"}`, `{"action":"reroute","tenant":"acme","host":"smtp://u:p@x.example"}`,
		`{"action":"reroute","tenant":"acme","host":"x.example:0"}`, `{"action":"reroute","provider":"google","host":"x.example"}`, `{"action":"bounce","tenant":"acme","host":"x.example"}`,
		`{"action":"bounce","campaign":"a
b"}`, `{"action":"bounce","campaign":"` + strings.Repeat("x", 256) + `"}`,
	}, `{"action":"suspend","tenant":"acme"}`},
	"/v1/rules/end":             {[]string{`{}`, `{"id":7}`, `{"id":1,"all":true}`, `{"action":"suspend"}`, `{"action":"suspend","pool":"default"}`, `{"action":"bounce","tenant":"acme"}`}, `{"action":"suspend","tenant":"acme"}`},
	"/v1/streams/{name}/pause":  {[]string{"/v1/streams/nobody/pause "}, ""},
	"/v1/streams/{name}/resume": {[]string{"/v1/streams/nobody/resume "}, ""},
	"/v1/streams/{name}/skip":   {[]string{"/v1/streams/nobody/skip "}, ""},
	"/v1/streams/{name}/replay": {[]string{
		`{}`, `{"event":"x","since":"2026-11-21T00:00:00Z"}`, `{"event":"x"}`, `{"event":"other.example-20261121T000000-000000004711"}`,
		`{"event":"relay.example-20261121T000000-000000004711"}`, `/v1/streams/nobody/replay {"since":"2026-11-21T00:00:00Z"}`, `/v1/streams/nobody/replay {"event":"x"}`,
	}, `{"since":"2026-11-21T00:00:00Z"}`},
	"/v1/streams/{name}/test": {[]string{"/v1/streams/nobody/test "}, ""},
	"/v1/suppressions/add": {[]string{
		`{}`, `{"suppressions":[{"address":"x"}]}`, `{"suppressions":[{"address":"postmaster@box.example"}]}`, `{"suppressions":[{"address":"a@box.example","source":"moon"}]}`,
		`{"suppressions":[{"address":"a@box.example","expires":"2020-01-01T00:00:00Z"}]}`,
	}, `{"suppressions":[{"address":"gone@box.example"}]}`},
	"/v1/suppressions/remove":          {[]string{`{}`, `{"addresses":["x@"]}`}, `{"addresses":["gone@box.example"]}`},
	"/v1/suppressions/remove-matching": {[]string{`{}`, `{"source":"moon"}`, `{"domain":"a..b"}`}, `{"domain":"box.example"}`},
	"/v1/suppressions/pending/accept":  {[]string{`{"source":"moon"}`, `{"domain":"a..b"}`}, `{}`},
	"/v1/suppressions/pending/drop":    {[]string{`{"source":"moon"}`, `{"domain":"a..b"}`}, `{}`},
	"/v1/keys/add": {[]string{
		`{"tenant":"nobody","name":"x"}`, `{"tenant":"acme"}`, `{"tenant":"acme","name":"a b"}`, `{"tenant":"acme","name":"x","scopes":["all"]}`,
		`{"tenant":"acme","name":"x","from":["here"]}`,
	}, `{"tenant":"acme","name":"shop"}`},
	"/v1/keys/rotate": {[]string{`{"name":"nobody"}`, `{}`}, `{"name":"shop"}`},
	"/v1/keys/remove": {[]string{`{"names":["nobody"]}`, `{}`}, `{"names":["shop"]}`},
	"/v1/users/change": {[]string{
		`{}`, `{"action":"add"}`, `{"action":"fly","names":["bob"]}`, `{"action":"remove","names":["nobody"]}`, `{"action":"password","names":["nobody"]}`,
		`{"action":"add","names":["ann"]}`, `{"action":"add","names":["a b"]}`, `{"action":"add","names":["bob"],"hash":"secret"}`,
		`{"action":"add","names":["bob"],"senders":["a..b"]}`, `{"action":"add","names":["bob"],"certificates":["sha256:1"]}`,
		`{"action":"add","names":["bob"],"certificates":["ann.example"]}`, `{"action":"add","names":["bob"],"tenant":"a b"}`, `{"action":"add","names":["bob"],"role":"king"}`,
	}, `{"action":"add","names":["bob"],"tenant":"acme"}`},
	"/v1/console/users/change":     {[]string{`{"action":"remove","names":["ann"]}`, `{"action":"add","names":["ada"],"role":"admin"}`}, `{"action":"remove","names":["ada"]}`},
	"/v1/mta-sts/{domain}/refresh": {[]string{"/v1/mta-sts/-/refresh ", "/v1/mta-sts/[192.0.2.1]/refresh ", "/v1/mta-sts/a_b.example/refresh "}, ""},
	"/v1/warmup/{name}/start":      {[]string{`{"stage":-1}`, `{"stage":3}`, "/v1/warmup/nobody/start "}, `{"stage":2}`},
	"/v1/warmup/{name}/pause":      {[]string{`{"stage":1}`, "/v1/warmup/nobody/pause "}, ""},
	"/v1/warmup/{name}/resume":     {[]string{`{"stage":1}`, "/v1/warmup/nobody/resume "}, ""},
	"/v1/warmup/{name}/set-stage":  {[]string{`{}`, `{"stage":3}`, "/v1/warmup/nobody/set-stage "}, `{"stage":1}`},
	"/v1/warmup/{name}/report": {[]string{
		`{}`, `{"provider":"other"}`, `{"provider":"other","day":"yesterday"}`, `{"provider":"nobody","day":"DAY"}`, `{"provider":"other","day":"2020-01-01"}`,
		`{"provider":"other","day":"2999-01-01"}`, `{"provider":"other","day":"DAY","complaints":-1}`, `{"provider":"other","day":"DAY","rate":2}`,
		`/v1/warmup/nobody/report {"provider":"other","day":"DAY"}`,
	}, `{"provider":"other","day":"DAY","complaints":1}`},
	"/v1/drain":          {nil, ""},
	"/v1/undrain":        {nil, ""},
	"/v1/upgrade/finish": {nil, ""},
	"/v1/config/reload":  {nil, ""}, // see TestADryReloadRefusesWhatAReloadRefuses
}

// dryOrder is the order in which things are done: what one begins another ends.
var dryOrder = []string{
	"/v1/sites/suspend", "/v1/sites/resume", "/v1/hosts/suspend", "/v1/hosts/resume", "/v1/hosts/forget", "/v1/rules/add", "/v1/rules/end",
	"/v1/suppressions/add", "/v1/suppressions/remove", "/v1/suppressions/remove-matching", "/v1/keys/add", "/v1/keys/rotate", "/v1/keys/remove",
	// What a stream has is counted while it is paused: else it sends between a dry run and the real one.
	"/v1/streams/{name}/pause", "/v1/streams/{name}/replay", "/v1/streams/{name}/skip", "/v1/streams/{name}/resume",
}

// TestADryRunRefusesWhatTheRealOneRefuses: with the same words, for every route that changes something; and what it counts
// is what is then done.
func TestADryRunRefusesWhatTheRealOneRefuses(t *testing.T) {
	t.Parallel()
	h, dir := newHook(t), t.TempDir()
	listOf := func(name, users string) string {
		if err := os.WriteFile(dir+"/"+name, []byte(users+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir + "/" + name
	}
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }
		keys { file = "`+filepath.Join(t.TempDir(), "keys")+`" }
		users { file = "`+listOf("users", "ann::certificate=ann.example")+`" }
		console {
			address = "127.0.0.1:`+freePort(t)+`"
			users   = "`+listOf("console-users", "ada::role=admin")+`"
		}
		tenant "acme" { }
		stream "app" { to = "`+h.URL+`" }
		plan "two" {
			stage {
				hourly = 10
				daily  = 15
			}
			stage {
				hourly = 20
				daily  = 30
			}
		}
		source "new" { address = "127.0.0.2" }
		source "old" { address = "127.0.0.1" }
		pool "default" {
			shared = ["old"]
			dedicated "new" { plan = "two" }
		}`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	client, err := net.Dial("tcp", w.listeners.Addresses(listen.SMTP)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ask := func(path, body string, dry bool) (status int, answer map[string]any, text string) {
		if body == "" {
			body = "{}"
		}
		if dry {
			body = strings.Replace(strings.TrimSuffix(body, "}")+`,"dry_run":true}`, "{,", "{", 1)
		}
		r := httptest.NewRecorder()
		w.control.Handler().ServeHTTP(r, httptest.NewRequest("POST", path, strings.NewReader(body)))
		_ = json.Unmarshal(r.Body.Bytes(), &answer)
		return r.Code, answer, r.Body.String()
	}
	named := strings.NewReplacer("streams/{name}", "streams/app", "pools/{name}", "pools/default", "warmup/{name}", "warmup/new", "{domain}", "box.example")
	day := strings.NewReplacer("DAY", time.Now().UTC().Format(time.DateOnly))
	w.until("the warm-up is known", func() bool { s, _ := w.warm.Status("127.0.0.2"); return s.Stage > 0 })
	paths := changingRoutes(t, w)
	for _, path := range paths {
		x, ok := dryRuns[path]
		if !ok {
			t.Errorf("%s has no requests in this test", path)
		}
		for _, body := range x.refused {
			at := named.Replace(path)
			if strings.HasPrefix(body, "/") {
				at, body, _ = strings.Cut(body, " ")
			}
			body = day.Replace(body)
			status, _, text := ask(at, body, true)
			wantStatus, _, want := ask(at, body, false)
			if wantStatus < 400 {
				t.Errorf("%s %s is carried out: %s", at, body, want)
			} else if status != wantStatus || text != want {
				t.Errorf("%s %s\nin a dry run: %d %s\nin truth:     %d %s", at, body, status, text, wantStatus, want)
			}
		}
	}
	for path := range dryRuns {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is no route that changes something", path)
		}
	}
	slices.SortStableFunc(paths, func(a, b string) int { return slices.Index(dryOrder, a) - slices.Index(dryOrder, b) })
	for _, path := range paths {
		if path == "/v1/connections/close" || path == "/v1/config/reload" || strings.HasPrefix(path, "/v1/cluster/") {
			continue // those that there are, a file, and a cluster, have tests of their own
		}
		at, body := named.Replace(path), day.Replace(dryRuns[path].done)
		status, would, text := ask(at, body, true)
		if strings.HasSuffix(path, "/skip") { // the stream goes back to where the replay begins a moment after the answer
			w.until("the stream is at the beginning", func() bool {
				status, would, text = ask(at, body, true)
				from, _ := would["from"].(string)
				return strings.HasSuffix(from, "-000000000000")
			})
		}
		if status != 200 || would["dry_run"] != true {
			t.Errorf("%s %s in a dry run: %d %s", at, body, status, text)
		}
		if status, did, text := ask(at, body, false); status != 200 || did["count"] != would["count"] || did["dry_run"] != nil {
			t.Errorf("%s %s: %d %s\nthe dry run: %v", at, body, status, text, would)
		}
	}
}

// changingRoutes are the routes whose answers can be a dry run's, as the API describes itself.
func changingRoutes(t *testing.T, w *world) (paths []string) {
	t.Helper()
	r := httptest.NewRecorder()
	w.control.Handler().ServeHTTP(r, httptest.NewRequest("GET", "/openapi.json", nil))
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(r.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	for path, methods := range document.Paths {
		questions := []string{"/v1/queue/import", // which asks for a dry run in its own way
			"/v1/suppressions/check", "/v1/warmup/simulate", "/v1/actions/begin", "/v1/actions/end"}
		if methods["post"] != nil && !slices.Contains(questions, path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	if len(paths) < 30 {
		t.Fatalf("only %d routes change something", len(paths))
	}
	return paths
}

// TestADryReloadRefusesWhatAReloadRefuses: a file that loads can be refused for what is beside it.
func TestADryReloadRefusesWhatAReloadRefuses(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	for path, text := range map[string]string{"templates/acme/x.text": "{{", "ca.pem": "none"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	client := api.NewLocalClient(w.control.Handler())
	for name, extra := range map[string]string{
		"a setting":     `defaults { conection_limit = 3 }`,
		"a port":        `listener "more" { address = "` + taken.Addr().String() + `" }`,
		"an API's port": `api "more" { address = "` + taken.Addr().String() + `" }`,
		"an address":    `listener "more" { address = "192.0.2.1:2525" }`,
		"a template":    `templates { path = "` + dir + `/templates" }`,
		"a certificate": `listener "more" {
			address = "127.0.0.1:0"
			tls {
				certificate = "` + dir + `/ca.pem"
				key         = "` + dir + `/ca.pem"
			}
		}`,
		"a stream's CA": `stream "app" {
			to = "https://app.example/"
			ca = "` + dir + `/ca.pem"
		}`,
	} {
		w.rewrite(strings.ReplaceAll(name, " ", "-"), extra)
		_, dry := api.OpReload.Call(t.Context(), client, api.Intent{DryRun: true})
		_, err := api.OpReload.Call(t.Context(), client, api.Intent{})
		if err == nil || dry == nil || dry.Error() != err.Error() {
			t.Errorf("%s: a dry run says %v, the reload %v", name, dry, err)
		}
	}
	// A look at the differences opens nothing: a port that is taken is none of its business.
	w.rewrite("looked-at", `listener "more" { address = "`+taken.Addr().String()+`" }`)
	if would, err := api.OpConfigChanges.Call(t.Context(), client, api.None{}); !slices.Contains(would.Changes, `listener "more": address = ["`+taken.Addr().String()+`"] (new)`) {
		t.Errorf("the differences: %q, %v", would.Changes, err)
	}
	if got := w.Status().Pending; !strings.HasPrefix(got, "the running relay has another configuration than its file") {
		t.Errorf("the status has of them %q", got)
	}
	w.rewrite("unknown", `defaults { conection_limit = 3 }`)
	if _, err := api.OpConfigChanges.Call(t.Context(), client, api.None{}); err == nil || !strings.Contains(err.Error(), "conection_limit") {
		t.Errorf("the differences to a file with a fault: %v", err)
	}
	if got := w.Status().Pending; !strings.Contains(got, "can't be loaded") {
		t.Errorf("the status has of a file with a fault %q", got)
	}
	cert, key, _ := certificateFiles(t, "more.example")
	w.rewrite("tls", `listener "more" {
		address = "127.0.0.1:0"
		tls {
			certificate = "`+cert+`"
			key         = "`+key+`"
		}
	}`)
	if _, err := api.OpReload.Call(t.Context(), client, api.Intent{DryRun: true}); err != nil || len(w.expiries()) != 0 {
		t.Errorf("after a dry run the relay looks after the certificates %v; %v", w.expiries(), err)
	}
	// A socket that another one has to make room for stays open in a dry run.
	port := freePort(t)
	w.rewrite("one", `listener "smtp" { address = "127.0.0.1:`+port+`" }`)
	if _, err := api.OpReload.Call(t.Context(), client, api.Intent{}); err != nil || !strings.HasPrefix(w.Status().Pending, "these settings wait for a restart: http, ") {
		t.Fatal(err, w.Status().Pending)
	}
	before := w.listeners.Addresses(listen.SMTP)
	w.rewrite("all", `listener "smtp" { address = "0.0.0.0:`+port+`" }`)
	if would, err := api.OpReload.Call(t.Context(), client, api.Intent{DryRun: true}); err != nil || would.Count != 1 {
		t.Errorf("%+v, %v", would, err)
	}
	if got := w.listeners.Addresses(listen.SMTP); !slices.Equal(got, before) {
		t.Errorf("the relay listens at %v, before at %v", got, before)
	}
	w.send("ann@client.example", letter, "bob@box.example")
	if did, err := api.OpReload.Call(t.Context(), client, api.Intent{}); err != nil || did.Count != 1 {
		t.Errorf("%+v, %v", did, err)
	}
}
