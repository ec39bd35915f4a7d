package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/user"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/operator/api"
	"example.org/mta/operator/api/controltest"
	"example.org/mta/operator/audit"
)

// change is a request that changes something in the sample relay.
type change struct {
	path, body string // path as in the table of routes, with names in the place of {x}
	action     string
}

// changes has one for each route; the table is held to it.
func changes(r *controltest.Relay) map[string]change {
	return map[string]change{
		"/v1/messages/change":              {"/v1/messages/change", `{"action":"hold","filter":{"domain":"big.example","tenant":"acme"}}`, "queue hold"},
		"/v1/sites/suspend":                {"/v1/sites/suspend", `{"site":"slow.example","for":"1h"}`, "sites suspend"},
		"/v1/sites/resume":                 {"/v1/sites/resume", `{"site":"mx.grey.example"}`, "sites resume"},
		"/v1/connections/close":            {"/v1/connections/close", `{"ids":["` + r.KnownConnections[0].ID + `"]}`, "connections close"},
		"/v1/hosts/forget":                 {"/v1/hosts/forget", `{"hosts":["mx2.big.example"]}`, "hosts forget"},
		"/v1/hosts/suspend":                {"/v1/hosts/suspend", `{"hosts":["mx1.big.example","mx1.slow.example"],"for":"1h"}`, "hosts suspend"},
		"/v1/hosts/resume":                 {"/v1/hosts/resume", `{"hosts":["mx1.big.example"]}`, "hosts resume"},
		"/v1/pauses/begin":                 {"/v1/pauses/begin", `{"what":"tenant","name":"acme"}`, "pause"},
		"/v1/pauses/end":                   {"/v1/pauses/end", `{"what":"tenant","name":"acme"}`, "resume"},
		"/v1/streams/{name}/pause":         {"/v1/streams/app/pause", "", "streams pause"},
		"/v1/streams/{name}/resume":        {"/v1/streams/app/resume", "", "streams resume"},
		"/v1/streams/{name}/skip":          {"/v1/streams/app/skip", "", "streams skip"},
		"/v1/streams/{name}/replay":        {"/v1/streams/app/replay", `{"since":"2026-11-21T00:00:00Z"}`, "streams replay"},
		"/v1/streams/{name}/test":          {"/v1/streams/app/test", "", "streams test"},
		"/v1/suppressions/add":             {"/v1/suppressions/add", `{"suppressions":[{"address":"new@box.example"}]}`, "suppress add"},
		"/v1/suppressions/remove":          {"/v1/suppressions/remove", `{"addresses":["gone@box.example"]}`, "suppress remove"},
		"/v1/suppressions/remove-matching": {"/v1/suppressions/remove-matching", `{"domain":"box.example"}`, "suppress remove"},
		"/v1/suppressions/pending/accept":  {"/v1/suppressions/pending/accept", `{"provider":"huge"}`, "suppress pending accept"},
		"/v1/suppressions/pending/drop":    {"/v1/suppressions/pending/drop", `{"provider":"huge"}`, "suppress pending drop"},
		"/v1/keys/add":                     {"/v1/keys/add", `{"tenant":"acme","name":"new"}`, "key add"},
		"/v1/keys/rotate":                  {"/v1/keys/rotate", `{"name":"shop"}`, "key rotate"},
		"/v1/keys/remove":                  {"/v1/keys/remove", `{"names":["shop"]}`, "key remove"},
		"/v1/mta-sts/{domain}/refresh":     {"/v1/mta-sts/big.example/refresh", "", "tls policy"},
		"/v1/warmup/{name}/start":          {"/v1/warmup/acme-1/start", `{"stage":2}`, "warmup start"},
		"/v1/warmup/{name}/pause":          {"/v1/warmup/acme-1/pause", "", "warmup pause"},
		"/v1/warmup/{name}/resume":         {"/v1/warmup/news-1/resume", "", "warmup resume"},
		"/v1/warmup/{name}/set-stage":      {"/v1/warmup/acme-1/set-stage", `{"stage":3}`, "warmup set-stage"},
		"/v1/warmup/{name}/report":         {"/v1/warmup/acme-1/report", `{"provider":"google","day":"2026-11-21","complaints":3}`, "warmup report"},
		"/v1/upgrade/finish":               {"/v1/upgrade/finish", "", "upgrade finish"},
		"/v1/queue/remove-moved":           {"/v1/queue/remove-moved", `{"receipt":[{"node":"relay.example","id":"` + r.Messages[0].ID + `","recipients":[0]}]}`, "queue remove"},
		"/v1/config/reload":                {"/v1/config/reload", "", "config reload"},
	}
}

