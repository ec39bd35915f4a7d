package delivery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// world is a scheduler among sinks, in virtual time. It belongs in a synctest bubble.
type world struct {
	t        testing.TB
	s        *Scheduler
	recorder *sink.Recorder
	ids      envelope.IDs

	mu      sync.Mutex
	hosts   map[netip.AddrPort]*worldHost
	dials   []string // "source>host" in order
	results []Result
	jobs    int // done
	space   []Flow
}

// worldHost is a sink, or something that is none.
type worldHost struct {
	route.Host
	server *sink.Server
	listen *sink.PipeListener
	down   bool // refuses connections
	hole   bool // answers nothing, ever
}

// newWorld makes a world whose scheduler is ended with the test.
func newWorld(t testing.TB, change func(*Config)) *world {
	w := &world{t: t, recorder: sink.NewRecorder(sink.Deliveries, 0), hosts: make(map[netip.AddrPort]*worldHost)}
	cfg := Config{
		Source: func(name string) (Source, bool) { return Source{Name: name, EHLO: name + ".example"}, name != "nobody" },
		Dial:   w.dial,
		Rand:   rand.New(rand.NewPCG(1, 2)),
		OnSpace: func(f Flow) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.space = append(w.space, f)
		},
	}
	if change != nil {
		change(&cfg)
	}
	w.s = New(cfg)
	return w
}

// end closes all, and checks that the books are closed too.
func (w *world) end() {
	w.t.Helper()
	w.s.Close()
	for _, h := range w.hosts {
		h.listen.Close()
		h.server.Close()
	}
	c := w.s.Counts()
	for what, n := range map[string]int{"jobs": c.Waiting, "parts": c.Running, "connections": c.Live, "messages": c.Messages} {
		if n != 0 {
			w.t.Errorf("left behind: %d %s", n, what)
		}
	}
	if c.Submitted != c.Done {
		w.t.Errorf("%d jobs submitted, %d done", c.Submitted, c.Done)
	}
	for key, b := range w.s.budgets {
		if b.live != 0 {
			w.t.Errorf("budget of %v still counts %d connections", key, b.live)
		}
	}
	if n := w.live(); n != 0 {
		w.t.Errorf("destdb still counts %d connections", n)
	}
}

func (w *world) dial(ctx context.Context, s Source, h route.Host) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, s.Name+">"+h.Name)
	host := w.hosts[h.Addr]
	down, hole := host.down, host.hole
	w.mu.Unlock()
	switch {
	case down:
		time.Sleep(time.Millisecond) // there and back
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case hole:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return host.listen.Dial(ctx)
}

// host adds a host that behaves as cfg says.
func (w *world) host(name string, cfg sink.Config) *worldHost {
	cfg.Hostname, cfg.Recorder = name, w.recorder
	h := &worldHost{server: sink.New(cfg), listen: sink.NewPipeListener()}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.hosts) + 1
	h.Host = route.Host{Name: name, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(2 + n>>8), byte(n)}), 25)}
	w.hosts[h.Addr] = h
	go h.server.Serve(h.listen)
	return h
}

func (w *world) setDown(h *worldHost, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.down = down
}

// routeTo makes a route whose tiers are the hosts given.
func routeTo(site string, tiers ...[]*worldHost) *route.Route {
	r := &route.Route{Domain: site + ".example", Site: site}
	for _, tier := range tiers {
		var hosts route.Tier
		for _, h := range tier {
			hosts = append(hosts, h.Host)
		}
		r.Tiers = append(r.Tiers, hosts)
	}
	return r
}

func tier(hosts ...*worldHost) []*worldHost { return hosts }

func addrs(hosts ...*worldHost) (list []netip.AddrPort) {
	for _, h := range hosts {
		list = append(list, h.Addr)
	}
	return list
}

// lanes gives those of a site.
func lanes(w *world, site string) []LaneInfo {
	s, _ := w.s.Site(site)
	return s.Lanes
}

// toA is the flow of jobs to site a.
var toA = Flow{Site: "a", Source: "out1"}

