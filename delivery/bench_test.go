package delivery

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// fakeSession answers everything at once, by a goroutine of its own: what is left is the
// scheduler's own cost.
type fakeSession struct {
	mu     sync.Mutex
	wake   sync.Cond
	queue  []*smtpclient.Transaction
	ending bool
	closed func(*smtpclient.Conn)
}

func newFakeSession(_ context.Context, _ net.Conn, cfg smtpclient.Config) (session, error) {
	f := &fakeSession{closed: cfg.Closed}
	f.wake.L = &f.mu
	go f.run()
	return f, nil
}

func (f *fakeSession) run() {
	var batch []*smtpclient.Transaction
	results := []smtpclient.Result{{Fate: smtpclient.Answered}}
	results[0].Reply.Code = 250
	for {
		f.mu.Lock()
		for len(f.queue) == 0 && !f.ending {
			f.wake.Wait()
		}
		batch, f.queue = f.queue, batch[:0]
		ending := f.ending
		f.mu.Unlock()
		for _, t := range batch {
			t.Done(t, smtpclient.Outcome{Results: results[:len(t.Recipients)]})
		}
		if ending && len(batch) == 0 {
			f.closed(nil)
			return
		}
	}
}

func (f *fakeSession) Send(t *smtpclient.Transaction) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending {
		return false
	}
	f.queue = append(f.queue, t)
	f.wake.Signal()
	return true
}

func (f *fakeSession) Finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	f.wake.Signal()
}

func (f *fakeSession) Recall()                                {}
func (f *fakeSession) Close()                                 { f.Finish() }
func (f *fakeSession) Depth() int                             { return 16 }
func (f *fakeSession) Err() error                             { return nil }
func (f *fakeSession) BytesSent() int64                       { return 0 }
func (f *fakeSession) Mode() smtpclient.Mode                  { return smtpclient.Chunked }
func (f *fakeSession) Window() smtpclient.Window              { return smtpclient.Window{Messages: 16} }
func (f *fakeSession) Capabilities() *smtpclient.Capabilities { return &smtpclient.Capabilities{} }
func (f *fakeSession) TLS() *tls.ConnectionState              { return nil }
func (f *fakeSession) SetTrace(*smtpclient.Trace)             {}

// BenchmarkDecide is the scheduler alone: 20 connections that answer at once.
func BenchmarkDecide(b *testing.B) {
	cfg := benchConfig(20)
	cfg.handshake = newFakeSession
	cfg.Dial = func(context.Context, Source, route.Host) (net.Conn, error) { return new(net.TCPConn), nil }
	benchmarkJobs(b, cfg, netip.MustParseAddrPort("192.0.2.1:25"))
}

// BenchmarkLoopback is 20 connections to a sink on this machine, 2 KB messages.
func BenchmarkLoopback(b *testing.B) {
	for _, x := range []struct {
		name    string
		without sink.Extension
		latency time.Duration
	}{{"chunking", 0, 0}, {"pipelining", sink.Chunking, 0}, {"lockstep", sink.Chunking | sink.Pipelining, 0},
		{"chunking-50ms", 0, 50 * time.Millisecond}, {"pipelining-50ms", sink.Chunking, 50 * time.Millisecond}} {
		b.Run(x.name, func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			srv := sink.New(sink.Config{Without: x.without, Latency: x.latency})
			go srv.Serve(ln)
			defer srv.Close()
			benchmarkJobs(b, benchConfig(20), netip.MustParseAddrPort(ln.Addr().String()))
		})
	}
}

func benchConfig(connections int) Config {
	return Config{
		Source: func(name string) (Source, bool) { return Source{Name: name, EHLO: "bench.example"}, true },
		Limits: func(*route.Route, string, string) Limits {
			return Limits{Site: Scope{Connections: connections}, MaxDeliveriesPerConnection: 1 << 30}
		},
	}
}

