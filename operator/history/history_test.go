package history

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// meter is a relay whose figures a test sets.
type meter struct {
	mu       sync.Mutex // for the test of Run
	busy     [kinds]map[string]int64
	readings [kinds]map[string]*Reading
	dropped  []string
}

func newMeter() *meter {
	m := &meter{}
	for k := range kinds {
		m.busy[k], m.readings[k] = make(map[string]int64), make(map[string]*Reading)
	}
	return m
}

func (m *meter) Busy(k Kind, each func(string, int64)) {
	for name, n := range m.busy[k] {
		each(name, n)
	}
	clear(m.busy[k])
}

func (m *meter) Read(k Kind, names []string) (all []Reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		all = append(all, *m.of(k, name))
	}
	return all
}

func (m *meter) Drop(k Kind, name string) { m.dropped = append(m.dropped, name) }

func (m *meter) of(k Kind, name string) *Reading {
	if m.readings[k][name] == nil {
		m.readings[k][name] = new(Reading)
	}
	return m.readings[k][name]
}

// deliver counts n deliveries that took so long, at a site.
func (m *meter) deliver(site string, n int64, took time.Duration) {
	m.busy[Site][site] += n
	for _, r := range []*Reading{m.of(Relay, ""), m.of(Site, site)} {
		r.Counts[Delivered] += n
		for range n {
			r.Delays.Add(took, 1)
		}
	}
}

var midnight = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

type world struct {
	*History
	meter *meter
	now   time.Time
	log   bytes.Buffer
}

func newWorld(path string) *world {
	w := &world{meter: newMeter(), now: midnight}
	w.open(path)
	return w
}

func (w *world) open(path string) {
	w.History = Open(Config{Meter: w.meter, Path: path, Now: func() time.Time { return w.now }, Log: slog.New(slog.NewTextHandler(&w.log, nil))})
}

// run samples every 2 s, after something happened.
func (w *world) run(d time.Duration, happens func()) {
	for end := w.now.Add(d); w.now.Before(end); {
		happens()
		w.now = w.now.Add(2 * time.Second)
		w.Sample(w.now)
	}
}

// values gives a figure.
func (w *world) values(t *testing.T, k Kind, name string, sp Span, f Figure) []float64 {
	t.Helper()
	start, all, ok := w.Get(k, name, sp)
	if !ok {
		t.Fatalf("there are no figures of the %s %q", k, name)
	}
	if last := start.Add(time.Duration(sp.Values()) * sp.Step()); last.Before(w.now) || last.Sub(w.now) >= sp.Step() {
		t.Errorf("the figures of %v end at %v, now is %v", sp.Step(), last, w.now)
	}
	for _, s := range all {
		if s.Figure == f && len(s.Values) == sp.Values() {
			return s.Values
		}
	}
	t.Fatalf("a %s has no %v", k, f)
	return nil
}

// want checks the newest values of a figure, to three digits; -1 stands for unknown.
func want(t *testing.T, what string, got []float64, newest ...float64) {
	t.Helper()
	got = got[len(got)-len(newest):]
	for i, v := range newest {
		if v < 0 != math.IsNaN(got[i]) || v >= 0 && math.Abs(got[i]-v) > v/1000 {
			t.Errorf("%s: the newest values are %.4g, want %v", what, got, newest)
			return
		}
	}
}

