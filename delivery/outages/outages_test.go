package outages_test

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
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/cluster/changes"
	"example.org/mta/cluster/enginetest"
	"example.org/mta/cluster/exchange"
	"example.org/mta/delivery"
	"example.org/mta/delivery/outages"
	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errNoWay   = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}
)

// world is the nodes of a cluster, which deliver to hosts, in virtual time.
type world struct {
	*testing.T
	nodes  []*node
	engine *enginetest.Shared
	ids    envelope.IDs

	mu    sync.Mutex // guards what follows
	hosts map[netip.AddrPort]*host
}

// host is at a site of its own.
type host struct {
	route  *route.Route
	server *sink.Server
	listen *sink.PipeListener
	silent bool // it takes connections, and ends them
	// fails is why a node has no way to it.
	fails func(node int) error
}

type node struct {
	w        *world
	at       int
	limits   delivery.Limits
	delivery *delivery.Scheduler
	known    *exchange.Exchange
	source   string
	outages  *outages.Store

	mu    sync.Mutex // guards what follows
	dials map[netip.AddrPort]int
	last  map[string]delivery.Result // by site
	cut   bool                       // from the engine
}

// within has a test use nodes. Change is of the settings of each.
func within(t *testing.T, nodes int, limits func(node int) delivery.Limits, test func(*world)) {
	t.Helper()
	dir := bubble.Folder(t)
	bubble.Test(t, func(t *testing.T) {
		w := &world{T: t, hosts: make(map[netip.AddrPort]*host)}
		members := make(map[uint16]uint64)
		for i := range nodes {
			members[uint16(i+1)] = 1
		}
		w.engine = enginetest.NewShared("era", func() map[uint16]uint64 { return members })
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		for i := range nodes {
			n := &node{w: w, at: i, source: "out", dials: make(map[netip.AddrPort]int), last: make(map[string]delivery.Result)}
			if limits != nil {
				n.limits = limits(i)
			}
			log := slog.New(slog.DiscardHandler)
			var err error
			n.known, err = exchange.Open(exchange.Config{Path: filepath.Join(dir, fmt.Sprint(i)), Now: time.Now, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			n.outages = outages.New(outages.Config{Note: n.known.Of("host"), Age: n.known.Age, Waiting: n.known.Waiting,
				Now: time.Now, Log: log})
			n.delivery = delivery.New(delivery.Config{
				Source:  func(name string) (delivery.Source, bool) { return delivery.Source{Name: name, EHLO: "a.example"}, true },
				Limits:  func(*route.Route, string, string) delivery.Limits { return n.limits },
				Dial:    n.dial,
				OnReach: n.outages.OnReach(),
				Rand:    rand.New(rand.NewPCG(1, uint64(i))),
			})
			n.outages.Join(n.delivery)
			if err := n.known.Add("host", n.outages, false); err != nil {
				t.Fatal(err)
			}
			running.Go(func() { n.known.Run(ctx, changes.Me{Node: uint16(i + 1), Incarnation: 1}, reached{n}) })
			running.Go(func() { n.outages.Run(ctx) })
			w.nodes = append(w.nodes, n)
		}
		pass(5 * time.Second)
		test(w)
		cancel()
		running.Wait()
		for _, n := range w.nodes {
			n.delivery.Close()
			if err := n.known.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, h := range w.hosts {
			h.listen.Close()
			h.server.Close()
		}
	})
}

// reached is the engine as a node reaches it.
type reached struct{ *node }

func (r reached) Changes(ctx context.Context, c changes.Call) (changes.Result, error) {
	r.mu.Lock()
	cut := r.cut
	r.mu.Unlock()
	if cut {
		return changes.Result{}, errors.New("connection refused")
	}
	return r.w.engine.Changes(ctx, c)
}

func (r reached) Readers(ctx context.Context, kind string) (map[uint16]uint64, error) {
	return r.w.engine.Readers(ctx, kind)
}

func (r reached) Tidy(ctx context.Context, most int) (int, error) { return r.w.engine.Tidy(ctx, most) }

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// host adds one, which any node reaches at first.
func (w *world) host(cfg sink.Config) *host {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.hosts) + 1
	name := fmt.Sprintf("mx.site%d.example", n)
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(2 + n>>8), byte(n)}), 25)
	h := &host{server: sink.New(cfg), listen: sink.NewPipeListener()}
	h.route = &route.Route{Domain: fmt.Sprintf("site%d.example", n), Site: fmt.Sprintf("site%d", n),
		Tiers: []route.Tier{{{Name: name, Addr: addr}}}}
	w.hosts[addr] = h
	go h.server.Serve(h.listen)
	return h
}

