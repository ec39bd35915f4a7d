package alarm

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/tally"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/router/resolver"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestT10_AlarmForAnOldQueue(t *testing.T) {
	var w watch
	if on := w.step(start, &queue.Stats{Healthy: true, OldestDue: 5 * time.Minute}, nil); len(on) != 0 {
		t.Errorf("at the limit: %v", on)
	}
	if on := w.step(start, &queue.Stats{Healthy: true, OldestDue: 5*time.Minute + 1}, nil); on[Age] == "" {
		t.Errorf("beyond the limit: %v", on)
	}
}

func TestAlarmForAQueueThatIsStuck(t *testing.T) {
	for _, test := range []struct {
		waits   int
		aMinute int64 // that leave
		on      bool
	}{
		{134_000, 0, true}, {134_000, 200, true}, {134_000, 300, false}, {999, 0, false}, {1000, 0, true}, {1000, 3, false},
	} {
		var w watch
		for minute := range int64(30) {
			why := w.stuck(test.waits, "mx.d290.example", minute*test.aMinute)
			if want := test.on && minute >= stuckFor; (why != "") != want {
				t.Errorf("minute %d of %+v: %q", minute, test, why)
			}
		}
	}
	var w watch
	for range stuckFor {
		w.stuck(5000, "", 7)
	}
	if got := w.stuck(5000, "5,000 wait", 19); got != "only 12 recipients have left the queue in 10 minutes: 5,000 wait" {
		t.Error(got)
	}
}

func TestT10_AlarmForAGrowingQueue(t *testing.T) {
	var w watch
	due := int64(0)
	step := func(by int64) bool {
		due += by
		_, on := w.step(start, &queue.Stats{Healthy: true, Due: due}, nil)[Growing]
		return on
	}
	for minute := 1; minute < growsFor; minute++ {
		if step(10) {
			t.Fatalf("after %d minutes already", minute)
		}
	}
	if !step(1) {
		t.Error("five minutes of growth and no alarm")
	}
	if step(0) {
		t.Error("the alarm goes on though the queue has stopped growing")
	}
}

func TestT10_AlarmForUnusuallyLowTraffic(t *testing.T) {
	var w watch
	delivered := int64(0)
	now := start
	hour := func(n int64) bool {
		now, delivered = now.Add(time.Hour), delivered+n
		_, on := w.step(now, &queue.Stats{Healthy: true, Totals: queue.Totals{Delivered: delivered}}, nil)[Silent]
		return on
	}
	w.step(now, &queue.Stats{Healthy: true}, nil)
	for range hoursInWeek {
		if hour(1000) {
			t.Fatal("an alarm in the first week, with nothing to compare with")
		}
	}
	if hour(301) {
		t.Error("an alarm at 30 % of the week before")
	}
	if !hour(299) {
		t.Error("no alarm below 30 % of the week before")
	}
	if !hour(0) {
		t.Error("no alarm when nothing at all is delivered")
	}
}

func TestAlarmForTheClock(t *testing.T) {
	var w watch
	if on := w.step(start, &queue.Stats{Healthy: true, Clock: "the clock jumped ahead"}, nil)[Clock]; on != "the clock jumped ahead" {
		t.Errorf("reason %q", on)
	}
	if _, on := w.step(start, &queue.Stats{Healthy: true}, nil)[Clock]; on {
		t.Error("on with a clock that is right")
	}
}

// TestT10_AlarmForSourcesThatAreGone: what sends here are sources. The first that is gone is told of, and
// the alarm stays while any is.
func TestT10_AlarmForSourcesThatAreGone(t *testing.T) {
	var w watch
	step := func(missing ...string) string {
		return w.step(start, &queue.Stats{Healthy: true}, missing)[Sources]
	}
	if on := step(); on != "" {
		t.Errorf("with all sources there: %s", on)
	}
	if on := step("b"); !strings.Contains(on, "address of b:") {
		t.Errorf("with one gone: %q", on)
	}
	if on := step("a", "b"); !strings.Contains(on, "address of a, b:") {
		t.Errorf("with two gone: %q", on)
	}
	if on := step(); on != "" {
		t.Errorf("with all back: %s", on)
	}
}