func TestFiguresOverTime(t *testing.T) {
	w := newWorld("")
	w.run(2*time.Second, func() {}) // rates need two samples
	w.run(10*time.Minute, func() {
		w.meter.deliver("a", 20, time.Second)
		w.meter.deliver("b", 4, 3*time.Second)
		w.meter.of(Relay, "").Level(Queued, 300)
		w.meter.of(Relay, "").Level(OldestDue, math.NaN())
	})
	w.run(10*time.Minute, func() {
		w.meter.deliver("a", 40, time.Second)
		w.meter.of(Relay, "").Level(Queued, 500)
		w.meter.of(Relay, "").Level(OldestDue, math.NaN())
	})
	want(t, "2 s of a", w.values(t, Site, "a", Minutes, Delivered), 20, 20, 20)
	want(t, "30 s of a", w.values(t, Site, "a", Hours, Delivered), 20, 20)
	want(t, "10 min of a", w.values(t, Site, "a", Days, Delivered), -1, 10, 19.967, 20)
	want(t, "10 min of the relay", w.values(t, Relay, "", Days, Delivered), 12, 19.973, 20)
	want(t, "10 min of the relay's queue", w.values(t, Relay, "", Days, Queued), 299, 499.2, 500)
	want(t, "what isn't known", w.values(t, Relay, "", Days, OldestDue), -1, -1)
	want(t, "2 s of others", w.values(t, Site, Other, Minutes, Delivered), 0, 0)
	want(t, "a median", w.values(t, Relay, "", Hours, DelayP50), .9829)
	if p99 := w.values(t, Relay, "", Days, DelayP99)[Days.Values()-3]; p99 < 2.7 || p99 > 3.5 {
		t.Errorf("the 99th percentile is %v when a sixth takes 3 s", p99)
	}
	want(t, "delays of none", w.values(t, Site, "b", Minutes, DelayP99), -1)
	latest := w.Latest(Relay, "")
	if latest[Delivered] != 20 || latest[Queued] != 500 || !math.IsNaN(latest[OldestDue]) || latest[DelayP50] > 1.1 {
		t.Errorf("the latest figures are %v", latest)
	}
	if _, _, ok := w.Get(Site, "stranger", Days); ok || w.Latest(Site, "stranger") != nil {
		t.Error("there are figures of a stranger")
	}
}

// TestGaps: nothing is known of the time for which nobody took samples, nor of the future when the clock was set back.
func TestGaps(t *testing.T) {
	w := newWorld("")
	busy := func() { w.meter.deliver("a", 2, time.Second) }
	w.run(time.Minute, busy)
	w.now = w.now.Add(10 * time.Second)
	w.run(4*time.Second, busy)
	want(t, "after a gap", w.values(t, Relay, "", Minutes, Delivered), 1, 1, -1, -1, -1, -1, -1, 1./6, 1)
	w.now = w.now.Add(-8 * time.Second)
	w.run(4*time.Second, busy)
	want(t, "a clock set back", w.values(t, Relay, "", Minutes, Delivered), 1, 1, -1, -1, -1, -1, 1)
	w.now = w.now.Add(30 * 24 * time.Hour)
	w.run(4*time.Second, busy)
	for sp := range Span(numSpans) {
		known := slices.DeleteFunc(w.values(t, Relay, "", sp, Delivered), math.IsNaN)
		if len(known) > 2 {
			t.Errorf("%d values of %v are known after a month without samples", len(known), sp.Step())
		}
	}
}

// TestTheBusiest: they have figures of their own, and keep them as long as nobody is much busier; the others have them
// together.
func TestTheBusiest(t *testing.T) {
	w := newWorld("")
	w.run(time.Minute, func() {
		for i := range 60 {
			w.meter.deliver(fmt.Sprint("site", i), int64(2*(60-i)), time.Second)
		}
	})
	names := w.Names(Site)
	if len(names) != most[Site]+1 || names[0] != "site0" || names[49] != "site49" || names[50] != Other {
		t.Fatalf("the busiest of 60 are %v", names)
	}
	want(t, "others", w.values(t, Site, Other, Minutes, Delivered), 55) // 1 + ... + 10
	w.run(time.Minute, func() { w.meter.deliver("site55", 30, time.Second) })
	if slices.Contains(w.Names(Site), "site55") {
		t.Error("site55 has the place of a site that has more than half as much")
	}
	w.run(3*time.Minute, func() { w.meter.deliver("site55", 30, time.Second) })
	if names := w.Names(Site); !slices.Contains(names, "site55") || slices.Contains(names, "site49") || len(names) != most[Site]+1 {
		t.Errorf("the busiest are %v", names)
	}
	if !slices.Equal(w.meter.dropped, []string{"site49"}) {
		t.Errorf("dropped are %v", w.meter.dropped)
	}
	want(t, "others, when nobody of them is busy", w.values(t, Site, Other, Minutes, Delivered), 0)
	for i := range 10 * candidates {
		w.meter.busy[Tenant][fmt.Sprint("tenant", i)] = 1
	}
	w.run(10*time.Second, func() {})
	if n := len(w.ranks[Tenant].busy); n > 2*candidates {
		t.Errorf("%d tenants have a rank", n)
	}
	w.meter.busy[Tenant][Other], w.meter.busy[Tenant][""] = 1e6, 1e6
	w.run(10*time.Second, func() {})
	if names := w.Names(Tenant); slices.Contains(names, "") || slices.Index(names, Other) != len(names)-1 {
		t.Errorf("tenants are %q", names)
	}
}

