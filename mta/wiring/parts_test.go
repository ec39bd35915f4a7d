package wiring_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/cluster/node"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/term"
	"example.org/mta/delivery"
	"example.org/mta/delivery/smtpclient"
	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/wiring"
)

// engine is a database that keeps shards in memory.
type engine struct {
	mu    sync.Mutex
	away  bool
	heads [owner.Shards]owner.Head
	books [owner.Shards]map[string]owner.Entry
}

func (e *engine) Shards(_ context.Context, c owner.Call) (owner.Result, error) {
	time.Sleep(2 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away {
		return owner.Result{}, errors.New("connection refused")
	}
	r := owner.Result{Number: c.Number, Books: make(map[int][]owner.Entry), Origin: owner.Origin{System: 1, Timeline: 1}}
	for i := range c.Parts {
		p := &c.Parts[i]
		ok := p.Fits(e.heads[p.Shard])
		if r.Done = append(r.Done, ok); !ok {
			continue
		}
		e.heads[p.Shard] = p.To
		if e.books[p.Shard] == nil {
			e.books[p.Shard] = make(map[string]owner.Entry)
		}
		for _, c := range p.Changes {
			e.books[p.Shard][fmt.Sprint(c.Name, c.Node)] = c
		}
		for _, c := range e.books[p.Shard] {
			if p.Take {
				r.Books[p.Shard] = append(r.Books[p.Shard], c)
			}
		}
	}
	heads := e.heads
	r.Heads = &heads
	return r, nil
}

func (e *engine) Keys(context.Context, once.Call) (once.Result, error)  { return once.Result{}, nil }
func (e *engine) Unsettled(context.Context, uint16) ([]once.Row, error) { return nil, nil }
func (e *engine) DropKeys(context.Context, int) (n int, err error)      { return 0, nil }

// relays are schedulers whose limits are divided, before one host that judges.
type relays struct {
	t *testing.T
	engine
	began  time.Time
	host   *sink.PipeListener
	record *sink.Recorder
	ids    envelope.IDs
	nodes  []*node.Node
	all    []*delivery.Scheduler

	mu         sync.Mutex // guards what follows
	open, most int        // connections
	done       int
	limits     []delivery.Scope // of each relay
}

// counted is a connection that the host has.
type counted struct {
	net.Conn
	once sync.Once
	over func()
}

func (c *counted) Close() error {
	c.once.Do(c.over)
	return c.Conn.Close()
}

func (r *relays) dial(ctx context.Context, _ delivery.Source, _ route.Host) (net.Conn, error) {
	c, err := r.host.Dial(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
	r.most = max(r.most, r.open)
	return &counted{Conn: c, over: func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
	}}, nil
}

// begin makes so many relays.
func begin(t *testing.T, n int, limit delivery.Scope) *relays {
	r := &relays{t: t, began: time.Now(), host: sink.NewPipeListener(), record: sink.NewRecorder(sink.Deliveries, 0)}
	server := sink.New(sink.Config{Recorder: r.record, Latency: 10 * time.Millisecond})
	go server.Serve(r.host)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	log := slog.New(slog.DiscardHandler)
	for i := range n {
		r.limits = append(r.limits, limit)
		path := filepath.Join(t.TempDir(), "node")
		if err := node.Create(path, 1); err != nil {
			t.Fatal(err)
		}
		// The node's answers come only when its scheduler is there.
		var changed func()
		one, err := node.New(node.Config{Node: uint16(i + 1), Engine: &r.engine,
			Term: term.Term{Length: 3 * time.Minute, Drift: 200e-6}, Path: path,
			Clock: func() time.Duration { return time.Since(r.began) + time.Hour }, Boot: uint64(i + 1),
			Rand: rand.New(rand.NewPCG(1, uint64(i))), Incarnation: func(uint16) uint64 { return 1 },
			Send: func(m link.Message) { go r.nodes[m.To-1].Receive(m) }, Changed: func() { changed() },
			Now: time.Now, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		r.nodes = append(r.nodes, one)
		db := destdb.New(destdb.Lifetimes{})
		db.Site("big").Allowed = 1000 // slow start is over
		s := delivery.New(delivery.Config{DB: db, Dial: r.dial, Rand: rand.New(rand.NewPCG(2, uint64(i))), Log: log,
			Source:  func(name string) (delivery.Source, bool) { return delivery.Source{Name: name, EHLO: "a.example"}, true },
			Divider: wiring.Parts(func() *node.Node { return one }),
			Limits: func(_ *route.Route, _, tenant string) delivery.Limits {
				l := delivery.Limits{MaxMode: smtpclient.LockStep, IdleTimeout: 5 * time.Second}
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.limits[i] != (delivery.Scope{}) {
					l.Divided = []delivery.NamedScope{{Name: "provider big", Scope: r.limits[i]}}
				}
				return l
			},
		})
		changed = s.PartsChanged
		r.all = append(r.all, s)
		running.Go(func() { one.Run(ctx) })
	}
	t.Cleanup(func() {
		for _, s := range r.all {
			s.Close()
		}
		stop()
		running.Wait()
		r.host.Close()
		server.Close()
		time.Sleep(time.Minute)
	})
	return r
}

// reload gives some relays another limit, one after the other, and returns when the last has it.
func (r *relays) reload(s delivery.Scope, at ...int) time.Time {
	for n, i := range at {
		if n > 0 {
			time.Sleep(10 * time.Second)
		}
		r.mu.Lock()
		r.limits[i] = s
		r.mu.Unlock()
		r.all[i].Reload(nil)
	}
	return time.Now()
}

// send submits n messages at a relay.
func (r *relays) send(at, n int) {
	to := &route.Route{Domain: "big.example", Site: "big", Provider: "big", Tiers: []route.Tier{{
		{Name: "mx", Addr: netip.MustParseAddrPort("192.0.2.1:25")}}}}
	for range n {
		m := &envelope.Message{ID: r.ids.Next(time.Now()), Sender: "from@example.org",
			Recipients: []envelope.Recipient{{Address: "to@big.example"}}}
		content := fmt.Appendf(nil, "X-Mta-Test-Id: %s\r\n\r\nHello.\r\n", m.ID)
		m.Size = int64(len(content))
		j := &delivery.Job{Message: m, Route: to, Source: "out", Recipients: []int{0}, Done: r.settled,
			Body: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
		if !r.all[at].Reserve(j) {
			r.t.Fatal("no space for a message")
		}
		r.all[at].Submit(j)
	}
}

func (r *relays) settled(_ *delivery.Job, results []delivery.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += len(results)
}

// over returns how many events were beyond a rate and its burst, in any time.
func over(at []time.Time, perSecond, burst float64) (worst float64) {
	level, last := 0., at[0]
	for _, t := range at {
		level = max(0, level-t.Sub(last).Seconds()*perSecond) + 1
		last, worst = t, max(worst, level-burst)
	}
	return worst
}

// TestRelaysShareALimit: what the host sees is never over the limit, and nearly all of it is used, whoever needs it.
func TestRelaysShareALimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := begin(t, 3, delivery.Scope{Connections: 7, MessageRate: gcra.Rate{Events: 60, Per: time.Second}})
		time.Sleep(30 * time.Second) // the shards have owners
		for i, n := range []int{1500, 300, 0} {
			r.send(i, n)
		}
		time.Sleep(20 * time.Second)
		r.send(2, 900)
		time.Sleep(40 * time.Second)
		var at []time.Time
		for _, d := range r.record.Deliveries() {
			at = append(at, d.At)
		}
		if n := over(at, 60, 60+60*0.05); n > 0 || r.most > 7 { // a message takes 50 ms at most
			t.Errorf("%g messages and %d connections of 7 were over the limit", n, r.most)
		}
		if len(at) < 2580 { // of 2,700, which would take 45 s at the least
			t.Errorf("%d messages arrived in a minute", len(at))
		}
	})
}

// TestALimitThatIsChanged at one relay after the other, from one an hour and back: what is lowered counts at once, what is
// raised soon after the last relay has it, and the smallest until then.
func TestALimitThatIsChanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		slow := delivery.Scope{Connections: 2, MessageRate: gcra.Rate{Events: 1, Per: time.Hour}}
		fast := delivery.Scope{Connections: 9, MessageRate: gcra.Rate{Events: 60}}
		r := begin(t, 3, slow)
		time.Sleep(30 * time.Second)
		for i := range r.all {
			r.send(i, 1900)
		}
		time.Sleep(time.Minute)
		from := time.Now()
		check := func(what string, after, length time.Duration, perSecond, burst, least float64) {
			t.Helper()
			time.Sleep(after + length - time.Since(from))
			var at []time.Time
			for _, d := range r.record.Deliveries() {
				if t := d.At.Sub(from); t >= after && t < after+length {
					at = append(at, d.At)
				}
			}
			if n := float64(len(at)); n < least*perSecond*length.Seconds() ||
				n > 0 && over(at, perSecond, burst+perSecond*0.05) > 0 { // a message takes 50 ms at most
				t.Errorf("%s: %g messages in %v at %g a second", what, n, length, perSecond)
			}
		}
		from = r.reload(fast, 0, 1, 2)
		check("raised", 0, 12*time.Second, 60, 120, 0)
		check("raised", 12*time.Second, 18*time.Second, 60, 60, .95)
		five := delivery.Scope{Connections: 3, MessageRate: gcra.Rate{Events: 5}}
		from = r.reload(five, 2, 1, 0)
		check("lowered", 0, 12*time.Second, 5, 10, .9)
		r.mu.Lock()
		if r.open > 3 {
			t.Errorf("%d connections of 3", r.open)
		}
		r.mu.Unlock()
		from = r.reload(fast, 0, 2)
		check("raised at two of three", 0, 30*time.Second, 5, 10, .95)
		r.reload(delivery.Scope{}, 0, 1, 2)
		from = r.reload(fast, 1, 2, 0)
		for i := range r.all { // all other mail has left without a limit
			r.send(i, 1000)
		}
		check("put back", 12*time.Second, 18*time.Second, 60, 60, .95)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open > 9 {
			t.Errorf("%d connections of 9", r.open)
		}
	})
}

// TestWithoutTheDatabase nothing leaves when the parts have ended, and all goes on when it is back.
func TestWithoutTheDatabase(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := begin(t, 2, delivery.Scope{MessageRate: gcra.Rate{Events: 1, Per: time.Second, Burst: 1}})
		time.Sleep(30 * time.Second)
		r.send(0, 600)
		r.send(1, 600)
		time.Sleep(time.Minute)
		r.engine.mu.Lock()
		r.away = true
		r.engine.mu.Unlock()
		time.Sleep(4 * time.Minute)
		before := len(r.record.Deliveries())
		time.Sleep(5 * time.Minute)
		if n := len(r.record.Deliveries()); n != before || before < 200 || before > 245 {
			t.Errorf("%d messages by the parts given before, and %d when these had ended", before, n-before)
		}
		r.engine.mu.Lock()
		r.away = false
		r.engine.mu.Unlock()
		time.Sleep(time.Minute)
		if n := len(r.record.Deliveries()) - before; n < 45 {
			t.Errorf("%d messages in the minute after", n)
		}
	})
}
