package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/lab/bench"
	"example.org/mta/lab/sink"
)

const (
	soakRate    = 200 // messages a second
	soakRefused = 10  // and so many that are refused for good, whose senders get reports
	soakSamples = 120
	// judgedFrom is how long a soak must last for its growth to say something. A shorter one only
	// looks whether everything arrives once.
	judgedFrom = time.Minute
)

// TestSoak has the relay deliver at a steady rate, for the time that MTA_SOAK says, to sites that
// defer, drop connections, are gone for a while and come back. Everything has to arrive once, and
// in the second half of the time nothing may grow: memory, goroutines, descriptors, disk, queue.
func TestSoak(t *testing.T) {
	long := timeOf(t, "MTA_SOAK", 5*time.Second)
	besideOthers(t, long >= judgedFrom)
	g := soakGround(t)
	r, err := bench.StartRelay(t.Context(), bench.RelayOptions{Binary: binary, Dir: scratch(t), Config: "queue { segment_size = \"4MiB\" }\n"}, g.Ground)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	good, refused := g.loads(long)
	var running sync.WaitGroup
	for _, l := range []*bench.Load{good, refused} {
		running.Go(func() {
			if err := l.Run(t.Context(), r.Address); err != nil {
				t.Errorf("submitting: %v", err)
			}
		})
	}
	ctx, stop := context.WithTimeout(t.Context(), long)
	defer stop()
	running.Go(func() { g.restarts(ctx, t) })
	s := watch(ctx, t, r, long/soakSamples)
	running.Wait()
	t.Logf("\n%s", s.table())
	ranDry(t, r)
	g.judge(t, r, good, refused)
	if long >= judgedFrom {
		s.judge(t)
	}
}

// timeOf gives the duration that a variable of the environment names, or a short one.
func timeOf(t *testing.T, variable string, short time.Duration) time.Duration {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return short
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second {
		t.Fatalf("%s=%s: want a duration such as 1h, of a second at least", variable, s)
	}
	return d
}

// soakField is the far side of a soak.
type soakField struct {
	*bench.Ground
	reports *sink.Recorder // what senders were told
}

// The sites, and what is hard about them. The last two are no targets of the load that must arrive.
var soakSites = []struct {
	name string
	cfg  sink.Config
}{
	{"quick.example", sink.Config{}},
	{"pipelining.example", sink.Config{Without: sink.Chunking, Latency: 5 * time.Millisecond}},
	{"lockstep.example", sink.Config{Without: sink.Chunking | sink.Pipelining, Latency: 2 * time.Millisecond}},
	{"deferring.example", sink.Config{Refusals: []sink.Refusal{sink.TemporaryFailures(0.2)}}},
	{"dropping.example", sink.Config{Drop: map[sink.Phase]float64{sink.Mail: 0.01, sink.Rcpt: 0.01, sink.End: 0.01, sink.Kept: 0.005}}},
	{"restarting.example", sink.Config{}},
	{"refusing.example", sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}},
	{"home.example", sink.Config{}},
}

const (
	restarting = 5 // the place of the site that is restarted
	arriving   = 6 // so many sites take what must arrive
)

