package api_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
)

// TestMove: what is exported is taken once, both are on record, and what is removed is what was taken. Archives and
// answers pass the server as they are, whatever their size.
func TestMove(t *testing.T) {
	c, to := open(t), openWith(t, `nodeid = "other"`)
	for _, r := range []sample{c, to} {
		r.Do(func() { time.Sleep(time.Second) })
	}
	c.Do(func() {
		c.Submit("shop@acme.example", "Subject: x\r\n\r\n"+strings.Repeat("0123456789\r\n", 3<<20/12), "erin@big.example")
	})
	if _, err := api.OpChange.Call(t.Context(), c.Client, api.Change{Action: api.Hold, All: true}); err != nil {
		t.Fatal(err)
	}
	c.Do(func() { time.Sleep(2 * time.Hour) }) // until what is active is held, too
	var archive bytes.Buffer
	if err := api.OpExport.Copy(t.Context(), c.Client, &archive, api.Filter{}); err != nil || archive.Len() < 3<<20 {
		t.Fatal(archive.Len(), err)
	}
	dry, err := to.ImportQueue(t.Context(), bytes.NewReader(archive.Bytes()), api.ImportOptions{DryRun: true})
	if err != nil || !dry.DryRun || dry.Recipients == 0 || len(dry.Receipt) != 0 || len(dry.Refused) != 0 {
		t.Fatalf("%+v, %v", dry, err)
	}
	ctx := api.WithReason(t.Context(), "ticket 4711")
	done, err := to.ImportQueue(ctx, bytes.NewReader(archive.Bytes()), api.ImportOptions{Hold: true})
	if err != nil || done.Recipients != dry.Recipients || done.Count != done.Recipients || done.There != 0 || len(done.Receipt) != done.Messages {
		t.Fatalf("%+v, %v", done, err)
	}
	again, err := to.ImportQueue(ctx, bytes.NewReader(archive.Bytes()), api.ImportOptions{})
	if err != nil || again.Recipients != 0 || again.There != done.Recipients || len(again.Receipt) != len(done.Receipt) {
		t.Fatalf("%+v, %v", again, err)
	}
	removed, err := api.OpRemoveMoved.Call(ctx, c.Client, api.RemoveMoved{Receipt: done.Receipt})
	if err != nil || removed.Recipients != done.Recipients || removed.Gone != 0 {
		t.Fatalf("%+v, %v", removed, err)
	}
	if left := ids(t, c.Client, api.Filter{}, api.Page{}); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
	got := append(lines(t, c.Client), lines(t, to.Client)...)
	want := []audit.Line{ // the newest first, of each relay
		{Action: "queue remove", Count: done.Recipients}, {Action: "queue export"}, {Action: "queue hold", Count: done.Recipients - 1}, // one was
		{Action: "queue import"}, {Action: "queue import", Count: done.Recipients, Subject: "hold=true"},
	}
	for i, w := range want {
		if len(got) != len(want) || got[i].Action != w.Action || got[i].Count != w.Count || w.Subject != "" && got[i].Subject != w.Subject || got[i].Outcome != audit.Done {
			t.Fatalf("%+v\nwant %+v", got, want)
		}
	}
}

// TestImportThatStops: what was taken before the archive turned out to be damaged is reported with the reason.
func TestImportThatStops(t *testing.T) {
	c, to := open(t), openWith(t, `nodeid = "other"`)
	for _, r := range []sample{c, to} {
		r.Do(func() { time.Sleep(time.Second) })
	}
	if _, err := api.OpChange.Call(t.Context(), c.Client, api.Change{Action: api.Hold, All: true}); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := api.OpExport.Copy(t.Context(), c.Client, &archive, api.Filter{}); err != nil {
		t.Fatal(err)
	}
	for cut, want := range map[int]int{archive.Len() - 2500: 1, 0: 0} {
		done, err := to.ImportQueue(t.Context(), bytes.NewReader(archive.Bytes()[:cut]), api.ImportOptions{})
		e := (*api.Error)(nil)
		if !errors.As(err, &e) || !strings.Contains(e.Message, "archive") || e.Hint == "" || len(done.Receipt) < want {
			t.Errorf("cut after %d octets: %+v, %v", cut, done, err)
		}
	}
	if got := lines(t, to.Client); len(got) != 2 || got[0].Outcome == audit.Done || got[0].Error == "" {
		t.Errorf("%+v", got)
	}
}

func TestMoveRefusals(t *testing.T) {
	r := open(t)
	h := r.Outside
	for body, want := range map[string]string{
		`{"receipt":[{"node":"other","id":"x","recipients":[0]}]}`:             "node other",
		`{"receipt":[{"node":"relay.example","id":"x","recipients":[2,1]}]}`:   "ascending",
		`{"receipt":[{"node":"relay.example","id":"x","recipients":[-1]}]}`:    "ascending",
		`{"receipt":[{"node":"relay.example","id":"x","recipients":[70000]}]}`: "ascending",
		`{"receipt":[{"node":"relay.example","id":"x","recipients":[]}]}`:      "ascending",

		`{"receipt":[{"node":"relay.example","id":"x","recipients":[0],"to":"a\nb"}]}`:                                         "one line",
		`{"receipt":[{"node":"relay.example","id":"x","recipients":[0],"to":"a","as":["` + strings.Repeat("x", 2000) + `"]}]}`: "one line",
	} {
		if status, _, text := post(h, "/v1/queue/remove-moved", body); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, _, text := post(h, "/v1/queue/import?hold=true&release=true", ""); status != http.StatusBadRequest || !strings.Contains(text, "exclude") {
		t.Errorf("%d %s", status, text)
	}
	if err := api.OpExport.Copy(t.Context(), r.Client, &bytes.Buffer{}, api.Filter{State: "odd"}); err == nil {
		t.Error("a state that is none")
	}
}