// full makes a History with as many subjects as there can be, all of whose values are random.
func full(path string) *world {
	w := newWorld(path)
	r := rand.New(rand.NewPCG(1, 2))
	for k := Provider; int(k) < kinds; k++ {
		for i := range 3 * candidates {
			w.meter.busy[k][fmt.Sprintf("%s%d.example", k, i)] = int64(i)
		}
	}
	w.run(4*time.Second, func() {})
	for k := range w.rings {
		for _, s := range w.rings[k] {
			for i := range s.spans {
				for step := range int64(Span(i).Values()) {
					at := s.spans[i].place(step, len(figuresOf[k]))
					for j := range at {
						at[j] = halfOf(r.ExpFloat64() * 1e6)
					}
				}
			}
		}
	}
	return w
}

// TestASaveAmidSteps: a save that began before the newest steps leaves out the values whose places these have taken.
func TestASaveAmidSteps(t *testing.T) {
	w := full("")
	s := w.rings[Site][w.Names(Site)[0]]
	const newer = 3
	n, all := Hours.Values(), w.octets(s, figuresOf[Site], Hours, w.heads[Hours]-newer)
	if len(all) != len(figuresOf[Site]) {
		t.Errorf("%d figures are known, want %d", len(all), len(figuresOf[Site]))
	}
	for name, octets := range all {
		gone, kept := octets[:2*newer], octets[2*newer:]
		if len(octets) != 2*n || !bytes.Equal(gone, bytes.Repeat([]byte{0xff}, 2*newer)) ||
			bytes.Contains(kept, []byte{0xff, 0xff}) {
			t.Errorf("%s: %d octets, which begin with % x", name, len(octets), octets[:8])
		}
	}
}

// TestMemoryIsBounded: whatever the relay has, a full history takes [MaxBytes] at most.
func TestMemoryIsBounded(t *testing.T) {
	use := func() uint64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := use()
	w := full("")
	w.meter.readings, w.meter.busy = newMeter().readings, newMeter().busy // those are not the history's
	after := use()
	n := 0
	for k := range w.rings {
		n += len(w.rings[k])
	}
	t.Logf("%d subjects take %.2f MiB", n, float64(after-before)/(1<<20))
	if after-before > MaxBytes {
		t.Errorf("%d subjects take %d octets, more than %d", n, after-before, MaxBytes)
	}
	if n != 1+41+81+51+51 {
		t.Errorf("%d subjects", n)
	}
	runtime.KeepAlive(w)
}

// TestPartsOfSpans: the parts of a ring are whole.
func TestPartsOfSpans(t *testing.T) {
	for i, sp := range spans {
		if sp.values%ringParts != 0 {
			t.Errorf("span %d: %d values", i, sp.values)
		}
	}
}

func TestHalf(t *testing.T) {
	for v := 1e-4; v < 1e14; v *= 1.01 {
		if got := halfOf(v).float(); math.Abs(got/v-1) > .0005 {
			t.Errorf("%v is %v", v, got)
		}
	}
	for v := range 2049 {
		if got := halfOf(float64(v)).float(); got != float64(v) {
			t.Errorf("%v is %v", v, got)
		}
	}
	for v, want := range map[float64]float64{1e-9: 0, -1: math.NaN(), math.NaN(): math.NaN(), 0: 0} {
		if got := halfOf(v).float(); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%v is %v, want %v", v, got, want)
		}
	}
	if got := halfOf(math.Inf(1)).float(); got < 1e14 || math.IsInf(got, 0) || math.IsNaN(got) {
		t.Errorf("infinity is %v", got)
	}
}

func TestTheFileOutlivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	w := newWorld(path)
	w.run(50*time.Minute, func() { w.meter.deliver("a", 20, time.Second) })
	if err := w.Save(); err != nil {
		t.Fatal(err)
	}
	w.open(path)
	want(t, "after a restart", w.values(t, Site, "a", Days, Delivered), 10, 10, 10, 10, 10)
	want(t, "the hours", w.values(t, Site, "a", Hours, Delivered), 10, 10, 10)
	want(t, "what is not kept", w.values(t, Site, "a", Minutes, Delivered), -1)
	w.now = w.now.Add(20 * time.Minute)
	w.meter.readings[Site]["a"], w.meter.readings[Relay][""] = new(Reading), new(Reading)
	w.run(4*time.Second, func() { w.meter.deliver("a", 40, time.Second) })
	want(t, "after half an hour", w.values(t, Site, "a", Days, Delivered), 10, 10, 10, 10, 10, -1, -1, 20)
	want(t, "in the hours", w.values(t, Site, "a", Hours, Delivered), -1, -1, 20)
	if names := w.Names(Site); !slices.Equal(names, []string{"a", Other}) || w.ranks[Site].busy["a"] < 20_000 {
		t.Errorf("sites are %v, with %v", names, w.ranks[Site].busy)
	}
	if w.log.Len() > 0 {
		t.Errorf("the log has %s", &w.log)
	}
}