func soakGround(t *testing.T) *soakField {
	t.Helper()
	f := &soakField{reports: sink.NewRecorder(sink.Hashes, 4_000_000)}
	var domains []*bench.Domain
	for _, s := range soakSites {
		h := &bench.Host{Sink: s.cfg}
		if s.name == "home.example" {
			h.Sink.Recorder = f.reports
		}
		domains = append(domains, &bench.Domain{Name: s.name, Hosts: []*bench.Host{h}})
	}
	g, err := bench.OpenGround(bench.GroundOptions{}, domains...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	f.Ground = g
	return f
}

// loads are what must arrive, and what is refused for good.
func (f *soakField) loads(long time.Duration) (good, refused *bench.Load) {
	messages := func(rate int) int { return int(long.Seconds() * float64(rate)) }
	good = &bench.Load{Messages: messages(soakRate), Connections: 8, Size: 4096, Rate: soakRate, Sender: "boss@home.example",
		To: func(n int) []string { return []string{fmt.Sprintf("user%d@%s", n%1000, soakSites[n%arriving].name)} }}
	refused = &bench.Load{Messages: messages(soakRefused), Connections: 1, Size: 1024, Rate: soakRefused, Sender: "boss@home.example",
		To: func(int) []string { return []string{"nobody@refusing.example"} }}
	return good, refused
}

// restarts takes a site away and brings it back, again and again, until ctx ends; it is there then.
func (f *soakField) restarts(ctx context.Context, t *testing.T) {
	h := f.Hosts[restarting]
	for {
		if !wait(ctx, time.Second+rand.N(3*time.Second)) {
			return
		}
		h.Server.Close()
		wait(ctx, rand.N(2*time.Second))
		l, err := net.Listen("tcp", net.JoinHostPort(h.Address, f.Port))
		if err != nil {
			t.Errorf("bringing %s back: %v", h.Name, err)
			return
		}
		h.Server = sink.New(h.Sink)
		go h.Server.Serve(l)
		t.Cleanup(h.Server.Close)
	}
}

// wait reports false when ctx ends before the time has passed.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// ranDry waits until the relay has nothing left.
func ranDry(t *testing.T, r *bench.Relay) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		n, err := r.Queued(t.Context())
		if err == nil && n > 0 {
			err = fmt.Errorf("%d recipients are still queued", n)
		}
		return err
	})
}

// judge says whether everything came once, and each sender of what was refused has a report.
func (f *soakField) judge(t *testing.T, r *bench.Relay, good, refused *bench.Load) {
	t.Helper()
	doubts, err := r.Doubts()
	if err != nil {
		t.Fatal(err)
	}
	a := bench.Settle(good, f.Ground, doubts)
	t.Logf("%d messages: %d lost, %d duplicated, %d strange; %d copies of which the relay says that it does not know; %d refused for good, %d reports",
		good.Messages, a.Lost, a.Duplicated, a.Strange, a.Ambiguous, refused.Messages, f.reports.Tally().Messages)
	if !a.Right() || good.Accepted() != good.Messages {
		t.Errorf("%+v: want each of %d messages once", *a, good.Messages)
	}
	if got := f.reports.Tally().Messages; got != int64(refused.Messages) {
		t.Errorf("%d reports for %d messages that were refused for good", got, refused.Messages)
	}
}

// samples is what was looked at in a soak, a row for each time.
type samples struct {
	at   []time.Duration
	rows [][]float64 // in the order of soaked
}

// soaked are the things that must not grow, and by how much they may, fitted over the second half:
// so much in any case, and a share of their mean. The bounds are what comes and goes; of memory, the
// garbage that the collector lets pile up. Memory that lives on can't hide in it for long: in an
// hour, a hundred octets of each message are more.
var soaked = []struct {
	name   string
	unit   float64
	metric string // "" is the queue's disk use
	slack  float64
	share  float64
}{
	{"memory MB", 1 << 20, "process_resident_memory_bytes", 32, 0.05},
	{"goroutines", 1, "go_goroutines", 15, 0.1},
	{"descriptors", 1, "process_open_fds", 15, 0.1},
	{"queue's disk MB", 1 << 20, "", 12, 0.1},               // three segments
	{"queued", 1, "mta_recipients_queued", 5 * soakRate, 0}, // a site that is gone leaves so much, for a while
}

// watch looks at the relay until ctx ends.
func watch(ctx context.Context, t *testing.T, r *bench.Relay, every time.Duration) *samples {
	t.Helper()
	s := &samples{}
	began := time.Now()
	for wait(ctx, every) {
		row, err := look(ctx, r)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			t.Errorf("looking at the relay: %v", err)
			break
		}
		s.at, s.rows = append(s.at, time.Since(began)), append(s.rows, row)
	}
	return s
}

func look(ctx context.Context, r *bench.Relay) ([]float64, error) {
	row := make([]float64, len(soaked))
	for i, w := range soaked {
		var v float64
		var err error
		if w.metric == "" {
			var octets int64
			octets, err = blocksIn(filepath.Join(r.Dir, "data", "queue"))
			v = float64(octets)
		} else {
			v, err = r.Metric(ctx, w.metric)
		}
		if err != nil {
			return nil, err
		}
		row[i] = v / w.unit
	}
	return row, nil
}

