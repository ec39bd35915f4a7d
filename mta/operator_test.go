package mta

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// stuck is a world whose provider answers the content when the test lets it, by 451.
func stuck(t *testing.T) (w *world, answer func()) {
	hold := make(chan struct{})
	t.Cleanup(func() {
		select {
		case <-hold:
		default:
			close(hold)
		}
	})
	w = newWorld(t, sink.Config{Hook: func(c sink.Command) sink.Answer {
		if c.Phase != sink.End {
			return sink.Answer{}
		}
		<-hold
		return sink.Answer{Reply: "451 4.3.0 try again later"}
	}}, `defaults { smtp_port = PORT }`)
	return w, func() { close(hold) }
}

// TestWhatIsOnAConnectionIsDoneLater: an action on it is counted as one that comes into force when the attempt ends,
// list and explanation say so, and so it comes.
func TestWhatIsOnAConnectionIsDoneLater(t *testing.T) {
	for _, test := range []struct {
		action api.Action
		listed string
		then   func(w *world, id string) bool
	}{
		{api.Hold, "; held when this attempt ends, unless it delivers", func(w *world, id string) bool {
			it, err := w.api.Queue.Get(w.t.Context(), id)
			return err == nil && it.Recipients[0].State == api.StateHeld && it.Recipients[0].Asked == ""
		}},
		{api.Bounce, "; bounced when this attempt ends, unless it delivers", func(w *world, id string) bool { return w.queue.Stats().Bounced == 1 }},
		{api.Remove, "; removed when this attempt ends", func(w *world, id string) bool { return w.queue.Stats().Removed == 1 }},
		{api.Retry, "; tried again at once if this attempt fails", func(w *world, id string) bool {
			it, err := w.api.Queue.Get(w.t.Context(), id)
			return err == nil && it.Recipients[0].Attempts > 1
		}},
	} {
		t.Run(string(test.action), func(t *testing.T) {
			w, answer := stuck(t)
			o := w.api.Queue
			id := w.accepted("", "bob@box.example", time.Time{}).String()
			get := func() api.RecipientStatus {
				it, err := o.Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				return it.Recipients[0]
			}
			w.until("on a connection", func() bool { return get().State == api.StateActive })
			done, err := o.Change(t.Context(), api.Change{Action: test.action, Filter: api.Filter{Domain: "box.example"}})
			if err != nil || done.Recipients != 1 || done.Later != 1 {
				t.Fatalf("%+v, %v", done, err)
			}
			if rc := get(); rc.State != api.StateActive || rc.Asked != test.action || !strings.HasSuffix(rc.Doing, test.listed) {
				t.Errorf("listed as %+v", rc)
			}
			ex, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{ID: id})
			if err != nil || !strings.HasSuffix(ex.Message.Recipients[0].Why, strings.Replace(test.listed, "; ", "; it is ", 1)) {
				t.Errorf("explained as %q, %v", ex.Message.Recipients[0].Why, err)
			}
			answer()
			w.until("done", func() bool { return test.then(w, id) })
		})
	}
}

// TestWhatWaitsInDeliveryIsDoneNow: none of that is counted as on a connection.
func TestWhatWaitsInDeliveryIsDoneNow(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.delivery.Suspend("mx.box.example", "", "keeps it in delivery", time.Now().Add(time.Hour))
	id := w.accepted("", "bob@box.example", time.Time{}).String()
	w.until("in delivery", func() bool { return w.delivery.Counts().Waiting == 1 })
	done, err := w.api.Queue.Change(t.Context(), api.Change{Action: api.Hold, Filter: api.Filter{IDs: []string{id}}})
	if err != nil || done.Recipients != 1 || done.Later != 0 {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestWhatIsWrongWithASite: a domain without a route has its last error, and a host's answer has its codes.
func TestWhatIsWrongWithASite(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{{Phase: sink.Connect, Reply: "421 4.7.0 too much mail"}}}, `defaults { smtp_port = PORT }`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	w.zone.Fault("lame.example.", sink.DNSFault{Rcode: dns.RcodeServerFailure})
	w.send("ann@client.example", letter, "bob@lame.example")
	w.await("bob@lame.example", "TransientFailure")
	list, err := w.api.Destinations.Sites(t.Context(), api.SiteFilter{})
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[string]api.Site)
	for _, s := range list.Sites {
		by[s.Name] = s
	}
	if e := by["lame.example"].Tally.LastError; e == nil || e.Command != "route" {
		t.Errorf("lame.example: %+v", by["lame.example"])
	}
	if why := by["mx.box.example"].Why; !strings.Contains(why, "mx.box.example") || !strings.HasSuffix(why, " answered 421 4.7.0 too much mail") {
		t.Errorf("mx.box.example waits for %q", why)
	}
	ex, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{Domain: "box.example"})
	if err != nil || !strings.Contains(ex.Destinations[0].Now, "421 4.7.0 too much mail") {
		t.Errorf("explained as %+v, %v", ex.Destinations, err)
	}
}

