package relaytest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
)

const hoursConf = `
	mail "offers" {
		match { campaign = ["spring"] }
		window = "03:00-20:00 recipient Europe/Berlin"
	}
	defaults { retry_interval = "2h" }
	domain "busy.example" {
		route   = ["fail 451 4.3.0 try again"]
		max_age = "50m"
	}
`

// campaign sends a message of the campaign spring, with further fields.
func (r *ruled) campaign(fields, to string) {
	r.Submit("ann@client.example", "X-MTA-Campaign: spring\r\n"+fields+"From: ann@client.example\r\nSubject: s\r\n\r\nx\r\n", to)
}

// waitsFor counts what waits for sending hours, or a pace.
func (r *ruled) waitsFor(reason string) int {
	r.t.Helper()
	l, err := api.OpList.Call(r.t.Context(), r.Client(), api.ListQuery{Filter: api.Filter{WaitsFor: api.Reason(reason)}, Page: api.Page{Limit: 1000}})
	r.must(err)
	return len(l.Messages)
}

// explainedAll has why the recipients of each message wait, and until when.
func (r *ruled) explainedAll() (all []string) {
	r.t.Helper()
	l, err := api.OpList.Call(r.t.Context(), r.Client(), api.ListQuery{Page: api.Page{Limit: 1000}})
	r.must(err)
	for _, m := range l.Messages {
		e, err := api.OpExplain.Call(r.t.Context(), r.Client(), api.ExplainQuery{ID: m.ID})
		r.must(err)
		for _, rc := range e.Message.Recipients {
			all = append(all, fmt.Sprint(rc.Why, " ", rc.Until.UTC()))
		}
	}
	return all
}

// reload puts something else into the configuration.
func (r *Relay) reload(old, new string) {
	r.t.Helper()
	r.Config = strings.Replace(r.Config, old, new, 1)
	r.must(os.WriteFile(filepath.Join(r.Dir, "mta.conf"), []byte(r.configuration()), 0o600))
	_, err := r.Reload(r.t.Context())
	r.must(err)
}

// TestSendingHours by the clocks of three zones, over the change to summer time and a restart; other mail goes on, and
// what waits counts no attempt.
func TestSendingHours(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		Until(time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)) // 01:30 in Berlin, 00:30 in London, 09:30 in Tokyo
		r := newRuled(t, hoursConf)
		r.campaign("X-MTA-Timezone: Europe/London\r\n", "a@box.example")
		r.campaign("X-MTA-Timezone: Asia/Tokyo\r\n", "b@box.example")
		r.campaign("", "c@box.example")
		r.campaign("", "d@busy.example")
		r.send(1, "other@box.example")
		r.want("in the night", 2, 0)
		if n := r.waitsFor("hours"); n != 3 {
			t.Errorf("%d wait for their hours, want 3", n)
		}
		if e, err := api.OpExplain.Call(t.Context(), r.Client(), api.ExplainQuery{Domain: "box.example"}); err != nil || e.Destinations[0].Queued.Hours != 2 {
			t.Errorf("explain of their domain: %+v, %v", e.Destinations, err)
		}
		if l, err := api.OpSites.Call(t.Context(), r.Client(), api.SiteFilter{}); err != nil || len(l.Sites) == 0 ||
			slices.ContainsFunc(l.Sites, func(s api.Site) bool { return strings.Contains(s.Name, "window") }) {
			t.Errorf("windows are no sites: %+v, %v", l.Sites, err)
		}
		for _, x := range r.explainedAll() {
			if !strings.Contains(x, `it waits: outside of the window 03:00-20:00 `) || !strings.Contains(x, `of mail "offers" (mta.conf:`) {
				t.Errorf("explained as %s", x)
			}
		}
		r.restart()
		at := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC) // 03:00 in Berlin, where 02:00 has not been
		Until(at.Add(-time.Second))
		r.want("before 03:00 in Berlin", 2, 0)
		Until(at.Add(2 * time.Second))
		r.want("at 03:00 in Berlin", 3, 0)
		if tries := r.records(accounting.TransientFailure); len(tries) != 1 || tries[0].Time.Before(at) {
			t.Errorf("attempts: %+v", tries)
		}
		Until(at.Add(time.Hour - time.Second))
		r.want("before 03:00 in London", 3, 0)
		Until(at.Add(time.Hour + 2*time.Second))
		r.want("at 03:00 in London", 4, 0)
		if n := r.waitsFor("hours"); n != 0 {
			t.Errorf("%d wait in the day", n)
		}
		Until(at.Add(20 * time.Hour))
		r.campaign("", "e@box.example")
		r.rule(api.AddRule{Action: api.RuleHold, Selection: api.Selection{Campaign: "spring", Domain: "box.example"}})
		time.Sleep(2 * time.Second)
		if hours, held := r.waitsFor("hours"), r.waitsFor("held"); hours != 0 || held != 1 {
			t.Errorf("after a rule that holds, %d wait for hours and %d are held", hours, held)
		}
		if d := r.explained("box.example"); d.Now != "mail is sent without delay, except what the rules below are for" || len(d.Rules) != 1 {
			t.Errorf("explained as %q, %q", d.Now, d.Rules)
		}
		e, err := api.OpExplain.Call(t.Context(), r.Client(), api.ExplainQuery{Domain: "box.example", Tenant: "acme"})
		if err != nil || len(e.Destinations[0].Rules) != 1 {
			t.Errorf("of a tenant: %+v, %v", e, err)
		}
	})
}

