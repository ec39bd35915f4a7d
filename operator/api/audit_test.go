package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"example.org/mta/operator/audit"
)

// change is a request that changes something in the sample relay.
type change struct {
	path, body string // path as in the table of routes, with names in the place of {x}
	action     string
}

// changes has one for each route; the table is held to it.
func changes(r sample) map[string]change {
	return map[string]change{
		"/v1/drain":                        {"/v1/drain", "", "drain"},
		"/v1/undrain":                      {"/v1/undrain", "", "undrain"},
		"/v1/messages/change":              {"/v1/messages/change", `{"action":"hold","filter":{"domain":"grey.example","tenant":"acme"}}`, "queue hold"},
		"/v1/sites/suspend":                {"/v1/sites/suspend", `{"site":"mx1.slow.example","for":"1h"}`, "sites suspend"},
		"/v1/sites/resume":                 {"/v1/sites/resume", `{"site":"mx.grey.example"}`, "sites resume"},
		"/v1/connections/close":            {"/v1/connections/close", `{"ids":["` + r.connection + `"]}`, "connections close"},
		"/v1/hosts/forget":                 {"/v1/hosts/forget", `{"hosts":["mx1.slow.example"]}`, "hosts forget"},
		"/v1/hosts/suspend":                {"/v1/hosts/suspend", `{"hosts":["mx1.big.example","mx1.slow.example"],"for":"1h"}`, "hosts suspend"},
		"/v1/hosts/resume":                 {"/v1/hosts/resume", `{"hosts":["mx1.big.example"]}`, "hosts resume"},
		"/v1/pools/{name}/weight":          {"/v1/pools/acme/weight", `{"source":"out1","weight":3}`, "pools weight"},
		"/v1/rules/add":                    {"/v1/rules/add", `{"action":"suspend","tenant":"news"}`, "rule add suspend"},
		"/v1/rules/end":                    {"/v1/rules/end", `{"action":"suspend","tenant":"acme"}`, "rule end suspend"},
		"/v1/streams/{name}/pause":         {"/v1/streams/app/pause", "", "streams pause"},
		"/v1/streams/{name}/resume":        {"/v1/streams/idle/resume", "", "streams resume"},
		"/v1/streams/{name}/skip":          {"/v1/streams/app/skip", "", "streams skip"},
		"/v1/streams/{name}/replay":        {"/v1/streams/app/replay", `{"since":"2026-11-21T00:00:00Z"}`, "streams replay"},
		"/v1/streams/{name}/test":          {"/v1/streams/app/test", "", "streams test"},
		"/v1/suppressions/add":             {"/v1/suppressions/add", `{"suppressions":[{"address":"new@box.example"}]}`, "suppress add"},
		"/v1/suppressions/remove":          {"/v1/suppressions/remove", `{"addresses":["gone@big.example"]}`, "suppress remove"},
		"/v1/suppressions/remove-matching": {"/v1/suppressions/remove-matching", `{"domain":"big.example"}`, "suppress remove"},
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
		"/v1/queue/remove-moved":           {"/v1/queue/remove-moved", `{"receipt":[{"node":"relay.example","id":"` + r.IDs[1] + `","recipients":[1]}]}`, "queue remove"},
		"/v1/config/reload":                {"/v1/config/reload", "", "config reload"},
	}
}

// questions are the POST routes that change nothing, but what is on record; and the import, whose request is no JSON:
// see TestMove; and what needs users: see TestUsersOfACluster in mta; and what needs a cluster: see TestDrainOfANode, and TestAClusterAdoptsMail and TestAClusterIsReset in e2e.
var questions = []string{"/v1/cluster/adopt", "/v1/cluster/drain", "/v1/cluster/reset", "/v1/cluster/undrain", "/v1/queue/import", "/v1/users/change", "/v1/console/users/change", "/v1/suppressions/check", "/v1/warmup/simulate", "/v1/actions/begin", "/v1/actions/end"}

// prepared is the sample relay with something for each change to find.
func prepared(t *testing.T) sample {
	t.Helper()
	r := open(t)
	_, err := api.OpAddRule.Call(t.Context(), r.Client, api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{Tenant: "acme"}})
	_, also := api.OpSuspendHosts.Call(t.Context(), r.Client, api.SuspendHosts{Hosts: []string{"mx1.big.example"}, For: api.Age(time.Hour)})
	l, failed := api.OpConnections.Call(t.Context(), r.Client, api.ConnectionFilter{Direction: api.Incoming, Paging: api.Paging{Limit: 1}})
	_, paused := api.OpPauseStream.Call(t.Context(), r.Client, api.Intent{}, "idle")
	if err := errors.Join(err, also, failed, paused); err != nil {
		t.Fatal(err)
	}
	r.connection = l.Connections[0].ID
	r.Do(func() { time.Sleep(time.Second) })
	return r
}

