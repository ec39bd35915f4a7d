package web

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

// wants demands parts of an answer with a status.
func (a answer) wants(t *testing.T, code int, parts ...string) {
	t.Helper()
	if a.StatusCode != code {
		t.Errorf("%s, want %d", a.Status, code)
	}
	for _, p := range parts {
		if !strings.Contains(a.text, p) {
			t.Errorf("the page lacks %q:\n%s", p, a.text)
		}
	}
}

func TestQueueShowsWhatFits(t *testing.T) {
	b := newSample(t).as("vera")
	b.get("/queue").wants(t, 200, "anna@grey.example", "450 4.7.1 greylisted", "carol@big.example", "waits for (mx1|mx2).big.example")
	a := b.get("/queue?tenant=acme&state=held&order=newest")
	a.wants(t, 200, "боб@почта.example", "<option selected>held</option>")
	if strings.Contains(a.text, "billing@slow.example") {
		t.Error("a message of nobody's is among those of acme")
	}
	b.get("/queue?tenant=nobody").wants(t, 200, "No message in the queue fits the filter.")
	b.get("/queue?older=soon").wants(t, 400, "older")
	b.get("/queue?after=nowhere").wants(t, 200, "The place in the list is no longer valid")
	b.get("/queue/summary?by=tenant").wants(t, 200, `href="/queue?tenant=acme"`)
	b.get("/queue/summary?by=moon").wants(t, 400, "no summary by")
}

func TestViewersHaveNoButtons(t *testing.T) {
	a := newSample(t).as("vera").get("/queue")
	for _, part := range []string{"formaction", `type="checkbox"`} {
		if strings.Contains(a.text, part) {
			t.Errorf("the page of a viewer has %s", part)
		}
	}
}

func TestChangesOfTheQueue(t *testing.T) {
	c := newSample(t)
	b := c.as("otto")
	id := c.relay.IDs[1]
	for _, tc := range []struct {
		path string
		want api.Action
	}{{"/queue/hold", api.Hold}, {"/queue/release", api.Release}, {"/queue/retry", api.Retry}, {"/queue/bounce", api.Bounce}, {"/queue/remove", api.Remove}} {
		t.Run(tc.path, func(t *testing.T) {
			a := b.post(tc.path, "id", id, "back", "/queue?tenant=acme")
			a.wants(t, 200, id)
			if last := c.changes[len(c.changes)-1]; last.Action != tc.want || !last.DryRun || last.Filter.IDs[0] != id {
				t.Fatalf("the relay was asked for %+v", last)
			}
			if strings.Contains(a.text, "there is nothing to do") {
				return // by an action before
			}
			expect := between(a.text, `name="expect" value="`, `"`)
			b.post(tc.path, "id", id, "confirm", "yes", "expect", expect, "reason", "a test", "back", "/queue?tenant=acme").wants(t, 200, "Done: "+expect, `href="/queue?tenant=acme"`)
			if last := c.changes[len(c.changes)-1]; last.DryRun || last.Action != tc.want || last.Expect == nil || strconv.Itoa(*last.Expect) != expect {
				t.Errorf("after the confirmation the relay was asked for %+v", last)
			}
		})
	}
}

// TestRerouteAsksForTheWay: the form comes before the count, and the mail goes the way that was confirmed.
func TestRerouteAsksForTheWay(t *testing.T) {
	c := newSample(t)
	b := c.as("otto")
	id := c.relay.IDs[1]
	b.get("/messages/"+id).wants(t, 200, `formaction="/queue/reroute"`)
	b.get("/queue").wants(t, 200, `formaction="/queue/reroute"`)
	b.post("/queue/reroute", "id", id, "back", "/queue").wants(t, 200, `name="id" value="`+id, `<option value="default">`, `href="/queue"`)
	b.post("/queue/reroute").wants(t, 400, "No message is ticked")
	if n := len(c.changes); n != 0 {
		t.Fatalf("the form has asked the relay for %d changes", n)
	}
	c.answers["POST /v1/messages/change"] = api.Changed{Effect: api.Effect{Count: 3}, Recipients: 3} // whatever is configured
	for _, way := range []struct {
		form []string
		want api.Change
	}{
		{[]string{"pool", "default", "route", "", "id", id}, api.Change{Reroutes: api.Reroutes{Pool: "default"}}},
		{[]string{"pool", "", "route", "smart.example", "id", id}, api.Change{Reroutes: api.Reroutes{Route: "smart.example"}}},
		{[]string{"pool", "", "route", "", "own", "true", "id", id}, api.Change{Own: true}},
	} {
		b.confirm("/queue/reroute", way.form...).wants(t, 200, "Done: 3 recipients")
		if last := c.changes[len(c.changes)-1]; last.DryRun || last.Action != api.Reroute || last.Reroutes != way.want.Reroutes || last.Own != way.want.Own || len(last.Filter.IDs) != 1 {
			t.Errorf("%v: the relay was asked for %+v", way.form, last)
		}
	}
	c.as("vera").post("/queue/reroute", "id", id).wants(t, 403)
}