// TestHoursOfMailInDelivery: what waits there when the window closes, or for its retry, does not leave before it opens
// again, and expires in time.
func TestHoursOfMailInDelivery(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		Until(time.Date(2026, 11, 27, 8, 59, 0, 0, time.UTC))
		hours := strings.Replace(hoursConf, "03:00-20:00 recipient Europe/Berlin", "09:20-09:00 UTC", 1)
		r := newRuled(t, strings.Replace(hours, "50m", "15m", 1))
		slow := r.rule(api.AddRule{Action: api.RuleSlow, Selection: api.Selection{Domain: "box.example"}, Rate: "2/m"})
		for i := range 5 {
			r.campaign("", fmt.Sprintf("a%d@box.example", i))
		}
		r.campaign("", "b@busy.example")
		Until(time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC))
		before := len(r.taken.Deliveries())
		time.Sleep(10 * time.Minute)
		if n := len(r.taken.Deliveries()); n != before || n == 0 || n > 3 {
			t.Errorf("%d left before the end, %d after it", before, n-before)
		}
		r.end(slow.ID)
		Until(time.Date(2026, 11, 27, 9, 19, 59, 0, time.UTC))
		r.want("until the window opens", before, 0)
		if n := r.waitsFor("hours"); n != 5-before {
			t.Errorf("%d wait for their hours, want %d", n, 5-before)
		}
		if all := r.records(accounting.Expiration); len(all) != 1 || all[0].Recipient != "b@busy.example" {
			t.Errorf("expired: %+v", all)
		}
		time.Sleep(3 * time.Second)
		r.want("when it has opened", 5, 0)
	})
}

// TestHoursUntilTheEnd: what expires before its window opens is explained so, and its sender gets a report.
func TestHoursUntilTheEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		Until(time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)) // a Saturday
		r := newRuled(t, `
			mail "codes" {
				match { campaign = ["spring"] }
				max_age = "10m"
				window  = "Mon-Fri 08:00-20:00 UTC"
			}
			domain "client.example" { route = ["discard"] }`)
		r.campaign("", "a@box.example")
		time.Sleep(time.Second)
		if x := r.explainedAll(); len(x) != 1 || !strings.Contains(x[0], "it expires before that") || !strings.Contains(x[0], "2026-11-30 08:00:00 +0000 UTC") {
			t.Errorf("explained as %q", x)
		}
		done, err := api.OpChange.Call(t.Context(), r.Client(), api.Change{Action: api.Retry, Filter: api.Filter{Campaign: "spring"}})
		if err != nil || len(done.Obstacles) != 1 || !strings.Contains(done.Obstacles[0].Why, `of mail "codes" (mta.conf:`) {
			t.Errorf("in the way of a retry: %+v, %v", done.Obstacles, err)
		}
		time.Sleep(15 * time.Minute)
		if n := len(r.records(accounting.Expiration)); n != 1 {
			t.Errorf("%d have expired, want 1", n)
		}
		if n := len(r.records(accounting.Delivery)); n != 1 {
			t.Errorf("%d reports, want 1", n)
		}
	})
}

// TestHoursAfterAReload: what waits follows the window that is in force.
func TestHoursAfterAReload(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		Until(time.Date(2026, 11, 28, 20, 0, 0, 0, time.UTC))
		r := newRuled(t, hoursConf)
		r.campaign("", "a@box.example")
		time.Sleep(time.Second)
		r.want("before", 0, 0)
		r.reload("03:00-20:00 recipient", "03:00-22:00 recipient")
		time.Sleep(2 * time.Second)
		r.want("with two hours more", 1, 0)
	})
}

// TestBadZonesAndPaces are refused with what to send.
func TestBadZonesAndPaces(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRuled(t, hoursConf)
		for fields, want := range map[string]string{
			"X-MTA-Timezone: Mars\r\n":               "X-MTA-Timezone: want one time zone, such as Europe/Berlin",
			"X-MTA-Timezone: \r\n":                   "X-MTA-Timezone: want one time zone, such as Europe/Berlin",
			"X-MTA-Pace: fast\r\n":                   "X-MTA-Pace: want one rate, such as 10000/h",
			"X-MTA-Pace: 1/h\r\nX-MTA-Pace: 2/h\r\n": "X-MTA-Pace: want one rate, such as 10000/h",
		} {
			err := r.Offer("ann@client.example", fields+"From: ann@client.example\r\n\r\nx\r\n", "a@box.example")
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", fields, err, want)
			}
		}
	})
}
