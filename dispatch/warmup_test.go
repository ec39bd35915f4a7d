package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/warmup"
)

// warmStage is a stage whose pool has a warming source, 192.0.2.20, on a clock of its own.
type warmStage struct {
	*stage
	t       *testing.T
	clock   time.Time
	ctl     *warmup.Controller
	missing map[string]bool
	next    envelope.ID
}

const warmConfig = `
	source "pool-1" { address = "192.0.2.10" }
	source "acme-1" { address = "192.0.2.20" }
	plan "small" {
		stage {
			hourly = 10
			daily = 15
		}
		health { min_sample = 0 }
	}
	provider "big" { mx = ["*.big.example"] }
	tenant "acme" { pool = "acme" }
`

const overflowing = warmConfig + `
	pool "acme" {
		shared = ["pool-1"]
		patience = "0s"
		dedicated "acme-1" { plan = "small" }
	}`

const holding = warmConfig + `
	pool "acme" {
		overflow = "hold"
		dedicated "acme-1" { plan = "small" }
	}`

// filling is how long it takes, without mail, until all of an hour's volume may leave at once.
const filling = 50 * time.Minute

func newWarmStage(t *testing.T, text string) *warmStage {
	w := &warmStage{stage: newStage(t), t: t, clock: start, missing: make(map[string]bool)}
	now := func() time.Time { return w.clock }
	w.ctl = warmup.New(warmup.Config{
		Node: "test", OnTokens: w.Unthrottle, Waiting: w.Throttled, Now: now,
		Store: warmup.NewMemory(func() warmup.Instant { return warmup.Instant(w.clock.UnixMilli()) }),
	})
	w.Now, w.Warmup = now, w.ctl
	w.split = &splitter{warm: w.ctl, missing: func(s string) bool { return w.missing[s] }, now: now, suspended: w.Delivery.Suspended, waiting: w.throttled.waiting}
	w.begins = beginAtOnce
	w.use(text)
	rt := to("192.0.2.99")
	rt.Domain, rt.Site, rt.Provider = "x.example", "mx.x.example", "big"
	w.routes["x.example"] = rt
	w.step()
	return w
}

// beginAtOnce has a job begin, or come back.
func beginAtOnce(j *delivery.Job) bool {
	if j.MayBegin == nil || j.MayBegin(len(j.Recipients)) {
		return true
	}
	var rs []delivery.Result
	for _, r := range j.Recipients {
		rs = append(rs, delivery.Result{Recipient: r, Withdrawn: true, Reply: reply.Reply{Code: 451}})
	}
	j.Done(j, rs)
	return false
}

func (w *warmStage) use(text string) {
	w.t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if small := cfg.WarmupPlan("small"); small != nil {
		small.Burst, small.BucketSeconds, small.Peak = 60, 3600, 3600 // what is left may leave at once
	}
	pol := wiring.New(cfg)
	w.Policy = func() *wiring.Policy { return pol }
	if err := w.ctl.Assign(pol.Plans()); err != nil {
		w.t.Fatal(err)
	}
	w.Reload()
}

// throttledNow is how many recipients wait for tokens.
func (w *warmStage) throttledNow() int { return w.ParkedInLines(tokens("acme", "big")) }

// step lets the warm-up answer what was asked.
func (w *warmStage) step() {
	for range 20 {
		w.ctl.Step(w.t.Context())
		if !w.ctl.Asking() {
			return
		}
	}
}

// pass lets time pass, a second at a time.
func (w *warmStage) pass(d time.Duration) {
	for end := w.clock.Add(d); w.clock.Before(end); {
		w.clock = w.clock.Add(time.Second)
		w.step()
	}
}

// mail submits a message of acme to n recipients.
func (w *warmStage) mail(n int) *queue.Lease {
	w.next++
	var to []string
	for i := range n {
		to = append(to, fmt.Sprintf("r%d@x.example", i))
	}
	l := w.lease(w.next, 0, to...)
	l.Message.Tenant, l.Message.Received = "acme", w.clock
	w.handle(l)
	w.step()
	return l
}

// sources counts the recipients of the jobs so far by source.
func (w *warmStage) sources() map[string]int {
	n := make(map[string]int)
	for _, j := range w.jobs {
		n[j.Source] += len(j.Recipients)
	}
	return n
}

func (w *warmStage) wantSources(dedicated, shared int) {
	w.t.Helper()
	if n := w.sources(); n["acme-1"] != dedicated || n["pool-1"] != shared {
		w.t.Errorf("sent by source %v, want %d from acme-1 and %d from pool-1", n, dedicated, shared)
	}
}