func benchmarkJobs(b *testing.B, cfg Config, to netip.AddrPort) {
	s := New(cfg)
	defer s.Close()
	r := &route.Route{Domain: "a.example", Site: "a", Tiers: []route.Tier{{{Name: "mx", Addr: to}}}}
	content := bytes.Repeat([]byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd\r\n"), 32)
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	slots := make(chan struct{}, 1000)
	var bad error
	done := func(_ *Job, results []Result) {
		if !results[0].Reply.OK() {
			bad = fmt.Errorf("%v", results[0].Reply)
		}
		<-slots
	}
	recipients := []envelope.Recipient{{Address: "to@a.example"}}
	index := []int{0}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		m := &envelope.Message{ID: envelope.ID(i + 1), Sender: "from@example.org", Recipients: recipients, Size: int64(len(content))}
		if !submit(s, &Job{Message: m, Recipients: index, Route: r, Source: "out1", Body: body, Done: done}) {
			b.Fatal("refused")
		}
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	if bad != nil {
		b.Fatal(bad)
	}
}

// BenchmarkPickAmongMany shows that a decision costs the same whatever waits.
func BenchmarkPickAmongMany(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWaitlist()
			now := time.Now()
			m := &message{id: 1}
			job := &Job{Message: &envelope.Message{ID: 1}}
			for range n {
				w.add(&part{work: &work{Job: job, message: m, since: now}}, false)
			}
			free := func(*tenant) bool { return false }
			b.ReportAllocs()
			for b.Loop() {
				g := w.pick(now, free)
				p := w.take(g)
				w.ended(g)
				w.add(p, false)
			}
		})
	}
}

// BenchmarkMixed is 1,000 messages of 50 recipients among 5,000 single ones, to ten sites on this
// machine; it tells how long the single ones took from Submit to Done.
func BenchmarkMixed(b *testing.B) {
	var routes []*route.Route
	for i := range 10 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		srv := sink.New(sink.Config{})
		go srv.Serve(ln)
		defer srv.Close()
		routes = append(routes, &route.Route{Domain: "a.example", Site: fmt.Sprint(i), Tiers: []route.Tier{{{Name: "mx", Addr: netip.MustParseAddrPort(ln.Addr().String())}}}})
	}
	content := bytes.Repeat([]byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd\r\n"), 32)
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	for range b.N {
		s := New(benchConfig(10))
		var mu sync.Mutex
		var took []time.Duration
		var wait sync.WaitGroup
		for i := range 6000 {
			n := 1
			if i%6 == 0 {
				n = 50
			}
			m := &envelope.Message{ID: envelope.ID(i + 1), Sender: "from@example.org", Size: int64(len(content))}
			var index []int
			for k := range n {
				m.Recipients = append(m.Recipients, envelope.Recipient{Address: "to@a.example"})
				index = append(index, k)
			}
			wait.Add(1)
			began := time.Now()
			submit(s, &Job{Message: m, Recipients: index, Route: routes[i%10], Source: "out1", Body: body, Done: func(j *Job, _ []Result) {
				if len(j.Recipients) == 1 {
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
				wait.Done()
			}})
		}
		wait.Wait()
		s.Close()
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1e3, "p99-ms")
	}
}

// BenchmarkCancel takes back a message amid the lanes of 2,000 sites.
func BenchmarkCancel(b *testing.B) {
	s := New(Config{
		Source: func(name string) (Source, bool) { return Source{Name: name}, true },
		Dial: func(ctx context.Context, _ Source, _ route.Host) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	defer s.Close()
	job := func(id, site int) *Job {
		host := route.Host{Name: "mx", Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(site)}), 25)}
		return &Job{Message: &envelope.Message{ID: envelope.ID(id)}, Recipients: []int{0}, Source: "out1", Done: func(*Job, []Result) {},
			Route: &route.Route{Site: fmt.Sprint("site", site), Tiers: []route.Tier{{host}}}}
	}
	const sites = 2000
	for i := range sites {
		submit(s, job(i+1, i))
	}
	b.ResetTimer()
	for i := range b.N {
		id := sites + 1 + i
		if !submit(s, job(id, i%sites)) || s.Cancel(envelope.ID(id)) != 1 {
			b.Fatal("a message that waits was not taken back")
		}
	}
}

// BenchmarkKeepHouse is the house with lanes of 5,000 sites, in which nothing happens.
func BenchmarkKeepHouse(b *testing.B) {
	s := New(Config{
		Source: func(name string) (Source, bool) { return Source{Name: name}, true },
		Dial: func(ctx context.Context, _ Source, _ route.Host) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	defer s.Close()
	for i := range 5000 {
		host := route.Host{Name: "mx", Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 25)}
		submit(s, &Job{Message: &envelope.Message{ID: envelope.ID(i)}, Recipients: []int{0}, Source: "out1", Done: func(*Job, []Result) {},
			Route: &route.Route{Site: fmt.Sprint("site", i), Tiers: []route.Tier{{host}}}})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s.keepHouse(time.Now())
	}
}
