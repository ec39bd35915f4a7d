package relaytest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

const ruleZone = `
box.example.    300 MX 10 mx.box.example.
mx.box.example. 300 A 192.0.2.1
new.example.    300 A 192.0.2.2
gone.example.   300 MX 10 down.example.
down.example.   300 A 192.0.2.9
`

const ruleConf = `
	tenant "acme" { }
	provider "big" { mx = ["mx.box.example"] }
	source "one" { address = "192.0.2.10" }
`

// ruled is a relay with a host for box.example, and one for no domain, which count what they take.
type ruled struct {
	*Relay
	taken, other *sink.Recorder
}

func newRuled(t *testing.T, conf string) *ruled {
	r := &ruled{New(t, ruleZone, ruleConf+conf), sink.NewRecorder(sink.Deliveries, 0), sink.NewRecorder(sink.Deliveries, 0)}
	r.Host("mx.box.example", sink.Config{Recorder: r.taken}, "192.0.2.1:25")
	r.Host("new.example", sink.Config{Recorder: r.other}, "192.0.2.2:2525")
	r.Start()
	return r
}

func (r *ruled) rule(x api.AddRule) api.Rule {
	r.t.Helper()
	done, err := api.OpAddRule.Call(r.t.Context(), r.Client(), x)
	r.must(err)
	return done.Rule
}

func (r *ruled) end(id int) {
	r.t.Helper()
	_, err := api.OpEndRule.Call(r.t.Context(), r.Client(), api.EndRule{ID: id})
	r.must(err)
}

// send submits n messages, and gives the relay a second.
func (r *ruled) send(n int, to ...string) {
	for range n {
		r.Submit("ann@client.example", "From: ann@client.example\r\nSubject: s\r\n\r\nx\r\n", to...)
	}
	time.Sleep(time.Second)
}

// want compares what both hosts have taken.
func (r *ruled) want(when string, taken, other int) {
	r.t.Helper()
	if got := [2]int{len(r.taken.Deliveries()), len(r.other.Deliveries())}; got != [2]int{taken, other} {
		r.t.Errorf("%s: %v were taken, want %v", when, got, [2]int{taken, other})
	}
}

// restart is one a moment later.
func (r *ruled) restart() {
	r.Stop()
	r.Start()
	time.Sleep(2 * time.Second)
}

// explained is the answer about a domain.
func (r *ruled) explained(domain string) api.Destination {
	r.t.Helper()
	e, err := api.OpExplain.Call(r.t.Context(), r.Client(), api.ExplainQuery{Domain: domain})
	r.must(err)
	return e.Destinations[0]
}

var box = api.Selection{Domain: "box.example"}

// TestRuleBounces what comes, and what waits at its next attempt; mail for other domains leaves.
func TestRuleBounces(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, `
			domain "late.example" { route = ["fail 451 4.3.0 later"] }
			defaults { retry_interval = "5m" }`)
		r.send(1, "a@late.example")
		r.rule(api.AddRule{Action: api.RuleBounce, Selection: api.Selection{Domain: "late.example"}, By: "ann", Reason: "secret"})
		x := r.rule(api.AddRule{Action: api.RuleBounce, Selection: box, By: "ann"})
		r.send(1, "b@box.example")
		r.restart()
		r.send(1, "c@box.example", "c@dead.example")
		r.want("bounced", 0, 0)
		if n := len(r.records(accounting.AdminBounce)); n != 2 {
			t.Errorf("%d bounces, want 2", n)
		}
		if now := r.explained("box.example"); !strings.HasPrefix(now.Now, "mail is bounced: rule 2 of") || len(now.Rules) != 1 {
			t.Errorf("explained as %q, %q", now.Now, now.Rules)
		}
		time.Sleep(10 * time.Minute) // the retry of what waited, and of dead.example, which has no rule
		all := r.records(accounting.AdminBounce)
		if len(all) != 3 || all[2].Recipient != "a@late.example" || strings.Contains(all[2].Response.Text, "secret") {
			t.Errorf("after the retry: %+v", all)
		}
		r.rule(api.AddRule{Action: api.RuleBounce, Selection: api.Selection{Domain: "nowhere.example"}})
		r.send(1, "d@nowhere.example") // a domain without a route
		r.end(x.ID)
		r.send(1, "e@box.example")
		r.want("after the end", 1, 0)
		y := r.rule(api.AddRule{Action: api.RuleBounce, Selection: api.Selection{All: true}})
		r.must(r.Zone.Add("home.example. 300 MX 10 mx.box.example."))
		r.Submit("eve@home.example", "From: eve@home.example\r\n\r\n", "f@box.example")
		time.Sleep(5 * time.Second)
		r.want("the report about the last", 2, 0)
		all = r.records(accounting.AdminBounce)
		last := all[len(all)-1]
		if want := fmt.Sprintf("(rule %d)", y.ID); last.Recipient != "f@box.example" || !strings.HasSuffix(last.Response.Text, want) || last.Site != "" {
			t.Errorf("bounced by the rule: %+v", last)
		}
	})
}