// fail sets why nodes have no way to a host; without nodes: all of them.
func (w *world) fail(h *host, why error, nodes ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.fails = func(at int) error {
		for _, n := range nodes {
			if n == at {
				return why
			}
		}
		if len(nodes) == 0 {
			return why
		}
		return nil
	}
}

func (h *host) addr() netip.AddrPort { return h.route.Tiers[0][0].Addr }

func (n *node) dial(ctx context.Context, _ delivery.Source, to route.Host) (net.Conn, error) {
	n.mu.Lock()
	n.dials[to.Addr]++
	n.mu.Unlock()
	n.w.mu.Lock()
	h := n.w.hosts[to.Addr]
	var err error
	if h.fails != nil {
		err = h.fails(n.at)
	}
	n.w.mu.Unlock()
	time.Sleep(time.Millisecond)
	if errors.Is(err, context.DeadlineExceeded) {
		<-ctx.Done()
		return nil, ctx.Err()
	} else if err != nil {
		return nil, err
	}
	if h.silent {
		ours, theirs := net.Pipe()
		theirs.Close()
		return ours, nil
	}
	return h.listen.Dial(ctx)
}

// send hands over a message for a host's site.
func (n *node) send(h *host) {
	m := &envelope.Message{ID: n.w.ids.Next(time.Now()), Sender: "from@example.org",
		Recipients: []envelope.Recipient{{Address: envelope.Address("to@" + h.route.Domain)}}}
	content := []byte("Subject: a test\r\n\r\nHello.\r\n")
	m.Size = int64(len(content))
	n.mu.Lock()
	delete(n.last, h.route.Site)
	n.mu.Unlock()
	j := &delivery.Job{Message: m, Route: h.route, Source: n.source, Recipients: []int{0},
		Body: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		Done: func(_ *delivery.Job, r []delivery.Result) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.last[h.route.Site] = r[0]
		}}
	if n.delivery.Reserve(j) {
		n.delivery.Submit(j)
	}
}

// tries sends a message, and returns whether the node has tried to connect and whether the message was taken.
func (n *node) tries(h *host) (dialed, taken bool) {
	n.w.Helper()
	count := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.dials[h.addr()]
	}
	before := count()
	n.send(h)
	pass(50 * time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[h.addr()] > before, n.last[h.route.Site].Reply.OK()
}

// tried checks what tries returns.
func (n *node) tried(what string, h *host, dialed, taken bool) {
	n.w.Helper()
	if d, ok := n.tries(h); d != dialed || ok != taken {
		n.w.Errorf("%s: node %d has tried: %v, %v; want %v, %v (%v)", what, n.at, d, ok, dialed, taken,
			n.last[h.route.Site].Reply)
	}
}

func (n *node) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// row is what the engine has of a host.
func (w *world) row(h *host) (row changes.Row) {
	w.engine.Do(func(rows map[[2]string]changes.Row) { row = rows[[2]string{"host", h.addr().String()}] })
	return row
}

func (w *world) writes() (last uint64) {
	w.engine.Do(func(rows map[[2]string]changes.Row) {
		for _, r := range rows {
			last = max(last, r.Number)
		}
	})
	return last
}

func TestADeadHostGetsNoConnectionFromOthers(t *testing.T) {
	within(t, 3, nil, func(w *world) {
		a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
		h := w.host(sink.Config{IdleTimeout: time.Second})
		a.tried("it is up", h, true, true)
		pass(time.Minute) // no connection stands
		w.fail(h, errRefused)
		a.tried("it is down", h, true, false)
		pass(time.Second)
		b.tried("known a second later", h, false, false)
		if x := c.delivery.Hosts(destdb.HostKey{}, 1); len(x) != 1 || x[0].Name != h.route.Tiers[0][0].Name ||
			x[0].Broken.Why.Text != "another relay of the cluster: connection refused" {
			t.Errorf("a node that has sent nothing knows %+v", x)
		}
		pass(59 * time.Second)
		b.tried("a node's own attempt after the wait", h, true, false)
		pass(time.Minute)
		b.tried("its second failure", h, false, false)
		if n := w.writes(); n != 1 {
			t.Errorf("%d rows were written; want one", n)
		}
		w.fail(h, nil)
		a.tried("up again", h, true, true)
		pass(time.Second)
		b.tried("whose wait is not over", h, true, true)
		c.tried("which had heard of it", h, true, true)
		if n := w.writes(); n != 2 {
			t.Errorf("%d rows were written; want two", n)
		}
		w.fail(h, errRefused)
		pass(time.Minute)
		c.tried("down again", h, true, false)
		pass(time.Second)
		a.tried("which was the first", h, false, false)
		b.tried("which had failed itself", h, false, false)
	})
}