func TestW4_WhatDoesNotFitTakesASharedSourceAtOnce(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.pass(filling)
	for range 30 {
		w.mail(1)
	}
	w.wantSources(10, 20)
	w.pass(2 * time.Hour) // any 60 minutes have 11 at most
	for range 30 {
		w.mail(1)
	}
	w.wantSources(15, 45) // by the day's cap
}

func TestW18_ThrottledMailLeavesAtTheCap(t *testing.T) {
	w := newWarmStage(t, holding)
	for range 30 {
		w.mail(1)
	}
	w.pass(time.Hour)
	if n := len(w.jobs); n < 9 || n > 10 {
		t.Errorf("%d left in the first hour, want 10", n)
	}
	if n := w.throttledNow() + len(w.jobs); n != 30 {
		t.Errorf("%d of 30 are left", n)
	}
	w.pass(48 * time.Hour)
	if len(w.jobs) != 30 || w.throttledNow() != 0 {
		t.Errorf("%d of 30 have left after two days, %d wait for tokens", len(w.jobs), w.throttledNow())
	}
	for i := 1; i < len(w.jobs); i++ {
		if w.jobs[i].Message.ID < w.jobs[i-1].Message.ID {
			t.Fatalf("message %s left before %s", w.jobs[i-1].Message.ID, w.jobs[i].Message.ID)
		}
	}
}

func TestW19_ARetryTakesTheSameSource(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.pass(filling)
	first := w.mail(1)
	w.wantSources(1, 0)
	for range 20 {
		w.mail(1)
	}
	w.wantSources(10, 11)
	w.told = nil
	w.answer(0, "450 greylisted")
	if last := w.told[len(w.told)-1]; !strings.Contains(last, "defer 1") {
		t.Fatalf("told %q", w.told)
	}

	again := func(via string) string {
		l := *first
		l.Recipients = []queue.Pending{{Via: via, Attempts: 1}}
		w.leases[l.Message.ID] = &l
		before := len(w.jobs)
		w.handle(&l)
		w.step()
		if len(w.jobs) == before {
			return "held"
		}
		return w.jobs[len(w.jobs)-1].Source
	}
	if got := again("acme-1"); got != "held" {
		t.Errorf("with the hour used up, the retry is %s; it waits for its source", got)
	}
	if got := again("pool-1"); got != "pool-1" {
		t.Errorf("the retry of what left from pool-1 is %s", got)
	}
	w.pass(time.Hour)
	if last := w.jobs[len(w.jobs)-1]; last.Source != "acme-1" || last.Message.ID != first.Message.ID {
		t.Errorf("in the next hour %s left from %s", last.Message.ID, last.Source)
	}
	w.pass(time.Hour)
	for range 20 {
		w.mail(1)
	}
	w.pass(stickyFor - 3*time.Hour)
	if got := again("acme-1"); got != "held" {
		t.Errorf("before its patience is at an end the retry is %s", got)
	}
	w.pass(2 * time.Hour)
	if got := again("acme-1"); got != "pool-1" {
		t.Errorf("with the day used up and %v gone, the retry is %s", stickyFor, got)
	}
	w.missing["acme-1"] = true
	if got := again("acme-1"); got != "pool-1" {
		t.Errorf("with its source missing the retry is %s", got)
	}
}

func TestW20_AllOrNoneOfAMessage(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.pass(filling)
	w.mail(1)
	w.mail(10) // 9 are left
	w.wantSources(1, 10)
	w.pass(time.Minute) // a refusal is not asked about again at once
	w.mail(9)
	w.wantSources(10, 10)
}