// TestRuleHolds what was never tried, once: what is released leaves, over a restart too.
func TestRuleHolds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, "")
		x := r.rule(api.AddRule{Action: api.RuleHold, Selection: api.Selection{Provider: "big"}, By: "ann"})
		r.send(3, "a@box.example")
		held := func(want int) {
			t.Helper()
			l, err := api.OpList.Call(t.Context(), r.Client(), api.ListQuery{Filter: api.Filter{State: api.StateHeld}})
			if err != nil || len(l.Messages) != want {
				t.Errorf("held: %+v, %v; want %d", l.Messages, err, want)
			}
		}
		held(3)
		r.restart()
		held(3)
		release := func(f api.Filter) {
			t.Helper()
			_, err := api.OpChange.Call(t.Context(), r.Client(), api.Change{Action: api.Release, Filter: f})
			r.must(err)
			time.Sleep(time.Second)
		}
		l, err := api.OpList.Call(t.Context(), r.Client(), api.ListQuery{})
		r.must(err)
		release(api.Filter{IDs: []string{l.Messages[0].ID}})
		r.want("one was released", 1, 0)
		held(2)
		pause := r.rule(api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{All: true}})
		release(api.Filter{IDs: []string{l.Messages[1].ID}})
		if now := r.explained("box.example"); !strings.HasPrefix(now.Now, "new mail is held: ") || len(now.Rules) != 2 {
			t.Errorf("explained as %q, %q", now.Now, now.Rules)
		}
		r.restart()
		r.end(pause.ID)
		time.Sleep(time.Second)
		r.want("two were released", 2, 0)
		held(1)
		r.end(x.ID)
		held(1)
		r.send(1, "b@box.example")
		r.want("after the end", 3, 0)
	})
}

// TestRuleSlows all mail that it is for together, over a restart, and the lowest rate counts.
func TestRuleSlows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, "")
		slow := r.rule(api.AddRule{Action: api.RuleSlow, Selection: api.Selection{Provider: "big"}, Rate: "6/m", By: "ann", For: new(api.Age(time.Hour))})
		r.rule(api.AddRule{Action: api.RuleSlow, Selection: api.Selection{All: true}, Rate: "60/m"})
		r.send(20, "a@box.example")
		time.Sleep(time.Minute)
		n := len(r.taken.Deliveries())
		if n < 6 || n > 8 {
			t.Errorf("%d left in a minute at 6/m", n)
		}
		d := r.explained("box.example")
		if len(d.Rules) != 2 || !strings.Contains(d.Now, "slow provider big to 6/min") || d.Ceiling.PerSecond != 0.1 {
			t.Errorf("explained as %q, %q, at most %+v", d.Now, d.Rules, d.Ceiling)
		}
		r.restart()
		before := len(r.taken.Deliveries())
		time.Sleep(time.Minute)
		if n := len(r.taken.Deliveries()) - before; n < 5 || n > 8 {
			t.Errorf("%d left in a minute after the restart", n)
		}
		r.end(slow.ID)
		time.Sleep(15 * time.Second)
		r.want("at 60/m", 20, 0)
	})
}

// TestRuleReroutes mail that comes, mail that waits for a domain without a route, and what delivery has; what its
// domain says still counts, and its max_age.
func TestRuleReroutes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, `domain "gone.example" {
			max_age        = "20m"
			retry_interval = "5m"
		}`)
		r.send(1, "a@gone.example") // its host is down
		x := r.rule(api.AddRule{Action: api.RuleReroute, Selection: api.Selection{Domain: "gone.example"}, Host: "new.example:2525", By: "ann"})
		r.send(1, "b@gone.example", "b@box.example")
		r.want("rerouted", 1, 1)
		r.restart()
		d := r.explained("gone.example")
		if d.Domain != "gone.example" || d.Site != "new.example:2525" || len(d.Rules) != 1 || !strings.Contains(d.Rules[0], "reroute domain gone.example to smtp://new.example:2525") {
			t.Errorf("explained as %+v", d)
		}
		time.Sleep(7 * time.Minute) // the retry of the first
		r.want("after the retry", 1, 2)
		r.rule(api.AddRule{Action: api.RuleReroute, Selection: box, Host: "new.example:2525"})
		r.send(1, "c@box.example")
		r.want("another domain", 1, 3)
		r.rule(api.AddRule{Action: api.RuleReroute, Selection: api.Selection{Domain: "gone.example"}, Host: "down.example"})
		r.send(1, "d@gone.example")
		time.Sleep(30 * time.Minute)
		if n := len(r.records(accounting.Expiration)); n != 1 {
			t.Errorf("%d expired by the domain's max_age, want 1", n)
		}
		r.end(x.ID)
		r.send(1, "e@gone.example")
		r.want("after the end", 1, 3)
	})
}