// TestAnOperatorWhoHasAHostTriedAnew: the node forgets that the host was down; others learn that it is up.
func TestAnOperatorWhoHasAHostTriedAnew(t *testing.T) {
	within(t, 2, nil, func(w *world) {
		a, b := w.nodes[0], w.nodes[1]
		h := w.host(sink.Config{})
		w.fail(h, errRefused)
		a.tried("down", h, true, false)
		pass(time.Second)
		b.tried("down", h, false, false)
		w.fail(h, nil)
		a.delivery.Forget([]netip.AddrPort{h.addr()})
		a.tried("up", h, true, true)
		pass(time.Second)
		b.tried("up", h, true, true)
	})
}

// TestOthersWaitAMinuteAtMost: a node that waits longer by its settings has the others wait for a minute, and one that
// waits for less as long as that.
func TestOthersWaitAMinuteAtMost(t *testing.T) {
	for _, wait := range []time.Duration{20 * time.Second, time.Hour} {
		limits := func(node int) delivery.Limits { return delivery.Limits{HostRetry: wait, MaxHostRetry: wait} }
		within(t, 2, limits, func(w *world) {
			a, b := w.nodes[0], w.nodes[1]
			h := w.host(sink.Config{})
			w.fail(h, errRefused)
			a.tried("down", h, true, false)
			waits := min(wait, time.Minute)
			pass(waits - 2*time.Second)
			b.tried("before the end", h, false, false)
			pass(3 * time.Second)
			b.tried("after it", h, true, false)
		})
	}
}

// TestWhatIsOldStopsNobody: a node hears late, since it or the one that has failed had no engine.
func TestWhatIsOldStopsNobody(t *testing.T) {
	for at, late := range []string{"who failed", "who hears"} {
		for _, gap := range []time.Duration{40 * time.Second, 70 * time.Second} {
			within(t, 2, nil, func(w *world) {
				a, b := w.nodes[0], w.nodes[1]
				h := w.host(sink.Config{})
				w.nodes[at].setCut(true)
				pass(3 * time.Second)
				w.fail(h, errRefused)
				a.tried("down", h, true, false)
				pass(gap)
				w.nodes[at].setCut(false)
				pass(3 * time.Second)
				switch {
				case gap > time.Minute:
					if v := w.row(h).Value; at == 0 && v != nil {
						t.Errorf("what has ended is sent: %s", v)
					}
					b.tried(late+" too late", h, true, false)
				case at == 0: // at the other side the age is not known that well
					b.tried(late+" in time", h, false, false)
					pass(time.Minute - gap)
					b.tried("a minute after the failure", h, true, false)
				}
			})
		}
	}
}

// TestARecoveryGoesLate: it was made without the engine, and the other node's wait is not over.
func TestARecoveryGoesLate(t *testing.T) {
	within(t, 2, func(int) delivery.Limits { return delivery.Limits{HostRetry: time.Hour} }, func(w *world) {
		a, b := w.nodes[0], w.nodes[1]
		h := w.host(sink.Config{})
		w.fail(h, errRefused)
		b.tried("down", h, true, false)
		pass(2 * time.Minute) // which the other one waits
		b.setCut(true)
		a.setCut(true)
		pass(5 * time.Second)
		w.fail(h, nil)
		a.tried("up", h, true, true)
		pass(10 * time.Minute)
		a.setCut(false)
		pass(3 * time.Second)
		b.tried("cut off", h, false, false)
		b.setCut(false)
		pass(3 * time.Second)
		b.tried("which hears late", h, true, true)
	})
}

