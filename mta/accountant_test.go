package mta

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/dispatch"
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
	a := &accountant{log: log, meter: tally.NewMeter(), tally: tally.New(func() *config.Config { return pol.Config }), policy: func() *wiring.Policy { return pol }, now: time.Now}
	const n = 500
	var all sync.WaitGroup
	for i := range n {
		m := &envelope.Message{ID: envelope.ID(i + 1), Recipients: []envelope.Recipient{{Address: "bob@box.example"}}}
		a.Accepting(m)
		if i%10 == 0 {
			a.Refused(m)
			continue
		}
		all.Go(func() { listenerEvents{a, "smtp"}.Received(m, 0) })
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
	if got, want := a.tally.Get(tally.Tenant, "").Accepted, int64(n-n/10); got != want {
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

// A site in the log is a site: what was held for a warm-up was filed under none.
func TestRemovedHeldMailHasNoSite(t *testing.T) {
	dir := t.TempDir()
	log, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "n", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a := &accountant{log: log, meter: tally.NewMeter(), now: time.Now}
	a.removed(queue.Item{ID: 1, Recipients: []queue.ItemRecipient{
		{Address: "a@x.example", Line: parking.Line{Key: parking.Key{Name: "mx.x.example"}}}, {Address: "b@x.example", Line: parking.Line{Key: parking.Key{Kind: parking.Tokens, Name: "acme", Provider: "big"}}}}})
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

// What the log has of a connection is what was negotiated, each fact in a field of its own.
func TestDeliveryRecordsTheConnection(t *testing.T) {
	cert, err := trusted()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, sink.Config{TLS: cert, Auth: func(u, p string) bool { return u == "robin" && p == "secret" }}, `
		defaults { smtp_port = PORT }
		domain "box.example" {
			route    = ["smtp://mx.box.example:PORT"]
			username = "robin"
			password = "secret"
		}`)
	w.send("ann@client.example", "Subject: plain\r\n\r\nplain\r\n", "bob@box.example")
	rec := w.await("bob@box.example", "Delivery")
	if want := (accounting.TLS{Version: "TLSv1.3", Cipher: "TLS_AES_128_GCM_SHA256", Trust: accounting.Verified, By: "PKIX", Certificate: "mx.box.example"}); rec.TLS != want {
		t.Errorf("TLS %+v, want %+v", rec.TLS, want)
	}
	if rec.DeliveryProtocol != "UTF8SMTPSA" { // net/smtp asks for SMTPUTF8 where it can
		t.Errorf("delivery_protocol %q, want UTF8SMTPSA", rec.DeliveryProtocol)
	}
	if !rec.Local.Addr().IsLoopback() || rec.Local.Port() == 0 {
		t.Errorf("source_address %v", rec.Local)
	}
	if p := rec.Phases; p.Handshake == 0 || p.Reply == 0 {
		t.Errorf("attempt_time %+v", p)
	}
	if rec.Queued <= 0 || rec.Queued > rec.Time.Sub(rec.Created) {
		t.Errorf("queue_time %v of a message that took %v", rec.Queued, rec.Time.Sub(rec.Created))
	}
}