// TestTheStricterRuleWins, whichever came first; both are named. A suspended message expires in time.
func TestTheStricterRuleWins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, `defaults { max_age = "10m" }`)
		r.rule(api.AddRule{Action: api.RuleSuspend, Selection: box, By: "ann", Reason: "one"})
		r.send(1, "a@box.example")
		bounce := r.rule(api.AddRule{Action: api.RuleBounce, Selection: api.Selection{Provider: "big"}, By: "bob", Reason: "two"})
		r.rule(api.AddRule{Action: api.RuleHold, Selection: box})
		r.send(1, "b@box.example")
		if n := len(r.records(accounting.AdminBounce)); n != 1 {
			t.Errorf("%d bounces, want 1", n)
		}
		if d := r.explained("box.example"); len(d.Rules) != 3 || !strings.HasPrefix(d.Rules[0], "rule 2 of ") || !strings.HasSuffix(d.Rules[2], ": one") {
			t.Errorf("explained by %q", d.Rules)
		}
		r.end(bounce.ID)
		time.Sleep(15 * time.Minute)
		if n := len(r.records(accounting.Expiration)); n != 1 {
			t.Errorf("%d have expired, want the first", n)
		}
		r.want("at the end", 0, 0)
	})
}

// TestRulesEndAndAreDamaged: one with an end ends by itself; where both copies are damaged nothing leaves.
func TestRulesEndAndAreDamaged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, "")
		r.rule(api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{Tenant: "acme", Domain: "box.example"}})
		r.rule(api.AddRule{Action: api.RuleSuspend, Selection: box, For: new(api.Age(10 * time.Minute))})
		r.send(1, "a@box.example")
		r.want("suspended", 0, 0)
		time.Sleep(10 * time.Minute)
		r.want("for ten minutes", 1, 0)
		r.Stop()
		for _, name := range []string{"pauses.json", "pauses.json.copy"} {
			r.must(os.WriteFile(filepath.Join(r.Dir, name), []byte(`{"rules":[{"id":1,"action":"fly"}],"last":1}`), 0o600))
		}
		r.Start()
		r.send(1, "b@box.example")
		r.want("damaged", 1, 0)
		l, err := api.OpRules.Call(t.Context(), r.Client(), api.None{})
		if err != nil || len(l.Rules) != 1 || !l.Rules[0].All || l.Rules[0].By != "the relay" {
			t.Fatalf("in force: %+v, %v", l, err)
		}
		r.end(l.Rules[0].ID)
		time.Sleep(time.Second)
		r.want("after the end", 2, 0)
	})
}

// TestTooManyRules: a thousand are enough, which cost mail no time; one in the place of another is not one more.
func TestTooManyRules(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, "")
		add := func(n int) error {
			_, err := api.OpAddRule.Call(context.Background(), r.Client(), api.AddRule{Action: api.RuleBounce, Selection: api.Selection{Domain: fmt.Sprintf("d%d.example", n)}})
			return err
		}
		r.must(add(0))
		r.Stop()
		var file struct {
			Rules []api.Rule `json:"rules"`
			Last  int        `json:"last"`
		}
		name := filepath.Join(r.Dir, "pauses.json") // each of them as its command writes it: a thousand calls take a while
		text, err := os.ReadFile(name)
		r.must(err)
		r.must(json.Unmarshal(text, &file))
		for n := 1; n < 999; n++ {
			x := file.Rules[0]
			x.ID, x.Domain = n+1, fmt.Sprintf("d%d.example", n)
			file.Rules, file.Last = append(file.Rules, x), x.ID
		}
		text, err = json.Marshal(file)
		r.must(err)
		r.must(os.WriteFile(name, text, 0o600))
		r.must(os.WriteFile(name+".copy", text, 0o600))
		r.Start()
		r.must(add(999))
		if err := add(1000); err == nil || !strings.Contains(err.Error(), "1000 rules") {
			t.Errorf("the next one: %v", err)
		}
		r.must(add(7))
		y := r.rule(api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{Tenant: "acme"}}) // there is room for a pause
		r.end(y.ID)
		r.send(1, "a@box.example", "b@d999.example")
		r.want("with all of them", 1, 0)
		r.restart()
		l, err := api.OpRules.Call(t.Context(), r.Client(), api.None{})
		if err != nil || len(l.Rules) != 1000 || !slices.ContainsFunc(l.Rules, func(x api.Rule) bool { return x.ID == 8 }) {
			t.Errorf("%d rules, %v", len(l.Rules), err)
		}
	})
}

// TestCeilingOfARuleAboutASource: a rule that slows one source of a pool does not bound what the others send.
func TestCeilingOfARuleAboutASource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, `
			source "two" { address = "192.0.2.11" }
			domain "none.example" { route = ["discard"] }
		`)
		r.rule(api.AddRule{Action: api.RuleSlow, Rate: "30/m", Selection: api.Selection{Source: "one"}})
		x := r.rule(api.AddRule{Action: api.RuleSlow, Rate: "60/m", Selection: box})
		if c := r.explained("box.example").Ceiling; c.PerSecond != 1 || !strings.HasPrefix(c.Binds, fmt.Sprintf("max_message_rate 60/min of rule %d", x.ID)) {
			t.Errorf("%+v, want 1 a second of rule %d", c, x.ID)
		}
		if d := r.explained("none.example"); d.TLSOrigin != "no host: the relay answers itself" {
			t.Errorf("TLS %s since %s", d.TLS, d.TLSOrigin)
		}
	})
}