// TestOneWithoutAWay: a host that one node can't reach is no matter of the others, who wait once.
func TestOneWithoutAWay(t *testing.T) {
	limits := func(int) delivery.Limits { return delivery.Limits{MaxDeliveriesPerConnection: 1} }
	within(t, 3, limits, func(w *world) {
		a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
		h := w.host(sink.Config{})
		w.fail(h, context.DeadlineExceeded, 0)
		waited := make(map[*node]int)
		for range 50 * 12 {
			a.send(h)
			for _, n := range []*node{b, c} {
				if _, taken := n.tries(h); !taken {
					waited[n]++
				}
			}
			pass(4900 * time.Millisecond)
		}
		if waited[b] < 10 || waited[b] > 13 || waited[c] < 10 || waited[c] > 13 {
			t.Errorf("in 50 minutes mail has waited %d and %d times for 5 seconds; want a minute", waited[b], waited[c])
		}
		if n := w.writes(); n > 4 {
			t.Errorf("%d rows were written", n)
		}
		w.fail(h, nil) // and it has one again
		pass(time.Hour)
		a.tried("a way", h, true, true)
		pass(time.Minute)
		w.fail(h, errRefused)
		a.tried("down", h, true, false)
		pass(time.Second)
		b.tried("it shares again", h, false, false)
	})
}

// TestWhoKnowsBetter: a node with an open connection to the host does not heed a failure, nor shares one.
func TestWhoKnowsBetter(t *testing.T) {
	within(t, 2, func(int) delivery.Limits { return delivery.Limits{IdleTimeout: time.Hour, ActiveTimeout: time.Hour} }, func(w *world) {
		a, b := w.nodes[0], w.nodes[1]
		h := w.host(sink.Config{IdleTimeout: time.Hour, MaxMessages: 100})
		b.tried("up", h, true, true)
		w.fail(h, errRefused)
		a.tried("down", h, true, false)
		pass(time.Second)
		w.fail(h, nil)
		b.tried("by its connection", h, false, true)
		b.source = "other"
		w.fail(h, errRefused)
		b.tried("from another source", h, true, false)
		pass(time.Second)
		if n := w.writes(); n != 1 {
			t.Errorf("%d rows were written; want that of the first node", n)
		}
		if x := b.delivery.Hosts(destdb.HostKey{}, 1); len(x) != 1 || x[0].Broken.Failures != 1 || x[0].Broken.Heard {
			t.Errorf("the hosts are %+v", x)
		}
	})
}

// TestFailuresThatAreNotShared are those that may be this node's matter.
func TestFailuresThatAreNotShared(t *testing.T) {
	for what, change := range map[string]func(*world, *host){
		"no network":    func(w *world, h *host) { w.fail(h, errNoWay) },
		"no way":        func(w *world, h *host) { w.fail(h, &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}) },
		"the source's":  func(w *world, h *host) { w.fail(h, &delivery.SourceError{Err: errRefused}) },
		"a smarthost":   func(w *world, h *host) { w.fail(h, errRefused); h.route.Configured = true },
		"no greeting":   func(w *world, h *host) { h.silent = true },
		"a 554":         nil,
		"shared at all": func(w *world, h *host) { w.fail(h, errRefused) },
	} {
		within(t, 2, nil, func(w *world) {
			cfg := sink.Config{}
			if change == nil {
				cfg.Refusals = []sink.Refusal{{Phase: sink.Connect, Reply: "554 5.7.1 go away"}}
			}
			h := w.host(cfg)
			if change != nil {
				change(w, h)
			}
			a, b := w.nodes[0], w.nodes[1]
			a.tried(what, h, true, false)
			pass(time.Second)
			if dialed, _ := b.tries(h); dialed != (what != "shared at all") {
				t.Errorf("%s: the other node has tried: %v", what, dialed)
			}
		})
	}
}

// TestWhoseNetworkFails: a node that fails to reach a third of its sites shares nothing, and takes back what it has shared.
func TestWhoseNetworkFails(t *testing.T) {
	within(t, 2, func(int) delivery.Limits { return delivery.Limits{IdleTimeout: time.Second} }, func(w *world) {
		a, b := w.nodes[0], w.nodes[1]
		var all []*host
		for range 40 {
			all = append(all, w.host(sink.Config{}))
		}
		for _, h := range all[:20] {
			a.tried("up", h, true, true)
		}
		for _, h := range all[20:24] { // a sixth
			w.fail(h, errRefused)
			a.send(h)
		}
		pass(time.Second)
		for _, h := range all[20:24] {
			b.tried("the network is sound", h, false, false)
		}
		both := all[39]
		w.fail(both, errRefused)
		a.send(both)
		b.send(both)
		for _, h := range all[24:32] { // 13 of 33
			w.fail(h, errRefused)
			a.send(h)
		}
		pass(3 * time.Second)
		w.fail(both, nil)
		b.tried("its own failure is not taken back", both, false, false)
		for _, h := range all[33:39] {
			w.fail(h, errRefused)
			a.send(h)
		}
		pass(time.Second)
		for _, h := range all[33:39] {
			if n := w.row(h).Number; n != 0 {
				t.Errorf("row %d was written", n)
			}
		}
		for _, h := range all[20:32] {
			w.fail(h, nil)
			b.tried("the network fails", h, true, true)
			if w.row(h).Value != nil {
				t.Errorf("the engine has %s of %s", w.row(h).Value, h.route.Site)
			}
		}
		pass(time.Minute) // it is sound again
		for _, h := range all[:20] {
			a.tried("up", h, true, true)
		}
		w.fail(all[32], errRefused)
		a.tried("down", all[32], true, false)
		pass(time.Second)
		b.tried("the network is sound again", all[32], false, false)
	})
}

