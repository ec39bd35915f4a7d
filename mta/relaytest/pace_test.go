package relaytest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

// atMost fails the test if more recipients than the pace allows were tried in any window of the deliveries since a time: a
// second's worth, and one recipient, may come at once.
func (r *ruled) atMost(when string, since time.Time, every time.Duration, burst int) (n int) {
	r.t.Helper()
	var at []time.Time
	for _, d := range r.records(accounting.Delivery) {
		if d.Time.After(since) && d.Recipient != "ann@client.example" {
			at = append(at, d.Time)
		}
	}
	for i := range at {
		if j := i + burst; j < len(at) && at[j].Sub(at[i]) < every-50*time.Millisecond {
			r.t.Errorf("%s: %d left within %s, from %s on", when, burst+1, at[j].Sub(at[i]), at[i].Format(time.TimeOnly))
			break
		}
	}
	return len(at)
}

const paceConf = `
	mail "news" {
		match { campaign = ["spring"] }
		pace = "3600/h"
	}`

// TestPace: a campaign leaves at its pace to several sites together, one of which is silent for a while, and what waited
// for that does not leave at once; other mail passes. Rules change the pace while it runs, up and down, for mail in
// delivery too, and a restart gives nothing.
func TestPace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, paceConf+`
			defaults { retry_interval = "5m" }`)
		r.Host("new.example", sink.Config{Recorder: r.other}, "192.0.2.2:25")
		began := time.Now()
		for i := range 300 {
			r.campaign("X-MTA-Tenant: acme\r\n", fmt.Sprintf("a%d@%s", i, []string{"box.example", "new.example", "gone.example"}[i%3]))
		}
		r.send(5, "other@box.example")
		if n := len(r.taken.Deliveries()); n < 5 {
			t.Errorf("%d left at once, want the other mail", n)
		}
		others := time.Now()
		time.Sleep(time.Minute)
		if n := r.atMost("at 3600/h", others, time.Second, 2); n < 38 || n > 62 {
			t.Errorf("%d left in a minute at 3600/h, a third of which is for a host that is down", n)
		}
		if x := r.explainedAll(); !strings.Contains(x[len(x)-1], `the pace of tenant acme, campaign spring is 3600/h: mail "news" (mta.conf:`) {
			t.Errorf("explained as %q", x[len(x)-1])
		}
		e, err := api.OpExplain.Call(t.Context(), r.Client(), api.ExplainQuery{Domain: "new.example"})
		if r.must(err); e.Destinations[0].Queued.Paced < 60 {
			t.Errorf("explain of a domain with mail for a pace: %+v", e.Destinations[0].Queued)
		}
		if n := r.waitsFor("pace"); n < 100 {
			t.Errorf("%d wait for the pace", n)
		}
		slow := r.rule(api.AddRule{Action: api.RuleSlow, Selection: api.Selection{Campaign: "spring"}, Rate: "360/h", By: "ann"})
		time.Sleep(time.Second)
		at := time.Now()
		time.Sleep(2 * time.Minute)
		if n := r.atMost("at 360/h", at, 10*time.Second, 2); n < 6 || n > 13 {
			t.Errorf("%d left in two minutes at 360/h", n)
		}
		r.rule(api.AddRule{Action: api.RuleSlow, Selection: api.Selection{Campaign: "spring"}, Rate: "2/s", By: "ann"})
		time.Sleep(time.Second)
		at = time.Now()
		time.Sleep(20 * time.Second)
		if n := r.atMost("at 2/s", at, 500*time.Millisecond, 3); n < 20 || n > 42 {
			t.Errorf("%d left in 20 seconds at 2/s", n)
		}
		r.end(slow.ID)
		at = time.Now()
		r.Stop()
		r.Start()
		r.Host("down.example", sink.Config{Recorder: r.other}, "192.0.2.9:25")
		time.Sleep(30 * time.Second)
		if n := r.atMost("after a restart", at, time.Second, 2); n > 32 {
			t.Errorf("%d left in 30 seconds after a restart", n)
		}
		time.Sleep(30 * time.Minute)
		r.atMost("to the end", at, time.Second, 2)
		if n := r.atMost("in all", began.Add(-1), 0, 1000); n != 305 {
			t.Errorf("%d were delivered, want all 305", n)
		}
	})
}

