package mta

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/exported"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/submission/intake"
)

// move moves what the relay has queued to another one, as the commands do.
func (w *world) move(to *world) {
	w.t.Helper()
	if _, err := w.queue.Change(queue.Selector{All: true}, queue.Hold, false); err != nil {
		w.t.Fatal(err)
	}
	done := to.imported(w.exported(api.Filter{State: api.StateHeld}), api.ImportOptions{Release: true})
	if len(done.Refused) > 0 {
		w.t.Fatalf("%+v", done)
	}
	if _, err := w.api.Moves.RemoveMoved(w.t.Context(), api.RemoveMoved{Receipt: done.Receipt}); err != nil {
		w.t.Fatal(err)
	}
	if left := w.queue.Stats().Queued; left != 0 {
		w.t.Fatalf("%d recipients have not moved", left)
	}
}

// TestMovedMailIsNotRemoved: neither the log, and so hooks, nor tenants hear that mail was removed which another relay has,
// but where it went, under which id. Cancelled at the old relay by whatever name, it says so; at the new one it is cancelled
// by its old id, too, and all its records have that.
func TestMovedMailIsNotRemoved(t *testing.T) {
	named := func(node string) func(*config.Config) { return func(c *config.Config) { c.NodeID = node } }
	old, now := newShops(t, sink.Config{}, named("one")), newShops(t, sink.Config{}, named("two"))
	later := `,"send_at":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`
	id := old.post(`,"to":["a@box.example","b@box.example"],"campaign":"spring","tags":["news"]` + later)
	other := old.post(`,"to":["c@box.example"]` + later)
	old.move(now.world)
	old.want(id, "moved, a@box.example moved, b@box.example moved")
	if got := old.eventsOf("a@box.example"); !slices.Equal(got, []string{"Reception", "Transfer"}) {
		t.Errorf("the log of the old relay has %q", got)
	}
	if got := now.eventsOf("a@box.example"); !slices.Equal(got, []string{"Reception"}) {
		t.Errorf("the log of the new relay has %q", got)
	}
	came := now.await("a@box.example", "Reception")
	if left := old.await("a@box.example", "Transfer"); left.Response.Text != "moved to two as "+came.ID.String() || left.MovedFrom != "" || came.MovedFrom != "one/"+id {
		t.Errorf("it left as %+v, and came as %+v", left, came)
	}
	if status, text := old.ask("acme", "POST", "/v1/messages/"+id+"/cancel", "", nil); status != 409 || !strings.Contains(text, "moved to another relay") || !strings.Contains(text, `"detail":"moved to two as `+came.ID.String()) {
		t.Errorf("cancelled at the old relay: %d %s", status, text)
	}
	for _, what := range []string{`{"campaign":"spring"}`, `{"tag":"news"}`} {
		if status, text := old.ask("acme", "POST", "/v1/messages/cancel", what, nil); status != 200 || strings.TrimSpace(text) != `{"cancelled":0,"too_late":0,"moved_to":["two"]}` {
			t.Errorf("%s cancelled at the old relay: %d %s", what, status, text)
		}
	}
	if status, text := old.ask("other", "POST", "/v1/messages/cancel", `{"campaign":"spring"}`, nil); status != 200 || strings.Contains(text, "moved_to") {
		t.Errorf("another tenant's: %d %s", status, text)
	}

	now.restart(Options{})
	if status, text := now.ask("other", "POST", "/v1/messages/"+id+"/cancel", "", nil); status != 404 {
		t.Errorf("another tenant's, by the old id: %d %s", status, text)
	}
	if status, text := now.ask("acme", "GET", "/v1/messages/"+id, "", nil); status != 200 || !strings.Contains(text, `"id":"`+id) {
		t.Errorf("found by the old id: %d %s", status, text)
	}
	if status, text := now.ask("acme", "POST", "/v1/messages/"+id+"/cancel", "", nil); status != 200 || strings.Count(text, `"status":"cancelled"`) != 2 {
		t.Errorf("cancelled by the old id: %d %s", status, text)
	}
	now.want(id, "cancelled, a@box.example cancelled, b@box.example cancelled")
	if got := now.eventsOf("a@box.example"); !slices.Equal(got, []string{"Reception", "Cancellation"}) {
		t.Errorf("the log of the new relay has %q", got)
	}
	if status, text := now.ask("acme", "POST", "/v1/messages/cancel", `{"campaign":"spring"}`, nil); status != 200 || strings.Contains(text, "moved_to") {
		t.Errorf("by the campaign at the new relay: %d %s", status, text)
	}

	// An id that both relays have given names no message.
	own := now.queue.Begin()
	own.Write([]byte(letter))
	m := &envelope.Message{Sender: "ann@client.example", Tenant: "acme", Recipients: []envelope.Recipient{{Address: "d@box.example"}}, Release: time.Now().Add(time.Hour)}
	if err := own.Commit(m); err != nil {
		t.Fatal(err)
	}
	cancel := func() (int, string) { return now.ask("acme", "POST", "/v1/messages/"+m.ID.String()+"/cancel", "", nil) }
	var archive bytes.Buffer
	out := exported.NewWriter(&archive, exported.Summary{Node: "three"})
	_, err := out.Add(exported.New(m, []exported.Recipient{{}}), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(letter)), nil })
	if err = errors.Join(err, out.Close(exported.Summary{})); err != nil {
		t.Fatal(err)
	}
	now.imported(archive.Bytes(), api.ImportOptions{})
	if status, text := cancel(); status != 409 || !strings.Contains(text, "have both given this id") {
		t.Errorf("an id of two messages: %d %s", status, text)
	}
	if status, text := now.ask("acme", "POST", "/v1/messages/"+other+"/cancel", "", nil); status != 200 {
		t.Errorf("an id of one: %d %s", status, text)
	}
}

