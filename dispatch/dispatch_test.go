package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/internal/dsn"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/router"
)

// stage is a dispatcher between a queue, a router and a delivery that only write down what they
// are told.
type stage struct {
	*Dispatcher
	told []string // in order: "verb id indexes detail"
	jobs []*delivery.Job
	room int // jobs that delivery still takes

	draining        bool
	asks            bool            // an operator asks for something while mail is on its way
	meanwhile       func()          // is called once, as a job asks for space
	suspended, full map[string]bool // by site and source
	trouble         reply.Reply

	parked   map[parking.Line][]*queue.Lease
	begins   func(*delivery.Job) bool // has a job begin at once; nil: it waits. False: it is done
	leases   map[envelope.ID]*queue.Lease
	routes   map[string]*route.Route
	refuse   map[string]reply.Reply
	later    []func()        // answers of the router that are still to come
	slow     map[string]bool // look-ups that take their time
	asked    []string        // of the router: "tenant message domains"
	lookedUp []string        // domains, in order
	reports  []Notification
	lost     error     // what queueing a report gives
	trusted  time.Time // until when the queue doubts the clock
}

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func newStage(t *testing.T) *stage { return newStageLogging(t, slog.New(slog.DiscardHandler)) }

func newStageLogging(t *testing.T, log *slog.Logger) *stage {
	s := &stage{
		room:   1 << 20,
		parked: make(map[parking.Line][]*queue.Lease),
		leases: make(map[envelope.ID]*queue.Lease),
		routes: make(map[string]*route.Route),
		refuse: make(map[string]reply.Reply),
		slow:   make(map[string]bool),

		suspended: make(map[string]bool), full: make(map[string]bool),
	}
	cfg, err := config.Parse([]byte(`defaults {
		retry_interval = "10m"
		max_retry_interval = "1h"
		max_age = "1d"
	}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	s.Dispatcher = atOnce(New(Config{
		Queue: s, Router: stageRouter{s}, Delivery: stageDelivery{s}, Notifier: s, Events: s, Sites: new(Sites),
		Policy: func() *wiring.Policy { return pol },
		Now:    func() time.Time { return start },
		Log:    log,
	}))
	s.Chance = func() float64 { return 0.5 }
	return s
}

// atOnce has a dispatcher take up mail when it is called, in place of its goroutines.
func atOnce(d *Dispatcher) *Dispatcher {
	d.refill = func(f delivery.Flow) {
		for d.unpark(f) {
		}
	}
	d.takeUp = func(domain string) {
		for d.unparkRouted(domain) {
		}
	}
	return d
}

func (s *stage) say(format string, args ...any) {
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *stage) Next(context.Context) (*queue.Lease, error) { return nil, queue.ErrClosed }
func (s *stage) Writable(ctx context.Context) error         { return ctx.Err() }
func (s *stage) Park(id envelope.ID, rs []int, line parking.Line, until time.Time) {
	where := line.String()
	if line.Source != "" {
		where += " from " + line.Source
	}
	s.say("park %d %v %s", id, rs, where)
	l := *s.leases[id]
	l.Recipients = slices.DeleteFunc(slices.Clone(l.Recipients), func(p queue.Pending) bool { return !slices.Contains(rs, p.Index) })
	for i := range l.Recipients {
		l.Recipients[i].Key = line.Key
	}
	s.parked[line] = append(s.parked[line], &l)
}
func (s *stage) ParkFirst(id envelope.ID, rs []int, line parking.Line, until time.Time) {
	s.Park(id, rs, line, until)
	if n := len(s.parked[line]); n > 1 {
		s.parked[line] = append([]*queue.Lease{s.parked[line][n-1]}, s.parked[line][:n-1]...)
	}
}
func (s *stage) ParkedInLines(key parking.Key) (n int) {
	for line := range s.parked {
		if line.Key == key {
			n += s.Parked(line)
		}
	}
	return n
}
func (s *stage) File(envelope.ID, []int, parking.Line) bool { return s.asks }
func (s *stage) Parked(line parking.Line) (n int) {
	for _, l := range s.parked[line] {
		n += len(l.Recipients)
	}
	return n
}
func (s *stage) Take(line parking.Line, n int) []*queue.Lease {
	n = min(n, len(s.parked[line]))
	out := s.parked[line][:n]
	s.parked[line] = s.parked[line][n:]
	return out
}
func (s *stage) TakeNewest(line parking.Line, n int) []*queue.Lease {
	out := s.parked[line][max(len(s.parked[line])-n, 0):]
	s.parked[line] = s.parked[line][:len(s.parked[line])-len(out)]
	slices.Reverse(out)
	return out
}

func (s *stage) Return(id envelope.ID, rs []int) { s.say("return %d %v", id, rs) }
func (s *stage) Settle(id envelope.ID, rs []int, o queue.Outcome) error {
	s.say("settle %d %v %v", id, rs, o)
	return nil
}
func (s *stage) Hold(id envelope.ID, rs []int, _ queue.Attempt) error {
	s.say("hold %d %v", id, rs)
	return nil
}
func (s *stage) Defer(id envelope.ID, rs []int, until time.Time, last queue.Attempt, key parking.Key) error {
	untried := ""
	if last.Untried {
		untried = "untried "
	}
	s.say("defer %d %v +%v %s%s %s", id, rs, until.Sub(start), untried, last.Reply, key)
	return nil
}
func (s *stage) Warned(id envelope.ID, rs []int) { s.say("warned %d %v", id, rs) }
func (s *stage) WarnLater(id envelope.ID, rs []int, at time.Time) {
	s.say("warn later %d %v +%v", id, rs, at.Sub(start))
}
func (s *stage) NotifyAt(envelope.ID, []int, time.Time) {}

func (s *stage) WarnAt(id envelope.ID, rs []int, at time.Time) {
	s.say("warn at %d %v +%v", id, rs, at.Sub(start))
}
func (s *stage) Body(envelope.ID) (io.ReadCloser, error) { return nil, errors.New("no body") }
func (s *stage) NothingExpiresBefore() time.Time         { return s.trusted }
func (s *stage) Attempted(k accounting.Type, o *Outcomes, as []Attempt) {
	for _, a := range as {
		s.say("event %v %d", k, a.Pending.Index)
	}
}

func (s *stage) notify(n Notification, done func(error)) {
	if len(n.Wanted()) > 0 {
		s.reports = append(s.reports, n)
	}
	if done != nil {
		done(s.lost)
	}
}

func (s *stage) Accepting(*envelope.Message) {}
func (s *stage) Received(*envelope.Message)  {}
func (s *stage) Refused(*envelope.Message)   {}
func (s *stage) After(f func())              { f() }

type stageRouter struct{ *stage }

func (s stageRouter) Known(domain string) (*route.Route, *reply.Reply, bool) {
	if s.slow[domain] {
		return nil, nil, false
	}
	rt, refused := s.answerFor(domain)
	return rt, refused, true
}

func (s stageRouter) answerFor(domain string) (*route.Route, *reply.Reply) {
	if bad, ok := s.refuse[domain]; ok {
		return nil, &bad
	}
	if rt := s.routes[domain]; rt != nil {
		return rt, nil
	}
	return &route.Route{Domain: domain, Site: "mx." + domain}, nil
}

func (s stageRouter) Submit(r router.Request) {
	slices.Sort(r.Domains)
	s.asked = append(s.asked, fmt.Sprintf("%s %d %v", r.Tenant, r.Message, r.Domains))
	for _, d := range r.Domains {
		s.later = append(s.later, func() {
			if !r.Wanted(d) {
				return
			}
			s.lookedUp = append(s.lookedUp, d)
			rt, refused := s.answerFor(d)
			r.Done(d, rt, refused)
		})
	}
}

type stageDelivery struct{ *stage }

func (s stageDelivery) Reserve(j *delivery.Job) bool {
	if meanwhile := s.meanwhile; meanwhile != nil {
		s.meanwhile = nil
		meanwhile()
	}
	if s.room == 0 || s.full[j.Route.Site+" "+j.Source] {
		return false
	}
	s.room--
	return true
}
func (s stageDelivery) Release(*delivery.Job) { s.room++ }
func (s stageDelivery) Submit(j *delivery.Job) {
	if s.begins != nil && !s.suspended[j.Route.Site+" "+j.Source] && !s.begins(j) {
		return
	}
	s.jobs = append(s.jobs, j)
}
func (s stageDelivery) Cancel(id envelope.ID) int {
	s.say("cancel %d", id)
	return 1
}
func (s stageDelivery) Space(f delivery.Flow) int {
	if s.full[f.Site+" "+f.Source] {
		return 0
	}
	return s.room
}
func (s stageDelivery) Suspended(site, source string) bool { return s.suspended[site+" "+source] }
func (s stageDelivery) Draining(delivery.Flow) bool        { return s.draining }
func (s stageDelivery) Blocked(string) (reply.Reply, bool) {
	return s.trouble, s.trouble.Code != 0
}

func (s *stage) lease(id envelope.ID, age time.Duration, recipients ...string) *queue.Lease {
	m := &envelope.Message{ID: id, Sender: "sender@client.example", Received: start.Add(-age)}
	l := &queue.Lease{Why: queue.Due, Message: m}
	for i, r := range recipients {
		m.Recipients = append(m.Recipients, envelope.Recipient{Address: envelope.Address(r)})
		l.Recipients = append(l.Recipients, queue.Pending{Index: i})
	}
	s.leases[id] = l
	return l
}

func (s *stage) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.told, want) {
		t.Errorf("told\n  %s\nwant\n  %s", strings.Join(s.told, "\n  "), strings.Join(want, "\n  "))
	}
	s.told = nil
}

func (s *stage) answer(job int, replies ...string) {
	j := s.jobs[job]
	var rs []delivery.Result
	for i, text := range replies {
		r := delivery.Result{Recipient: j.Recipients[i]}
		if text != "" {
			r.Attempted = true
			fmt.Sscanf(text, "%d", &r.Reply.Code)
			r.Reply.Text = text[4:]
		} else {
			r.Withdrawn = true
		}
		rs = append(rs, r)
	}
	j.Done(j, rs)
}

func TestS1_RecipientsBecomeAJobPerSite(t *testing.T) {
	s := newStage(t)
	var to []string
	for i := range 100 {
		to = append(to, fmt.Sprintf("r%d@d%d.example", i, i%4))
	}
	shared := &route.Route{Domain: "d0.example", Site: "mx.shared"}
	s.routes["d0.example"], s.routes["d1.example"] = shared, shared
	s.handle(s.lease(1, 0, to...))
	if len(s.jobs) != 3 {
		t.Fatalf("%d jobs for 4 domains on 3 sites", len(s.jobs))
	}
	n := 0
	for _, j := range s.jobs {
		n += len(j.Recipients)
	}
	if n != 100 {
		t.Errorf("%d recipients in jobs", n)
	}
	s.want(t)
}

func TestDomainsOfOneSiteKeepTheirOwnSettings(t *testing.T) {
	s := newStage(t)
	cfg, err := config.Parse([]byte(`domain "bank.example" { tls = "required" }`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	s.Policy = func() *wiring.Policy { return pol }
	for _, d := range []string{"a.example", "bank.example", "c.example"} {
		s.routes[d] = &route.Route{Domain: d, Site: "mx.shared"}
	}
	s.handle(s.lease(1, 0, "1@a.example", "2@bank.example", "3@c.example"))
	if len(s.jobs) != 2 {
		t.Fatalf("%d jobs for two sets of settings", len(s.jobs))
	}
	for _, j := range s.jobs {
		bank := slices.Equal(j.Recipients, []int{1})
		if want := map[bool]tlspolicy.Level{true: tlspolicy.Required, false: tlspolicy.Opportunistic}[bank]; j.Demand.Level != want {
			t.Errorf("recipients %v go with TLS %v, want %v", j.Recipients, j.Demand.Level, want)
		}
	}
}

func TestSlowLookUpHoldsUpNobodyElse(t *testing.T) {
	s := newStage(t)
	s.slow["slow.example"] = true
	s.handle(s.lease(1, 0, "a@fast.example", "b@slow.example"))
	if len(s.jobs) != 1 {
		t.Fatalf("%d jobs while a look-up is under way, want that of the other domain", len(s.jobs))
	}
	if n := s.lookups.inMemory(); n != 1 {
		t.Errorf("%d recipients wait for look-ups, want 1", n)
	}
	s.later[0]()
	if n := s.lookups.inMemory(); len(s.jobs) != 2 || n != 0 {
		t.Errorf("%d jobs, %d recipients wait for look-ups after the look-up", len(s.jobs), n)
	}
}

func TestEachReplyHasItsOutcome(t *testing.T) {
	s := newStage(t)
	s.handle(s.lease(1, 0, "a@x.example", "b@x.example", "c@x.example", "d@x.example"))
	s.answer(0, "250 ok", "550 no such user", "451 later", "")
	s.want(t,
		"event Delivery 0", "settle 1 [0] delivered",
		"event Bounce 1", "settle 1 [1] bounced",
		"event TransientFailure 2", "defer 1 [2] +10m0s 451 later mx.x.example",
		"return 1 [3]")
	if len(s.reports) != 1 || s.reports[0].Kind != dsn.Failed || len(s.reports[0].Attempts) != 1 {
		t.Errorf("reports %v, want one about the failure", s.reports)
	}
}

func TestOurOwnStopIsNoAttempt(t *testing.T) {
	s := newStage(t)
	s.handle(s.lease(1, 0, "a@x.example", "b@x.example"))
	s.stopping.Store(true)
	j := s.jobs[0]
	stopping := reply.Local(421, reply.Enhanced{4, 3, 2}, "route", "this relay is stopping")
	cut := reply.Local(421, reply.Enhanced{4, 4, 2}, "content", "connection closed by this relay")
	j.Done(j, []delivery.Result{{Recipient: 0, Reply: stopping}, {Recipient: 1, Reply: cut, Attempted: true}})
	s.want(t, "event TransientFailure 1", "defer 1 [1] +10m0s "+cut.Error()+" mx.x.example", "return 1 [0]")
}

func TestWaitDoublesWithAttempts(t *testing.T) {
	s := newStage(t)
	l := s.lease(1, 0, "a@x.example", "b@x.example")
	l.Recipients[0].Attempts, l.Recipients[1].Attempts = 0, 2
	s.handle(l)
	s.answer(0, "451 later", "451 later")
	s.want(t, "event TransientFailure 0", "event TransientFailure 1",
		"defer 1 [0] +10m0s 451 later mx.x.example", "defer 1 [1] +40m0s 451 later mx.x.example")
}

func TestTemporaryFailureAfterMaxAgeExpires(t *testing.T) {
	s := newStage(t)
	s.handle(s.lease(1, 0, "a@x.example"))
	s.jobs[0].Expires = start // it was tried just before
	s.answer(0, "451 later")
	s.want(t, "event Expiration 0", "settle 1 [0] expired")
	if len(s.reports) != 1 {
		t.Error("the sender was not told")
	}
}

// TestNothingIsGivenUpWhileTheClockIsInDoubt: mail that is too old by a clock which jumped ahead is deferred until the
// clock is believed, and what delivery gives back as too old is due again.
func TestNothingIsGivenUpWhileTheClockIsInDoubt(t *testing.T) {
	s := newStage(t)
	s.trusted = start.Add(20 * time.Minute)
	s.handle(s.lease(1, 25*time.Hour, "a@x.example"))
	s.answer(0, "451 later")
	s.want(t, "event TransientFailure 0", "defer 1 [0] +10m0s 451 later mx.x.example")
	if expires := s.jobs[0].Expires; !expires.Equal(s.trusted) {
		t.Errorf("the job expires at %v, want %v", expires, s.trusted)
	}
	s.jobs[0].Expires = start.Add(-time.Second) // it was made before the clock jumped
	s.jobs[0].Done(s.jobs[0], []delivery.Result{{Recipient: 0, Reply: reply.Local(451, reply.Enhanced{4, 4, 7}, "route", "expired")}})
	s.want(t, "return 1 [0]")
	s.trusted = start
	s.jobs[0].Done(s.jobs[0], []delivery.Result{{Recipient: 0, Reply: reply.Local(451, reply.Enhanced{4, 4, 7}, "route", "expired")}})
	s.want(t, "event Expiration 0", "settle 1 [0] expired")
}

func TestDomainsOwnMaxAge(t *testing.T) {
	s := newStage(t)
	cfg, err := config.Parse([]byte(`domain "soon.example" { max_age = "15m" }`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	pol := wiring.New(cfg)
	s.Policy = func() *wiring.Policy { return pol }
	s.handle(s.lease(1, 10*time.Minute, "a@soon.example"))
	s.answer(0, "451 mailbox busy")
	s.want(t, "event TransientFailure 0", "defer 1 [0] +5m0s 451 mailbox busy mx.soon.example")

	l := s.lease(2, 15*time.Minute, "a@soon.example", "b@later.example")
	for i := range l.Recipients {
		l.Recipients[i].Attempts, l.Recipients[i].Last = 1, reply.Reply{Code: 451, Text: "mailbox busy"}
	}
	s.handle(l)
	s.want(t, "event Expiration 0", "settle 2 [0] expired")
	if len(s.jobs) != 2 || !slices.Equal(s.jobs[1].Recipients, []int{1}) {
		t.Errorf("%d jobs: want one more, for the recipient that is not too old", len(s.jobs))
	}
	if got := s.reports[0].Attempts[0].Result.Reply.Text; got != "mailbox busy" {
		t.Errorf("reported %q", got)
	}
}

func TestExpiredLeaseIsReportedWithItsLastReply(t *testing.T) {
	s := newStage(t)
	l := s.lease(1, 25*time.Hour, "a@x.example", "b@x.example")
	l.Why = queue.Expired
	l.Recipients[0].Last = reply.Reply{Code: 452, Text: "mailbox full"}
	s.handle(l)
	s.want(t, "event Expiration 0", "event Expiration 1", "settle 1 [0 1] expired")
	if got := s.reports[0].Attempts[0].Result.Reply.Text; got != "mailbox full" {
		t.Errorf("reported %q", got)
	}
	if got := s.reports[0].Attempts[1].Result.Reply.Status().String(); got != "4.4.7" {
		t.Errorf("never tried, but reported as %s", got)
	}
}

func TestFailureIsNotSettledBeforeItsReportIsDurable(t *testing.T) {
	s := newStage(t)
	s.lost = errors.New("disk full")
	s.handle(s.lease(1, 0, "a@x.example"))
	s.answer(0, "550 no such user")
	s.want(t, "defer 1 [0] +5m0s 550 no such user mx.x.example")
}

// TestFailedReportIsNoAttempt: the recipients of what expired were not tried, and share a record.
func TestFailedReportIsNoAttempt(t *testing.T) {
	s := newStage(t)
	s.lost = errors.New("disk full")
	l := s.lease(1, 48*time.Hour, "a@x.example", "b@x.example")
	l.Why = queue.Expired
	s.handle(l)
	s.want(t, "defer 1 [0 1] +5m0s untried queue: 451 4.4.7 no delivery was attempted before the message expired ")
}

// A full disk refuses each report; the log says so once.
func TestReportsThatAFullDiskRefusesAreLoggedOnce(t *testing.T) {
	var book bytes.Buffer
	s := newStageLogging(t, slog.New(slog.NewTextHandler(&book, nil)))
	s.lost = fmt.Errorf("report to the sender: %w", queue.ErrDiskFull)
	for id := range envelope.ID(50) {
		l := s.lease(id+1, 1, "a@x.example")
		l.Why = queue.Expired
		s.handle(l)
	}
	if n := strings.Count(book.String(), "level=ERROR"); n != 1 || len(s.told) != 50 {
		t.Errorf("%d log lines, %d deferred:\n%s", n, len(s.told), &book)
	}
}

func TestNullSenderIsNeverReportedTo(t *testing.T) {
	s := newStage(t)
	l := s.lease(1, 0, "a@x.example")
	l.Message.Sender = ""
	s.handle(l)
	s.answer(0, "550 no such user")
	s.want(t, "event Bounce 0", "settle 1 [0] bounced")
	if len(s.reports) != 0 {
		t.Error("a bounce was bounced")
	}
}

func TestSuccessIsReportedByTheHostThatCan(t *testing.T) {
	s := newStage(t)
	l := s.lease(1, 0, "a@x.example", "b@x.example")
	for i := range l.Message.Recipients {
		l.Message.Recipients[i].Notify = envelope.NotifySuccess
	}
	s.handle(l)
	taken := reply.Reply{Code: 250, Text: "ok"}
	s.jobs[0].Done(s.jobs[0], []delivery.Result{
		{Recipient: 0, Reply: taken, Attempted: true, DSN: true},
		{Recipient: 1, Reply: taken, Attempted: true},
	})
	if len(s.reports) != 1 {
		t.Fatalf("%d reports, want one", len(s.reports))
	}
	if w := s.reports[0].Wanted(); len(w) != 1 || w[0].Pending.Index != 1 {
		t.Errorf("reported %v: want the recipient whose host makes no reports", w)
	}
}

func TestUnroutableDomains(t *testing.T) {
	s := newStage(t)
	s.refuse["nx.example"] = reply.Local(556, reply.Enhanced{5, 1, 2}, "route", "no such domain")
	s.refuse["down.example"] = reply.Local(451, reply.Enhanced{4, 4, 3}, "route", "name servers don't answer")
	s.handle(s.lease(1, 0, "a@nx.example", "b@down.example"))
	slices.Sort(s.told) // domains come in any order
	s.want(t,
		"defer 1 [1] +10m0s route: 451 4.4.3 name servers don't answer down.example",
		"event Bounce 0", "event TransientFailure 1", "settle 1 [0] bounced")
}

// toX is the flow of a stage's mail to x.example.
var toX = delivery.Flow{Site: "mx.x.example", Source: "default"}

func TestJobWithoutRoomIsParkedAndTakenUpAgain(t *testing.T) {
	s := newStage(t)
	s.room = 1
	for id := range envelope.ID(3) {
		s.handle(s.lease(id+1, 0, "a@x.example"))
	}
	s.want(t, "park 2 [0] mx.x.example from default", "park 3 [0] mx.x.example from default")
	s.room = 1
	s.unpark(toX)
	if len(s.jobs) != 2 || s.jobs[1].Message.ID != 2 {
		t.Errorf("jobs %v: want message 2 taken up", s.jobs)
	}
	s.want(t)
}

// Delivery can have room again before a refused job is parked. Its site is then the refiller's, and not
// that of whoever parks, for whom the mail of all sites would wait.
func TestRoomThatComesWhileParkingIsNotMissed(t *testing.T) {
	s := newStage(t)
	s.Delivery = lateRoom{stageDelivery{s}}
	var told []delivery.Flow
	s.refill = func(f delivery.Flow) { told = append(told, f) }
	s.handle(s.lease(1, 0, "a@x.example"))
	s.want(t, "park 1 [0] mx.x.example from default")
	if !slices.Equal(told, []delivery.Flow{toX}) {
		t.Errorf("to be refilled: %q", told)
	}
}

// lateRoom is a delivery that has room when it has just refused.
type lateRoom struct{ stageDelivery }

func (lateRoom) Reserve(*delivery.Job) bool { return false }
func (lateRoom) Space(delivery.Flow) int    { return 1 }

func TestDelayWarningLeavesTheRecipientWhereItIs(t *testing.T) {
	s := newStage(t)
	l := s.lease(1, 5*time.Hour, "a@x.example")
	l.Why = queue.DelayWarning
	s.handle(l)
	s.want(t, "warned 1 [0]")
	if len(s.reports) != 1 || s.reports[0].Kind != dsn.Delayed {
		t.Errorf("reports %v", s.reports)
	}
}

// TestDelayWarningThatCanNotBeQueued is tried again, and does not tell that something is late which is
// given up.
func TestDelayWarningThatCanNotBeQueued(t *testing.T) {
	s := newStage(t)
	s.lost = queue.ErrDiskFull
	l := s.lease(1, 5*time.Hour, "a@x.example", "b@x.example")
	l.Why = queue.DelayWarning
	s.handle(l)
	s.want(t, "warn later 1 [0 1] +5m0s")
	s.told, s.lost = nil, errors.New("a header that nobody can read")
	s.handle(l)
	s.want(t, "warned 1 [0 1]")
	s.told, s.lost, s.reports = nil, nil, nil
	l.Message.Received = start.Add(-24 * time.Hour)
	s.Sites.remember(&route.Route{Site: "mx.x.example"})
	for i := range l.Recipients {
		l.Recipients[i].Key = parking.Key{Name: "mx.x.example"}
	}
	s.handle(l)
	s.want(t, "warned 1 [0 1]")
	if len(s.reports) != 0 {
		t.Errorf("told that it is late: %v", s.reports)
	}
}

// TestDelayWarningOfAProvider: the age at which mail is given up may be the provider's, also of mail that waits
// for a warm-up; where the provider is not known, nothing is taken for given up.
func TestDelayWarningOfAProvider(t *testing.T) {
	s := newStage(t)
	pol := parsePolicy(t, `defaults { max_age = "3h" }
	provider "big" {
		mx      = ["*.big.example"]
		max_age = "5d"
	}`)
	s.Policy = func() *wiring.Policy { return pol }
	s.Sites.remember(&route.Route{Domain: "big.example", Site: "mx.big.example", Provider: "big"})
	s.Sites.remember(&route.Route{Domain: "small.example", Site: "mx.small.example"})
	for key, reports := range map[string]int{"mx.big.example": 1, "mx.small.example": 0, "warmup:192.0.2.20/big": 1, "warmup:192.0.2.20/other": 0, "": 1, "mx.unknown.example": 1} {
		l := s.lease(1, 4*time.Hour, "a@x.example")
		l.Why = queue.DelayWarning
		l.Recipients[0].Key = parking.Parse(key)
		s.reports = nil
		if s.handle(l); len(s.reports) != reports {
			t.Errorf("waiting under %q: %d reports, want %d", key, len(s.reports), reports)
		}
	}
}

func TestOperatorsBounce(t *testing.T) {
	s := newStage(t)
	l := s.lease(1, 0, "a@x.example")
	l.Why = queue.BounceAsked
	s.handle(l)
	s.want(t, "event AdminBounce 0", "settle 1 [0] bounced")
	if len(s.reports) != 1 {
		t.Error("the sender was not told")
	}
}

// TestAReloadAmidAChoiceTakesItBack: what was chosen by the configuration before is not left in delivery, which
// a reload may have looked through before it came there.
func TestAReloadAmidAChoiceTakesItBack(t *testing.T) {
	s := newStage(t)
	s.handle(s.lease(1, 0, "a@x.example"))
	s.want(t)
	before := s.Policy()
	after, asked := wiring.New(before.Config), 0
	s.Policy = func() *wiring.Policy {
		if asked++; asked > 2 { // for the route, and for the choice
			return after
		}
		return before
	}
	s.handle(s.lease(2, 0, "a@x.example"))
	s.want(t, "cancel 2")
}

// The same of a pause.
func TestAPauseAmidAChoiceTakesItBack(t *testing.T) {
	s := newStage(t)
	pol, asked := s.Policy(), 0
	s.Rules = noRules(t)
	s.Policy = func() *wiring.Policy {
		if asked++; asked > 2 { // for the route, and for the choice
			if _, err := s.Rules.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{All: true}}, false); err != nil {
				t.Fatal(err)
			}
		}
		return pol
	}
	s.handle(s.lease(1, 0, "a@x.example"))
	s.want(t, "cancel 1")
}

// TestTwoOfACampaignAtOnce: of two messages that come at the same moment the pace lets one go. One for which delivery has
// no space takes nothing of it.
func TestTwoOfACampaignAtOnce(t *testing.T) {
	s := newStage(t)
	s.Rules = noRules(t)
	of := func(id envelope.ID) *queue.Lease {
		l := s.lease(id, 0, "a@x.example")
		l.Message.Campaign, l.Message.Marks = "news", []string{envelope.MarkOf(envelope.PaceField, "1/h")}
		return l
	}
	s.room = 0
	s.handle(of(1))
	s.want(t, "park 1 [0] mx.x.example from default")
	s.room, s.meanwhile = 9, func() { s.handle(of(3)) }
	s.handle(of(2))
	s.want(t, "park 3 [0] paced: campaign news that asks for 1/h")
	if len(s.jobs) != 1 || s.jobs[0].Message.ID != 2 {
		t.Errorf("%d jobs", len(s.jobs))
	}
}

// What is due and too old is not tried, though it never was.
func TestOldMailIsNotTried(t *testing.T) {
	s := newStage(t)
	s.slow["later.example"] = true
	for _, domain := range []string{"x.example", "later.example"} { // whose route is not known
		s.handle(s.lease(1, 24*time.Hour, "a@"+domain))
		s.want(t, "event Expiration 0", "settle 1 [0] expired")
	}
	if len(s.jobs) != 0 || len(s.reports) != 2 || s.LookingUp(1, "later.example", 0) {
		t.Errorf("%d jobs, %d reports", len(s.jobs), len(s.reports))
	}
}

// Mail whose sender gave a time is given up then: what waits in delivery knows the time, and what was never tried is
// not tried after it.
func TestMailIsGivenUpAtTheSendersTime(t *testing.T) {
	s := newStage(t)
	l := s.lease(1, 0, "a@x.example")
	l.Message.Expires = start.Add(10 * time.Minute)
	s.handle(l)
	if at := s.jobs[0].Expires; !at.Equal(l.Message.Expires) {
		t.Errorf("the job expires at %v, want %v", at, l.Message.Expires)
	}
	l.Message.Expires = start.Add(1000 * time.Hour)
	s.handle(l)
	if at := s.jobs[1].Expires; !at.Before(l.Message.Expires) {
		t.Errorf("the job expires at %v, after max_age", at)
	}
	late := s.lease(2, 0, "a@x.example")
	late.Message.Expires = start
	s.handle(late)
	s.want(t, "event Expiration 0", "settle 2 [0] expired")
	if len(s.jobs) != 2 || len(s.reports) != 1 || s.reports[0].Attempts[0].Result.Reply.Status().String() != "4.4.7" {
		t.Errorf("%d jobs, reports %+v", len(s.jobs), s.reports)
	}
}

// What an operator asks for while mail is on its way to delivery or to a look-up takes it back.
func TestWhatIsAskedForOnTheWayTakesMailBack(t *testing.T) {
	s := newStage(t)
	s.asks = true
	s.handle(s.lease(1, 0, "a@x.example"))
	s.want(t, "cancel 1")
	s.handle(s.leaseTo(2, "", 1, "d%d.example"))
	s.want(t, "return 2 [0]")
	if n := s.lookups.inMemory(); n != 0 {
		t.Errorf("%d recipients still wait in memory for a look-up", n)
	}
	if s.answerAll(); len(s.jobs) != 1 {
		t.Errorf("%d jobs: what was taken back was sent all the same", len(s.jobs))
	}
}

func TestHostThatIsBackSoonDoesNotShortenTheWait(t *testing.T) {
	for after, want := range map[time.Duration]string{time.Minute: "+10m0s", time.Hour: "+1h0m0s"} {
		s := newStage(t)
		s.handle(s.lease(1, 0, "a@x.example"))
		j := s.jobs[0]
		j.Done(j, []delivery.Result{{Attempted: true, Reply: reply.Reply{Code: 451, Text: "host is down"}, RetryAfter: start.Add(after)}})
		s.want(t, "event TransientFailure 0", "defer 1 [0] "+want+" 451 host is down mx.x.example")
	}
}
