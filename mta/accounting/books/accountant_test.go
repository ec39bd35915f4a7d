package books

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/tally"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
)

// TestReceptionComesFirst lets the attempt at each message race with the client's goroutine, as the
// queue does when it hands a message out before Commit has returned.
func TestReceptionComesFirst(t *testing.T) {
	dir := t.TempDir()
	log, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "n", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(config.Default())
	a := New(Config{
		Log: log, Meter: tally.NewMeter(), Tally: tally.New(func() *config.Config { return pol.Config }),
		Policy: func() *wiring.Policy { return pol }, Now: time.Now,
	})
	const n = 500
	var all sync.WaitGroup
	for i := range n {
		m := &envelope.Message{ID: envelope.ID(i + 1), Recipients: []envelope.Recipient{{Address: "bob@box.example"}}}
		a.Accepting(m)
		if i%10 == 0 {
			a.Refused(m)
			continue
		}
		all.Go(func() { a.Listener("smtp").Received(m, 0) })
		all.Go(func() {
			a.Attempted(accounting.Delivery, &dispatch.Outcomes{Message: m}, dispatch.Attempt{Result: delivery.Result{Reply: reply.Reply{Code: 250}}})
		})
	}
	all.Wait()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string][]string)
	err = accounting.Read(context.Background(), dir, accounting.Query{}, func(line []byte) error {
		var rec struct{ ID, Type string }
		if err := json.Unmarshal(line, &rec); err != nil {
			return err
		}
		seen[rec.ID] = append(seen[rec.ID], rec.Type)
		return nil
	}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := a.Tally.Get(tally.Tenant, "").Accepted, int64(n-n/10); got != want {
		t.Errorf("%d recipients are counted as accepted, want %d", got, want)
	}
	if want := n - n/10; len(seen) != want || len(a.unreported) != 0 {
		t.Errorf("%d messages are in the log, want %d; %d wait", len(seen), want, len(a.unreported))
	}
	for id, types := range seen {
		if len(types) != 2 || types[0] != "Reception" || types[1] != "Delivery" {
			t.Errorf("message %s: %v", id, types)
		}
	}
}

// A site in the log is a site: what was held for a warm-up was filed under none. What was delivered, and waited for the
// report to its sender, has its record.
func TestRemovedHeldMailHasNoSite(t *testing.T) {
	dir := t.TempDir()
	log, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "n", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a := New(Config{Log: log, Meter: tally.NewMeter(), Now: time.Now})
	recorded := make(chan struct{})
	a.Removed([]queue.Item{{Message: envelope.Message{ID: 1}, Recipients: []queue.ItemRecipient{
		{Address: "a@x.example", Line: parking.Line{Key: parking.Key{Name: "mx.x.example"}}}, {Address: "b@x.example", Line: parking.Line{Key: parking.Key{Kind: parking.Tokens, Name: "acme", Provider: "big"}}},
		{Address: "c@x.example", Last: reply.Reply{Code: 250}}}}}, func() { close(recorded) })
	<-recorded
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var sites []string
	err = accounting.Read(context.Background(), dir, accounting.Query{}, func(line []byte) error {
		var rec struct{ Site string }
		err := json.Unmarshal(line, &rec)
		sites = append(sites, rec.Site)
		return err
	}, func() {})
	if err != nil || !slices.Equal(sites, []string{"mx.x.example", ""}) {
		t.Errorf("sites %q, %v", sites, err)
	}
}
