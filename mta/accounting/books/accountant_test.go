package books

import (
	"context"
	"encoding/json"
	"fmt"
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
	"example.org/mta/internal/route"
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
			a.Attempted(accounting.Delivery, &dispatch.Outcomes{Message: m}, []dispatch.Attempt{{Result: delivery.Result{Reply: reply.Reply{Code: 250}}}})
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

// Recipients of a job that fare alike are counted at once, and have a record each.
func TestRecipientsThatFareAlike(t *testing.T) {
	dir := t.TempDir()
	log, err := accounting.Open(accounting.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(config.Default())
	a := New(Config{Log: log, Meter: tally.NewMeter(), Tally: tally.New(func() *config.Config { return pol.Config }),
		Policy: func() *wiring.Policy { return pol }, Now: time.Now})
	m := &envelope.Message{ID: 1, Sender: "ann@a.example"}
	var as []dispatch.Attempt
	for i, source := range []string{"out-1", "out-1", "out-2", "out-1"} {
		m.Recipients = append(m.Recipients, envelope.Recipient{Address: envelope.Address(fmt.Sprintf("r%d@box.example", i))})
		as = append(as, dispatch.Attempt{Pending: queue.Pending{Index: i}, Result: delivery.Result{Recipient: i,
			Source: source, Attempted: true, Reply: reply.Reply{Code: 250}}})
	}
	rt := &route.Route{Site: "mx.box.example"}
	a.Attempted(accounting.Delivery, &dispatch.Outcomes{Message: m, Route: rt}, as)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]int64{"out-1": 3, "out-2": 1} {
		if got := a.Tally.Get(tally.Source, source).Delivered; got != want {
			t.Errorf("%s delivered %d, want %d", source, got, want)
		}
	}
	if got := a.Tally.Get(tally.Site, "mx.box.example").Delivered; got != 4 {
		t.Errorf("the site took %d, want 4", got)
	}
	var got []string
	if err := accounting.Read(context.Background(), dir, accounting.Query{}, func(line []byte) error {
		var rec struct {
			Recipient string
			Source    string `json:"egress_source"`
		}
		if err := json.Unmarshal(line, &rec); err != nil {
			return err
		}
		got = append(got, rec.Recipient+" "+rec.Source)
		return nil
	}, func() {}); err != nil {
		t.Fatal(err)
	}
	want := []string{"r0@box.example out-1", "r1@box.example out-1", "r2@box.example out-2", "r3@box.example out-1"}
	if !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
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
