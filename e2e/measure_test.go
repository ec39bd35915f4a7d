package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"example.org/mta/lab/bench"
)

// The files measure_*_test.go measure the relay as it is shipped: the binary, its journal synced,
// its log written, against sites in this process (package lab/bench), and Postfix doing the same
// work where that says something. With MTA_MEASURE=1 they run at full size and print their tables
// in Markdown; without, each runs small, and only looks whether everything arrived once. Time never
// fails a test: the machine may be busy. docs/benchmarks.md has the figures and how to repeat them:
// 'make bench' and 'make measure'.
//
// MTA_SCALE=0.1 makes the full sizes smaller, to look whether all goes well. MTA_RUNS=1 is instead
// of three runs, of which the tables have the medians. MTA_MEASURE_OUT names a file that the tables
// are appended to, instead of being logged.

// fullSize reports that the measurements are to measure, not only to be right.
func fullSize() bool { return os.Getenv("MTA_MEASURE") != "" }

// besideOthers lets a measurement run beside other tests, unless its times are wanted.
func besideOthers(t *testing.T, wanted bool) {
	if !wanted {
		parallel(t)
	}
}

// sized gives full or small as asked.
func sized(t *testing.T, full, small int) int {
	t.Helper()
	if fullSize() {
		return max(small, int(float64(full)*scale(t)))
	}
	return small
}

// scale is what full sizes are multiplied by.
func scale(t *testing.T) float64 {
	t.Helper()
	s := os.Getenv("MTA_SCALE")
	if s == "" {
		return 1
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || v <= 0 {
		t.Fatalf("MTA_SCALE=%s: want a number above 0", s)
	}
	return v
}

// runs is how often each measurement is taken.
func runs(t *testing.T) int {
	t.Helper()
	s := os.Getenv("MTA_RUNS")
	switch {
	case !fullSize():
		return 1
	case s == "":
		return 3
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("MTA_RUNS=%s: want a number above 0", s)
	}
	return n
}

// sites opens domains with a host each.
func sites(t *testing.T, hosts ...*bench.Host) *bench.Ground {
	t.Helper()
	var domains []*bench.Domain
	for i, h := range hosts {
		domains = append(domains, &bench.Domain{Name: fmt.Sprintf("site%d.example", i), Hosts: []*bench.Host{h}})
	}
	g, err := bench.OpenGround(bench.GroundOptions{}, domains...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// measuredRelay runs the binary, or the one that o names, until the test's end, to deliver to g.
func measuredRelay(t *testing.T, g *bench.Ground, o bench.RelayOptions) *bench.Relay {
	t.Helper()
	if o.Dir = scratch(t); o.Binary == "" {
		o.Binary = binary
	}
	r, err := bench.StartRelay(t.Context(), o, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the last that the relay said:\n%s", tail(r.Dir+"/relay.log"))
		}
	})
	return r
}

// submit runs a load, and fails the test when a message is not taken.
func submit(t *testing.T, l *bench.Load, addr string) {
	t.Helper()
	if err := l.Run(t.Context(), addr); err != nil {
		t.Fatalf("submitting: %v", err)
	}
	if l.Accepted() != l.Messages {
		t.Fatalf("%d of %d messages are accepted", l.Accepted(), l.Messages)
	}
}

// megabytes gives a line of /proc/PID/status: VmRSS is now, VmHWM the most.
func megabytes(t *testing.T, pid int, which string) float64 {
	t.Helper()
	n, err := bench.Memory(pid, which)
	if err != nil {
		cannot(t, err.Error())
	}
	return float64(n) / (1 << 20)
}

// publish appends a part of a page to the file of MTA_MEASURE_OUT, or logs it.
func publish(t *testing.T, title string, parts ...string) {
	t.Helper()
	text := "## " + title + "\n\n" + strings.Join(parts, "\n")
	path := os.Getenv("MTA_MEASURE_OUT")
	if path == "" {
		t.Logf("\n%s", text)
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(text + "\n"); err != nil {
		t.Error(err)
	}
}

// onceForAll is done when a footnote has named the machine.
var onceForAll sync.Once

// footnote returns what the figures above it were taken with; the first one names the machine and sizes, for all.
func footnote(t *testing.T) string {
	m := bench.ThisMachine()
	note := fmt.Sprintf("Load average at the end %s.", m.Load)
	onceForAll.Do(func() {
		note += fmt.Sprintf(" This table and those below: %d x %s, %s; %g of the full size, %d runs.",
			m.Processors, m.Model, m.Go, scale(t), runs(t))
	})
	return note + "\n"
}

// markdown is a table whose first row is its head.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, r := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("| --- ", len(r)) + "|\n")
		}
	}
	return b.String()
}

// circumstances is a table of what figures were taken with.
func circumstances(t *testing.T) string {
	m := bench.ThisMachine()
	version := func(argv ...string) string {
		path, err := find(argv[0])
		if err != nil {
			return "none"
		}
		out, err := exec.Command(path, argv[1:]...).Output()
		if err != nil {
			return "unknown"
		}
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return first
	}
	return markdown([][]string{
		{"", ""},
		{"machine", fmt.Sprintf("%d x %s, %d GB, %s", m.Processors, m.Model, m.Memory>>30, m.System)},
		{"load average before", m.Load},
		{"relay", "commit " + version("git", "rev-parse", "--short", "HEAD") + ", " + m.Go},
		{"Postfix", version("postconf", "-d", "-h", "mail_version")},
		{"sizes", fmt.Sprintf("%g of the full ones, medians of %d runs", scale(t), runs(t))},
	})
}

// number writes a figure with three digits that say something.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v), math.IsInf(v, 0):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// duration writes seconds.
func duration(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v < 1:
		return number(v*1000) + " ms"
	}
	return number(v) + " s"
}

// median is of an odd number of values, or the higher of the middle two; of none it is no number.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
