package rules

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

// paced is rules over a configuration, at a time that the caller moves.
func paced(t *testing.T, text string, now *time.Time) *Rules {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	r, err := Read(bubble.Folder(t), func() time.Time { return *now }, newest, func() *wiring.Policy { return pol }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func asking(campaign, pace string) *envelope.Message {
	return &envelope.Message{Tenant: "acme", Campaign: campaign, Marks: []string{envelope.MarkOf(envelope.PaceField, pace)}}
}

// TestAMillionCampaigns take the memory of a thousand, the rest share a pace, and none of another tenant's; all are
// forgotten when their time has come.
func TestAMillionCampaigns(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := paced(t, "", &now)
	now = now.Add(time.Hour)
	sent := 0
	for i := range 1_000_000 {
		if r.May(asking(fmt.Sprint("c", i), "1/h"), 1, nil) {
			sent++
		}
	}
	if sent < mostOfTenant || sent > 2*mostOfTenant+2 || len(r.paces.by) != mostOfTenant+1 {
		t.Errorf("%d left, and %d campaigns are known", sent, len(r.paces.by))
	}
	other := asking("c", "1/h")
	if other.Tenant = "news"; !r.May(other, 1, nil) {
		t.Error("another tenant's campaign waits for them")
	}
	now = now.Add(3 * time.Hour)
	r.Forget(func(key parking.Key) bool { return key.Name == "tenant news, campaign c that asks for 1/h" })
	if len(r.paces.by) != 1 || len(r.paces.ofTenant) != 1 {
		t.Errorf("%d campaigns of %d tenants are known later", len(r.paces.by), len(r.paces.ofTenant))
	}
}

// TestWhichPaceCounts: the slower one of the message and the first block that has one; a rule instead of both. A start
// gives mail nothing that was there before.
func TestWhichPaceCounts(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := paced(t, `
		mail "none" {
			match { campaign = ["free"] }
			pace = "none"
		}
		mail "all" {
			match { tenant = ["acme"] }
			pace = "60/h"
		}
		tenant "acme" {}`, &now)
	want := func(m *envelope.Message, rate string) {
		t.Helper()
		if p := r.Pace(m); p.Rate.String() != rate {
			t.Errorf("campaign %q has the pace %s (%s), want %s", m.Campaign, p.Rate, p.Why, rate)
		}
	}
	want(&envelope.Message{Tenant: "acme"}, "60/h")
	want(&envelope.Message{Tenant: "news"}, "unlimited")
	want(asking("x", "3/h"), "3/h")
	want(asking("x", "3/s"), "60/h")
	want(asking("free", "3/s"), "3/s")
	want(asking("free", "none"), "unlimited")
	want(&envelope.Message{Tenant: "acme", Protocol: envelope.LocalProtocol}, "unlimited")
	if r.May(asking("x", "3/h"), 1, nil) {
		t.Error("a start gives a recipient")
	}
	now = now.Add(20 * time.Minute)
	if !r.May(asking("x", "3/h"), 1, nil) {
		t.Error("nothing leaves after the time of a recipient")
	}
	rule, err := r.Begin(api.Rule{Action: api.RuleSlow, Selection: api.Selection{Campaign: "x"}, Rate: "2/s", Since: now}, false)
	if err != nil {
		t.Fatal(err)
	}
	want(asking("x", "3/h"), "2/s")
	whole := api.Rule{Action: api.RuleSlow, Selection: api.Selection{Tenant: "acme", Campaign: "x"}, Rate: "9/s", Since: now}
	if whole, err = r.Begin(whole, false); err != nil {
		t.Fatal(err)
	}
	want(asking("x", "3/h"), "2/s") // the newer one is not the stricter
	if _, err := r.End(whole.ID); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	if !r.May(asking("x", "3/h"), 1, nil) {
		t.Error("a rule that speeds the campaign up does not count for what is due later")
	}
	if _, err := r.End(rule.ID); err != nil {
		t.Fatal(err)
	}
	want(asking("x", "3/h"), "3/h")
}

// TestNothingIsLostWithAWarmUp: what the warm-up refuses is given back.
func TestNothingIsLostWithAWarmUp(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := paced(t, "", &now)
	now = now.Add(2 * time.Hour)
	m, begun := asking("x", "1/h"), 0
	for range 5 {
		if r.May(m, 1, func(int) bool { return false }) {
			t.Error("it leaves without tokens")
		}
	}
	for range 5 {
		if r.May(m, 1, nil) {
			begun++
		}
	}
	if begun != 2 {
		t.Errorf("%d leave at once, want one and one more", begun)
	}
}

// TestPacesOverStarts: however often the relay starts, a campaign under way leaves once in its interval, neither more nor
// never; one that begins does not wait.
func TestPacesOverStarts(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 30, 0, 0, time.UTC)
	first := now
	old := asking("x", "1/h")
	old.Received = now
	sent := 0
	for range 100 { // starts, 50 minutes apart
		now = now.Add(time.Minute)
		r := paced(t, "", &now)
		for range 49 {
			now = now.Add(time.Minute)
			if r.May(old, 1, nil) {
				sent++
			}
		}
		begins := asking("y", "1/d")
		begins.Received = now
		if !r.May(begins, 1, nil) {
			t.Fatal("a campaign that begins waits")
		}
	}
	if hours := int(now.Sub(first).Hours()); sent < hours-hours/20 || sent > hours+1 {
		t.Errorf("%d left in %d hours at 1/h", sent, hours)
	}
}

// TestAMessageWithASlowerPace holds up none of its campaign, and leaves within the campaign's pace.
func TestAMessageWithASlowerPace(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := paced(t, `mail "all" {
		match { tier = [0] }
		pace = "1/min"
	}`, &now)
	slow, slower, usual, bare := asking("x", "30/h"), asking("x", "20/h"), asking("x", "100/s"), asking("", "")
	if a, b, c := r.Pace(slow), r.Pace(slower), r.Pace(usual); a.Key == b.Key || a.Key == c.Key || b.Key == c.Key || c.Key.Name != "tenant acme, campaign x" {
		t.Errorf("%v, %v, %v", &a, &b, &c)
	}
	if p := r.Pace(bare); p.Key.Name != "mail of tenant acme without a campaign" {
		t.Error(&p)
	}
	own, sent := 0, 0
	for range 60 {
		now = now.Add(time.Minute)
		for _, m := range []*envelope.Message{slow, slower, usual, usual} {
			p := r.Pace(m)
			if r.Take(&p, 1) == 0 {
				continue
			} else if !r.May(m, 1, nil) {
				r.Untake(&p, 1)
			} else if sent++; m != usual {
				own++
			}
		}
	}
	if sent < 58 || sent > 62 || own > 52 || own < 10 {
		t.Errorf("%d left in an hour at 1/min, %d of those that ask for less", sent, own)
	}
}

// dealt is this relay's part of each pace, by a clock. It implements SharedPaces.
type dealt struct {
	now   *time.Time
	part  float64
	paces map[string]*gcra.Limiter
	waits map[string]bool
}

func (d *dealt) of(name string, r gcra.Rate) (*gcra.Limiter, gcra.Rate) {
	if d.paces[name] == nil {
		d.paces[name] = new(gcra.Limiter)
	}
	depth := float64(r.Depth()) * d.part
	r.Per = time.Duration(float64(r.Per) / d.part)
	r.Burst = max(1, int(depth))
	return d.paces[name], r
}

func (d *dealt) Left(name string, r gcra.Rate) (int, float64) {
	if d.part == 0 {
		return 0, 0
	}
	l, r := d.of(name, r)
	return l.Left(*d.now, r), d.part
}

func (d *dealt) Wait(name string, r gcra.Rate) time.Duration {
	if d.waits[name] = true; d.part == 0 {
		return -1
	}
	l, r := d.of(name, r)
	return max(0, l.Next(*d.now, r, 1).Sub(*d.now))
}

func (d *dealt) Spend(name string, r gcra.Rate, n int) bool {
	if left, _ := d.Left(name, r); left < n {
		return false
	}
	l, r := d.of(name, r)
	l.Take(*d.now, r, n)
	return true
}

func (d *dealt) Return(name string, r gcra.Rate, n int) {
	l, r := d.of(name, r)
	l.GiveBack(r, n)
}

// TestAPaceThatRelaysShare: mail is handed over evenly by the relay's part, and leaves by it; without one nothing does,
// and the pace is asked for. What does not begin is given back.
func TestAPaceThatRelaysShare(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := paced(t, "", &now)
	d := &dealt{now: &now, paces: make(map[string]*gcra.Limiter), waits: make(map[string]bool)}
	r.Paces = d
	const name = "pace of tenant acme, campaign x that asks for 90/min"
	m := asking("x", "90/min")
	p := r.Pace(m)
	if n := r.Take(&p, 1); n != 0 || r.May(m, 1, nil) || r.Ready(p.Key) != now.Add(noPart) || !d.waits[name] {
		t.Errorf("without a part %d are left, ready at %v, %v wait", n, r.Ready(p.Key), d.waits)
	}
	if why, _, _ := r.Why(p.Key); why != "the pace of tenant acme, campaign x that asks for 90/min is 90/min, of all relays together: as the message asks" {
		t.Error(why)
	}
	d.part = 1. / 3
	sent := 0
	for range 600 { // a minute
		now = now.Add(time.Second / 10)
		ready := !now.Before(r.Ready(p.Key))
		if n := r.Take(&p, 9); n > 0 {
			if !ready {
				t.Fatal("some are left, and none is ready")
			}
			if n != 1 || !r.May(m, 1, nil) {
				t.Fatalf("%d are handed over, and may not leave", n)
			}
			sent++
		}
	}
	if sent < 29 || sent > 31 {
		t.Errorf("%d left in a minute by a third of 90", sent)
	}
	now = now.Add(time.Hour)
	for range 9 {
		if r.May(m, 1, func(int) bool { return false }) {
			t.Error("it leaves without tokens")
		}
	}
	if !r.May(m, 1, nil) {
		t.Error("what did not leave was not given back")
	}
	m = asking("y", "100/s")
	p, d.part = r.Pace(m), 1./20
	if n := r.Take(&p, 9); n != 1 {
		t.Errorf("%d are handed over at once by a twentieth of 100/s", n)
	}
}

// TestARuleThatRelaysShare has the same name at all of them, whatever its number.
func TestARuleThatRelaysShare(t *testing.T) {
	now := time.Unix(1e9, 0)
	to := &route.Route{Domain: "slow.example", Site: "slow"}
	slow := api.Rule{Action: api.RuleSlow, Selection: api.Selection{Domain: "slow.example"}, Rate: "3/s", Since: now, By: "ann", Reason: "t"}
	for _, before := range []int{0, 2} {
		r := paced(t, "", &now)
		for i := range before {
			other := api.Rule{Action: api.RuleHold, Selection: api.Selection{Tenant: fmt.Sprint(i)}, Since: now, By: "ann"}
			if _, err := r.Begin(other, false); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Begin(slow, false); err != nil {
			t.Fatal(err)
		}
		if rates := r.Rates(to, "a", ""); len(rates) != 1 || rates[0].Shared != "" {
			t.Errorf("without a cluster: %+v", rates)
		}
		r.Paces = &dealt{}
		if rates := r.Rates(to, "a", ""); len(rates) != 1 || rates[0].Shared != "rule for domain slow.example" || rates[0].Rule != before+1 ||
			rates[0].Why != fmt.Sprintf("rule %d of ann: slow domain slow.example to 3/s, of all relays together: t", before+1) {
			t.Errorf("%+v", rates)
		}
		own := api.Rule{Action: api.RuleSlow, Selection: api.Selection{Domain: "slow.example"}, Rate: "1/s", Since: now, By: ByRelay}
		if _, err := r.Begin(own, false); err != nil {
			t.Fatal(err)
		}
		if rates := r.Rates(to, "a", ""); len(rates) != 1 || rates[0].Shared != "" {
			t.Errorf("with a rule of the relay: %+v", rates)
		}
	}
}
