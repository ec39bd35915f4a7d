package dispatch

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/queue"
	"example.org/mta/warmup"
)

// newsletter is a pool that diverts, with the preset plan of most.
const newsletter = `
	source "pool-1" { address = "192.0.2.10" }
	source "acme-1" { address = "192.0.2.20" }
	provider "big" { mx = ["*.big.example"] }
	tenant "acme" {
		pool = "acme"
		PATIENCE
	}
	pool "acme" {
		shared = ["pool-1"]
		dedicated "acme-1" { plan = "standard" }
	}`

// mailOf submits a message of a tier to n recipients.
func (w *warmStage) mailOf(tier uint8, n int) envelope.ID {
	var to []string
	for range n {
		to = append(to, "r@x.example")
	}
	return w.mailTo(tier, to...)
}

// mailTo submits a message of a tier.
func (w *warmStage) mailTo(tier uint8, to ...string) envelope.ID {
	w.next++
	l := w.lease(w.next, 0, to...)
	l.Message.Tenant, l.Message.Tier, l.Message.Received = "acme", tier, w.clock
	w.handle(l)
	w.told = w.told[:0]
	return w.next
}

// begunFrom counts the recipients that have left from a source since a job.
func (w *warmStage) begunFrom(source string, first int) (n int) {
	for _, j := range w.jobs[first:] {
		if j.Source == source {
			n += len(j.Recipients)
		}
	}
	return n
}

// days is a trial of days of mail under the plan "standard", as the relay takes them: route, source, ledger,
// what the providers answer, and what that means for the stage.
type days struct {
	*warmStage
	daily    int           // recipients that come in a day
	tier     uint8         // of that mail
	every    time.Duration // so often some of them
	lasts    time.Duration // until all of the day's have come
	answers  func(message int, attempt int) string
	tiny     string // the answer to one message a day to a small provider; "" is none
	begin    time.Time
	today    warmup.Status // just after the day began
	evening  warmup.Status // six hours before its end, and what was diverted by then
	diverted Diversions
	retries  []retried
	taken    map[string]int // attempts since the day began, by source
	slowed   time.Duration  // since the begin, when the pace was first cut or the provider paused
}

// retried is mail that a provider has deferred.
type retried struct {
	due     time.Time
	id      envelope.ID
	attempt int
	last    reply.Reply
	source  string
}

// tallied is the stage's queue with counts, for lines of a hundred thousand.
type tallied struct {
	*stage
	lines map[parking.Line]int
	keys  map[parking.Key]int
}

func (q tallied) add(line parking.Line, n int) {
	q.lines[line] += n
	q.keys[line.Key] += n
}

func (q tallied) Park(id envelope.ID, rs []int, line parking.Line, until time.Time) {
	q.stage.Park(id, rs, line, until)
	q.add(line, len(rs))
}

func (q tallied) ParkFirst(id envelope.ID, rs []int, line parking.Line, until time.Time) {
	q.stage.ParkFirst(id, rs, line, until)
	q.add(line, len(rs))
}

func (q tallied) Take(line parking.Line, n int) []*queue.Lease {
	leases := q.stage.Take(line, n)
	for _, l := range leases {
		q.add(line, -len(l.Recipients))
	}
	return leases
}

func (q tallied) Parked(line parking.Line) int      { return q.lines[line] }
func (q tallied) ParkedInLines(key parking.Key) int { return q.keys[key] }

// answer begins a job and answers it at once.
func (d *days) answer(j *delivery.Job) bool {
	if !beginAtOnce(j) {
		return false
	}
	d.taken[j.Source] += len(j.Recipients)
	d.room = 1 << 20
	p := d.leases[j.Message.ID].Recipients[0]
	line := d.tiny
	if j.Route.Provider == "big" {
		line = d.answers(int(j.Message.ID), p.Attempts)
	}
	r := replied("RCPT", line)
	if j.Done(j, []delivery.Result{{Recipient: 0, Attempted: true, Session: "s", Source: j.Source, Reply: r}}); line[0] == '4' {
		d.retries = append(d.retries, retried{d.clock.Add(10 * time.Minute), j.Message.ID, p.Attempts + 1, r, j.Source})
	} else {
		delete(d.leases, j.Message.ID)
	}
	return true // and jobs has nothing of it, being emptied each day
}

// retry submits what is due again, from where it was before.
func (d *days) retry() {
	for len(d.retries) > 0 && !d.retries[0].due.After(d.clock) {
		r := d.retries[0]
		d.retries = d.retries[1:]
		l := d.leases[r.id]
		l.Recipients = []queue.Pending{{Attempts: r.attempt, Last: r.last, Via: r.source}}
		d.handle(l)
	}
}