// TestSitesThatAnswer on their connections count for a node's network, once each.
func TestSitesThatAnswer(t *testing.T) {
	limits := func(int) delivery.Limits { return delivery.Limits{IdleTimeout: time.Hour, ActiveTimeout: time.Hour} }
	for what, c := range map[string]struct {
		waits     time.Duration // after they were connected
		answer    bool
		fail, all int
		shared    bool
	}{
		"on old connections":     {10 * time.Minute, true, 10, 40, true},
		"that are idle":          {10 * time.Minute, false, 10, 40, false},
		"on new connections":     {0, true, 8, 28, true},
		"which are counted once": {0, true, 9, 29, false},
	} {
		within(t, 2, limits, func(w *world) {
			a, b := w.nodes[0], w.nodes[1]
			var all []*host
			for range c.all {
				all = append(all, w.host(sink.Config{IdleTimeout: time.Hour}))
			}
			for _, h := range all[c.fail:] {
				a.tried("up", h, true, true)
			}
			pass(c.waits)
			for _, h := range all[c.fail:] {
				if c.answer {
					a.tried("on its connection", h, false, true)
				}
			}
			for _, h := range all[:c.fail] {
				w.fail(h, errRefused)
				a.send(h)
			}
			pass(3 * time.Second)
			for _, h := range all[:c.fail] {
				b.tried(what, h, !c.shared, false)
			}
		})
	}
}

// deaf has no hosts.
type deaf struct{ t *testing.T }

func (d deaf) Hear(news []delivery.News) []netip.AddrPort {
	if len(news) > 0 {
		d.t.Errorf("it hears %+v", news)
	}
	return nil
}

func (d deaf) Answering(time.Time) map[string]bool { return nil }

// TestWhatIsAboutToBeShared counts before what is read.
func TestWhatIsAboutToBeShared(t *testing.T) {
	s := outages.New(outages.Config{Now: time.Now, Age: func() time.Duration { return 0 }})
	s.Join(deaf{t})
	here, noted := "192.0.2.1:25", "192.0.2.2:25"
	s.Reach(delivery.Reach{Site: "a", Host: route.Host{Addr: netip.MustParseAddrPort(here)}, Stood: true, Again: true})
	down := []byte(`{"down":"refused","wait_ms":60000}`)
	err := s.Apply(t.Context(), map[string][]byte{here: down, noted: down, "somebody's": nil},
		func(key string) bool { return key == noted })
	if err != nil {
		t.Error(err)
	}
}

// TestWritesAreBounded: of very many hosts twenty a second are shared.
func TestWritesAreBounded(t *testing.T) {
	within(t, 2, func(int) delivery.Limits { return delivery.Limits{IdleTimeout: time.Hour, ActiveTimeout: time.Hour} }, func(w *world) {
		a, b := w.nodes[0], w.nodes[1]
		var up []*host
		for range 400 {
			up = append(up, w.host(sink.Config{}))
			a.send(up[len(up)-1])
		}
		pass(time.Second)
		var down []*host
		for range 150 {
			h := w.host(sink.Config{})
			w.fail(h, errRefused)
			a.send(h)
			down = append(down, h)
		}
		pass(3 * time.Second)
		if n := w.writes(); n < 40 || n > 70 {
			t.Errorf("%d rows were written in 3 s", n)
		}
		pass(6 * time.Second)
		for _, h := range down {
			b.tried("in the end", h, false, false)
		}
	})
}

