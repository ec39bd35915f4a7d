package mta

import (
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
)

// TestHistoryOfMail: what a relay does is in its figures a few seconds later, and after a restart.
func TestHistoryOfMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody"), {Phase: sink.Rcpt, Prefix: "later", Reply: "450 4.2.0 later"}}}, `
		defaults { smtp_port = PORT }
		provider "box" { mx = ["mx.box.example"] }
		source "out" { address = "127.0.0.1" }
		pool "default" { shared = ["out"] }
		tenant "acme" {}
		listener "acme" {
			address = "127.0.0.1:0"
			tenant  = "acme"
		}`)
	client := api.NewClient(w.cfg.Control.Socket)
	defer client.Close()
	subjects := map[api.HistoryQuery]string{
		{Of: api.OfRelay}: "accepted", {Of: api.OfTenant, Name: "acme"}: "accepted", {Of: api.OfProvider, Name: "box"}: "bounced",
		{Of: api.OfSource, Name: "out"}: "delivered", {Of: api.OfSite, Name: "mx.box.example"}: "delivered",
	}
	// Rates need a sample before the mail: in a subject's first one they are unknown. So mail comes until each has one.
	latest := func(q api.HistoryQuery, figure string) api.Figure {
		names, err := api.OpHistoryNames.Call(t.Context(), client, api.HistoryNamesQuery{Of: q.Of})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range names.Rows {
			if row.Name == q.Name {
				return row.Latest[figure]
			}
		}
		return api.UnknownFigure()
	}
	w.send("ann@client.example", letter, "later@box.example")
	sent := time.Time{}
	w.until("in the figures", func() bool {
		if time.Since(sent) > time.Second {
			sent = time.Now()
			w.sendTo(w.listeners.Addresses(listen.SMTP)[1], "ann@client.example", letter, "bob@box.example", "nobody@box.example")
		}
		for q, figure := range subjects {
			if f := latest(q, figure); !f.Known() || f == 0 {
				return false
			}
		}
		return true
	})
	for q := range subjects {
		if q.Of != api.OfTenant && q.Of != api.OfSource { // it is of none, and may leave from any
			w.until("queued at "+q.Name, func() bool { return latest(q, "queued") >= 1 && latest(q, "queued_deferred") >= 1 })
		}
	}
	h, err := api.OpHistory.Call(t.Context(), client, api.HistoryQuery{Of: api.OfRelay, Span: api.Last15Minutes})
	if err != nil {
		t.Fatal(err)
	}
	last := func(name string) api.Figure { return h.Series[name].Values[len(h.Series[name].Values)-1] }
	for _, name := range []string{"queued", "queued_due", "oldest_due", "connections", "client_connections", "disk_used", "disk_free", "memory", "deferred"} {
		if !last(name).Known() {
			t.Errorf("%s is unknown", name)
		}
	}
	if last("memory") < 1<<20 || last("disk_free") < 1<<20 {
		t.Errorf("%v octets of memory are used, %v of the disk are free", last("memory"), last("disk_free"))
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	h, err = api.OpHistory.Call(t.Context(), client, api.HistoryQuery{Of: api.OfSite, Name: "mx.box.example", Span: api.Last14Days})
	known := 0
	for _, v := range h.Series["delivered"].Values {
		if v.Known() && v > 0 {
			known++
		}
	}
	if err != nil || known == 0 {
		t.Errorf("%d values of the site are known after a restart, %v", known, err)
	}
}