// pass lets a day pass.
func (d *days) pass() {
	clear(d.taken)
	d.jobs, d.told = nil, nil
	burst := d.daily * int(d.every/time.Second) / int(d.lasts/time.Second)
	for since := time.Duration(0); since < 24*time.Hour; since += time.Second {
		if since < d.lasts && since%d.every == 0 {
			for range burst {
				d.mailTo(d.tier, "r@x.example")
			}
		}
		if d.tiny != "" && since == 12*time.Hour {
			d.mailTo(0, "r@tiny.example")
		}
		d.retry()
		d.warmStage.pass(time.Second)
		d.throttled.sweep(d.t.Context(), false)
		if since%time.Minute == 20*time.Second { // an idle warm-up is computed each five seconds
			d.look(since)
		}
	}
}

func (d *days) look(since time.Duration) {
	s, _ := d.ctl.Status("192.0.2.20")
	if since < time.Minute {
		d.today = s
	}
	if since/time.Minute == 18*60 {
		d.evening, d.diverted = s, d.DivertedSince(s.IP, s.DayEnds.AddDate(0, 0, -1))
	}
	for _, p := range s.Providers {
		if d.slowed == 0 && (p.Pace < 1 || p.State != "normal") {
			d.slowed = d.clock.Sub(d.begin)
		}
	}
	if d.jobs, d.told = d.jobs[:0], d.told[:0]; len(d.retries) == 0 {
		d.retries = nil
	}
}

func newDays(t *testing.T, patience string, daily int, every, lasts time.Duration) *days {
	d := &days{warmStage: newWarmStage(t, strings.Replace(newsletter, "PATIENCE", patience, 1)), daily: daily, tier: 3,
		every: every, lasts: lasts, answers: func(int, int) string { return ok }, taken: make(map[string]int)}
	rt := to("192.0.2.98")
	rt.Domain, rt.Site, rt.Provider = "tiny.example", "mx.tiny.example", "tiny"
	d.Dispatcher.Queue = tallied{d.stage, make(map[parking.Line]int), make(map[parking.Key]int)}
	d.routes["tiny.example"], d.begins, d.begin = rt, d.answer, d.clock
	return d
}

// size is how many days a trial has and how much mail comes on each: small, or MTA_WARMUP_DAYS days of
// 100,000.
func size(t *testing.T) (n, daily int) {
	text := os.Getenv("MTA_WARMUP_DAYS")
	if text == "" {
		return 3, 2000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("MTA_WARMUP_DAYS=%q: want a number of days", text)
	}
	return n, 100_000
}

// TestDaysOfWarmUp: mail that comes within ten minutes, or each five minutes, waits for its source by the
// hour for as long as its patience lasts, and the rest takes a shared source at once: the cap of each day is
// met, and the stage advances. It does so through greylisting, full mailboxes and a single bounce at a small
// provider, and does not while a tenth of the users are unknown or the provider blocks: then the mail is
// slower within the hour that proves it.
func TestDaysOfWarmUp(t *testing.T) {
	const good, unknown = "250 2.0.0 ok", "550 5.1.1 no such user"
	share := func(tenths int, line string, until int) func(int, int) string {
		return func(message, attempt int) string {
			if message*7919%1000 < tenths && attempt < until {
				return line
			}
			return good
		}
	}
	fine := share(0, "", 0)
	tenMinutes, fiveMinutes := [2]time.Duration{time.Minute, 10 * time.Minute}, [2]time.Duration{5 * time.Minute, 24 * time.Hour}
	for _, x := range []struct {
		name     string
		tier     uint8
		comes    [2]time.Duration // so often, within so long
		patience string
		answers  func(message, attempt int) string
		tiny     string
		stays    bool
	}{
		{"within ten minutes", 3, tenMinutes, "", fine, "", false},
		{"each five minutes", 3, fiveMinutes, "", fine, "", false},
		{"each five minutes, tier 2", 2, fiveMinutes, "", fine, "", false},
		{"within ten minutes, no patience", 3, tenMinutes, `patience = "0s"`, fine, "", true},
		{"30 % greylisted", 3, tenMinutes, "", share(300, "450 4.7.1 Greylisted", 1), "", false},
		{"4 % full mailboxes", 3, tenMinutes, "", share(40, "452 4.2.2 mailbox full", 5), "", false},
		{"one bounce a day at a small provider", 3, tenMinutes, "", fine, unknown, false},
		{"10 % unknown users", 3, tenMinutes, "", share(100, unknown, 1), "", true},
		{"blocked", 3, tenMinutes, "", share(1000, "554 5.7.1 Service unavailable; Client host [192.0.2.20] blocked using zen.spamhaus.org", 1), "", true},
	} {
		t.Run(x.name, func(t *testing.T) {
			n, daily := size(t)
			d := newDays(t, x.patience, daily, x.comes[0], x.comes[1])
			d.tier, d.answers, d.tiny = x.tier, x.answers, x.tiny
			for day := range n {
				d.pass()
				got, most, stage := int64(d.taken["acme-1"]), d.today.StageLimit, min(day+1, d.today.TotalStages)
				t.Logf("day %2d, stage %2d: %6d of %6d from its source, %6d from the shared one", day+1, d.today.Stage, got, most, d.taken["pool-1"])
				if got > most && d.today.State != "warm" || !x.stays && got < min(int64(daily), most)*99/100 {
					t.Errorf("day %d: %d from its source, want %d", day+1, got, most)
				}
				if x.stays && d.today.Stage != 1 || !x.stays && d.today.Stage != stage {
					t.Errorf("day %d: it is on stage %d, want %d", day+1, d.today.Stage, stage)
				}
			}
			if bad := x.stays && x.patience == ""; bad != (d.slowed > 0) || d.slowed > 8*time.Hour {
				t.Errorf("it was slowed down after %v", d.slowed)
			} else if bad {
				t.Logf("slowed down after %v", d.slowed)
			}
		})
	}
}

