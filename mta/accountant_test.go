package mta

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/smtp"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/lab/sink"
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

// A site in the log is a site: what was held for a warm-up was filed under none. What was delivered, and waited for the
// report to its sender, has its record.
func TestRemovedHeldMailHasNoSite(t *testing.T) {
	dir := t.TempDir()
	log, err := accounting.Open(accounting.Config{Dir: dir, NodeID: "n", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a := &accountant{log: log, meter: tally.NewMeter(), now: time.Now}
	recorded := make(chan struct{})
	a.removed([]queue.Item{{ID: 1, Recipients: []queue.ItemRecipient{
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

// The campaign and the metadata that a message brings by SMTP are in each of its records, also after a restart, and
// do not go out; and so are the header fields that the operator wants, which do.
func TestMetadataComesBack(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}, Greylist: time.Second}, `defaults {
		smtp_port = PORT
		retry_interval = "1s"
	}
	accounting { headers = ["Subject"] }`)
	w.send("ann@client.example", "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nX-MTA-Campaign: spring\r\nX-MTA-Meta: order=17\r\nX-MTA-Meta: customer=Jane Doe\r\n"+letter, "bob@box.example", "nobody@box.example")
	w.await("bob@box.example", "TransientFailure")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	for recipient, kinds := range map[string][]string{"bob@box.example": {"Reception", "TransientFailure", "Delivery"}, "nobody@box.example": {"Reception", "Bounce"}} {
		for _, kind := range kinds {
			if rec := w.await(recipient, kind); rec.Campaign != "spring" || string(rec.Meta) != `{"order":"17","customer":"Jane Doe"}` || string(rec.Headers) != `{"Subject":"Grüße"}` {
				t.Errorf("%s of %s: campaign %q, meta %s, headers %s", kind, recipient, rec.Campaign, rec.Meta, rec.Headers)
			}
		}
	}
	for _, m := range w.arrived(1) {
		if bytes.Contains(m.Content, []byte("X-MTA-")) || !bytes.Contains(m.Content, []byte("Subject: =?utf-8?q?")) {
			t.Errorf("arrived:\n%s", m.Content)
		}
	}
}

// A kill can come between the Receptions of a message's recipients. The next start writes those that are missing, and
// none again; the start after it writes nothing.
func TestATornReceptionIsCompleted(t *testing.T) {
	w := newWorld(t, sink.Config{}, "defaults { smtp_port = 1 } # nobody listens there\n")
	to := []string{"bob@box.example", "eve@box.example", "joe@box.example"}
	for range 2 { // the one before the last is whole
		if err := smtp.SendMail(w.listeners.addresses()[0], nil, "a@client.example", to, []byte(letter)); err != nil {
			t.Fatal(err)
		}
	}
	w.await("joe@box.example", "TransientFailure")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(w.cfg.Accounting.Path, "mta-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var kept []byte
	receptions := 0
	for line := range bytes.Lines(content) {
		if bytes.HasPrefix(line, []byte(`{"type":"Reception"`)) {
			if receptions++; receptions <= 4 { // three of the first message, one of the second
				kept = append(kept, line...)
			}
		}
	}
	if err := os.WriteFile(files[0], kept, 0o640); err != nil || receptions != 6 {
		t.Fatal(receptions, err)
	}
	for range 2 {
		w.start()
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
		content, err = os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range to {
			n := 0
			for line := range bytes.Lines(content) {
				if bytes.HasPrefix(line, []byte(`{"type":"Reception"`)) && bytes.Contains(line, []byte(address)) {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%s has %d Receptions, want 2", address, n)
			}
		}
	}
}
