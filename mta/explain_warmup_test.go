package mta

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// TestExplainNamesTheWarmup: of two messages one fits into the warm-up's day, the other is held and
// says so; the domain's explanation and the metrics show where the warm-up stands.
func TestExplainNamesTheWarmup(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "new" { address = "127.0.0.1" }
		plan "tiny" {
			stage {
				hourly = 1
				daily = 1
			}
		}
		pool "default" {
			overflow = "hold"
			dedicated "new" { plan = "tiny" }
		}`)
	w.send("ann@client.example", letter, "bob@box.example")
	if got := w.arrived(1)[0]; got.Client.Addr().String() != "127.0.0.1" {
		t.Errorf("it came from %s", got.Client)
	}
	id := enqueue(t, w.Relay, "eve@box.example", 1)
	explained(t, w.Relay, id, says(api.StateWaiting,
		"it waits for the warm-up of source new (127.0.0.1): plan tiny, stage 1 of 1, 1 of 1 sent this hour, 1 of 1 today: the day's cap is used"))
	if it, err := w.api.Queue.Get(t.Context(), id); err != nil || it.Recipients[0].Doing != "waits for the warm-up of new: the day's cap is used" || time.Until(it.Recipients[0].Next) < time.Hour {
		t.Errorf("in the queue: %+v, %v", it.Recipients, err)
	}
	d := w.explainDomain("box.example")
	if d.Now != "mail waits for the warm-up of source new: the day's cap is used" || d.Until.IsZero() {
		t.Errorf("verdict: %q until %v", d.Now, d.Until)
	}
	if d.Queued.Warmup != 1 || d.Queued.Unsorted != 0 {
		t.Errorf("in the queue: %+v", d.Queued)
	}
	sites, err := w.api.Destinations.Sites(t.Context(), api.SiteFilter{Busy: true})
	if err != nil || !slices.ContainsFunc(sites.Sites, func(s api.Site) bool {
		return s.Name == "warmup:default/other" && s.Parked == 1 && s.Why == "the warm-up of new: the day's cap is used"
	}) {
		t.Errorf("sites %+v, %v", sites, err)
	}
	if !strings.HasSuffix(d.Sources[0].Warmup, "; 1 waiting") {
		t.Errorf("warm-up: %s", d.Sources[0].Warmup)
	}
	if s := w.explainDomain("box.example").Sources; len(s) != 1 || !strings.HasPrefix(s[0].Warmup, "plan tiny, stage 1 of 1, 1 of 1 sent this hour") {
		t.Errorf("sources %+v", s)
	}
	text := w.scrape()
	for _, line := range []string{`mta_warmup_stage{source="new"} 1`, `mta_warmup_sent_this_hour{source="new"} 1`, `mta_warmup_paused{source="new"} 0`, `mta_warmup_waiting{source="new"} 1`} {
		if !strings.Contains(text, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
}

// TestExplainTellsOfOtherPools: what is said of a domain holds for one pool's mail, so the others are named.
func TestExplainTellsOfOtherPools(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "shared" { address = "127.0.0.1" }
		source "new" { address = "127.0.0.2" }
		pool "default" { shared = ["shared"] }
		pool "acme" {
			shared = ["shared"]
			dedicated "new" { plan = "standard" }
		}
		tenant "acme" { pool = "acme" }
		tenant "subsidiary" { pool = "acme" }
		tenant "other" { pool = "default" }`)
	ask := func(tenant string) (api.Destination, error) {
		e, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{Domain: "box.example", Tenant: tenant})
		if err != nil {
			return api.Destination{}, err
		}
		return e.Destinations[0], nil
	}
	d, err := ask("")
	if err != nil || len(d.OtherPools) != 1 || d.OtherPools[0].Name != "acme" || !slices.Equal(d.OtherPools[0].Tenants, []string{"acme", "subsidiary"}) {
		t.Errorf("others than %s: %+v, %v", d.Pool, d.OtherPools, err)
	}
	if d, err = ask("acme"); err != nil || !strings.HasPrefix(d.Now, "mail is sent without delay") || len(d.OtherPools) != 1 || d.OtherPools[0].Name != "default" {
		t.Errorf("others than %s: %+v, %v; %s", d.Pool, d.OtherPools, err, d.Now)
	}
	if _, err := w.api.Warmups.ChangeWarmup(t.Context(), "new", api.WarmupPause, api.StageChoice{}); err != nil {
		t.Fatal(err)
	}
	if d, err = ask("acme"); err != nil || d.Now != "mail is sent without delay, but not from source new, which warms up: paused by an operator" {
		t.Errorf("paused: %q, %v", d.Now, err)
	}
	if _, err = ask("acne"); err == nil || !strings.Contains(err.Error(), `no tenant "acne"`) {
		t.Errorf("a tenant that is none: %v", err)
	}
}

// TestExplainOfPatience: mail waits for a warming source although a shared one is free, unless the pool has no patience.
func TestExplainOfPatience(t *testing.T) {
	for patience, want := range map[string]string{
		"6h": "as much mail as source new takes within 6h waits for its warm-up, other mail is sent without delay: the day's cap is used",
		"0s": "mail is sent without delay, but not from source new, which warms up: the day's cap is used",
	} {
		w := newWorld(t, sink.Config{}, `
			defaults { smtp_port = PORT }
			source "shared" { address = "127.0.0.1" }
			source "new" { address = "127.0.0.2" }
			plan "tiny" {
				stage {
					hourly = 1
					daily = 1
				}
			}
			pool "default" {
				shared = ["shared"]
				patience = "`+patience+`"
				dedicated "new" { plan = "tiny" }
			}`)
		w.send("ann@client.example", "Subject: hello\r\n\r\nhello\r\n", "bob@box.example")
		w.arrived(1)
		w.until("verdict", func() bool { return w.explainDomain("box.example").Now == want })
	}
}

// TestExplainTellsOfSuppression: mail in the queue whose address has come on the list since is bounced
// when its turn comes, which is said while it waits.
func TestExplainTellsOfSuppression(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "new" { address = "127.0.0.1" }
		plan "tiny" {
			stage {
				hourly = 1
				daily = 1
			}
		}
		pool "default" {
			dedicated "new" { plan = "tiny" }
		}`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.arrived(1)
	// The warm-up may look at what waits just then, and it is bounced before it is asked about.
	suppressed := says(api.StateWaiting, "it will then be bounced, since its address is suppressed (since ")
	for i := range 20 {
		address := fmt.Sprintf("eve%d@box.example", i)
		id := enqueue(t, w.Relay, address, 1)
		explained(t, w.Relay, id, says(api.StateWaiting, "the day's cap is used"))
		w.suppress(envelope.Address(address))
		e, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{ID: id})
		if err == nil && suppressed(&e.Message.Recipients[0]) {
			return
		}
		t.Logf("not as it should be: %+v, %v", e.Message, err)
	}
	t.Error("of 20 messages none is explained by the suppression of its address")
}