// TestLargeMessagesLeaveAsTokensCome: under a cap of 10 an hour, in a pool that holds.
func TestLargeMessagesLeaveAsTokensCome(t *testing.T) {
	w := newWarmStage(t, holding)
	w.mailOf(3, 40)
	w.pass(3 * time.Hour)
	if n := w.begunFrom("acme-1", 0); n < 12 || n > 15 { // a day has 15
		t.Errorf("%d of 40 have left", n)
	}
	w.pass(70 * time.Hour)
	if n := w.begunFrom("acme-1", 0); n != 40 || w.throttledNow() != 0 {
		t.Errorf("%d of 40 have left in three days, %d wait for tokens", n, w.throttledNow())
	}
}

// TestAFirstTierOvertakesBulkThatIsHeld: within a minute of its tokens, though 300 of bulk wait for days.
func TestAFirstTierOvertakesBulkThatIsHeld(t *testing.T) {
	w := newWarmStage(t, strings.NewReplacer("hourly = 10", "hourly = 120", "daily = 15", "daily = 2400").Replace(holding))
	for range 300 {
		w.mailOf(4, 1)
	}
	w.pass(5 * time.Minute)
	w.next = 1000
	id := w.mailOf(1, 1)
	came := w.clock
	for range 120 {
		w.pass(time.Second)
		if last := w.jobs[len(w.jobs)-1]; last.Message.ID == id {
			break
		}
	}
	if last := w.jobs[len(w.jobs)-1]; last.Message.ID != id || w.clock.Sub(came) > time.Minute {
		t.Errorf("%v later the last to leave is %s, and %d wait", w.clock.Sub(came), last.Message.ID, w.throttledNow())
	}
}

// TestASmallProviderBesideACampaign: while a campaign waits that uses up the day, mail of a small provider gets its
// part of the tokens. The simulator has the same trial.
func TestASmallProviderBesideACampaign(t *testing.T) {
	d := newDays(t, "", 0, time.Minute, time.Minute)
	d.tiny = ok
	for second := range 24 * 3600 {
		if second%60 == 0 && second < 600 {
			for range 100 {
				d.mailTo(3, "r@x.example")
			}
		}
		if since := second - 3600; since >= 0 && since%600 == 0 && since < 30*600 {
			d.mailTo(3, "r@tiny.example")
		}
		d.warmStage.pass(time.Second)
		d.throttled.sweep(t.Context(), false)
	}
	tiny := 0
	for _, j := range d.jobs {
		if j.Route.Provider == "tiny" && j.Source == "acme-1" {
			tiny += len(j.Recipients)
		}
	}
	t.Logf("%d of 30 from the source, which sent %d", tiny, d.taken["acme-1"])
	if tiny < 20 || d.taken["acme-1"] != 250 {
		t.Errorf("%d of the small provider's 30 were sent, and %d in all; want most, and 250", tiny, d.taken["acme-1"])
	}
}

// TestASurplusOfUrgentMailIsDivertedAtOnce: of a lump that the plan can't send within half a minute only that much
// waits which it can.
func TestASurplusOfUrgentMailIsDivertedAtOnce(t *testing.T) {
	d := newDays(t, "", 0, time.Minute, time.Minute)
	d.warmStage.pass(20 * time.Minute)
	for range 1000 {
		d.mailTo(1, "r@x.example")
	}
	for range 2 {
		d.warmStage.pass(time.Second)
		d.throttled.sweep(t.Context(), false)
	}
	if own, shared, waits := d.taken["acme-1"], d.taken["pool-1"], d.throttledNow(); own == 0 || shared < 990 || waits == 0 {
		t.Errorf("after two seconds %d of 1000 have left from the source, %d from the shared one, %d wait", own, shared, waits)
	}
	d.warmStage.pass(30 * time.Second)
	d.throttled.sweep(t.Context(), false)
	if n := d.throttledNow(); n > 0 {
		t.Errorf("after half a minute %d wait", n)
	}
}