// TestOnlyWhatBeginsIsCharged: a token is spent when a transaction begins, whatever becomes of it, and not
// before.
func TestOnlyWhatBeginsIsCharged(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.begins = nil
	w.pass(filling)
	used := func() int64 {
		w.step()
		s, _ := w.ctl.Status("192.0.2.20")
		return s.SentHour
	}
	for name, c := range map[string]struct {
		result delivery.Result
		begins int
	}{
		"no connection":    {delivery.Result{Attempted: true, Reply: reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "refused")}, 0},
		"never its turn":   {delivery.Result{Reply: reply.Local(451, reply.Enhanced{4, 4, 1}, "MAIL", "x")}, 0},
		"taken back":       {delivery.Result{Withdrawn: true, Reply: reply.Local(451, reply.Enhanced{4, 3, 0}, "MAIL", "x")}, 0},
		"refused by host":  {delivery.Result{Attempted: true, Session: "s", Reply: reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 1, 1}, Command: "RCPT"}}, 1},
		"lost on the way":  {delivery.Result{Attempted: true, Session: "s", Ambiguous: true, Reply: reply.Local(451, reply.Enhanced{4, 4, 2}, "content", "x")}, 1},
		"refused greeting": {delivery.Result{Attempted: true, Reply: reply.Reply{Code: 554, Command: "greeting"}}, 0},
		"refused EHLO":     {delivery.Result{Attempted: true, Reply: reply.Reply{Code: 421, Command: "EHLO"}}, 0},
	} {
		// All that was leased is either spent or given back when the lease has run out.
		w.pass(time.Hour)
		before := used()
		w.mail(1)
		job := w.jobs[len(w.jobs)-1]
		if job.Source != "acme-1" || c.begins > 0 && !job.MayBegin(1) {
			t.Fatalf("%s: a job from %s that may not begin", name, job.Source)
		}
		c.result.Recipient = job.Recipients[0]
		job.Done(job, []delivery.Result{c.result})
		w.pass(10 * time.Second)
		if got := int(used() - before); got != c.begins {
			t.Errorf("%s: %d tokens are spent, want %d", name, got, c.begins)
		}
	}
}

// TestARefusedConnectionIsOneOutcome: a greeting that 10 recipients waited for is one outcome of the day.
// Their tokens come back, since the provider has seen none of them.
func TestARefusedConnectionIsOneOutcome(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.begins = nil
	w.pass(filling)
	for range 10 {
		w.mail(1)
	}
	w.wantSources(10, 0)
	words := reply.Reply{Code: 421, Text: "too many connections", Command: "greeting"}
	w.Dispatcher.Refused(w.routes["x.example"], "acme-1", words)
	w.Dispatcher.Refused(w.routes["x.example"], "pool-1", words)
	for _, j := range w.jobs {
		j.Done(j, []delivery.Result{{Attempted: true, Reply: words}})
	}
	w.pass(5 * time.Second)
	s, _ := w.ctl.Status("192.0.2.20")
	if p := s.Providers[0]; p.Deferred != 1 || p.Delivered+p.HardBounces+p.Refused != 0 || s.SentHour != 0 {
		t.Errorf("%d sent; %+v", s.SentHour, p)
	}
	// The policy of a greeting is one against this sender, and its permanence no bounce of an address.
	w.Dispatcher.Refused(w.routes["x.example"], "acme-1", reply.Reply{Code: 554, Enhanced: reply.Enhanced{5, 7, 1}, Command: "greeting"})
	w.Dispatcher.Refused(w.routes["x.example"], "acme-1", reply.Reply{Code: 554, Command: "greeting"})
	w.pass(5 * time.Second)
	s, _ = w.ctl.Status("192.0.2.20")
	if p := s.Providers[0]; p.Refused != 2 || p.Deferred != 1 || p.HardBounces != 0 {
		t.Errorf("%+v", p)
	}
	// A host's own trouble is nobody's fault.
	w.Dispatcher.Refused(w.routes["x.example"], "acme-1", reply.Reply{Code: 421, Enhanced: reply.Enhanced{4, 3, 2}, Command: "greeting"})
	w.pass(5 * time.Second)
	s, _ = w.ctl.Status("192.0.2.20")
	if p := s.Providers[0]; p.Refused != 2 || p.Deferred != 1 {
		t.Errorf("%+v", p)
	}
}

func TestAJobIsTakenBackWhenItsHourIsOver(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.begins = nil
	w.pass(filling)
	w.mail(1)
	job := w.jobs[0]
	w.pass(11 * time.Minute)
	if job.MayBegin(1) {
		t.Error("it may begin in the next hour on a token of this one")
	}
	w.told = nil
	job.Done(job, []delivery.Result{{Withdrawn: true, Reply: reply.Reply{Code: 451}}})
	w.want(t, "return 1 [0]")
}

func TestMissingDedicatedSourceIsPassedOver(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.pass(filling)
	w.missing["acme-1"] = true
	w.mail(1)
	w.wantSources(0, 1)
	if s, _ := w.ctl.Status("192.0.2.20"); len(s.Providers) > 0 {
		t.Errorf("its warm-up has been asked: %+v", s.Providers)
	}
	w.missing["pool-1"] = true
	w.told = nil
	w.mail(1)
	w.wantSources(0, 1)
	if !slices.ContainsFunc(w.told, func(s string) bool { return strings.Contains(s, "no source of pool") }) {
		t.Errorf("told %q", w.told)
	}
}