// secondHalf gives the samples of one thing in the second half of the time.
func (s *samples) secondHalf(thing int) (at, values []float64) {
	for i := len(s.at) / 2; i < len(s.at); i++ {
		at, values = append(at, s.at[i].Seconds()), append(values, s.rows[i][thing])
	}
	return at, values
}

// growth is by how much values grow from the first to the last, on the line of least squares.
func growth(at, values []float64) (grown, mean float64) {
	n := float64(len(at))
	if n < 2 {
		return 0, 0
	}
	var sx, sy, sxx, sxy float64
	for i, x := range at {
		sx, sy, sxx, sxy = sx+x, sy+values[i], sxx+x*x, sxy+x*values[i]
	}
	slope := (n*sxy - sx*sy) / (n*sxx - sx*sx)
	return slope * (at[len(at)-1] - at[0]), sy / n
}

// verdict is how much a thing has grown in the second half, and how much it may have.
func (s *samples) verdict(thing int) (grown, bound, mean float64) {
	at, values := s.secondHalf(thing)
	grown, mean = growth(at, values)
	return grown, soaked[thing].slack + soaked[thing].share*mean, mean
}

func (s *samples) judge(t *testing.T) {
	t.Helper()
	if len(s.rows) < soakSamples/4 {
		t.Errorf("only %d samples: that says nothing about growth", len(s.rows))
	}
	for i, w := range soaked {
		if grown, bound, _ := s.verdict(i); grown > bound {
			t.Errorf("%s: grown by %.1f in the second half, at most %.1f are noise", w.name, grown, bound)
		}
	}
}

// table shows some of the samples, and what they come to.
func (s *samples) table() string {
	var b strings.Builder
	b.WriteString("| after |")
	for _, w := range soaked {
		fmt.Fprintf(&b, " %s |", w.name)
	}
	b.WriteString("\n" + strings.Repeat("| --- ", len(soaked)+1) + "|\n")
	const shown = 12
	for i := 0; i < len(s.rows); i += max(1, len(s.rows)/shown) {
		fmt.Fprintf(&b, "| %v |", s.at[i].Round(time.Second/10))
		for _, v := range s.rows[i] {
			fmt.Fprintf(&b, " %.0f |", v)
		}
		b.WriteByte('\n')
	}
	for _, line := range []struct {
		name string
		of   func(thing int) float64
	}{
		{"mean of the second half", func(i int) float64 { _, _, mean := s.verdict(i); return mean }},
		{"growth in the second half", func(i int) float64 { grown, _, _ := s.verdict(i); return grown }},
		{"bound for it", func(i int) float64 { _, bound, _ := s.verdict(i); return bound }},
	} {
		fmt.Fprintf(&b, "| %s |", line.name)
		for i := range soaked {
			fmt.Fprintf(&b, " %.1f |", line.of(i))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A leak must be seen through the noise, and noise must not pass for a leak.
func TestGrowth(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	series := func(f func(i int) float64) *samples {
		s := &samples{}
		for i := range soakSamples {
			row := make([]float64, len(soaked))
			row[0] = f(i)
			s.at, s.rows = append(s.at, time.Duration(i)*30*time.Second), append(s.rows, row)
		}
		return s
	}
	for _, test := range []struct {
		name string
		mb   func(i int) float64
		leak bool
	}{
		{"noise", func(int) float64 { return 60 + 40*rng.Float64() }, false},
		{"warm-up", func(i int) float64 { return 60 + 60*min(1, float64(i)/(soakSamples/3)) + 20*rng.Float64() }, false},
		{"saw", func(i int) float64 { return 60 + 3*float64(i%10) }, false},
		{"less and less", func(i int) float64 { return 200 - float64(i) }, false},
		{"leak", func(i int) float64 { return 60 + float64(i) + 20*rng.Float64() }, true},
		{"leak of which the garbage collector frees some", func(i int) float64 { return 60 + float64(i) + 2*float64(i%10) }, true},
	} {
		grown, bound, _ := series(test.mb).verdict(0)
		if leak := grown > bound; leak != test.leak {
			t.Errorf("%s: grown by %.1f with a bound of %.1f", test.name, grown, bound)
		}
	}
}
