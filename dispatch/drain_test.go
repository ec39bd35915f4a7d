package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/dsn"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
	"example.org/mta/router"
)

// pipeline is queue, dispatcher and delivery joined as in the relay, with one site whose host is a
// sink in memory, in virtual time. It belongs in a synctest bubble.
type pipeline struct {
	t     *testing.T
	fs    vfs.FS
	store *destStore
	rt    *route.Route
	pol   *wiring.Policy

	queue      *queue.Queue
	turnstile  *turnstile // before it
	delivery   *delivery.Scheduler
	dispatcher *Dispatcher
	stop       func()

	listen *sink.PipeListener
	server *sink.Server
	host   sink.Config

	mu       sync.Mutex // guards the rest
	down     bool       // the host refuses connections
	dials    int
	arrived  map[envelope.ID]time.Time
	attempts int // failed, as the log of events has them
	failures []Notification
	mayFail  bool
}

// destStore keeps records in memory, as destdb.File does on disk.
type destStore struct {
	mu      sync.Mutex // guards records
	records map[destdb.Key]destdb.Record
}

func (s *destStore) Save(records []destdb.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		if r.Gone {
			delete(s.records, r.Key)
		} else {
			s.records[r.Key] = r
		}
	}
	return nil
}

func (s *destStore) Load(learn func([]destdb.Record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	learn(slices.Collect(maps.Values(s.records)))
	return nil
}

const pipelineSite = "mx.box.example"

func newPipeline(t *testing.T) *pipeline {
	cfg, err := config.Parse([]byte(`defaults {
		retry_interval          = "2m"
		max_retry_interval      = "10m"
		host_retry_interval     = "1m"
		max_host_retry_interval = "5m"
	}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeline{t: t, fs: vfstest.Memory(), store: &destStore{records: make(map[destdb.Key]destdb.Record)}, pol: wiring.New(cfg),
		arrived: make(map[envelope.ID]time.Time), listen: sink.NewPipeListener()}
	host := route.Host{Name: pipelineSite, Addr: netip.MustParseAddrPort("192.0.2.1:25")}
	p.rt = &route.Route{Domain: "box.example", Site: pipelineSite, Tiers: []route.Tier{{host}}}
	p.server = sink.New(sink.Config{})
	p.become(sink.Config{})
	return p
}

// become gives the site another host, which cuts the connections to the one before.
func (p *pipeline) become(host sink.Config) {
	p.server.Close()
	host.Hostname = pipelineSite
	p.host, p.listen, p.server = host, sink.NewPipeListener(), sink.New(host)
	go p.server.Serve(p.listen)
}

// start makes the parts, and has them work until halt.
func (p *pipeline) start() {
	p.t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	p.queue, err = queue.Open(queue.Config{Dir: "/q", FS: p.fs, SegmentSize: 1 << 20, MinFree: 1, Log: log,
		MaxAge: func() time.Duration { return 5 * 24 * time.Hour }})
	if err != nil {
		p.t.Fatal(err)
	}
	db := destdb.New(destdb.Lifetimes{})
	_ = p.store.Load(db.Learn)
	p.delivery = delivery.New(delivery.Config{
		DB: db, Store: p.store, Log: log, Dial: p.dial,
		Source: func(name string) (delivery.Source, bool) {
			return delivery.Source{Name: name, EHLO: "relay.example"}, true
		},
		Limits: func(rt *route.Route, source, tenant string) delivery.Limits {
			db.Site(rt.Site).Allowed = 1e6 // slow start is over
			return p.pol.Limits(rt, source, "")
		},
		OnSpace: func(f delivery.Flow) { p.dispatcher.refill(f) },
	})
	p.turnstile = &turnstile{Queue: p.queue}
	p.dispatcher = atOnce(New(Config{
		Queue: p.turnstile, Router: p, Delivery: p.delivery, Notifier: p, Events: p, Sites: new(Sites),
		Policy: func() *wiring.Policy { return p.pol }, Now: time.Now, Log: log,
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.dispatcher.run(ctx) }()
	p.stop = func() {
		p.dispatcher.stopping.Store(true)
		cancel()
		if err := <-ended; err != nil {
			p.t.Error(err)
		}
		p.delivery.Close()
		if err := p.queue.Close(); err != nil {
			p.t.Error(err)
		}
	}
}

func (p *pipeline) end() {
	p.stop()
	p.listen.Close()
	p.server.Close()
}

func (p *pipeline) dial(ctx context.Context, _ delivery.Source, _ route.Host) (net.Conn, error) {
	p.mu.Lock()
	p.dials++
	down := p.down
	p.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return p.listen.Dial(ctx)
}

func (p *pipeline) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// Known is the router's.
func (p *pipeline) Known(string) (*route.Route, *reply.Reply, bool) { return p.rt, nil, true }

// Submit is the router's, which knows all routes.
func (p *pipeline) Submit(router.Request) { panic("nobody is to be asked") }

func (p *pipeline) notify(n Notification, done func(error)) {
	switch {
	case n.Kind == dsn.Failed && !p.mayFail:
		done(errors.New("no message of this test is to fail"))
	case n.Kind == dsn.Failed:
		p.mu.Lock()
		p.failures = append(p.failures, n)
		p.mu.Unlock()
		done(nil)
	}
}
func (p *pipeline) Accepting(*envelope.Message) {}
func (p *pipeline) Received(*envelope.Message)  {}
func (p *pipeline) Refused(*envelope.Message)   {}
func (p *pipeline) After(f func())              { f() }
func (p *pipeline) Attempted(kind accounting.Type, o *Outcomes, as []Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind == accounting.Delivery {
		p.arrived[o.Message.ID] = time.Now()
	} else {
		p.attempts += len(as)
	}
}

// accept puts n messages into the queue.
func (p *pipeline) accept(n int) (ids []envelope.ID) {
	for range n {
		m := &envelope.Message{Received: time.Now(), Sender: "app@client.example",
			Recipients: []envelope.Recipient{{Address: "someone@box.example"}}}
		d := p.queue.Begin()
		if _, err := io.WriteString(d, "Subject: a test\r\n\r\nHello.\r\n"); err != nil {
			p.t.Fatal(err)
		}
		if err := d.Commit(m); err != nil {
			p.t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	return ids
}

// seconds accepts so many messages in each of so many seconds.
func (p *pipeline) seconds(n, each int) (ids []envelope.ID) {
	for range n {
		ids = append(ids, p.accept(each)...)
		time.Sleep(time.Second)
	}
	return ids
}

func (p *pipeline) counts() (arrived, attempts, dials int) {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.arrived), p.attempts, p.dials
}

// mostAttempts gives the most attempts that a queued recipient has.
func (p *pipeline) mostAttempts() (most int) {
	l, err := p.queue.List(queue.Filter{}, queue.Page{Limit: 1 << 20})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, it := range l.Items {
		for _, r := range it.Recipients {
			most = max(most, r.Attempts)
		}
	}
	return most
}

// T9, the whole way: after an outage of a host that defers what is above 1.75 times the usual rate, no
// second has more than 1.6 times that, fresh mail is there within 5 s (p99), and the backlog leaves at the
// chosen rate: half as much as usual, once f has come to its height.
func TestT9_BacklogDrainsSmoothlyBehindFreshMail(t *testing.T) {
	const perSecond, outage = 4, 30 * 60
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.become(sink.Config{Hook: atMost(perSecond * 7 / 4)})
		p.start()
		defer p.end()
		p.seconds(5*60, perSecond)
		usual, _, _ := p.counts()
		p.setDown(true)
		p.become(p.host)
		p.seconds(outage, perSecond)
		during, attempts, _ := p.counts()
		if during > usual+perSecond {
			t.Fatalf("%d arrived during the outage", during-usual)
		}
		if most := p.mostAttempts(); attempts > 2*outage/60 || most > 8 {
			t.Errorf("the outage cost %d attempts, %d of one message, want one or two for each try of the host", attempts, most)
		}
		p.setDown(false)
		backlog := outage*perSecond + usual - during
		for range 5*60 + 1 { // until the host is tried again
			if n, _, _ := p.counts(); n > during {
				break
			}
			p.seconds(1, perSecond)
		}
		back := time.Now()
		took := 0
		for ; took < 3*outage; took++ {
			if p.queue.Stats().Queued <= perSecond {
				break
			}
			p.seconds(1, perSecond)
		}
		synctest.Wait()
		p.checkDrain(back, perSecond, backlog, took)
	})
}

// atMost makes a host take so many recipients in any second, and defer the rest.
func atMost(n int) func(sink.Command) sink.Answer {
	var mu sync.Mutex
	var taken []time.Time
	return func(c sink.Command) sink.Answer {
		if c.Phase != sink.Rcpt {
			return sink.Answer{}
		}
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		for len(taken) > 0 && now.Sub(taken[0]) >= time.Second {
			taken = taken[1:]
		}
		if len(taken) >= n {
			return sink.Answer{Reply: "451 4.3.2 slow down"}
		}
		taken = append(taken, now)
		return sink.Answer{}
	}
}

func (p *pipeline) checkDrain(back time.Time, perSecond, backlog, took int) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	bySecond := make(map[int64]int)
	var fresh []time.Duration
	for id, at := range p.arrived {
		if at.Before(back) {
			continue
		}
		bySecond[at.Unix()]++
		if !id.Time().Before(back) {
			fresh = append(fresh, at.Sub(id.Time()))
		}
	}
	most := 0
	for _, n := range bySecond {
		most = max(most, n)
	}
	if limit := perSecond*16/10 + 1; most > limit { // a second has a message more or less at its edges
		p.t.Errorf("a second had %d messages, want at most %d", most, limit)
	}
	slices.Sort(fresh)
	if p99 := fresh[len(fresh)*99/100]; p99 > 5*time.Second || len(fresh) < backlog {
		p.t.Errorf("of %d fresh messages the p99 waited %v, want 5 s at most", len(fresh), p99)
	}
	p.t.Logf("at most %d messages in a second; of %d fresh ones p50 %v, p99 %v; the backlog of %d took %d s", most, len(fresh), fresh[len(fresh)/2], fresh[len(fresh)*99/100], backlog, took)
	// By f(t) = 1 + .5 min(1, t/600 s): a quarter of the ramp is lost to the ramp itself.
	want := backlog*2/perSecond + 300
	if took < want*9/10 || took > want*11/10 {
		p.t.Errorf("the backlog of %d took %d s, want about %d", backlog, took, want)
	}
}

// Mail for a host that is known to be down costs nothing while it waits, over a restart too: no
// attempt is counted, and no content is read.
func TestBacklogOfABrokenHostCostsNoAttempt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.start()
		defer func() { p.end() }()
		p.setDown(true)
		p.accept(1) // finds out
		time.Sleep(10 * time.Second)
		if _, attempts, dials := p.counts(); attempts != 1 || dials != 1 {
			t.Fatalf("%d attempts, %d dials for the first message", attempts, dials)
		}
		p.accept(5000)
		synctest.Wait()
		if s := p.queue.Stats(); s.Parked != 5000 {
			t.Errorf("%d recipients are parked, want 5,000", s.Parked)
		}
		_, _, before := p.counts()
		time.Sleep(10 * time.Minute)
		_, attempts, dials := p.counts()
		if attempts != dials || dials == before {
			t.Errorf("%d attempts were counted for %d connections that were tried", attempts, dials)
		}
		// A restart finds the mail due and the host known to be down.
		for range 3 {
			p.stop()
			_, attempts, dials = p.counts()
			p.start()
			time.Sleep(5 * time.Second)
			_, a, d := p.counts()
			if a-attempts > d-dials || d-dials > 1 {
				t.Errorf("a restart cost %d attempts and %d connections", a-attempts, d-dials)
			}
		}
		if most := p.mostAttempts(); most > 8 {
			t.Errorf("a message has %d attempts", most)
		}
		p.setDown(false)
		time.Sleep(time.Hour)
		if n, _, _ := p.counts(); n != 5001 {
			t.Errorf("%d of 5,001 arrived when the host was back", n)
		}
	})
}

// Mail that waits for a broken host is given up when its domain says so, tried or not, although the
// queue knows only the longest max_age of all.
func TestBacklogOfABrokenHostExpires(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.pol = parsePolicy(t, `
			defaults { max_host_retry_interval = "5m" }
			domain "box.example" { max_age = "1h" }`)
		p.mayFail = true
		p.start()
		defer func() { p.end() }()
		p.setDown(true)
		p.accept(1)
		time.Sleep(10 * time.Second)
		p.accept(1000)
		time.Sleep(55 * time.Minute)
		if s := p.queue.Stats(); s.Queued != 1001 {
			t.Errorf("%d of 1,001 are queued before their time has come", s.Queued)
		}
		time.Sleep(15 * time.Minute)
		if s := p.queue.Stats(); s.Queued != 0 {
			t.Errorf("%d recipients are still queued ten minutes after their time", s.Queued)
		}
		for _, n := range p.failures {
			if r := n.Attempts[0].Result.Reply; r.Status() != (reply.Enhanced{4, 4, 1}) {
				t.Fatalf("reported: %v, want what is wrong with the host", r)
			}
		}
	})
}

// A backlog that drains is taken newest first, but for every fifth message.
func TestDrainTakesTheNewestFirst(t *testing.T) {
	s := newStage(t)
	s.room = 0
	for id := range envelope.ID(20) {
		s.handle(s.lease(id+1, 0, "a@x.example"))
	}
	s.told = nil
	s.room, s.draining = 10, true
	s.unpark(toX)
	var got []envelope.ID
	for _, j := range s.jobs {
		got = append(got, j.Message.ID)
	}
	if want := []envelope.ID{20, 19, 18, 17, 16, 15, 14, 13, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("taken: %v, want %v", got, want)
	}
}

// What delivery had no turn for counts no attempt, and comes back when it may have one.
func TestUntriedIsNoAttempt(t *testing.T) {
	s := newStage(t)
	s.handle(s.lease(1, 0, "a@x.example"))
	j := s.jobs[0]
	why := reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "mx.x.example: connection refused")
	j.Done(j, []delivery.Result{{Recipient: 0, Reply: why, RetryAfter: start.Add(7 * time.Minute)}})
	s.want(t, fmt.Sprintf("event %v 0", accounting.TransientFailure), fmt.Sprintf("defer 1 [0] +7m0s untried %s mx.x.example", why))
}

// What was never tried, since its host was down all the time, is given up with the reason.
func TestExpiryOfUntriedMailSaysWhy(t *testing.T) {
	s := newStage(t)
	s.trouble = reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "mx.x.example: connection refused")
	l := s.lease(1, 48*time.Hour, "a@x.example")
	l.Why = queue.Expired
	s.handle(l)
	if len(s.reports) != 1 || s.reports[0].Attempts[0].Result.Reply != s.trouble {
		t.Errorf("reports %+v", s.reports)
	}
}