// TestFullDeliveryChargesNothing: what must be parked for its site takes no token.
func TestFullDeliveryChargesNothing(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.pass(filling)
	w.room = 0
	for range 10 {
		w.mail(1)
	}
	flow := delivery.Flow{Site: "mx.x.example", Source: "acme-1", Tenant: "acme"}
	if n := w.Parked(lineOf(flow)); len(w.jobs) != 0 || n != 10 {
		t.Fatalf("%d jobs, %d parked", len(w.jobs), n)
	}
	w.pass(10 * time.Second)
	if s, _ := w.ctl.Status("192.0.2.20"); s.SentHour > 0 {
		t.Errorf("%d tokens are spent", s.SentHour)
	}
	w.room = 1 << 20
	w.unpark(flow)
	w.step()
	w.wantSources(10, 0)
}

// TestWhatIsHeldBackTakesNoToken: while a warming source is suspended for a site, mail to it has no token,
// and other sites have all of them. It is chosen for anew when its turn has come.
func TestWhatIsHeldBackTakesNoToken(t *testing.T) {
	w := newWarmStage(t, holding)
	other := *w.routes["x.example"]
	other.Domain, other.Site = "y.example", "mx.y.example"
	w.routes["y.example"] = &other
	w.pass(filling)
	w.suspended["mx.x.example acme-1"] = true
	for range 5 {
		w.mail(1)
	}
	for _, j := range w.jobs {
		if j.Source != "acme-1" || j.MayBegin(1) {
			t.Errorf("a job from %s that may begin", j.Source)
		}
	}
	for i := range 10 {
		l := w.lease(envelope.ID(100+i), 0, "r@y.example")
		l.Message.Tenant, l.Message.Received = "acme", w.clock
		w.handle(l)
		w.step()
	}
	w.wantSources(15, 0)
	w.told = nil
	delete(w.suspended, "mx.x.example acme-1")
	j := w.jobs[0]
	j.Done(j, []delivery.Result{{Withdrawn: true, Reply: reply.Reply{Code: 451}}})
	w.want(t, "return 1 [0]")
	w.handle(w.leases[1])
	w.step()
	w.wantSources(15, 0)     // the hour is used up
	w.pass(30 * time.Minute) // into the next
	if last := w.jobs[len(w.jobs)-1]; last.Message.ID != 1 {
		t.Errorf("the last job is of message %s", last.Message.ID)
	}
}

// TestASourceWithoutPlanIsNotPassedOver: what takes no token may wait.
func TestASourceWithoutPlanIsNotPassedOver(t *testing.T) {
	w := newWarmStage(t, warmConfig+`pool "acme" {
		shared = ["pool-1"]
		dedicated "acme-1" {}
	}`)
	w.suspended["mx.x.example acme-1"] = true
	w.mail(1)
	w.wantSources(1, 0)
	if !w.jobs[0].MayBegin(1) {
		t.Error("it may not begin")
	}
}

// TestRoomIsWaitedForRatherThanAnEnd: mail waits for a source that has no room at this moment, and for a
// suspended one when there is no other.
func TestRoomIsWaitedForRatherThanAnEnd(t *testing.T) {
	for _, x := range []struct{ suspended, full, want string }{
		{"acme-1 pool-1", "", "acme-1"}, {"", "acme-1 pool-1", "acme-1"},
		{"acme-1", "pool-1", "pool-1"}, {"pool-1", "acme-1", "acme-1"},
	} {
		w := newWarmStage(t, overflowing)
		w.pass(filling)
		for _, source := range strings.Fields(x.suspended) {
			w.suspended["mx.x.example "+source] = true
		}
		for _, source := range strings.Fields(x.full) {
			w.full["mx.x.example "+source] = true
		}
		w.mail(1)
		n := w.sources()[x.want] + w.Parked(lineOf(delivery.Flow{Site: "mx.x.example", Source: x.want, Tenant: "acme"}))
		if n != 1 || len(w.jobs) == 1 && w.jobs[0].MayBegin != nil && w.jobs[0].MayBegin(1) {
			t.Errorf("%+v: %+v; want one that waits for %s and may not begin", x, w.jobs, x.want)
		}
	}
}