// TestAPauseShowsAtOnce: of mail that waits for a warm-up already, though it waits on in that line for a while.
func TestAPauseShowsAtOnce(t *testing.T) {
	for _, what := range []api.AddRule{
		{Selection: api.Selection{All: true}}, {Selection: api.Selection{Tenant: "acme"}}, {Selection: api.Selection{Pool: "new"}},
		{Selection: api.Selection{Source: "new"}}, {Selection: api.Selection{Domain: "box.example"}},
	} {
		t.Run(what.Selection.String(), func(t *testing.T) {
			w := newWorld(t, sink.Config{}, `
				defaults { smtp_port = PORT }
				source "old" { address = "127.0.0.1" }
				source "new" { address = "127.0.0.2" }
				plan "tiny" {
					stage {
						hourly = 1
						daily = 10
					}
				}
				pool "default" { shared = ["old"] }
				pool "new" {
					overflow = "hold"
					dedicated "new" { plan = "tiny" }
				}
				tenant "acme" { pool = "new" }`)
			w.accepted("acme", "bob@box.example", time.Time{})
			w.arrived(1)
			id := w.accepted("acme", "eve@box.example", time.Time{}).String()
			var rc api.RecipientStatus
			listed := func(state api.State, why string) func() bool {
				return func() bool {
					it, err := w.api.Queue.Get(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					rc = it.Recipients[0]
					return rc.State == state && strings.Contains(rc.Doing, why)
				}
			}
			w.until("waits for a token", listed(api.StateWaiting, "waits for the warm-up of new: the hour's cap is used"))
			what.Action = api.RuleSuspend
			what.For, what.By, what.Reason = new(api.Age(time.Hour)), "ann", "for the test"
			if _, err := w.api.Rules.AddRule(t.Context(), what); err != nil {
				t.Fatal(err)
			}
			if !listed(api.StateWaiting, "paused by ann: for the test")() || time.Until(rc.Next) > time.Hour || time.Until(rc.Next) < 50*time.Minute {
				t.Errorf("listed as %+v", rc)
			}
			ex, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{ID: id})
			if err != nil || !strings.HasSuffix(ex.Message.Recipients[0].Why, "paused by ann: for the test") {
				t.Errorf("explained as %+v, %v", ex.Message, err)
			}
			for _, l := range ex.Destinations[0].Lanes {
				if l.Source != "new" {
					t.Errorf("explained with the mail from source %s, which is of another pool", l.Source)
				}
			}
		})
	}
}

// TestExplainHasTheLanesOfThePool, and of no other.
func TestExplainHasTheLanesOfThePool(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "one" { address = "127.0.0.1" }
		source "two" { address = "127.0.0.2" }
		pool "default" { shared = ["one"] }
		pool "acme" { shared = ["two"] }
		tenant "acme" { pool = "acme" }`)
	w.accepted("", "bob@box.example", time.Time{})
	w.accepted("acme", "bob@box.example", time.Time{})
	w.arrived(2)
	for tenant, source := range map[string]string{"": "one", "acme": "two"} {
		ex, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{Domain: "box.example", Tenant: tenant})
		if err != nil || len(ex.Destinations[0].Lanes) != 1 || ex.Destinations[0].Lanes[0].Source != source {
			t.Errorf("tenant %q: %+v, %v", tenant, ex.Destinations[0].Lanes, err)
		}
	}
}

// TestTheNextTokenIsShown as the next try of mail that waits for it.
func TestTheNextTokenIsShown(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "new" { address = "127.0.0.1" }
		plan "tiny" {
			stage {
				hourly = 2
				daily = 2
			}
		}
		pool "default" {
			overflow = "hold"
			dedicated "new" { plan = "tiny" }
		}`)
	w.accepted("", "bob@box.example", time.Time{})
	w.arrived(1)
	id := w.accepted("", "eve@box.example", time.Time{}).String()
	w.until("the time of the next token is known", func() bool {
		it, err := w.api.Queue.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		rc := it.Recipients[0]
		left := time.Until(rc.Next)
		return rc.State == api.StateWaiting && strings.Contains(rc.Doing, "spread over the hour") && left > 0 && left <= time.Hour
	})
}