// questions are the POST routes that change nothing, but what is on record; and the import, whose request is no JSON:
// see TestMove.
var questions = []string{"/v1/queue/import", "/v1/suppressions/check", "/v1/warmup/simulate", "/v1/actions/begin", "/v1/actions/end"}

// audited is the sample relay with an audit log, and something for each change to find.
func audited(t *testing.T) (*controltest.Relay, *audit.Log) {
	t.Helper()
	r := controltest.Sample(now)
	l, err := audit.Open(audit.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r.Audit = l
	r.OnReload = func() (api.Reload, error) { return api.Reload{Changes: []string{"a = 1 (was 2)"}}, nil }
	r.State.Paused = []api.Pause{{What: api.PauseTenant, Name: "acme", By: "root", Since: now}}
	r.Suppressed = []api.Suppression{{Address: "gone@box.example", Added: now}}
	r.Pending = []api.Suppression{{Address: "doubted@box.example", Provider: "huge", Added: now}}
	r.KnownKeys = []api.APIKey{{ID: "1", Tenant: "acme", Name: "shop"}}
	r.KnownHosts[0].Actions = []api.SiteAction{{What: "suspended", End: now.Add(3600e9)}}
	return r, l
}

// state is all that changes of the sample relay can touch.
func state(t *testing.T, r *controltest.Relay) string {
	return toJSON(t, []any{r.Messages, r.State, r.Suppressed, r.Pending, r.KnownKeys, r.KnownSites, r.KnownHosts, r.KnownWarmups, r.KnownConnections})
}

func lines(t *testing.T, l *audit.Log) []audit.Line {
	t.Helper()
	p, err := l.Read(t.Context(), audit.Query{Limit: 1000})
	if err != nil || !p.Complete {
		t.Fatalf("complete: %v, %v", p.Complete, err)
	}
	return p.Actions
}

func post(h http.Handler, path, body string) (status int, answer map[string]any, text string) {
	request := httptest.NewRequest("POST", path, strings.NewReader(body))
	request.Header.Set("Mta-Reason", "ticket%204711")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	_ = json.Unmarshal(w.Body.Bytes(), &answer)
	return w.Code, answer, w.Body.String()
}

// with adds a field to a body.
func with(body, field string) string {
	if body == "" {
		return "{" + field + "}"
	}
	return strings.TrimSuffix(body, "}") + "," + field + "}"
}

// TestEveryChange: each route that changes something counts in a dry run and changes nothing, changes nothing if another
// count is expected, has its line in the audit log when it has done it, and when it was refused.
func TestEveryChange(t *testing.T) {
	sample, _ := audited(t)
	all := changes(sample)
	for _, route := range api.Routes() {
		if route[0] != "POST" || slices.Contains(questions, route[1]) {
			continue
		}
		c, ok := all[route[1]]
		if !ok {
			t.Errorf("%s has no change in this test", route[1])
			continue
		}
		delete(all, route[1])
		t.Run(strings.Trim(route[1], "/"), func(t *testing.T) { testChange(t, c) })
	}
	for path := range all {
		t.Errorf("%s: there is no such route", path)
	}
}

func testChange(t *testing.T, c change) {
	r, l := audited(t)
	h := r.Server().Handler()
	before := state(t, r)
	status, dry, text := post(h, c.path, with(c.body, `"dry_run":true`))
	count, counted := dry["count"].(float64)
	if status != 200 || dry["dry_run"] != true || !counted {
		t.Fatalf("a dry run: %d %s", status, text)
	}
	if got := lines(t, l); len(got) != 0 {
		t.Errorf("a dry run has left %+v", got)
	}
	status, other, text := post(h, c.path, with(c.body, `"expect":1000`))
	if status != 409 || other["count"] != count {
		t.Errorf("another count was expected: %d %s", status, text)
	}
	if after := state(t, r); after != before {
		t.Errorf("what was only counted has changed:\n%s\n%s", before, after)
	}
	if status, _, text = post(h, c.path, with(c.body, fmt.Sprintf(`"expect":%v`, count))); status != 200 {
		t.Fatalf("the change: %d %s", status, text)
	}
	if status, _, text = post(h, c.path+"?misspelt=1", c.body); status != 400 {
		t.Errorf("an unknown parameter: %d %s", status, text)
	}
	if status, _, text = post(h, c.path, `{"no`); status != 400 {
		t.Errorf("a torn request: %d %s", status, text)
	}
	got := lines(t, l)
	want := []audit.Outcome{audit.Refused, audit.Refused, audit.Done, audit.Refused} // newest first
	if len(got) != len(want) {
		t.Fatalf("%d lines: %+v", len(got), got)
	}
	for i, line := range got {
		if line.Outcome != want[i] || line.Reason != "ticket 4711" || line.Kind != api.BySocket || (line.Error == "") != (want[i] == audit.Done) {
			t.Errorf("line %d: %+v", i, line)
		}
	}
	if done := got[2]; done.Action != c.action || done.Count != int(count) || done.Subject == "" && c.action != "config reload" && c.action != "upgrade finish" {
		t.Errorf("the change is %+v, want action %q, count %v", done, c.action, count)
	}
}

// TestFileChanges: a command that changes a file is on record before it begins and after its end, as one line of whoever
// ran it, and one that was killed is, too.
func TestFileChanges(t *testing.T) {
	r, l := audited(t)
	c := serve(t, r)
	ctx := api.WithReason(t.Context(), "ticket 4711")
	change := api.FileChange{Action: "user remove", FileSubject: api.FileSubject{File: "/etc/mta/users", Names: []string{"ann", "bob"}}}
	begun, err := c.BeginFileChange(ctx, change)
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(t, l); len(got) != 0 {
		t.Errorf("before its end: %+v", got)
	}
	if err := c.EndFileChange(ctx, api.EndedFileChange{Number: begun.Number, Outcome: audit.Done, Count: 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.EndFileChange(ctx, api.EndedFileChange{Number: begun.Number, Outcome: audit.Done}); !api.IsNotFound(err) {
		t.Errorf("ended twice: %v", err)
	}
	got := lines(t, l)
	if len(got) != 1 || got[0].Action != "user remove" || got[0].Subject != "file=/etc/mta/users names=ann,bob" || got[0].Count != 2 || got[0].Reason != "ticket 4711" || got[0].UID == nil {
		t.Errorf("%+v", got)
	}
	if change.FileSubject.String() != got[0].Subject {
		t.Errorf("without a relay it would be about %s", change.FileSubject)
	}
	change.Action = "queue remove"
	if _, err := c.BeginFileChange(ctx, change); err == nil {
		t.Error("a command that is none was put on record")
	}
	l.Close()
	change.Action = "user add"
	if _, err := c.BeginFileChange(ctx, change); err == nil || !strings.Contains(err.Error(), "can't be put on record") {
		t.Errorf("without an audit log: %v", err)
	}
}

// TestAKilledFileChange: the outcome of a command that does not report it within a minute is unknown.
func TestAKilledFileChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, l := audited(t)
		h := r.Server().Handler()
		status, begun, text := post(h, "/v1/actions/begin", `{"action":"key add","file":"/etc/mta/keys","tenant":"acme","names":["shop"]}`)
		if status != 200 {
			t.Fatal(status, text)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := lines(t, l); len(got) != 1 || got[0].Outcome != audit.Unknown || got[0].Subject != "file=/etc/mta/keys tenant=acme names=shop" {
			t.Errorf("%+v", got)
		}
		if status, _, text := post(h, "/v1/actions/end", fmt.Sprintf(`{"number":%v,"outcome":"done"}`, begun["number"])); status != 404 {
			t.Error(status, text)
		}
	})
}

func TestActionsOverTheSocket(t *testing.T) {
	r, _ := audited(t)
	c := serve(t, r)
	ctx := api.WithReason(t.Context(), "postmaster asked us — ticket 4711")
	if _, err := c.Suspend(ctx, api.Suspend{Site: "slow.example", For: api.Age(3600e9)}); err != nil {
		t.Fatal(err)
	}
	if got := r.KnownSites[2].Actions[0].Reason; got != "postmaster asked us — ticket 4711" {
		t.Errorf("the reason of the suspension is %q", got)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Actions(t.Context(), api.ActionQuery{Who: me.Username, Action: "sites"})
	if err != nil || len(p.Actions) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if a := p.Actions[0]; a.Reason != "postmaster asked us — ticket 4711" || a.User != me.Username || a.UID == nil || a.PID == 0 || a.Subject != "site=slow.example for=1h" {
		t.Errorf("%+v", a)
	}
	if p, err := c.Actions(t.Context(), api.ActionQuery{Who: "nobody-else"}); err != nil || len(p.Actions) != 0 || !p.Complete {
		t.Errorf("somebody else: %+v, %v", p, err)
	}
	if _, err := c.Actions(t.Context(), api.ActionQuery{After: "here"}); err == nil || !strings.Contains(err.Error(), "cursor") {
		t.Errorf("a forged cursor: %v", err)
	}
}

// TestReadingIsAudited: what a message says is on record before it leaves.
func TestReadingIsAudited(t *testing.T) {
	r, l := audited(t)
	ctx := api.WithActor(t.Context(), api.Actor{Kind: api.ByConsole, User: "anna", Address: "192.0.2.7"})
	c := api.NewLocalClient(r.Server().Handler())
	id := r.Messages[1].ID
	r.Contents[id] = "Subject: x\r\n\r\n"
	var text bytes.Buffer
	if err := c.Content(ctx, id, &text); err != nil || text.Len() == 0 {
		t.Fatal(err)
	}
	if err := c.Content(ctx, "0000000000000", &text); !api.IsNotFound(err) {
		t.Error(err)
	}
	got := lines(t, l)
	if len(got) != 2 || got[1].Action != "queue content" || got[1].Subject != "id="+id || got[1].User != "anna" || got[1].Address != "192.0.2.7" || got[1].Outcome != audit.Done || got[0].Outcome != audit.Refused {
		t.Errorf("%+v", got)
	}
}

// noDisk is an audit log that can't be written.
type noDisk struct{ *audit.Log }

func (noDisk) Begin(audit.Line) (*audit.Begun, error) { return nil, errors.New("no space left") }
func (noDisk) Add(audit.Line) error                   { return errors.New("no space left") }

// TestNothingWithoutItsLine: what can't be put on record is neither changed nor shown.
func TestNothingWithoutItsLine(t *testing.T) {
	r, l := audited(t)
	r.Audit = noDisk{l}
	r.Contents[r.Messages[1].ID] = "Subject: x\r\n\r\n"
	c := serve(t, r)
	before := state(t, r)
	e := (*api.Error)(nil)
	_, err := c.Change(t.Context(), api.Change{Action: api.Remove, All: true})
	if !errors.As(err, &e) || e.Status != 503 || e.Hint == "" || state(t, r) != before {
		t.Errorf("a change without a line: %v", err)
	}
	var text bytes.Buffer
	err = c.Content(t.Context(), r.Messages[1].ID, &text)
	if !errors.As(err, &e) || e.Status != 503 || text.Len() != 0 {
		t.Errorf("contents without a line: %v, %q", err, text.String())
	}
	err = c.Trace(t.Context(), api.TraceQuery{}, nil, func(api.TraceLine) error { return nil })
	if !errors.As(err, &e) || e.Status != 503 {
		t.Errorf("a trace without a line: %v", err)
	}
	if done, err := c.Change(t.Context(), api.Change{Action: api.Remove, All: true, Intent: api.Intent{DryRun: true}}); err != nil || done.Count == 0 {
		t.Errorf("a dry run needs no line: %+v, %v", done, err)
	}
}

func TestReasons(t *testing.T) {
	r, l := audited(t)
	h := r.Server().Handler()
	for reason, want := range map[string]int{"a%20b": 200, "": 200, "%zz": 400, "%ff": 400, "line%0aline": 400, strings.Repeat("x", api.MaxReason): 200, strings.Repeat("x", api.MaxReason+1): 400} {
		request := httptest.NewRequest("POST", "/v1/config/reload", nil)
		request.Header.Set("Mta-Reason", reason)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request)
		if w.Code != want {
			t.Errorf("%.20q: %d %s", reason, w.Code, w.Body)
		}
	}
	if got := lines(t, l); len(got) != 7 {
		t.Errorf("%d lines of 7", len(got))
	}
}

func TestSubjects(t *testing.T) {
	r, l := audited(t)
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf(`{"address":"a%d@box.example"}`, i))
	}
	for body, want := range map[string]string{
		`{"suppressions":[` + strings.Join(many, ",") + `]}`:                               `suppressions="address=a0@box.example,address=a1@box.example,address=a2@box.example,address=a3@box.example,address=a4@box.example,address=a5@box.example,address=a6@box.example,address=a7@box.example,address=a8@box.example,address=a9@box.example and 90 more"`,
		`{"suppressions":[{"address":"x@box.example","tenant":"a \u202e\"b"}],"expect":1}`: `suppressions="address=x@box.example tenant=\"a \\u202e\\\"b\""`,
	} {
		post(r.Server().Handler(), "/v1/suppressions/add", body)
		if got := lines(t, l)[0].Subject; got != want {
			t.Errorf("%.40s: subject %s, want %s", body, got, want)
		}
	}
}

// TestWhatFollowsARequestIsRefused: a line of the audit is made from the same text, which ends with the object.
func TestWhatFollowsARequestIsRefused(t *testing.T) {
	r, _ := audited(t)
	h := r.Server().Handler()
	before := state(t, r)
	for _, after := range []string{"}", "]", "{}", "x", `"`} {
		if status, _, text := post(h, "/v1/messages/change", `{"action":"hold","all":true}`+after); status != http.StatusBadRequest {
			t.Errorf("with %q behind it: %d %s", after, status, text)
		}
	}
	if state(t, r) != before {
		t.Error("something has changed")
	}
}