// TestAFileThatCannotBeUsedIsSetAside: with a line in the log, whatever is wrong with it.
func TestAFileThatCannotBeUsedIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	w := newWorld(path)
	w.run(time.Minute, func() { w.meter.deliver("a", 20, time.Second) })
	if err := w.Save(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, test := range map[string]struct {
		file []byte
		why  string
	}{
		"empty":         {nil, "damaged"},
		"torn":          {whole[:len(whole)-10], "damaged"},
		"torn early":    {whole[:40], "damaged"},
		"one bit":       {flipped, "damaged"},
		"no gzip":       {[]byte("mta history\n"), "damaged"},
		"version":       {zipped(`{"format":"mta history","version":2}`), "unknown"},
		"a figure":      {zipped(header, `{"kind":"site","name":"a","figures":{"moods":"AAAA"}}`), "unknown"},
		"a kind":        {zipped(header, `{"kind":"planet","name":"a"}`), "unknown"},
		"no end":        {zipped(header, `{"kind":"site","name":"a"}`), "damaged"},
		"too few":       {zipped(header, `{"subjects":1}`), "damaged"},
		"after the end": {zipped(header, `{"subjects":0}`, `{}`), "damaged"},
		"no name":       {zipped(header, `{"kind":"site","name":""}`, `{"subjects":1}`), "damaged"},
		"another relay": {zipped(header, `{"kind":"relay","name":"b"}`, `{"subjects":1}`), "damaged"},
		"a short one":   {zipped(header, `{"kind":"site","name":"a","figures":{"queued":"AAAA"}}`, `{"subjects":1}`), "damaged"},
		"the future":    {zipped(`{"format":"mta history","version":1,"step":99999999999}`, `{"subjects":0}`), "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "history")
			if err := os.WriteFile(path, test.file, 0o600); err != nil {
				t.Fatal(err)
			}
			w := newWorld(path)
			if names := w.Names(Site); len(names) != 1 {
				t.Errorf("sites are %v", names)
			}
			want(t, "the relay", w.values(t, Relay, "", Days, Delivered), -1)
			aside, err := filepath.Glob(path + "." + test.why + "-*")
			if err != nil || len(aside) != 1 {
				t.Fatalf("set aside are %v, %v", aside, err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, test.file) {
				t.Errorf("what was set aside has %d octets, %v", len(kept), err)
			}
			if log := w.log.String(); !strings.Contains(log, "begins empty") || !strings.Contains(log, aside[0]) || !strings.Contains(log, "error=") {
				t.Errorf("the log has %s", log)
			}
			if err := w.Save(); err != nil {
				t.Error(err)
			}
			if w.open(path); strings.Count(w.log.String(), "\n") != 1 {
				t.Errorf("the new file is no better: %s", w.log.String())
			}
		})
	}
}

// TestAnyBitOfTheHistory: whatever bit of the file changes, its figures are what they were, or it is set aside as
// damaged, which is an alarm; never as that of another version.
func TestAnyBitOfTheHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	w := newWorld(path)
	w.run(time.Minute, func() { w.meter.deliver("a", 20, time.Second) })
	if err := w.Save(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	if err := w.encode(&plain); err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		if at > 150 && at%29 > 0 {
			continue
		}
		b := slices.Clone(whole)
		b[at] ^= 1 << (at % 8)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		w.open(path)
		var got bytes.Buffer
		if err := w.encode(&got); err != nil {
			t.Fatal(err)
		}
		aside, err := filepath.Glob(path + ".*")
		if err != nil || len(aside) > 0 && !strings.Contains(aside[0], ".damaged-") || len(aside) == 0 && !bytes.Equal(got.Bytes(), plain.Bytes()) {
			t.Fatalf("octet %d: set aside are %v, %v", at, aside, err)
		}
		for _, name := range aside {
			os.Remove(name)
		}
	}
}