// TestAlarmForNameServersThatAnswerNothing: not for broken domains among others, nor for one that is tried
// now and then, nor before some look-ups have failed, and as long as there is no answer.
func TestAlarmForNameServersThatAnswerNothing(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := watch{heard: now}
	for i, minute := range []struct {
		answered, failed uint64 // so far
		want             bool
	}{
		{0, 9, false}, {0, 10, true}, {5, 50, false}, {6, 100, false}, {6, 109, false}, {6, 110, true}, {6, 110, true}, {6, 500, true},
		{7, 600, false}, {7, 605, false}, {7, 610, true}, {8, 610, false},
	} {
		now = now.Add(time.Minute)
		if why := w.names(now, &resolver.Stats{Answered: minute.answered, Failed: minute.failed}); (why != "") != minute.want {
			t.Errorf("minute %d: %q", i, why)
		}
	}
	now = now.Add(2 * time.Minute)
	if why := w.names(now, &resolver.Stats{Answered: 8, Failed: 630}); !strings.HasPrefix(why, "name servers have answered none of the last 20 look-ups, for 2m: ") {
		t.Error(why)
	}
	for hour := range uint64(24) {
		for range 60 {
			now = now.Add(time.Minute)
			if why := w.names(now, &resolver.Stats{Answered: 9, Failed: 640 + 2*hour}); why != "" {
				t.Fatalf("hour %d of a quiet night: %s", hour, why)
			}
		}
	}
}

func TestAlarmsAreInTheManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(manual), "\n- `"+name+"`: ") {
			t.Errorf("docs/accounting.md lacks %s", name)
		}
	}
}

func TestAlarmsAreToldOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		var healthy atomic.Bool
		a, stop := alarmsOfDisk(&text, &healthy)
		defer stop()
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		if n := strings.Count(text.String(), "alarm begins"); n != 2 || !a.On(Storage) {
			t.Errorf("told %d times:\n%s", n, &text)
		}
		if on := a.List(); len(on) != 2 || on[1].Name != Records || on[1].Reason != "no records" || on[0].Name != Storage || on[0].Reason != "no space left" || time.Since(on[0].Since) != 3*time.Minute {
			t.Errorf("shown as %+v", on)
		}
		healthy.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(text.String(), "alarm ends"); n != 2 || a.On(Storage) {
			t.Errorf("their ends were told %d times:\n%s", n, &text)
		}
		if on := a.List(); len(on) != 0 {
			t.Errorf("shown as %+v after its end", on)
		}
	})
}

// TestDamagedRecordsAreShownForADay: from the last find on, with its place.
func TestDamagedRecordsAreShownForADay(t *testing.T) {
	var w watch
	if on := w.lines(start, accounting.Stats{}); on != "" {
		t.Error(on)
	}
	s := accounting.Stats{Damaged: 2, LastDamage: "octet 4711 of /log/a"}
	for _, at := range []time.Duration{0, damageShown - 1} {
		if on := w.lines(start.Add(at), s); !strings.Contains(on, s.LastDamage) {
			t.Errorf("after %v: %q", at, on)
		}
	}
	if on := w.lines(start.Add(damageShown), s); on != "" {
		t.Error(on)
	}
	if s.Damaged++; w.lines(start.Add(damageShown), s) == "" {
		t.Error("another find is none")
	}
}

// alarmsOfDisk runs alarms over a disk that is healthy or full, until stop.
func alarmsOfDisk(text *bytes.Buffer, healthy *atomic.Bool) (a *Alarms, stop func()) {
	a = New(slog.New(slog.NewTextHandler(text, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	go a.Run(ctx, Sight{
		Queue: func() queue.Stats { return queue.Stats{} },
		Refusing: func() string {
			if healthy.Load() {
				return ""
			}
			return "no space left"
		},
		Sources:      func() []string { return nil },
		Blocked:      func() string { return "" },
		Audit:        func() string { return "" },
		Maildrop:     func() string { return "" },
		Logins:       func() string { return "" },
		Milters:      func() string { return "" },
		Certificates: func() string { return "" },
		Checks:       func() string { return "" },
		Flood:        func() string { return "" },
		Damaged:      func() string { return "" },
		Log:          func() accounting.Stats { return accounting.Stats{} },
		Streams:      func() (string, string, string) { return "", "", "" },
		Overload:     func() string { return "" },
		Cluster:      func() (_, _, _, _ string) { return },
		Paused:       func() string { return "" },
		Signing:      func() (string, string) { return "", "" },
		Records: func() string {
			if healthy.Load() {
				return ""
			}
			return "no records"
		},
		DNS:      func() resolver.Stats { return resolver.Stats{} },
		Warmups:  func() string { return "" },
		Health:   func() string { return "" },
		Subjects: func() Subjects { return nil }, Waits: func() (int, string) { return 0, "" },
	})
	return a, cancel
}

// TestTheStorageAlarmIsPrompt: the disk fills up, and has room again, between two looks at the queue.
func TestTheStorageAlarmIsPrompt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		var healthy atomic.Bool
		healthy.Store(true)
		a, stop := alarmsOfDisk(&text, &healthy)
		defer stop()
		for _, full := range []time.Duration{25 * time.Second, 10 * time.Minute} {
			time.Sleep(10500 * time.Millisecond)
			healthy.Store(false)
			time.Sleep(time.Second)
			synctest.Wait()
			if !a.On(Storage) {
				t.Error("no alarm a second after the disk was full")
			}
			time.Sleep(full)
			healthy.Store(true)
			time.Sleep(time.Second)
			synctest.Wait()
			if a.On(Storage) {
				t.Error("the alarm is on a second after the disk had room")
			}
		}
	})
}

