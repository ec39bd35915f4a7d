package mta

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/parking"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// TestPauses: of each kind, mail that is paused waits with its reason, over a restart too, other mail
// leaves, and the end of the pause lets it go.
func TestPauses(t *testing.T) {
	for _, test := range []struct {
		mail       api.Selection
		paused     string // a recipient whose mail waits
		free       string // and one whose mail leaves, "" for none
		everything bool
	}{
		{api.Selection{Domain: "box.example"}, "bob@box.example", "carl@client.example", false},
		{api.Selection{Tenant: "acme"}, "bob@box.example", "", false},
		{api.Selection{Pool: "default"}, "bob@box.example", "", false},
		{api.Selection{Source: "only"}, "bob@box.example", "", false},
		{api.Selection{All: true}, "bob@box.example", "", true},
	} {
		t.Run(test.mail.String(), func(t *testing.T) {
			w := newWorld(t, sink.Config{}, `
				defaults { smtp_port = PORT }
				source "only" { ehlo = "only.example" }
				tenant "acme" { tier = 1 }`)
			w.cfg.Listeners[0].Tenant = "acme"
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			w.start()
			ctx := t.Context()
			o := w.api.Rules
			if _, err := o.AddRule(ctx, api.AddRule{Action: api.RuleSuspend, Selection: test.mail, Reason: "for the test", By: "ann"}); err != nil {
				t.Fatal(err)
			}
			w.send("ann@sender.example", letter, test.paused)
			delivered := int64(0)
			if test.free != "" {
				w.send("ann@sender.example", letter, test.free)
				delivered = 1
				w.arrived(delivered)
			}
			w.saysPaused(test.paused)
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			w.start()
			w.saysPaused(test.paused)
			var last api.Explanation
			w.until("explain counts it", func() bool { // which is on its way there for a moment after the start
				e, err := w.api.Destinations.Explain(ctx, api.ExplainQuery{Domain: "box.example", Tenant: "acme"})
				if err != nil || len(e.Destinations) == 0 {
					return false
				}
				last = e
				return e.Destinations[0].Queued.Paused == 1
			})
			if got := last.Destinations[0].Now; !strings.Contains(got, "paused by ann: for the test") {
				t.Errorf("explained as %q", got)
			}
			if q := last.Destinations[0].Queued; q.PausedBy != test.mail.String() {
				t.Errorf("explained as %+v", q)
			}
			w.listsPaused(test.mail)
			if p := w.Status().Rules; len(p) != 1 || p[0].Selection != test.mail {
				t.Errorf("status %+v", p)
			}
			if on := w.rules.Trouble() != ""; on != test.everything {
				t.Errorf("alarm %q", w.rules.Trouble())
			}
			if n := len(w.recorder.Messages()); int64(n) != delivered {
				t.Fatalf("%d messages have left, want %d", n, delivered)
			}
			if _, err := w.api.Rules.EndRule(ctx, api.EndRule{Action: api.RuleSuspend, Selection: test.mail}); err != nil {
				t.Fatal(err)
			}
			w.arrived(delivered + 1)
		})
	}
}

// listsPaused checks that sources, pools and tenants say what is paused.
func (w *world) listsPaused(mail api.Selection) {
	w.t.Helper()
	ctx, b := w.t.Context(), w.api.Blocks
	sources, _ := b.Sources(ctx, api.BlockFilter{})
	pools, _ := b.Pools(ctx, api.UnpooledFilter{BlockFilter: api.BlockFilter{Names: []string{"default"}}})
	tenants, _ := b.Tenants(ctx, api.TenantFilter{BlockFilter: api.BlockFilter{Names: []string{"acme"}}})
	const reason = "paused by ann: for the test"
	for _, x := range []struct {
		name, why string
		want      bool
	}{
		{"source", sources.Sources[0].Reason, mail.Source != "" || mail.All},
		{"pool", pools.Pools[0].Paused, mail.Pool != "" || mail.All},
		{"tenant", tenants.Tenants[0].Paused, mail.Tenant != "" || mail.Pool != "" || mail.All},
	} {
		if strings.HasSuffix(x.why, reason) != x.want {
			w.t.Errorf("pause of %s: the %s says %q", mail, x.name, x.why)
		}
	}
	if state := sources.Sources[0].State; (state == api.SourcePaused) != (mail.Source != "" || mail.All) {
		w.t.Errorf("pause of %s: the source is %s", mail, state)
	}
}