// TestRoomIsWaitedForRatherThanTokens: where a source of a pool has tokens and no room, mail waits for room;
// where it is suspended, for the tokens of another.
func TestRoomIsWaitedForRatherThanTokens(t *testing.T) {
	for _, suspended := range []bool{false, true} {
		w := newWarmStage(t, warmConfig+`source "acme-2" { address = "192.0.2.21" }
		pool "acme" {
			overflow = "hold"
			dedicated "acme-1" { plan = "small" }
			dedicated "acme-2" { plan = "small" }
		}`)
		w.pass(filling)
		if suspended {
			w.suspended["mx.x.example acme-2"] = true
		} else {
			w.full["mx.x.example acme-2"] = true
		}
		for range 14 {
			w.mail(1)
		}
		sent, wait := w.sources()["acme-1"], w.Parked(lineOf(delivery.Flow{Site: "mx.x.example", Source: "acme-2", Tenant: "acme"}))
		if held := w.throttledNow(); suspended && (sent != 10 || held != 4) || !suspended && (sent+wait != 14 || held != 0) {
			t.Errorf("suspended: %v; %d are sent, %d wait for room and %d for tokens, of 14", suspended, sent, wait, held)
		}
	}
}

// TestWhatIsHeldBackIsDiverted: a shared source takes what a warming one would have to wait with, but for
// what had the warming one before.
func TestWhatIsHeldBackIsDiverted(t *testing.T) {
	w := newWarmStage(t, overflowing)
	w.pass(filling)
	w.suspended["mx.x.example acme-1"] = true
	l := w.mail(1)
	w.wantSources(0, 1)
	again := *l
	again.Recipients = []queue.Pending{{Via: "acme-1", Attempts: 1}}
	w.handle(&again)
	w.wantSources(1, 1)
	if w.jobs[1].MayBegin(1) {
		t.Error("it took a token")
	}
	w.clock = w.clock.Add(stickyFor)
	w.handle(&again)
	w.wantSources(1, 2)
	// Where the shared one would wait as well, that is left for later.
	w.suspended["mx.x.example pool-1"] = true
	w.mail(1)
	w.wantSources(2, 2)
	delete(w.suspended, "mx.x.example pool-1")
	w.missing["pool-1"] = true
	w.mail(1)
	w.wantSources(3, 2)
	if w.jobs[3].MayBegin(1) || w.jobs[4].MayBegin(1) {
		t.Error("it took a token")
	}
	if s, _ := w.ctl.Status("192.0.2.20"); s.SentDay > 0 {
		t.Errorf("%d tokens are spent", s.SentDay)
	}
}

func TestReloadLetsThrottledMailGo(t *testing.T) {
	w := newWarmStage(t, holding)
	for range 30 {
		w.mail(1)
	}
	w.pass(time.Minute)
	left := len(w.jobs)
	w.use(overflowing)
	<-w.throttled.again
	w.throttled.takeAll(t.Context())
	w.step()
	n := w.sources()
	if n["acme-1"] < left || n["acme-1"]+n["pool-1"] != 30 || w.throttledNow() != 0 {
		t.Errorf("after the reload %v have left, %d wait for tokens", n, w.throttledNow())
	}
}

// TestThrottledMailIsCountedOnce: looking at what is held, each minute and after a reload, and taking some of
// it away, leaves the warm-up with the count that the queue has.
func TestThrottledMailIsCountedOnce(t *testing.T) {
	w := newWarmStage(t, holding)
	line := parking.Line{Key: tokens("acme", "big"), Tenant: "acme"}
	waiting := func() int64 {
		w.step()
		w.pass(time.Second)
		s, _ := w.ctl.Status("192.0.2.20") // the pacer's own count, not what is shown
		return s.Providers[slices.IndexFunc(s.Providers, func(p warmup.ProviderStatus) bool { return p.Provider == "big" })].Waiting
	}
	for range 30 {
		w.mail(1)
	}
	for i, look := range []func(){
		func() { w.throttled.sweep(t.Context(), true) }, func() { w.throttled.sweep(t.Context(), true) },
		func() { w.throttled.takeAll(t.Context()) }, func() { w.throttled.takeAll(t.Context()) },
	} {
		look()
		if got, want := waiting(), int64(w.throttledNow()); got != want || want == 0 {
			t.Fatalf("after look %d %d wait, the queue has %d", i+1, got, want)
		}
	}
	for i, l := range w.parked[line][1:] {
		if l.Message.ID < w.parked[line][i].Message.ID {
			t.Fatalf("message %s waits behind %s", l.Message.ID, w.parked[line][i].Message.ID)
		}
	}
	w.Take(line, w.throttledNow()-3) // removed
	if got := waiting(); got != 3 {
		t.Errorf("%d wait, 3 are left", got)
	}
	w.Take(line, 3)
	if got := waiting(); got != 0 {
		t.Errorf("%d wait, none is left", got)
	}
}

