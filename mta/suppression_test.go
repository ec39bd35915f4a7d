package mta

import (
	"context"
	"errors"
	"fmt"
	"net/smtp"
	"net/textproto"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/submitted"
	"example.org/mta/operator/api"
	"example.org/mta/submission/http"
	"example.org/mta/submission/request"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

// refusedAtRCPT gives the reply to a recipient, and fails the test when it is not a refusal.
func (w *world) refusedAtRCPT(from, to string) *textproto.Error {
	w.t.Helper()
	c, err := smtp.Dial(w.listeners.Addresses(listen.SMTP)[0])
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if err := c.Mail(from); err != nil {
		w.t.Fatal(err)
	}
	refused := (*textproto.Error)(nil)
	if err := c.Rcpt(to); !errors.As(err, &refused) {
		w.t.Fatalf("RCPT of %s: %v, want a refusal", to, err)
	}
	return refused
}

// Tenants see and change their own entries only, and meet those for everybody's mail.
func TestSuppressionsOfATenant(t *testing.T) {
	w := newWorld(t, sink.Config{}, `tenant "acme" { }`)
	ctx, list := t.Context(), submitted.Suppressions{Own: w.suppression, Searches: w.submitted.Searches}
	w.suppression.Add(ctx, []suppression.Entry{
		{Key: suppression.KeyOf("", "all@box.example"), Reason: "everybody's", Source: suppression.Operator},
		{Key: suppression.KeyOf("abc", "before@box.example"), Source: suppression.Operator},
		{Key: suppression.KeyOf("other", "x@box.example"), Source: suppression.Operator},
	})
	done, err := list.Add(ctx, "acme", []request.Suppression{{Address: "Ann@box.example", Reason: "asked us to"}, {Address: "bob@other.example"}})
	if err != nil || done.Added != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	if done, _ := list.Add(ctx, "acme", []request.Suppression{{Address: "ann@box.example", Reason: "asked us to"}}); done.Unchanged != 1 {
		t.Errorf("added again: %+v", done)
	}
	page, last, more, err := list.List(ctx, "acme", "", "", 1)
	if err != nil || len(page) != 1 || !more || page[0].Address != "ann@box.example" || page[0].Source != "tenant" || page[0].Shared {
		t.Errorf("%+v, more %v, %v", page, more, err)
	}
	if page, _, more, _ := list.List(ctx, "acme", "", last, 10); len(page) != 1 || more || page[0].Address != "bob@other.example" {
		t.Errorf("the next page is %+v, more %v", page, more)
	}
	if page, _, _, _ := list.List(ctx, "acme", "other.example", "", 10); len(page) != 1 {
		t.Errorf("of a domain: %+v", page)
	}
	if _, found := list.Match("acme", "x@box.example"); found {
		t.Error("another tenant's entry counts")
	}
	if e, found := list.Match("acme", "All@box.example"); !found || !e.Shared {
		t.Errorf("an entry for all: %+v, %v", e, found)
	}
	if n, err := list.Remove(ctx, "acme", []envelope.Address{"ann@box.example", "ann@box.example", "x@box.example", "all@box.example"}); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	for tenant, a := range map[string]envelope.Address{"": "all@box.example", "other": "x@box.example", "acme": "bob@other.example"} {
		if _, found := w.suppression.Match(tenant, a); !found {
			t.Errorf("%s of %q is gone", a, tenant)
		}
	}
	if c, err := w.api.Suppressions.Suppressions(ctx, api.SuppressionQuery{SuppressionFilter: api.SuppressionFilter{Source: api.SuppressedByTenant}, Paging: api.Paging{Limit: 10}}); err != nil || len(c.Suppressions) != 1 {
		t.Errorf("operators see %+v, %v", c, err)
	}
}

// A tenant that has added all it may gets an error of the API.
func TestATenantsSuppressionsHaveALimit(t *testing.T) {
	store, err := boltstore.Open(filepath.Join(t.TempDir(), "suppression.db"), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := suppression.Open(t.Context(), suppression.Config{Store: store, MostOwn: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	list := submitted.Suppressions{Own: l}
	for i, want := range []error{nil, http.TooManySuppressions(submitted.MostSuppressions)} {
		_, err := list.Add(t.Context(), "acme", []request.Suppression{{Address: envelope.Address(fmt.Sprintf("r%d@box.example", i))}})
		if !errors.Is(err, want) {
			t.Errorf("addition %d: %v, want %v", i, err, want)
		}
	}
}

// A tenant looks through its entries once at a time, in turns with its searches.
func TestATenantsListOfSuppressionsTakesATurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store, err := boltstore.Open(filepath.Join(t.TempDir(), "suppression.db"), nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := suppression.Open(t.Context(), suppression.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		list := submitted.Suppressions{Own: l, Searches: fair.New(2, time.Now)}
		turn, err := list.Searches.Begin(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		looked := false
		go func() {
			if _, _, _, err := list.List(t.Context(), "acme", "", "", 10); err != nil {
				t.Error(err)
			}
			looked = true
		}()
		if synctest.Wait(); looked {
			t.Error("it looks while another search of the tenant is under way")
		}
		turn.End()
		if synctest.Wait(); !looked {
			t.Error("it never looks")
		}
	})
}

// The way of a bad address: a remote host calls it unknown, it is on the list with its bounce, the
// next submission is refused, and an operator can lift that.
func TestT3_ABounceSuppressesItsAddress(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, `
		defaults { smtp_port = PORT }
		suppression { feed = true }`)
	w.send("ann@client.example", letter, "nobody@box.example", "bob@box.example")
	w.await("nobody@box.example", "Bounce")
	e, ok := w.suppression.Match("", "nobody@box.example")
	if !ok {
		t.Fatal("the bounce is written down, and its address is not on the list")
	}
	if e.Source != suppression.Bounce || !strings.Contains(e.Reason, "5.1.1") || e.Expires.Sub(e.Added) != 90*24*time.Hour {
		t.Errorf("entry %+v", e)
	}
	if _, ok := w.suppression.Match("", "bob@box.example"); ok {
		t.Error("the address that took the mail is on the list too")
	}
	got := w.refusedAtRCPT("ann@client.example", "NoBody@Box.example")
	if got.Code != 550 || !strings.Contains(got.Msg, "5.1.1") || !strings.Contains(got.Msg, "suppressed") {
		t.Errorf("refused with %v", got)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.refusedAtRCPT("ann@client.example", "nobody@box.example")
	if n, err := w.suppression.Remove(context.Background(), []suppression.Key{e.Key}); n != 1 || err != nil {
		t.Fatalf("removed %d, %v", n, err)
	}
	w.send("ann@client.example", letter, "nobody@box.example")
}

// What is queued, or scheduled, for an address that has come on the list is bounced before it is
// sent, with a report to the sender; the others of the message, reports and postmasters get
// theirs.
func TestT3_QueuedMailToASuppressedAddressIsBounced(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", "X-Hold-For: 3600\r\n"+letter, "gone@box.example", "bob@box.example", "postmaster@box.example")
	w.suppress("gone@box.example", "postmaster@box.example")
	if n, err := w.api.Queue.Change(context.Background(), api.Change{Action: api.Retry, All: true, Scheduled: true}); err != nil || n.Recipients != 3 {
		t.Fatalf("released %+v, %v", n, err)
	}
	reported, got := false, map[string]bool{}
	for _, m := range w.arrived(3) {
		for _, r := range m.Recipients {
			got[r] = true
		}
		if m.Sender == "" {
			reported = strings.Contains(string(m.Content), "gone@box.example") && strings.Contains(string(m.Content), "suppressed since")
		}
	}
	if !reported || got["gone@box.example"] || !got["bob@box.example"] || !got["postmaster@box.example"] || !got["ann@client.example"] {
		t.Errorf("reported %v, delivered to %v", reported, got)
	}
	w.await("gone@box.example", "Bounce")
	// A report to an address on the list is delivered.
	w.suppress("ann@client.example")
	w.send("", letter, "ann@client.example")
	w.arrived(4)
}

// mode = "bounce" takes the mail and reports; "off" sends it.
func TestT3_ModesOfSuppression(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		suppression { mode = "bounce" }`)
	w.suppress("gone@box.example")
	w.send("ann@client.example", letter, "gone@box.example")
	if got := w.arrived(1)[0]; got.Sender != "" || got.Recipients[0] != "ann@client.example" {
		t.Errorf("delivered %s to %s, want the report alone", got.Sender, got.Recipients)
	}
	cfg := *w.cfg
	cfg.Suppression.Mode = "off"
	w.policy.Store(wiring.New(&cfg))
	w.send("ann@client.example", letter, "gone@box.example")
	w.await("gone@box.example", "Delivery")
}

func (w *world) suppress(addresses ...envelope.Address) {
	w.t.Helper()
	var entries []suppression.Entry
	for _, a := range addresses {
		entries = append(entries, suppression.Entry{Key: suppression.KeyOf("", a), Source: suppression.Operator, Added: time.Now()})
	}
	if _, err := w.suppression.Add(context.Background(), entries); err != nil {
		w.t.Fatal(err)
	}
}

// A site that knows nobody any more: its entries are set aside, with an alarm, until an operator decides, over a restart.
func TestFloodForTheOperator(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, `
		defaults { smtp_port = PORT }
		suppression {
			feed = true
		}`)
	var to []string
	for i := range 60 {
		to = append(to, fmt.Sprintf("nobody%d@box.example", i))
	}
	w.send("ann@client.example", letter, to...)
	for _, a := range to {
		w.await(a, "Bounce")
	}
	ctx, o := context.Background(), w.api.Suppressions
	pending := func() api.PendingList {
		t.Helper()
		l, err := o.PendingSuppressions(ctx, api.SuppressionQuery{Paging: api.Paging{Limit: 100}})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	w.until("all are set aside", func() bool { return len(pending().Suppressions) == 60 && w.suppression.Stats().Entries == 0 })
	l := pending()
	if len(l.Providers) != 1 || l.Providers[0].Unknown != 60 || l.Suppressions[0].Provider != l.Providers[0].Provider || l.Suppressions[0].Class != "InvalidRecipient" {
		t.Errorf("pending: %+v", l)
	}
	if why := w.feeder.Flood(); !strings.Contains(why, "called 60 of 6") || !strings.Contains(why, "mta suppress pending") {
		t.Errorf("the alarm's reason is %q", why)
	}
	text := w.scrape()
	for _, line := range []string{"mta_suppressions_pending 60", "mta_suppression_floods 1", `mta_suppressions_total{source="bounce"} 49`} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	o = w.api.Suppressions
	provider := l.Providers[0].Provider
	sel := api.SuppressionSelection{SuppressionFilter: api.SuppressionFilter{Provider: provider}, Intent: api.Intent{DryRun: true}}
	if n, err := o.AcceptPending(ctx, sel); err != nil || n.Entries != 60 || len(pending().Suppressions) != 60 {
		t.Errorf("would accept %+v, %v", n, err)
	}
	sel.DryRun = false
	if n, err := o.AcceptPending(ctx, sel); err != nil || n.Entries != 60 || len(pending().Suppressions) != 0 || w.feeder.Flood() != "" {
		t.Errorf("accepted %+v, %v; the alarm's reason is %q", n, err, w.feeder.Flood())
	}
	w.refusedAtRCPT("ann@client.example", to[7])
	sel.Since = time.Now().Add(time.Hour)
	if n, err := o.UnsuppressMatching(ctx, sel); err != nil || n.Removed != 0 {
		t.Errorf("removed %+v of the future, %v", n, err)
	}
	sel.Since, sel.Source = time.Now().Add(-time.Hour), api.SuppressedByBounce
	if n, err := o.UnsuppressMatching(ctx, sel); err != nil || n.Removed != 60 {
		t.Errorf("removed %+v, %v", n, err)
	}
	if n, err := o.DropPending(ctx, api.SuppressionSelection{}); err != nil || n.Entries != 0 {
		t.Errorf("dropped %+v, %v", n, err)
	}
}