// TestPaceOfAMessage: the slower one of what a message asks for and what is configured counts, tiers take turns, what
// expires meanwhile is reported, and large messages are cut.
func TestPaceOfAMessage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, paceConf+`
			domain "new.example" { max_age = "10m" }
			domain "client.example" { route = ["discard"] }`)
		r.Host("new.example", sink.Config{Recorder: r.other}, "192.0.2.2:25")
		began := time.Now()
		for i := range 10 {
			r.campaign("X-MTA-Pace: 60/h\r\nMT-Priority: -6\r\n", fmt.Sprintf("a%d@box.example", i))
		}
		r.campaign("X-MTA-Pace: 60/h\r\n", "first@box.example")
		time.Sleep(3*time.Minute + 30*time.Second)
		r.atMost("at 60/h", began, time.Minute, 2)
		got := ""
		for _, d := range r.taken.Deliveries() {
			got += d.Recipient + " "
		}
		if !strings.Contains(got, "first@") {
			t.Errorf("left in three minutes: %s", got)
		}
		time.Sleep(10 * time.Minute)
		at := time.Now()
		to := make([]string, 100)
		for i := range to {
			to[i] = fmt.Sprintf("b%d@box.example", i)
		}
		r.Submit("ann@client.example", "X-MTA-Campaign: spring\r\nX-MTA-Pace: 7200/h\r\nFrom: ann@client.example\r\n\r\nx\r\n", to...)
		time.Sleep(50 * time.Second)
		if n := r.atMost("100 recipients at 3600/h", at, time.Second, 2); n < 48 || n > 52 {
			t.Errorf("%d recipients of a message left in 50 seconds at 3600/h", n)
		}
		for i := range 200 {
			r.campaign("X-MTA-Pace: 60/h\r\n", fmt.Sprintf("c%d@new.example", i))
		}
		time.Sleep(15 * time.Minute)
		if n, m := len(r.records(accounting.Expiration)), len(r.other.Deliveries()); n+m != 200 || n < 160 {
			t.Errorf("%d have expired after ten minutes, %d were delivered", n, m)
		}
	})
}

// TestWhatAPaceDoesNotHold: a campaign's first mail, after a start too; mail beside that which asks for less; fresh mail
// behind retries; and what a rule bounces.
func TestWhatAPaceDoesNotHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, strings.Replace(hoursConf, "50m", "30m", 1)+`
			mail "often" {
				match { campaign = ["retries"] }
				pace           = "60/h"
				retry_interval = "1m"
			}`)
		r.restart()
		to := func(campaign, pace, to string) {
			r.Submit("ann@client.example", "X-MTA-Campaign: "+campaign+"\r\nX-MTA-Pace: "+pace+
				"\r\nFrom: ann@client.example\r\n\r\nx\r\n", to)
		}
		for i := range 3 {
			to("mixed", "1/h", fmt.Sprintf("slow%d@box.example", i))
		}
		for i := range 3 {
			to("mixed", "100/s", fmt.Sprintf("fast%d@box.example", i))
		}
		time.Sleep(2 * time.Second)
		r.want("at once", 4, 0)
		if x := r.explainedAll(); len(x) != 2 || !strings.Contains(x[0], "1/h: as the message asks") || strings.Contains(x[0], "0001-01-01") {
			t.Errorf("explained as %q", x)
		}
		for i := range 10 {
			to("retries", "60/h", fmt.Sprintf("a%d@busy.example", i))
		}
		time.Sleep(20 * time.Minute)
		to("retries", "60/h", "late@box.example")
		time.Sleep(2*time.Minute + 10*time.Second)
		r.want("fresh mail", 5, 0)

		before := len(r.records(accounting.AdminBounce))
		Until(time.Now().Truncate(24 * time.Hour).Add(35 * time.Minute)) // the retries have ended, and it is night
		r.campaign("", "night@box.example")
		for range 3 {
			to("mixed", "1/h", "night@box.example")
		}
		time.Sleep(time.Second)
		n := r.waitsFor("hours") + r.waitsFor("pace")
		r.rule(api.AddRule{Action: api.RuleBounce, Selection: api.Selection{All: true}, By: "ann"})
		time.Sleep(2 * time.Second)
		if got := len(r.records(accounting.AdminBounce)) - before; got != n || n != 6 {
			t.Errorf("a rule has bounced %d at once of %d that wait for a window or a pace", got, n)
		}
	})
}