// Throttled mail is given up when its domain says so, and not when the queue does, which goes by the longest
// max_age of all.
func TestThrottledMailExpires(t *testing.T) {
	w := newWarmStage(t, holding+`
	domain "x.example" { max_age = "90m" }`)
	for range 30 {
		w.mail(1)
	}
	w.pass(time.Hour)
	left := len(w.jobs)
	w.clock = w.clock.Add(time.Hour)
	w.throttled.takeAll(t.Context())
	expired := 0
	for _, r := range w.reports {
		expired += len(r.Attempts)
	}
	if n := w.throttledNow(); left < 9 || n != 0 || expired != 30-len(w.jobs) {
		t.Errorf("%d of 30 have left in time, and %d after; %d expired, %d wait for tokens", left, len(w.jobs)-left, expired, n)
	}
}

// TestReloadOfALargeBacklog lets go what has been held for days: as much of it as delivery has room for
// becomes jobs, the rest waits in the queue for its site. No message is looked at twice.
func TestReloadOfALargeBacklog(t *testing.T) {
	const held, room = 10_000, 500
	w := newWarmStage(t, holding)
	for range held {
		w.next++
		l := w.lease(w.next, 0, "r@x.example")
		l.Message.Tenant, l.Message.Received = "acme", w.clock
		w.handle(l)
		w.told = w.told[:0]
	}
	w.step()
	begun := len(w.jobs)
	w.use(overflowing)
	w.room = room
	taken := 0
	w.throttled.handle = func(l *queue.Lease) {
		taken++
		w.handle(l)
		w.told = w.told[:0]
		w.room = max(0, room-len(w.jobs)+begun)
	}
	w.throttled.takeAll(t.Context())
	flow := delivery.Flow{Site: "mx.x.example", Source: "pool-1", Tenant: "acme"}
	if n := len(w.jobs) - begun; n != room || w.Parked(lineOf(flow)) != held-begun-room || taken != held-begun {
		t.Errorf("%d of %d were taken up: %d jobs, %d wait for their site; there is room for %d", taken, held-begun, n, w.Parked(lineOf(flow)), room)
	}
}

// A job that delivery has no room for keeps no tokens from others, signed or not.
func TestParkedMailHasNoTokensPromised(t *testing.T) {
	for _, more := range []string{"", dkimBlock("client.example", "")} {
		w := newWarmStage(t, holding+"\n"+more)
		w.pass(filling)
		w.full["mx.x.example acme-1"] = true
		for range 20 {
			w.mail(1)
		}
		if len(w.jobs) != 0 || w.throttledNow() != 0 {
			t.Fatalf("%d jobs, %d wait for tokens while delivery has no room", len(w.jobs), w.throttledNow())
		}
		w.full, w.room = make(map[string]bool), 1
		w.unpark(delivery.Flow{Site: "mx.x.example", Source: "acme-1", Tenant: "acme"})
		if err := w.signing.wait(); err != nil {
			t.Fatal(err)
		}
		w.wantSources(1, 0)
	}
}

// TestAnAnswerBeforeMailIsInLine: the warm-up's store answers between the moment at which mail asks for tokens and that
// at which it is where the answer looks for it.
func TestAnAnswerBeforeMailIsInLine(t *testing.T) {
	for name, pools := range map[string]string{"diverting": strings.Replace(overflowing, `"0s"`, `"1m"`, 1), "holding": holding} {
		t.Run(name, func(t *testing.T) {
			w := newWarmStage(t, pools)
			w.pass(filling)
			policy, stepping, early := w.Policy, false, 0
			w.Policy = func() *wiring.Policy {
				if w.ctl.Asking() && !stepping {
					stepping = true
					w.step()
					stepping = false
					early++
				}
				return policy()
			}
			w.mail(3)
			if early != 1 || w.throttledNow() != 3 {
				t.Fatalf("%d early answers, %d recipients wait; want 1 and 3", early, w.throttledNow())
			}
			select {
			case e := <-w.throttled.early:
				w.throttled.take(e.at, e.source)
			default:
				t.Fatal("nobody knows of the early answer")
			}
			if n := w.throttledNow(); n != 0 {
				t.Errorf("%d recipients wait on", n)
			}
		})
	}
}
