package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/operator/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListPagesAndFilters(t *testing.T) {
	c := open(t).Client
	all := ids(t, c, api.Filter{}, api.Page{Limit: 1})
	if len(all) != 4 || all[0] >= all[1] {
		t.Fatalf("pages of one give %v", all)
	}
	newest := ids(t, c, api.Filter{}, api.Page{Limit: 3, Order: api.NewestFirst})
	if len(newest) != 4 || newest[0] != all[3] {
		t.Errorf("newest first gives %v of %v", newest, all)
	}
	for _, test := range []struct {
		name   string
		filter api.Filter
		want   []string
	}{
		{"ids", api.Filter{IDs: []string{all[1], all[3]}}, []string{all[1], all[3]}},
		{"domain", api.Filter{Domain: "BIG.example"}, all[2:]},
		{"site", api.Filter{Site: "mx.grey.example"}, all[1:2]},
		{"tenant", api.Filter{Tenant: "acme"}, all[1:2]},
		{"campaign", api.Filter{Campaign: "autumn"}, all[1:2]},
		{"null sender", api.Filter{Sender: "<>"}, all[:1]},
		{"sender", api.Filter{Sender: "root@host.example"}, all[3:]},
		{"utf-8 recipient", api.Filter{Recipient: "боб@почта.example"}, all[1:2]},
		{"state", api.Filter{State: api.StateWaiting}, all[2:]},
		{"older", api.Filter{Older: api.Age(time.Hour)}, all[:2]},
		{"newer", api.Filter{Newer: api.Age(time.Hour)}, all[2:]},
	} {
		got := ids(t, c, test.filter, api.Page{Limit: 100})
		if strings.Join(got, " ") != strings.Join(test.want, " ") {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// ids goes through all pages.
func ids(t *testing.T, c *api.Client, f api.Filter, p api.Page) (all []string) {
	t.Helper()
	for range 20 {
		l, err := api.OpList.Call(context.Background(), c, api.ListQuery{Filter: f, Page: p})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range l.Messages {
			all = append(all, m.ID)
		}
		if p.After = l.Next; p.After == "" {
			return all
		}
	}
	t.Fatal("the pages have no end")
	return nil
}

func TestListLimitsRecipients(t *testing.T) {
	c := open(t).Client
	l, err := api.OpList.Call(context.Background(), c, api.ListQuery{Filter: api.Filter{Campaign: "autumn"}, Page: api.Page{Recipients: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if m := l.Messages[0]; len(m.Recipients) != 2 || m.Matching != 3 || m.Total != 3 {
		t.Errorf("%d shown, %d matching, %d in all; want 2, 3, 3", len(m.Recipients), m.Matching, m.Total)
	}
}

func TestShowAndContent(t *testing.T) {
	c := open(t)
	m, err := api.OpShow.Call(t.Context(), c.Client, api.None{}, strings.ToUpper(c.IDs[1]))
	if err != nil || m.ID != c.IDs[1] || m.Matching != 3 || len(m.Recipients) != 3 || m.Campaign != "autumn" || string(m.Meta) != `{"order":"17"}` {
		t.Errorf("%+v, %v", m, err)
	}
	var content bytes.Buffer
	if err := api.OpContent.Copy(t.Context(), c.Client, &content, api.None{}, c.IDs[3]); err != nil || !strings.HasSuffix(content.String(), "\r\n\r\nthe disk is full\r\n") {
		t.Errorf("content is %q, %v", content.String(), err)
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// none is a queue without a message.
type none struct{ api.Queue }

func (none) Get(_ context.Context, id string) (api.Item, error) {
	return api.Item{}, api.NotFound("what became of it is in the log: mta log --id "+id, "message %s is not in the queue", id)
}

func TestUnknownMessageHasAHint(t *testing.T) {
	c := serve(t, api.Config{Queue: none{}})
	_, err := api.OpShow.Call(context.Background(), c, api.None{}, "0000000000000")
	if !api.IsNotFound(err) || !strings.Contains(api.Hint(err), "mta log") {
		t.Errorf("error %v, hint %q", err, api.Hint(err))
	}
	if api.Down(err) {
		t.Error("an answer means that the relay is up")
	}
}

func TestChange(t *testing.T) {
	c := open(t)
	dry, err := api.OpChange.Call(context.Background(), c.Client, api.Change{Action: api.Hold, Filter: api.Filter{Tenant: "shop"}, Intent: api.Intent{DryRun: true}})
	if err != nil || dry.Recipients != 1 || !dry.DryRun {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	if held := ids(t, c.Client, api.Filter{State: api.StateHeld}, api.Page{}); len(held) != 1 {
		t.Errorf("a dry run has changed something: %v", held)
	}
	if _, err := api.OpChange.Call(context.Background(), c.Client, api.Change{Action: api.Hold, Filter: api.Filter{Tenant: "shop"}}); err != nil {
		t.Fatal(err)
	}
	if held := ids(t, c.Client, api.Filter{State: api.StateHeld}, api.Page{}); len(held) != 2 {
		t.Errorf("held: %v", held)
	}
}

func TestChangeOfEverythingMustBeMeant(t *testing.T) {
	c := open(t)
	_, err := api.OpChange.Call(context.Background(), c.Client, api.Change{Action: api.Remove})
	if err == nil || len(ids(t, c.Client, api.Filter{}, api.Page{})) != 4 {
		t.Fatalf("an empty filter removed everything: %v", err)
	}
	if done, err := api.OpChange.Call(context.Background(), c.Client, api.Change{Action: api.Remove, All: true}); err != nil || done.Recipients != 6 {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestFilterInWords(t *testing.T) {
	if s := (api.Filter{}).String(); s != "everything" {
		t.Errorf("got %q", s)
	}
	f := api.Filter{IDs: []string{"a", "b"}, Sender: "<>", Older: api.Age(time.Hour)}
	if s := f.String(); s != "id=a,b sender=<> older=1h" {
		t.Errorf("got %q", s)
	}
}

func TestSummary(t *testing.T) {
	c := open(t)
	for _, test := range []struct {
		by     api.SummaryBy
		filter api.Filter
		limit  int
		want   string // key:total ... +rows left out = total
	}{
		{api.BySite, api.Filter{}, 0, "(mx1|mx2).big.example:2 mx.grey.example:1 mx.post.example:1 mx.silent.example:1 mx1.slow.example:1 =6"},
		{api.BySite, api.Filter{Tenant: "acme"}, 1, "mx.grey.example:1 +2 =3"},
		{api.ByDomain, api.Filter{}, 2, "big.example:2 grey.example:1 +3 =6"},
		{api.ByTenant, api.Filter{}, 0, "acme:3 :2 shop:1 =6"},
		{api.BySenderDomain, api.Filter{}, 0, "acme.example:4 :1 host.example:1 =6"},
		{api.ByState, api.Filter{}, 2, "deferred:2 waiting:2 +2 =6"},
		{api.ByState, api.Filter{State: api.StateHeld}, 0, "held:1 =1"},
	} {
		s, err := c.WholeSummary(context.Background(), test.by, test.filter, test.limit)
		if err != nil {
			t.Fatalf("by %s: %v", test.by, err)
		}
		if got := summaryText(s); got != test.want || s.By != test.by {
			t.Errorf("by %s: got %q, want %q", test.by, got, test.want)
		}
		sum := 0
		for _, n := range s.Total.Counts {
			sum += n
		}
		if sum != s.Total.Total || len(s.Total.Counts) != len(s.Bounds)+1 || len(s.Bounds) != 9 {
			t.Errorf("by %s: columns %v under %v don't add up to %d", test.by, s.Total.Counts, s.Bounds, s.Total.Total)
		}
	}
}

func summaryText(s api.Summary) string {
	text := ""
	for _, row := range s.Rows {
		text += fmt.Sprintf("%s:%d ", row.Key, row.Total)
	}
	if s.More > 0 {
		text += fmt.Sprintf("+%d ", s.More)
	}
	return text + fmt.Sprintf("=%d", s.Total.Total)
}

func TestLog(t *testing.T) {
	log := records{all: []string{`{"type":"Reception"}`, `{"type":"Bounce"}`}}
	var got []string
	each := func(record []byte) error { got = append(got, string(record)); return nil }
	if err := serve(t, api.Config{Log: log}).Log(t.Context(), api.LogQuery{Last: 2}, each); err != nil || !slices.Equal(got, log.all) {
		t.Errorf("got %q, want %q, %v", got, log.all, err)
	}
	// Damage is reported after all records that are sound, even if there are none.
	log.damage = fmt.Errorf("read: %w", &api.LogDamaged{Text: "mta-1.jsonl.zst is damaged:\nframe 2"})
	for _, log := range []records{log, {damage: log.damage}} {
		c := api.Config{Log: log}
		for _, client := range []*api.Client{serve(t, c), api.NewLocalClient(api.NewServer(c).Handler())} {
			got = nil
			err := client.Log(t.Context(), api.LogQuery{}, each)
			if damaged := (*api.LogDamaged)(nil); !errors.As(err, &damaged) || damaged.Text != "mta-1.jsonl.zst is damaged:?frame 2" || !slices.Equal(got, log.all) {
				t.Errorf("%d records and %v", len(got), err)
			}
		}
	}
}

func TestFollowedLogEndsWithTheServer(t *testing.T) {
	log := records{more: make(chan string)}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := api.Listen(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(api.Config{Log: log})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c := api.NewClient(socket)
	defer c.Close()
	got := make(chan string)
	followed := make(chan error, 1)
	go func() {
		followed <- c.Log(context.Background(), api.LogQuery{Follow: true}, func(record []byte) error {
			got <- string(record)
			return nil
		})
	}()
	log.more <- `{"type":"Bounce"}`
	if got := <-got; got != `{"type":"Bounce"}` {
		t.Errorf("followed %s", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("shutdown waits for who follows the log: %v", err)
	}
	if err := errors.Join(<-followed, <-served); err != nil {
		t.Errorf("following ends with %v", err)
	}
}

func TestFollowerGoes(t *testing.T) {
	c := serve(t, api.Config{Log: records{all: []string{`{"type":"Bounce"}`}}})
	ctx, cancel := context.WithCancel(context.Background())
	err := c.Log(ctx, api.LogQuery{Follow: true}, func([]byte) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReloadAndConfig(t *testing.T) {
	r := relay{reload: func() (api.Reload, error) {
		return api.Reload{Changes: []string{"a = 1 (was 2)"}, Restart: []string{"b"}}, nil
	}}
	c := serve(t, api.Config{Relay: r})
	done, err := api.OpReload.Call(t.Context(), c, api.Intent{})
	if err != nil || len(done.Changes) != 1 || len(done.Restart) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	r.reload = func() (api.Reload, error) { return api.Reload{}, errors.New("mta.conf:1:2: no") }
	c = serve(t, api.Config{Relay: r})
	if _, err := api.OpReload.Call(t.Context(), c, api.Intent{}); err == nil || err.Error() != "mta.conf:1:2: no" {
		t.Errorf("got %v", err)
	}
	if text, err := c.EffectiveConfig(t.Context()); err != nil || text != r.Config() {
		t.Errorf("%q, %v", text, err)
	}
}

func TestStatus(t *testing.T) {
	want := api.Status{
		Version: "v0", Hostname: "relay.example", State: api.Running, Started: now, SMTP: []string{"127.0.0.1:2525"}, HTTP: []string{},
		Alarms: []api.Alarm{{Name: "disk", Since: now}}, Rules: []api.Rule{}, States: map[string]int64{"due": 1},
		Waiting: api.Waiting{Reasons: []api.WaitsFor{}},
	}
	got, err := api.OpStatus.Call(t.Context(), serve(t, api.Config{Relay: relay{state: want}}), api.None{})
	if err != nil || toJSON(t, got) != toJSON(t, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	h := open(t)
	for _, test := range []struct {
		method, url, body string
		status            int
		text              string
	}{
		{"GET", "/v1/messages?domian=a", "", 400, `unknown parameter \"domian\"`},
		{"GET", "/v1/messages?domain=a&domain=b", "", 400, "stands twice"},
		{"GET", "/v1/messages?state=stuck", "", 400, "state: want due"},
		{"GET", "/v1/messages?id=x", "", 400, "want 13 characters"},
		{"GET", "/v1/messages?limit=0", "", 400, "from 1 to 1000"},
		{"GET", "/v1/messages?limit=1001", "", 400, "from 1 to 1000"},
		{"GET", "/v1/messages?older=soon", "", 400, "not an age"},
		{"GET", "/v1/messages?older=2h&newer=1h", "", 400, "nothing is older"},
		{"GET", "/v1/messages?order=random", "", 400, "order: want oldest"},
		{"GET", "/v1/messages?%zz", "", 400, "query"},
		{"GET", "/v1/messages/short", "", 400, "want 13 characters"},
		{"GET", "/v1/messages/0000000000000/content", "", 404, "not in the queue"},
		{"GET", "/v1/summary?by=colour", "", 400, "by: want site"},
		{"GET", "/v1/log?since=yesterday", "", 400, "since: want a time"},
		{"GET", "/v1/log?follow=maybe", "", 400, "follow: want true"},
		{"POST", "/v1/messages/change", `{"action":"explode","all":true}`, 400, "action: want hold"},
		{"POST", "/v1/messages/change", `{"action":"hold"}`, 400, "no message is named"},
		{"POST", "/v1/messages/change", `{"action":"hold","filter":{"domian":"x"}}`, 400, "unknown field"},
		{"POST", "/v1/messages/change", `{"action":"hold","all":true}{}`, 400, "more than one"},
		{"POST", "/v1/messages/change", `{"action":"hold","filter":{"ids":["` + strings.Repeat("x", 1<<20) + `"]}}`, 400, "larger than"},
		{"GET", "/v1/messages/change", "", 400, "want 13 characters"},
		{"GET", "/nowhere", "", 404, "no route for GET /nowhere"},
		{"DELETE", "/v1/status", "", 405, "no route for DELETE"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(test.method, test.url, strings.NewReader(test.body)))
		answer := api.Error{}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Message == "" {
			t.Errorf("%s %s: the answer is no JSON with an error: %q", test.method, test.url, w.Body)
		}
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.text) {
			t.Errorf("%s %s: %d %s, want %d %s", test.method, test.url, w.Code, w.Body, test.status, test.text)
		}
	}
}

// partly is a queue that lacks one of the messages that are named.
type partly struct{ api.Queue }

func (partly) Change(context.Context, api.Change) (api.Changed, error) {
	return api.Changed{Effect: api.Effect{Count: 3}}, api.NotFound("look in the log", "message x is not in the queue")
}

func TestChangeInPartSaysSo(t *testing.T) {
	w := httptest.NewRecorder()
	api.NewServer(api.Config{Queue: partly{}, Events: slog.New(slog.DiscardHandler)}).Handler().ServeHTTP(w,
		httptest.NewRequest("POST", "/v1/messages/change", strings.NewReader(`{"action":"hold","all":true}`)))
	if w.Code != 404 || !strings.Contains(w.Body.String(), "message x is not in the queue; queue hold of 3 others is done") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type noContent struct{ api.Queue }

func (noContent) Content(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(failing{}), nil
}

func TestContentThatCanNotBeReadIsAnError(t *testing.T) {
	w := httptest.NewRecorder()
	api.NewServer(api.Config{Queue: noContent{}}).Handler().ServeHTTP(w,
		httptest.NewRequest("GET", "/v1/messages/1m7yrrt800000/content", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "the disk is gone") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type brokenContent struct{ api.Queue }

func (brokenContent) Content(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(strings.NewReader("half of"), failing{})), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

func TestContentThatBreaksOffIsNotTakenForTheWhole(t *testing.T) {
	s := httptest.NewServer(api.NewServer(api.Config{Queue: brokenContent{}}).Handler())
	defer s.Close()
	answer, err := http.Get(s.URL + "/v1/messages/1m7yrrt800000/content")
	if err != nil {
		return // broken before anything was sent: as good
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("got %q and no error", text)
	}
}

func TestClientSaysThatNoRelayRuns(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	_, err := api.OpStatus.Call(context.Background(), api.NewClient(socket), api.None{})
	if !api.Down(err) || !strings.Contains(api.Hint(err), "mta serve") || !strings.Contains(err.Error(), socket) {
		t.Errorf("no socket: %v, hint %q", err, api.Hint(err))
	}
	leaveSocket(t, socket)
	_, err = api.OpStatus.Call(context.Background(), api.NewClient(socket), api.None{})
	if !api.Down(err) || !strings.Contains(api.Hint(err), "mta serve") {
		t.Errorf("dead socket: %v, hint %q", err, api.Hint(err))
	}
}

// leaveSocket makes a socket that nobody listens on, as a killed relay does.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestListenReplacesOnlyWhatWasLeftBehind(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	leaveSocket(t, stale)
	l, err := api.Listen(stale, 0o660)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	defer l.Close()
	if info, err := os.Stat(stale); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	go func() { // the probe of the second Listen
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	}()
	if _, err := api.Listen(stale, 0o660); err == nil || !strings.Contains(err.Error(), "another relay") {
		t.Errorf("a socket in use: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(file, 0o660); err == nil {
		t.Error("a file was replaced by a socket")
	}
	if text, _ := os.ReadFile(file); string(text) != "precious" {
		t.Error("a file was overwritten")
	}
	if _, err := api.Listen(filepath.Join(dir, strings.Repeat("x", 120)), 0o660); err == nil || !strings.Contains(err.Error(), "107") {
		t.Errorf("a path that is too long: %v", err)
	}
}

func TestNewestRecords(t *testing.T) {
	c := open(t)
	var got []string
	for after, pages := "", 0; pages == 0 || after != ""; pages++ {
		p, err := c.NewestRecords(context.Background(), api.LogQuery{}, after, 2)
		if err != nil || len(p.Records) > 2 || p.Complete != (p.Next == "") {
			t.Fatalf("%+v, %v", p, err)
		}
		for _, record := range p.Records {
			got = append(got, string(record))
		}
		after = p.Next
	}
	var want []string // the same octets
	if err := c.Log(t.Context(), api.LogQuery{}, func(record []byte) error {
		want = append(want, string(record))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if slices.Reverse(want); len(want) < 5 || !slices.Equal(got, want) || !strings.Contains(strings.Join(want, ""), "<") {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, url := range []string{"/v1/log?order=newest&follow=true", "/v1/log?order=newest&last=3", "/v1/log?limit=3", "/v1/log?after=x", "/v1/log?order=newest&after=x", "/v1/log?order=newest&limit=1001", "/v1/log?order=next", "/v1/log?order=following&follow=true", "/v1/log?order=following&last=3", "/v1/log?order=following&after=x"} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest("GET", url, nil))
		if w.Code != 400 {
			t.Errorf("%s: %d %s", url, w.Code, w.Body)
		}
	}
}