// saysPaused waits until a recipient is listed as waiting, with the reason.
func (w *world) saysPaused(recipient string) {
	w.t.Helper()
	w.until(recipient+" waits for the pause", func() bool {
		l, err := w.api.Queue.List(w.t.Context(), api.ListQuery{Filter: api.Filter{Recipient: recipient}})
		if err != nil || len(l.Messages) != 1 {
			return false
		}
		r := l.Messages[0].Recipients[0]
		if r.State != api.StateWaiting || !strings.Contains(r.Doing, "paused by ann: for the test") || r.Site != "" {
			return false
		}
		for _, key := range w.queue.Summary(queue.Filter{}) { // it is shown as paused while its route is looked up, too
			if key.States[queue.StateParked] > 0 {
				return true
			}
		}
		return false
	})
}

// TestAPauseTakesWhatDeliveryHas, and ends by itself.
func TestAPauseTakesWhatDeliveryHas(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.delivery.Suspend("mx.box.example", "", "keeps it in delivery", time.Now().Add(time.Hour))
	w.send("ann@sender.example", letter, "bob@box.example")
	w.until("it is in delivery", func() bool {
		info, _ := w.delivery.Site("mx.box.example")
		return len(info.Lanes) > 0 && info.Lanes[0].Waiting == 1
	})
	pause := func(d time.Duration) {
		if _, err := w.rules.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Domain: "box.example"}, By: "ann", Reason: "for the test", Since: time.Now(), Until: time.Now().Add(d)}, false); err != nil {
			t.Fatal(err)
		}
	}
	pause(time.Hour)
	w.saysPaused("bob@box.example")
	w.delivery.Resume("mx.box.example")
	if n := len(w.recorder.Messages()); n != 0 {
		t.Fatal("it has left")
	}
	pause(time.Second)
	w.arrived(1)
	if p := w.rules.List(); len(p) != 0 {
		t.Errorf("still paused: %+v", p)
	}
}

// TestPausedSourceLeavesTheOthers: mail takes another source of the pool.
// TestMailOfAPausedSourceTakesAnother: mail that waits for one paused source of its pool leaves when any is free.
func TestMailOfAPausedSourceTakesAnother(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "one" { ehlo = "one.example" }
		source "two" { ehlo = "two.example" }
		source "three" { ehlo = "three.example" }
		pool "default" {
			shared  = ["one", "two", "three"]
			weights = ["three=0"]
		}`)
	pause := func(source string) int {
		x, err := w.api.Rules.AddRule(t.Context(), api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{Source: source}})
		if err != nil {
			t.Fatal(err)
		}
		return x.Rule.ID
	}
	pause("one")
	two := pause("two")
	waiting := func(n int) {
		t.Helper()
		w.until("mail waits for the source", func() bool {
			return w.queue.Parked(parking.Line{Key: rules.Key(api.Selection{Source: "one"})}) == n
		})
	}
	for range 150 {
		w.send("ann@sender.example", letter, "bob@box.example")
	}
	waiting(150)
	if _, err := w.api.Rules.EndRule(t.Context(), api.EndRule{ID: two}); err != nil {
		t.Fatal(err)
	}
	w.arrived(150)
	pause("two")
	w.send("ann@sender.example", letter, "bob@box.example")
	waiting(1)
	if _, err := w.api.Blocks.SetWeight(t.Context(), "default", api.SetWeight{Source: "three", Weight: 1}); err != nil {
		t.Fatal(err)
	}
	if m := w.arrived(151); m[150].Helo != "three.example" {
		t.Errorf("sent as %s", m[150].Helo)
	}
}

func TestPausedSourceLeavesTheOthers(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "one" { ehlo = "one.example" }
		source "two" { ehlo = "two.example" }`)
	o := w.api.Rules
	if _, err := o.AddRule(t.Context(), api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{Source: "one"}}); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		w.send("ann@sender.example", letter, "bob@box.example")
	}
	for _, m := range w.arrived(8) {
		if m.Helo != "two.example" {
			t.Errorf("sent as %s", m.Helo)
		}
	}
	for _, b := range []api.AddRule{{Action: api.RuleSuspend, Selection: api.Selection{Source: "three"}}, {Action: api.RuleSuspend, Selection: api.Selection{Tenant: "nobody"}}, {Action: api.RuleSuspend, Selection: api.Selection{Pool: "x"}}, {Action: api.RuleSuspend, Selection: api.Selection{Domain: "a b"}}} {
		if _, err := o.AddRule(t.Context(), b); err == nil {
			t.Errorf("%s was paused", b.Selection)
		}
	}
}
