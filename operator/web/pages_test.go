package web

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

func TestLogShowsTheNewest(t *testing.T) {
	c := newSample(t)
	b := c.as("vera")
	id := c.relay.IDs[1]
	b.get("/log").wants(t, 200, "anna@grey.example", "450 4.7.1 greylisted", `data-stream="/log/follow"`)
	b.get("/log?type=TransientFailure&within=2d").wants(t, 200, "anna@grey.example", `data-stream="/log/follow?type=TransientFailure"`)
	b.get("/log?id="+id).wants(t, 200, "/messages/"+id)
	b.get("/log?recipient=nobody@x.example").wants(t, 200, "No record fits")
	b.get("/log/counts?by=reply&type=Bounce,Expiration,OOB").wants(t, 200, "InvalidRecipient", "550 5.1.1", "100.0%", "1 record")
	b.get("/log/counts?within=2d&by=class").wants(t, 200, "Greylisted")
	b.get("/log/counts?by=weather").wants(t, 400, "By")
	p, err := api.NewLocalClient(c.relay).NewestRecords(t.Context(), api.LogQuery{}, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	b.get("/log?after="+url.QueryEscape(p.Next)).wants(t, 200, "The newest records")
	b.get("/log?after=x").wants(t, 200, "The place in the list is no longer valid")
	b.get("/log?until=soon").wants(t, 400, "Until")
	b.get("/log?within=soon").wants(t, 400, "Within")
	d := b.get("/log/export?id=" + id)
	if !strings.HasPrefix(d.Header.Get("Content-Disposition"), "attachment") || strings.Count(d.text, "\n") != 9 || !strings.Contains(d.text, `"type":"Reception"`) {
		t.Errorf("the export: %s %v\n%s", d.Status, d.Header, d.text)
	}
	if d := b.get("/log/export?id=" + c.relay.IDs[0] + "&type=Bounce"); d.StatusCode != 200 || d.text != "" {
		t.Errorf("an export of nothing: %s %q", d.Status, d.text)
	}
}

// follow opens a stream as a browser does, and returns its lines until the context ends.
func (b *browser) follow(ctx context.Context, path string) (<-chan string, func()) {
	srv := httptest.NewServer(b.c.Handler())
	r, err := http.NewRequestWithContext(ctx, "GET", srv.URL+path, nil)
	if err != nil {
		b.c.t.Fatal(err)
	}
	r.Host = "console.example"
	for _, k := range b.cookies {
		r.AddCookie(k)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		b.c.t.Fatal(err)
	}
	if a.StatusCode != 200 || a.Header.Get("Content-Type") != "text/event-stream" {
		b.c.t.Errorf("%s: %s, %v", path, a.Status, a.Header)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(a.Body); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines, func() { a.Body.Close(); srv.Close() }
}

// coming is an answer that goes on: lines, and then nothing more until nobody reads them.
func coming(lines ...any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, l := range lines {
			_ = json.NewEncoder(w).Encode(l)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// TestStreams: what comes is sent as it comes, as text whatever a stranger wrote.
func TestStreams(t *testing.T) {
	c := newConsole(t, nil)
	const evil = "<script>alert(1)</script>\u202e\x1b[31m\revent: failure\rdata: gone\r\r"
	c.answers["GET /v1/trace"] = coming(api.TraceLine{Session: "1", Text: "220 mx1.big.example ESMTP"}, api.TraceLine{Session: "1", Text: evil})
	c.answers["GET /v1/log"] = coming(json.RawMessage(`{"type":"Bounce","id":"1m7yrrt800000","recipient":"eve@x.example",` +
		`"event_time":"2026-11-21T12:00:01Z","response":{"code":550,"content":"<script>alert(2)</script>"}}`))
	for path, want := range map[string]string{"/trace/follow?site=big.example": "220 mx1.big.example ESMTP", "/log/follow": "eve@x.example"} {
		ctx, cancel := context.WithCancel(t.Context())
		lines, end := c.as("vera").follow(ctx, path)
		found, all := false, ""
		for line := range lines {
			all += line + "\n"
			if found = found || strings.Contains(line, want); found && strings.Contains(all, "&lt;script&gt;") {
				break
			}
		}
		if !found || strings.Contains(all, "<script>") || strings.ContainsAny(all, "\x1b\u202e\r") {
			t.Errorf("%s sends\n%s", path, all)
		}
		cancel()
		end()
	}
}

func TestReroutingByRuleIsForAdmins(t *testing.T) {
	c := newSample(t)
	rule := []string{"action", "reroute", "domain", "big.example", "host", "mx1.slow.example"}
	c.as("otto").post("/rules/add", rule...).wants(t, 403, "for admins")
	c.as("ada").post("/rules/pause", rule...).wants(t, 400, "pause suspends mail")
	c.as("ada").confirm("/rules/add", rule...).wants(t, 200, "Done")
}

func TestTraceOfContentIsForAdmins(t *testing.T) {
	c := newConsole(t, nil)
	c.as("otto").get("/trace").wants(t, 200, "would stand here")
	c.as("otto").get("/trace?site=big.example&watch=true").wants(t, 200, `data-stream="/trace/follow?site=big.example"`)
	c.as("otto").get("/trace?content=true").wants(t, 403, "for admins")
	c.as("otto").get("/trace/follow?content=true").wants(t, 403, "for admins")
	c.as("ada").get("/trace?content=true&watch=true").wants(t, 200, `data-stream="/trace/follow?content=true"`)
	c.as("ada").get("/trace?client=nonsense").wants(t, 400, "Client")
	c.as("ada").get("/trace?client=192.0.2.0/24&site=x").wants(t, 400, "sessions of clients")
}

func TestSuppression(t *testing.T) {
	c := newSample(t)
	viewer := c.as("vera").get("/suppression")
	viewer.wants(t, 200, "Export as JSON lines")
	if strings.Contains(viewer.text, `action="/suppression/remove"`) {
		t.Error("a viewer can remove entries")
	}
	b := c.as("otto")
	a := b.post("/suppression/add", "addresses", "eve@x.example\nmallory@x.example", "note", "asked us", "back", "/suppression")
	a.wants(t, 200, "2 addresses", "eve@x.example")
	b.post("/suppression/add", "addresses", "eve@x.example\nmallory@x.example", "note", "asked us", "confirm", "yes", "expect", "2").wants(t, 200, "Done: 2 addresses")
	b.get("/suppression?domain=x.example").wants(t, 200, "eve@x.example", "asked us")
	b.get("/suppression?address=eve@x.example").wants(t, 200, "These entries keep mail from eve@x.example")
	b.get("/suppression?address=free@x.example").wants(t, 200, "No entry keeps mail from")
	b.post("/suppression/add", "addresses", " \n").wants(t, 400, "No address is given")
	d := b.get("/suppression/export?domain=x.example")
	if n := strings.Count(d.text, "\n"); n != 2 || !strings.HasPrefix(d.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%d lines, %v:\n%s", n, d.Header, d.text)
	}
	b.post("/suppression/remove", "addresses", "eve@x.example", "tenant", "-", "confirm", "yes", "expect", "1").wants(t, 200, "Done: 1 entry")
	b.get("/suppression/pending").wants(t, 200, "Set aside")
}

func TestConfigurationAndReload(t *testing.T) {
	c := newSample(t)
	c.configure(`tier = 2`, `tier = 3`, `http { address = "" }`, `http { address = "127.0.0.1:0" }`)
	viewer := c.as("vera").get("/configuration")
	viewer.wants(t, 200, `= &#34;relay.example&#34;`, "tier = 3 (was 2)", "wait for a restart")
	if strings.Contains(viewer.text, "/configuration/reload") {
		t.Error("a viewer can reload")
	}
	c.as("ada").confirm("/configuration/reload").wants(t, 200, "Done", "tier = 3 (was 2)")
	c.configure("hostname", "hostnam")
	c.clock.add(time.Minute)
	c.as("vera").get("/configuration").wants(t, 200, "can't be loaded", "mta.conf:2:3: unknown setting")
}

func TestActionsAreForAdmins(t *testing.T) {
	c := newSample(t)
	c.as("otto").post("/suppression/add", "addresses", "eve@x.example", "confirm", "yes", "expect", "1", "reason", "she asked").wants(t, 200, "Done")
	c.as("ada").get("/actions").wants(t, 200, "suppress add", "she asked", "otto", "done")
	c.as("ada").get("/actions?who="+url.QueryEscape("nobody")).wants(t, 200, "No action fits")
	c.as("otto").get("/actions").wants(t, 403)
}

func TestHelp(t *testing.T) {
	newConsole(t, nil).as("vera").get("/help").wants(t, 200, "warm-up", "deferred")
}

// TestStreamsEndWithTheSession: whoever loses a role sees nothing more, not even of what was being followed.
func TestStreamsEndWithTheSession(t *testing.T) {
	for name, end := range map[string]func(c *console, b *browser){
		"the user is removed": func(c *console, _ *browser) { c.logins.change("vera", Identity{}) },
		"the role is another": func(c *console, _ *browser) { c.logins.change("vera", Identity{User: "vera", Role: Operator}) },
		"logged out":          func(_ *console, b *browser) { b.post("/logout") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newConsole(t, nil)
			ended := make(chan struct{})
			c.answers["GET /v1/log"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-ended
				_, _ = io.WriteString(w, `{"type":"Bounce","recipient":"secret@x.example","event_time":"2026-11-21T12:00:01Z"}`+"\n")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			b := c.as("vera")
			lines, stop := b.follow(t.Context(), "/log/follow")
			defer stop()
			<-lines // it has begun
			end(c, b)
			close(ended)
			all := ""
			for line := range lines {
				all += line + "\n"
			}
			if strings.Contains(all, "secret") || !strings.Contains(all, "The session has ended") {
				t.Errorf("the stream goes on:\n%s", all)
			}
		})
	}
}

// TestSearch: each kind of text leads to its page; a domain whose mail has no site yet, to the queue.
func TestSearch(t *testing.T) {
	b := newSample(t).as("vera")
	for q, want := range map[string]string{
		"big.example": "/sites?q=big.example", "192.0.2.1": "/hosts?name=192.0.2.1", "outlook": "/sites?q=outlook",
		"ann@box.example": "/queue?order=newest&recipient=ann%40box.example", "never.example": "/queue?domain=never.example",
	} {
		if a := b.get("/search?q=" + q); a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != want {
			t.Errorf("%s: %s, %s, want %s", q, a.Status, a.Header.Get("Location"), want)
		}
	}
}

// TestTableOfAPlot: a row has the mean of the rates that it stands for, and the newest of other figures.
func TestTableOfAPlot(t *testing.T) {
	values := make([]float64, 30)
	values[28], values[26], values[27] = 10, math.NaN(), 4
	for unit, want := range map[string]string{"/s": "5/s", "": "0"} {
		rows := Plot{Unit: unit, Step: time.Second, Series: []Series{{"x", values}}}.Rows()
		if len(rows) != 15 || rows[0].Values[0] != want {
			t.Errorf("%q: %d rows, %q", unit, len(rows), rows[0].Values)
		}
	}
}