// TestKeysMove: a request that one relay has answered gets the same answer at the one that its mail moves to, whether its
// mail has left or not, by HTTP and by SMTP, after a restart and another move; nothing is taken twice. Another request with
// the key is refused, another tenant's is taken, and the ids of the other relay cancel nothing.
func TestKeysMove(t *testing.T) {
	t.Parallel()
	old, now, third := newShops(t, sink.Config{}), newShops(t, sink.Config{}), newShops(t, sink.Config{})
	const body = `{"from":"ann@client.example","to":"a@box.example","subject":"s","text":"t"%s}`
	later := fmt.Sprintf(`,"send_at":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	order := func(at *shops, tenant, key, more string) (status int, text string) {
		return at.ask(tenant, "POST", "/v1/messages", fmt.Sprintf(body, more), nil, "Idempotency-Key", key)
	}
	answers := map[string]string{}
	for key, more := range map[string]string{"left": "", "queued": later} {
		status, text := order(old, "acme", key, more)
		if status != 202 {
			t.Fatal(status, text)
		}
		answers[key] = text
	}
	const again = "X-MTA-Idempotency-Key: order-7\r\n" + letter
	old.send("ann@client.example", again, "b@box.example")
	halfway, whole := half(t, old.world, "half"), half(t, old.world, "whole")

	if archive := old.exported(api.Filter{Tenant: "other"}); bytes.Contains(archive, []byte("keys-1.json")) {
		t.Error("an export of a tenant has keys of another")
	}
	if archive := old.exported(api.Filter{Domain: "box.example"}); bytes.Contains(archive, []byte("keys-1.json")) {
		t.Error("an export of single messages has keys")
	}
	check := func(at *shops) {
		t.Helper()
		before := at.queue.Stats().Accepted
		for key, more := range map[string]string{"left": "", "queued": later} {
			if status, text := order(at, "acme", key, more); status != 202 || text != answers[key] {
				t.Errorf("%s: %d %s, was %s", key, status, text, answers[key])
			}
			if status, text := order(at, "acme", key, `,"campaign":"x"`); status != 422 {
				t.Errorf("%s of another request: %d %s", key, status, text)
			}
			if status, text := at.ask("acme", "POST", "/v1/messages/cancel", `{"idempotency_key":"`+key+`"}`, nil); status != 404 {
				t.Errorf("cancelled by a key of another relay: %d %s", status, text)
			}
		}
		at.send("ann@client.example", again, "b@box.example")
		if n := at.queue.Stats().Accepted - before; n != 0 {
			t.Errorf("%d messages are taken twice", n)
		}
	}
	left := func(at *shops, queued int64) { // mail that is in delivery does not move
		t.Helper()
		at.until("the mail has left", func() bool { return at.queue.Stats().Queued == queued })
	}
	left(old, 1)
	old.move(now.world)
	check(now)
	if status, text := order(now, "other", "left", ""); status != 202 || text == answers["left"] {
		t.Errorf("another tenant: %d %s", status, text)
	}
	now.restart(Options{})
	check(now)
	whole(old.world)
	left(old, 0)
	old.move(now.world) // nothing is left, but keys come again
	check(now)
	whole(now.world)
	left(now, 1)
	now.move(third.world)
	check(third)
	halfway(now.world)
}

// half has a relay take the first of two messages of a request. What it returns has a relay take the rest, unless it knows
// that this was done.
func half(t *testing.T, at *world, key string) func(at *world) {
	commit := func(at *world, position int, last bool) (*intake.Claim, intake.Outcome) {
		sum := at.repeats.Sum()
		sum.Write([]byte("body"))
		claim, outcome, err := at.repeats.Begin(t.Context(), "acme", key, sum)
		if err != nil {
			t.Fatal(err)
		}
		defer claim.Drop()
		if position < 0 {
			return claim, outcome
		}
		d := at.queue.Begin()
		d.Write([]byte(letter))
		m := &envelope.Message{Sender: "ann@client.example", Tenant: "acme", Recipients: []envelope.Recipient{{Address: "c@box.example"}}}
		b := &queue.Batch{
			Drafts: []*queue.Draft{d}, Messages: []*envelope.Message{m}, Key: claim.Key, Request: claim.Request,
			Positions: []int{position}, Last: last, Answer: []byte("both"), Until: time.Now().Add(time.Hour),
		}
		if _, err := at.queue.CommitBatch(b); err != nil {
			t.Fatal(err)
		}
		return claim, outcome
	}
	commit(at, 0, false)
	claim, _ := commit(at, -1, false)
	first := claim.Accepted(0)
	second := envelope.ID(0)
	return func(at *world) {
		t.Helper()
		if second == 0 {
			if claim, outcome := commit(at, 1, true); outcome != intake.Continue || claim.Accepted(0) != first || claim.Accepted(1) != 0 {
				t.Errorf("the rest: %v, %+v", outcome, claim)
			}
		}
		claim, outcome := commit(at, -1, false)
		if outcome != intake.Replay || string(claim.Stored.Answer) != "both" || claim.Accepted(0) != first || claim.Accepted(1) == 0 || second != 0 && claim.Accepted(1) != second {
			t.Errorf("again: %v, %+v", outcome, claim)
		}
		second = claim.Accepted(1)
	}
}