// TestADiskThatIsNearlyFullIsNotFilledWithAlarms: it has room each other second.
func TestADiskThatIsNearlyFullIsNotFilledWithAlarms(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		var healthy atomic.Bool
		_, stop := alarmsOfDisk(&text, &healthy)
		defer stop()
		time.Sleep(500 * time.Millisecond) // between two looks: at the moment of one, chance would decide
		for range 60 {
			time.Sleep(time.Second)
			healthy.Store(!healthy.Load())
		}
		synctest.Wait()
		if n := strings.Count(text.String(), "alarm begins"); n < 1 || n > 6 {
			t.Errorf("%d alarms in a minute:\n%s", n, &text)
		}
	})
}

// TestEachAlarmHasARule: Prometheus reports what the relay does, by the same definitions.
func TestEachAlarmHasARule(t *testing.T) {
	text, err := os.ReadFile("../../contrib/prometheus/mta.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.Join(strings.Fields(string(text)), " ")
	ofShares := make(map[string]bool)
	for i := range shares {
		s := &shares[i]
		ofShares[s.name] = true
		want := fmt.Sprintf("alert: %s expr: >- %s for: %s ", s.rule, s.expr(), api.Age(s.hold))
		if !strings.Contains(rules, want) {
			t.Errorf("no rule is %q", want)
		}
	}
	for _, alarm := range names {
		if !ofShares[alarm] && !strings.Contains(rules, `mta_alarm{alarm="`+alarm+`"}`) {
			t.Errorf("no rule has the alarm %s", alarm)
		}
	}
}

// TestSharesBecomeTooLarge: an alarm begins when the share was too large for long enough, names the subject, and ends
// when the window has passed; what is few is none.
func TestSharesBecomeTooLarge(t *testing.T) {
	f := follower{share: &share{of: "provider", part: Blocked, whole: []Count{Delivered, Bounced}, above: .05, least: 20,
		window: 30 * time.Minute, hold: 15 * time.Minute, reason: "%s refused %s"}}
	now, n := start, Counts{}
	minutes := func(count int, delivered, blocked int64) (reason string) {
		for range count {
			now = now.Add(time.Minute)
			n[Delivered] += delivered
			n[Bounced] += blocked
			n[Blocked] += blocked
			reason = f.step(now, map[string]Counts{"google": n, "small": {Bounced: 20, Blocked: 20}, "": {}})
		}
		return reason
	}
	if got := minutes(60, 100, 4); got != "" {
		t.Errorf("4 of 104: %q", got)
	}
	if got := minutes(14, 100, 10); got != "" {
		t.Errorf("10 of 110 for less than 15 minutes: %q", got)
	}
	if got := minutes(30, 100, 10); got != "google refused 9 %" {
		t.Errorf("10 of 110 for long: %q", got)
	}
	if got := minutes(31, 100, 0); got != "" {
		t.Errorf("none of them any more: %q", got)
	}
	if got := minutes(60, 0, 0); got != "" {
		t.Errorf("no mail: %q", got)
	}
}

// TestADiskFills: its alarm looks a day ahead, by the last three to six hours.
func TestADiskFills(t *testing.T) {
	var f filling
	now, free := start, int64(100<<30)
	hours := func(n int, used int64) (reason string) {
		for range n * 60 {
			now, free = now.Add(time.Minute), free-used/60
			reason = f.step(now, free)
		}
		return reason
	}
	if got := hours(8, 1<<20); got != "" {
		t.Errorf("1 MiB an hour: %q", got)
	}
	if got := hours(7, 6<<30); !strings.Contains(got, "full within a day: 58G are free") {
		t.Errorf("6 GiB an hour: %q", got)
	}
	if got := hours(7, 0); got != "" {
		t.Errorf("nothing more: %q", got)
	}
}

// expr is the condition in PromQL, as contrib/prometheus has it.
func (s *share) expr() string {
	minutes := int(s.window.Minutes())
	sum := func(metric, label string) string {
		return fmt.Sprintf("sum by (job, instance, %s%s) (rate(%s[%dm]))", s.of, label, metric, minutes)
	}
	if s.quantile != "" {
		return fmt.Sprintf("histogram_quantile(%g, %s) > %g", 1-s.above, sum(s.quantile+"_bucket", ", le"),
			tally.LateAfter.Seconds())
	}
	part, whole := sum(s.metrics[0], ""), sum(s.metrics[1], "")
	if slices.Contains(s.whole, s.part) {
		whole = "(" + part + " + " + whole + ")"
	}
	return fmt.Sprintf("%s / %s > %g and %s * %g > %d", part, whole, s.above, part, s.window.Seconds(), s.least)
}