func TestChangedCountAsksAgain(t *testing.T) {
	c := newSample(t)
	b := c.as("otto")
	b.post("/queue/remove", "all", "true", "confirm", "yes", "expect", "99999").wants(t, 200, "The count has changed", "it was 99,999")
	for _, change := range c.changes {
		if !change.DryRun {
			t.Errorf("nobody has confirmed %+v", change)
		}
	}
}

func TestNothingTickedIsNotEverything(t *testing.T) {
	c := newConsole(t, nil)
	c.as("otto").post("/queue/remove").wants(t, 400, "No message is ticked")
	if n := len(c.changes); n != 0 {
		t.Errorf("the relay was asked for %d changes", n)
	}
}

func TestMessage(t *testing.T) {
	c := newSample(t)
	id := c.relay.IDs[1]
	b := c.as("otto")
	b.get("/messages/"+id).wants(t, 200, "anna@grey.example", "3 in the queue, of 3", "TransientFailure", "450 4.7.1 greylisted, come back in five minutes", "mx.grey.example")
	b.get("/messages/zzzzzzzzzzzzz").wants(t, 400)
	c.answers["GET /v1/messages/"+id] = api.NotFound("", "message %s is not in the queue", id)
	c.clock.add(time.Minute)
	b.get("/messages/"+id).wants(t, 200, "Nothing of message", "TransientFailure")
	c.answers["GET /v1/log"] = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) // no record
	c.clock.add(time.Minute)
	b.get("/messages/"+id).wants(t, 404, "no record of it")
}

func TestContentIsForAdminsAndIsText(t *testing.T) {
	c := newConsole(t, nil)
	id := "1m7yzmdk00000"
	text := "Subject: x\r\nContent-Type: text/html\r\n\r\n<script>alert(1)</script>\u202egnp.exe\x1b[2J" + strings.Repeat("a", maxShownContent)
	c.answers["GET /v1/messages/"+id+"/content"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	a := c.as("ada").get("/messages/" + id + "/content")
	a.wants(t, 200, "&lt;script&gt;alert(1)", `\u202egnp.exe\u001b[2J`, "The rest is left out")
	if strings.Contains(a.text, "<script>alert") {
		t.Error("a message's script is in the page")
	}
	d := c.as("ada").get("/messages/" + id + "/download")
	if d.text != text || !strings.HasPrefix(d.Header.Get("Content-Disposition"), "attachment") || d.Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("the download: %s, %v", d.Status, d.Header)
	}
	for _, path := range []string{"content", "download"} {
		if a := c.as("otto").get("/messages/" + id + "/" + path); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s for an operator: %s", path, a.Status)
		}
	}
}

// TestStrangersTextInTheQueue: addresses, replies and names from elsewhere are text in all pages of the queue.
func TestStrangersTextInTheQueue(t *testing.T) {
	c := newConsole(t, nil)
	evil := `"><script>alert(1)</script>{{.}}` + "\u202e\x1b[31m"
	m := api.Item{
		ID: "1m7yrrt800000", Sender: evil + "@x.example", Campaign: evil, HeloName: evil, Matching: 1, Total: 1,
		Recipients: []api.RecipientStatus{{Address: evil + "@y.example", Site: evil, State: api.StateDeferred, Reply: &api.Reply{Code: 450, Text: evil}}},
	}
	c.answers["GET /v1/messages"], c.answers["GET /v1/messages/"+m.ID] = api.List{Messages: []api.Item{m}}, m
	c.answers["GET /v1/summary"] = api.Summary{By: api.ByCampaign, Rows: []api.SummaryRow{{Key: evil, Total: 1, Counts: []int{1}}}, Total: api.SummaryRow{Total: 1, Counts: []int{1}}}
	b := c.as("otto")
	for _, path := range []string{"/queue", "/queue/summary?by=campaign", "/queue/summary", "/messages/" + m.ID} {
		a := b.get(path)
		if a.StatusCode != 200 || strings.Contains(a.text, "<script>alert") || strings.ContainsAny(a.text, "\x1b\u202e") {
			t.Errorf("%s: %s\n%s", path, a.Status, a.text)
		}
	}
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	part, _, _ := strings.Cut(rest, to)
	return part
}