// state gives all that the changes can touch of the sample relay.
func state(t *testing.T, h http.Handler) (all string) {
	l, err := api.OpStreams.Call(t.Context(), api.NewLocalClient(h), api.None{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range l.Streams { // not their failures, which go on
		all += fmt.Sprintln(s.Name, s.At, s.State == "paused")
	}
	warmup, err := api.OpWarmup.Call(t.Context(), api.NewLocalClient(h), api.None{}, "acme-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range warmup.Providers { // not their rates, which move
		all += fmt.Sprintln(p.Provider, p.Complaints)
	}
	pools, err := api.OpPools.Call(t.Context(), api.NewLocalClient(h), api.UnpooledFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pools.Pools { // not their counts, which move
		all += fmt.Sprintln(p.Name, p.Weights)
	}
	for _, part := range []string{"messages", "rules", "suppressions", "suppressions/pending", "keys", "sites", "hosts", "warmup", "connections"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/"+part, nil))
		if w.Code != 200 {
			t.Fatalf("%s: %d %s", part, w.Code, w.Body)
		}
		all += w.Body.String()
	}
	return all
}

// lines gives the audit log from a second after the sample was complete, the newest first.
func lines(t *testing.T, c *api.Client) []audit.Line {
	t.Helper()
	p, err := api.OpActions.Call(t.Context(), c, api.ActionQuery{Since: now.Add(time.Second), Limit: 1000})
	if err != nil || !p.Complete {
		t.Fatalf("complete: %v, %v", p.Complete, err)
	}
	return p.Actions
}

func newAudit(t *testing.T) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func read(t *testing.T, l *audit.Log) []audit.Line {
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
	request = request.WithContext(api.WithActor(request.Context(), api.Actor{Kind: api.BySocket, User: "alice"}))
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
	all := changes(prepared(t))
	for _, route := range api.Routes() {
		if route[0] != "POST" || slices.Contains(questions, route[1]) {
			continue
		}
		_, ok := all[route[1]]
		if !ok {
			t.Errorf("%s has no change in this test", route[1])
			continue
		}
		delete(all, route[1])
		t.Run(strings.Trim(route[1], "/"), func(t *testing.T) { testChange(t, route[1]) })
	}
	for path := range all {
		t.Errorf("%s: there is no such route", path)
	}
}

func testChange(t *testing.T, path string) {
	r := prepared(t)
	c, h := changes(r)[path], r.Outside
	before := state(t, h)
	status, dry, text := post(h, c.path, with(c.body, `"dry_run":true`))
	count, counted := dry["count"].(float64)
	if status != 200 || dry["dry_run"] != true || !counted {
		t.Fatalf("a dry run: %d %s", status, text)
	}
	if got := lines(t, r.Client); len(got) != 0 {
		t.Errorf("a dry run has left %+v", got)
	}
	status, other, text := post(h, c.path, with(c.body, `"expect":1000`))
	if status != 409 || other["count"] != count {
		t.Errorf("another count was expected: %d %s", status, text)
	}
	if after := state(t, h); after != before {
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
	got := lines(t, r.Client)
	want := []audit.Outcome{audit.Refused, audit.Refused, audit.Done, audit.Refused} // newest first
	if len(got) != len(want) {
		t.Fatalf("%d lines: %+v", len(got), got)
	}
	for i, line := range got {
		if line.Outcome != want[i] || line.Reason != "ticket 4711" || line.Kind != api.BySocket || (line.Error == "") != (want[i] == audit.Done) {
			t.Errorf("line %d: %+v", i, line)
		}
	}
	if done := got[2]; done.Action != c.action || done.Count != int(count) || done.Subject == "" && c.body+c.path != path {
		t.Errorf("the change is %+v, want action %q, count %v", done, c.action, count)
	}
}

// TestFileChanges: a command that changes a file is on record before it begins and after its end, as one line of whoever
// ran it, and one that was killed is, too.
func TestFileChanges(t *testing.T) {
	l := newAudit(t)
	c := serve(t, api.Config{Audit: l})
	ctx := api.WithReason(t.Context(), "ticket 4711")
	change := api.FileChange{Action: "user remove", FileSubject: api.FileSubject{File: "/etc/mta/users", Names: []string{"ann", "bob"}}}
	begun, err := api.OpBeginFileChange.Call(ctx, c, change)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, l); len(got) != 0 {
		t.Errorf("before its end: %+v", got)
	}
	if _, err := api.OpEndFileChange.Call(ctx, c, api.EndedFileChange{Number: begun.Number, Outcome: audit.Done, Count: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.OpEndFileChange.Call(ctx, c, api.EndedFileChange{Number: begun.Number, Outcome: audit.Done}); !api.IsNotFound(err) {
		t.Errorf("ended twice: %v", err)
	}
	got := read(t, l)
	if len(got) != 1 || got[0].Action != "user remove" || got[0].Subject != "file=/etc/mta/users names=ann,bob" || got[0].Count != 2 || got[0].Reason != "ticket 4711" || got[0].UID == nil {
		t.Errorf("%+v", got)
	}
	if change.FileSubject.String() != got[0].Subject {
		t.Errorf("without a relay it would be about %s", change.FileSubject)
	}
	change.Action = "queue remove"
	if _, err := api.OpBeginFileChange.Call(ctx, c, change); err == nil {
		t.Error("a command that is none was put on record")
	}
	l.Close()
	change.Action = "user add"
	if _, err := api.OpBeginFileChange.Call(ctx, c, change); err == nil || !strings.Contains(err.Error(), "the audit log can't be written") {
		t.Errorf("without an audit log: %v", err)
	}
}

// TestAKilledFileChange: the outcome of a command that does not report it within a minute is unknown.
func TestAKilledFileChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newAudit(t)
		h := api.NewServer(api.Config{Audit: l}).Handler()
		status, begun, text := post(h, "/v1/actions/begin", `{"action":"key add","file":"/etc/mta/keys","tenant":"acme","names":["shop"]}`)
		if status != 200 {
			t.Fatal(status, text)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := read(t, l); len(got) != 1 || got[0].Outcome != audit.Unknown || got[0].Subject != "file=/etc/mta/keys tenant=acme names=shop" {
			t.Errorf("%+v", got)
		}
		if status, _, text := post(h, "/v1/actions/end", fmt.Sprintf(`{"number":%v,"outcome":"done"}`, begun["number"])); status != 404 {
			t.Error(status, text)
		}
	})
}

func TestActionsOverTheSocket(t *testing.T) {
	var suspended suspensions
	c := serve(t, api.Config{Audit: newAudit(t), Destinations: &suspended})
	ctx := api.WithReason(t.Context(), "postmaster asked us — ticket 4711")
	if _, err := api.OpSuspend.Call(ctx, c, api.Suspend{Site: "slow.example", For: api.Age(3600e9)}); err != nil {
		t.Fatal(err)
	}
	if got := suspended.reason; got != "postmaster asked us — ticket 4711" {
		t.Errorf("the reason of the suspension is %q", got)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	p, err := api.OpActions.Call(t.Context(), c, api.ActionQuery{Who: me.Username, Action: "sites"})
	if err != nil || len(p.Actions) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if a := p.Actions[0]; a.Reason != "postmaster asked us — ticket 4711" || a.User != me.Username || a.UID == nil || a.PID == 0 || a.Subject != "site=slow.example for=1h" {
		t.Errorf("%+v", a)
	}
	if p, err := api.OpActions.Call(t.Context(), c, api.ActionQuery{Who: "nobody-else"}); err != nil || len(p.Actions) != 0 || !p.Complete {
		t.Errorf("somebody else: %+v, %v", p, err)
	}
	if _, err := api.OpActions.Call(t.Context(), c, api.ActionQuery{After: "here"}); err == nil || !strings.Contains(err.Error(), "cursor") {
		t.Errorf("a forged cursor: %v", err)
	}
}

// TestReadingIsAudited: what a message says is on record before it leaves.
func TestReadingIsAudited(t *testing.T) {
	r := open(t)
	ctx := api.WithActor(t.Context(), api.Actor{Kind: api.ByConsole, User: "anna", Address: "192.0.2.7"})
	c, id := r.Client, r.IDs[1]
	var text bytes.Buffer
	if err := api.OpContent.Copy(ctx, c, &text, api.None{}, id); err != nil || text.Len() == 0 {
		t.Fatal(err)
	}
	if err := api.OpContent.Copy(ctx, c, &text, api.None{}, "0000000000000"); !api.IsNotFound(err) {
		t.Error(err)
	}
	p, err := api.OpActions.Call(t.Context(), c, api.ActionQuery{Since: now})
	if err != nil {
		t.Fatal(err)
	}
	got := p.Actions
	if len(got) != 2 || got[1].Action != "queue content" || got[1].Subject != "id="+id || got[1].User != "anna" || got[1].Address != "192.0.2.7" || got[1].Outcome != audit.Done || got[0].Outcome != audit.Refused {
		t.Errorf("%+v", got)
	}
}

// suspensions keeps the reason of the last one.
type suspensions struct {
	api.Destinations
	reason string
}

func (s *suspensions) Suspend(ctx context.Context, _ api.Suspend) (api.Suspended, error) {
	s.reason = api.ReasonOf(ctx)
	return api.Suspended{}, nil
}

// untouched is a queue that fails the test when it is changed.
type untouched struct {
	api.Queue
	t *testing.T
}

func (u untouched) Change(_ context.Context, c api.Change) (done api.Changed, _ error) {
	if done.Count = 1; !c.DryRun {
		u.t.Error("something was changed")
	}
	return done, nil
}

func (u untouched) Content(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("secret")), nil
}

// noDisk is an audit log that can't be written.
type noDisk struct{ *audit.Log }

func (noDisk) Begin(audit.Line) (*audit.Begun, error) { return nil, errors.New("no space left") }
func (noDisk) Add(audit.Line) error                   { return errors.New("no space left") }

// TestNothingWithoutItsLine: what can't be put on record is neither changed nor shown.
func TestNothingWithoutItsLine(t *testing.T) {
	c := serve(t, api.Config{Audit: noDisk{newAudit(t)}, Queue: untouched{t: t}, Tracer: conversation{{Text: "QUIT"}}})
	e := (*api.Error)(nil)
	_, err := api.OpChange.Call(t.Context(), c, api.Change{Action: api.Remove, All: true})
	if !errors.As(err, &e) || e.Status != 503 || e.Hint == "" {
		t.Errorf("a change without a line: %v", err)
	}
	var text bytes.Buffer
	err = api.OpContent.Copy(t.Context(), c, &text, api.None{}, "1m7yrrt800000")
	if !errors.As(err, &e) || e.Status != 503 || text.Len() != 0 {
		t.Errorf("contents without a line: %v, %q", err, text.String())
	}
	err = c.Trace(t.Context(), api.TraceQuery{}, nil, func(api.TraceLine) error { return nil })
	if !errors.As(err, &e) || e.Status != 503 {
		t.Errorf("a trace without a line: %v", err)
	}
	if done, err := api.OpChange.Call(t.Context(), c, api.Change{Action: api.Remove, All: true, Intent: api.Intent{DryRun: true}}); err != nil || done.Count == 0 {
		t.Errorf("a dry run needs no line: %+v, %v", done, err)
	}
}

func TestReasons(t *testing.T) {
	l := newAudit(t)
	h := api.NewServer(api.Config{Audit: l, Relay: relay{reload: func() (api.Reload, error) { return api.Reload{}, nil }}}).Handler()
	for reason, want := range map[string]int{"a%20b": 200, "": 200, "%zz": 400, "%ff": 400, "line%0aline": 400, strings.Repeat("x", api.MaxReason): 200, strings.Repeat("x", api.MaxReason+1): 400} {
		request := httptest.NewRequest("POST", "/v1/config/reload", nil)
		request.Header.Set("Mta-Reason", reason)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request)
		if w.Code != want {
			t.Errorf("%.20q: %d %s", reason, w.Code, w.Body)
		}
	}
	if got := read(t, l); len(got) != 7 {
		t.Errorf("%d lines of 7", len(got))
	}
}

func TestSubjects(t *testing.T) {
	r := open(t)
	r.Do(func() { time.Sleep(time.Second) })
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf(`{"address":"a%d@box.example"}`, i))
	}
	for body, want := range map[string]string{
		`{"suppressions":[` + strings.Join(many, ",") + `]}`:                               `suppressions="address=a0@box.example,address=a1@box.example,address=a2@box.example,address=a3@box.example,address=a4@box.example,address=a5@box.example,address=a6@box.example,address=a7@box.example,address=a8@box.example,address=a9@box.example and 90 more"`,
		`{"suppressions":[{"address":"x@box.example","tenant":"a \u202e\"b"}],"expect":1}`: `suppressions="address=x@box.example tenant=\"a \\u202e\\\"b\""`,
	} {
		post(r.Outside, "/v1/suppressions/add", body)
		if got := lines(t, r.Client)[0].Subject; got != want {
			t.Errorf("%.40s: subject %s, want %s", body, got, want)
		}
	}
}

// TestWhatFollowsARequestIsRefused: a line of the audit is made from the same text, which ends with the object.
func TestWhatFollowsARequestIsRefused(t *testing.T) {
	h := open(t).Outside
	before := state(t, h)
	for _, after := range []string{"}", "]", "{}", "x", `"`} {
		if status, _, text := post(h, "/v1/messages/change", `{"action":"hold","all":true}`+after); status != http.StatusBadRequest {
			t.Errorf("with %q behind it: %d %s", after, status, text)
		}
	}
	if state(t, h) != before {
		t.Error("something has changed")
	}
}