// TestWhatComesTooLate is not written down: the engine is away while very many hosts fail.
func TestWhatComesTooLate(t *testing.T) {
	within(t, 2, nil, func(w *world) {
		a := w.nodes[0]
		a.setCut(true)
		for i := range 400 {
			if i%9 == 0 { // else its own network is what fails
				pass(31 * time.Second)
			}
			h := w.host(sink.Config{})
			w.fail(h, errRefused)
			a.send(h)
			pass(300 * time.Millisecond)
		}
		if n := a.known.Waiting(); n < 200 || n > 210 {
			t.Errorf("%d changes wait", n)
		}
		a.setCut(false)
		pass(10 * time.Second)
		h := w.host(sink.Config{})
		w.fail(h, errRefused)
		a.tried("then", h, true, false)
		if pass(time.Second); len(w.row(h).Value) == 0 {
			t.Error("nothing is shared any more")
		}
	})
}

// TestOldRecoveries end no wait, and those of smarthosts are not shared.
func TestOldRecoveries(t *testing.T) {
	limits := func(int) delivery.Limits {
		return delivery.Limits{MaxDeliveriesPerConnection: 1, HostRetry: 12 * time.Hour, MaxHostRetry: 12 * time.Hour}
	}
	within(t, 2, limits, func(w *world) {
		a, b := w.nodes[0], w.nodes[1]
		h := w.host(sink.Config{})
		again := func() {
			w.fail(h, errRefused)
			a.tried("it is down", h, true, false)
			w.fail(h, errRefused, 1)
			a.delivery.Hear([]delivery.News{{Host: h.route.Tiers[0][0], Up: true}})
			a.delivery.Hear([]delivery.News{{Host: h.route.Tiers[0][0], Down: "refused", Wait: time.Second}})
			pass(2 * time.Second)
			a.tried("it is up", h, true, true)
			pass(time.Second)
		}
		b.setCut(true)
		again()
		pass(5 * time.Hour)
		w.fail(h, errRefused)
		b.tried("it is down", h, true, false)
		b.setCut(false)
		pass(3 * time.Second)
		b.tried("it waits for 12 hours", h, false, false)
		h = w.host(sink.Config{})
		h.route.Configured = true
		if again(); len(w.row(h).Value) != 0 {
			t.Errorf("shared: %s", w.row(h).Value)
		}
	})
}

// TestAHostOfAnyName: a name that can't be shown is left out.
func TestAHostOfAnyName(t *testing.T) {
	within(t, 2, nil, func(w *world) {
		a := w.nodes[0]
		h := w.host(sink.Config{})
		h.route.Tiers[0][0].Name = strings.Repeat(`\255`, 100) + ".example"
		w.fail(h, errRefused)
		a.tried("it is down", h, true, false)
		pass(2 * time.Second)
		if why := a.known.Trouble(); why != "" || a.known.Waiting() != 0 || len(w.row(h).Value) == 0 {
			t.Errorf("%q, %d wait, the row is %q", why, a.known.Waiting(), w.row(h).Value)
		}
	})
}

// TestRowsThatAreNone are refused, and stop nothing.
func TestRowsThatAreNone(t *testing.T) {
	s := outages.New(outages.Config{Now: time.Now})
	for _, row := range [][2]string{
		{"192.0.2.1", `{"up":true}`}, {"[::ffff:192.0.2.1]:025", `{"up":true}`}, {"192.0.2.1:25", `{}`},
		{"192.0.2.1:25", `{"up":true,"down":"refused","wait_ms":1}`}, {"192.0.2.1:25", `{"down":"refused"}`},
		{"192.0.2.1:25", `{"down":"refused","wait_ms":-1}`}, {"192.0.2.1:25", `{"down":"refused","wait_ms":9223372036854775807}`},
		{"192.0.2.1:25", `{"down":"re\nfused","wait_ms":1}`}, {"192.0.2.1:25", `{"host":"\u001b[2J","up":true}`},
		{"192.0.2.1:25", `{"host":"` + strings.Repeat("x", 256) + `","up":true}`}, {"192.0.2.1:25", `7`},
	} {
		if rank, _, err := s.Look(row[0], []byte(row[1])); err == nil {
			t.Errorf("%v has rank %d", row, rank)
		}
	}
	down, _, err1 := s.Look("192.0.2.1:25", []byte(`{"host":"mx.example","down":"refused","wait_ms":60000}`))
	up, _, err2 := s.Look("[2001:db8::1]:25", []byte(`{"up":true}`))
	if err1 != nil || err2 != nil || up <= down {
		t.Errorf("down has rank %d, up %d (%v, %v)", down, up, err1, err2)
	}
}