// job makes a job for n recipients.
func (w *world) job(r *route.Route, n int) *Job {
	m := &envelope.Message{ID: w.ids.Next(time.Now()), Sender: "from@example.org"}
	content := fmt.Appendf(nil, "X-Mta-Test-Id: %s\r\nSubject: a test\r\n\r\nHello.\r\n", m.ID)
	m.Size = int64(len(content))
	j := &Job{Message: m, Route: r, Source: "out1", Done: w.done,
		Body: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
	for i := range n {
		m.Recipients = append(m.Recipients, envelope.Recipient{Address: envelope.Address(fmt.Sprintf("r%d@%s", i, r.Domain))})
		j.Recipients = append(j.Recipients, i)
	}
	return j
}

func (w *world) done(_ *Job, results []Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs++
	w.results = append(w.results, results...)
}

// submit hands a job over if there is room for it.
func submit(s *Scheduler, j *Job) bool {
	if !s.Reserve(j) {
		return false
	}
	s.Submit(j)
	return true
}

func (w *world) submit(j *Job) bool { return submit(w.s, j) }

// send submits n jobs of one recipient.
func (w *world) send(r *route.Route, n int) {
	w.t.Helper()
	for range n {
		if !w.submit(w.job(r, 1)) {
			w.t.Fatal("job refused")
		}
	}
}

// settled gives the results so far, once nothing more happens without time.
func (w *world) settled() []Result {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Result(nil), w.results...)
}

// count is how many results there are so far.
func (w *world) count() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.results)
}

// awaitResults lets time pass until there are n results.
func (w *world) awaitResults(n int, most time.Duration) []Result {
	w.t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(10 * time.Millisecond) {
		if w.count() >= n {
			return w.settled()
		}
		if time.Now().After(end) {
			w.t.Fatalf("%d results after %v, want %d; %s", len(w.settled()), most, n, w.picture())
		}
	}
}

// told gives the flows that OnSpace was told of.
func (w *world) told() []Flow {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Flow(nil), w.space...)
}

func (w *world) dialed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.dials...)
}

// picture returns where everything is, for failures.
func (w *world) picture() string {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	var b bytes.Buffer
	for _, l := range w.s.lanes {
		fmt.Fprintf(&b, "lane %s>%s: %d wait (%s), %d opening, %d running\n", l.laneKey.source, l.laneKey.site, l.waiting.n, l.why.What, l.opening, l.running)
	}
	for _, h := range w.s.db.Hosts(destdb.HostKey{}, 100) {
		for _, p := range h.Paths {
			fmt.Fprintf(&b, "host %s: %v %v, %d connections with %d\n", h.Name, p.State, h.Broken, p.Connections, p.Backlog)
		}
	}
	return b.String()
}

func delivered(results []Result) (n int) {
	for _, r := range results {
		if r.Reply.OK() {
			n++
		}
	}
	return n
}

// unhurried are limits without slow start.
func unhurried(l Limits) func(*Config) {
	return atOnce(func(c *Config) {
		c.Limits = func(*route.Route, string, string) Limits { return l }
	})
}

// atOnce is a change after which slow start has come to any number of connections at each site.
func atOnce(change func(*Config)) func(*Config) {
	return func(c *Config) {
		change(c)
		if c.DB == nil {
			c.DB = destdb.New(destdb.Lifetimes{})
		}
		limits := c.Limits
		c.Limits = func(r *route.Route, source, tenant string) Limits {
			c.DB.Site(r.Site).Allowed = 1e6
			return limits(r, source, tenant)
		}
	}
}

// live counts the connections in destdb.
func (w *world) live() (n int) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, h := range w.s.db.Hosts(destdb.HostKey{}, math.MaxInt) {
		for _, p := range h.Paths {
			n += p.Connections
		}
	}
	return n
}

// learn takes records into the picture, as from the store at start.
func (w *world) learn(records ...destdb.Record) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.db.Learn(records)
}

func hostState(w *world, name string) destdb.State {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, h := range w.s.db.Hosts(destdb.HostKey{}, 100) {
		if h.Name == name && len(h.Paths) > 0 {
			return h.Paths[0].State
		}
	}
	return destdb.Unused
}
