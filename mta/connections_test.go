package mta

import (
	"net"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
)

// TestOpenConnectionsForTheOperator: both directions, in pages; what is closed has lost nothing.
func TestOpenConnectionsForTheOperator(t *testing.T) {
	w, answer := stuck(t)
	id := w.accepted("", "bob@box.example", time.Time{}).String()
	client, err := net.Dial("tcp", w.listeners.Addresses(listen.SMTP)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	relay := w.api.OpenConnections
	get := func(f api.ConnectionFilter) (all []api.Connection) {
		for after := ""; ; {
			f.Paging = api.Paging{After: after, Limit: 1}
			l, err := relay.Connections(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l.Connections...)
			if after = l.Next; after == "" {
				if l.Total != len(all) {
					t.Errorf("%d in all, %d on the pages", l.Total, len(all))
				}
				return all
			}
		}
	}
	var out, in []api.Connection
	w.until("both are open", func() bool {
		out, in = get(api.ConnectionFilter{Direction: api.Outgoing, State: api.ConnectionBusy}), get(api.ConnectionFilter{Direction: api.Incoming, State: api.ConnectionIdle})
		return len(out) == 1 && len(in) == 1
	})
	if all := get(api.ConnectionFilter{}); len(all) != 2 || all[0].Direction != api.Incoming {
		t.Errorf("all of them: %+v", all)
	}
	if c := out[0]; c.Site != "mx.box.example" || c.PeerName != "mx.box.example" || c.Backlog != 1 || c.Messages != 1 || c.Source == "" {
		t.Errorf("to the provider: %+v", c)
	}
	if c := in[0]; c.Peer != client.LocalAddr().String() || c.Listener == "" || c.LastReply == nil || c.LastReply.Code != 220 || c.IdleSince.IsZero() {
		t.Errorf("of the client: %+v", c)
	}
	ids := api.CloseConnections{IDs: []string{out[0].ID, in[0].ID}, Intent: api.Intent{DryRun: true}}
	for _, dry := range []bool{true, false} {
		ids.DryRun = dry
		if done, err := relay.CloseConnections(t.Context(), ids); err != nil || done.Connections != 2 || done.Busy != 1 {
			t.Errorf("dry run %v: %+v, %v", dry, done, err)
		}
	}
	buf := make([]byte, 1000)
	for said := ""; !strings.Contains(said, "421 4.3.2 closed by the operator"); {
		n, err := client.Read(buf)
		if said += string(buf[:n]); err != nil {
			t.Fatalf("%q, %v", said, err)
		}
	}
	if it, err := w.api.Queue.Get(t.Context(), id); err != nil || it.Recipients[0].State != api.StateActive {
		t.Errorf("%+v, %v", it, err)
	}
	answer()
	w.until("nothing is open", func() bool { return len(get(api.ConnectionFilter{})) == 0 })
	if _, err := relay.CloseConnections(t.Context(), ids); !api.IsNotFound(err) {
		t.Errorf("closing it again: %v", err)
	}
	w.until("the reply of the closed connection is known", func() bool {
		it, err := w.api.Queue.Get(t.Context(), id)
		return err == nil && it.Recipients[0].Reply != nil && it.Recipients[0].Reply.Code == 451
	})
	if _, err := relay.Connections(t.Context(), api.ConnectionFilter{Paging: api.Paging{After: "nonsense"}}); err == nil {
		t.Error("a cursor that is none was taken")
	}
}

// TestRecentOutcomesOfASite: errors outlast the deliveries that follow them.
func TestRecentOutcomesOfASite(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "nobody@box.example")
	w.await("nobody@box.example", "Bounce")
	for range 60 {
		w.send("ann@client.example", letter, "bob@box.example")
	}
	var r api.Recent
	w.until("50 deliveries", func() bool {
		var err error
		if r, err = w.api.Destinations.Recent(t.Context(), "BOX.example"); err != nil {
			t.Fatal(err)
		}
		return len(r.Outcomes) == 50 && r.Outcomes[49].Outcome == api.OutcomeDelivered
	})
	if r.Site != "mx.box.example" || len(r.Errors) != 1 {
		t.Fatalf("%+v", r)
	}
	e := r.Errors[0]
	if e.Outcome != api.OutcomeBounced || e.Reply.Code != 550 || e.Host != "mx.box.example" || e.Message == "" || e.Session == "" || !e.Attempted || e.Time.IsZero() || e.Class == "" {
		t.Errorf("%+v", e)
	}
	for i := 1; i < len(r.Outcomes); i++ {
		if r.Outcomes[i].Time.After(r.Outcomes[i-1].Time) {
			t.Fatal("the newest isn't first")
		}
	}
	if _, err := w.api.Destinations.Recent(t.Context(), "nobody.example"); !api.IsNotFound(err) {
		t.Errorf("a site that is none: %v", err)
	}
	sources, err := w.api.Blocks.Sources(t.Context(), api.BlockFilter{})
	if err != nil || len(sources.Sources) != 1 {
		t.Fatal(sources, err)
	}
	if s := sources.Sources[0]; !s.Present || len(s.Providers) != 1 || s.Providers[0].Bounced != 1 || s.Providers[0].Delivered < 50 || s.Suspensions != 0 {
		t.Errorf("%+v", s)
	}
	for _, x := range []api.Suspend{{Site: "box.example", Source: sources.Sources[0].Name, For: api.Age(time.Hour), Reason: "a test"}, {Site: "box.example", For: api.Age(time.Hour)}} {
		if _, err := w.api.Destinations.Suspend(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	sources, _ = w.api.Blocks.Sources(t.Context(), api.BlockFilter{})
	if s := sources.Sources[0]; s.Suspensions != 1 || s.Suspended[0].Site != "mx.box.example" || s.Suspended[0].Reason != "a test" {
		t.Errorf("%+v", s)
	}
	if p, err := w.api.Blocks.Providers(t.Context(), api.UnpooledFilter{BlockFilter: api.BlockFilter{Names: []string{""}}}); err != nil || len(p.Providers) != 1 || p.Providers[0].Tally.Bounced != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}
