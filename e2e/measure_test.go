package e2e

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"mta/internal/dnsserver"
	"mta/internal/sink"
)

// The files measure_*_test.go measure the relay as it is shipped: the binary, its journal synced,
// its log written, against sinks in this process, and Postfix doing the same work where that
// says something. With MTA_MEASURE=1 they run at full size and print their tables; without, each
// runs small, and only looks whether everything arrived once. Time never fails a test: the
// machine may be busy. docs/benchmarks.md has the figures and how to repeat them.

// fullSize says that the measurements are to measure, not only to be right.
func fullSize() bool { return os.Getenv("MTA_MEASURE") != "" }

// sized gives full or small as asked.
func sized(full, small int) int {
	if fullSize() {
		return full
	}
	return small
}

// onlyFullSize skips what has nothing to say when it is small.
func onlyFullSize(t *testing.T) {
	t.Helper()
	if !fullSize() {
		t.Skip("runs with MTA_MEASURE=1 only")
	}
}

// ground is the far side of a measurement: sites with a sink each, and a name server.
type ground struct {
	dns, port string
	sites     []*site
	taken     *sink.Recorder // by all of them
}

// site is a domain with one host.
type site struct {
	domain, addr string
	sink         *sink.Server // nil when something else listens there
}

// occupy makes something other than a sink listen for a site.
type occupy func(t *testing.T, addr string)

// newGround starts n sites. what gives the sink of each; its Recorder is set when it has none.
// Where other gives something, that listens instead of a sink.
func newGround(t *testing.T, n int, what func(i int) sink.Config, other func(i int) occupy) *ground {
	t.Helper()
	g := &ground{taken: sink.NewRecorder(sink.Deliveries, 4_000_000)}
	var addrs []string
	var zone strings.Builder
	for i := range n {
		s := &site{domain: fmt.Sprintf("site%d.example", i), addr: fmt.Sprintf("127.40.%d.%d", i/200, i%200+1)}
		fmt.Fprintf(&zone, "%[1]s. 600 IN MX 10 mx.%[1]s.\nmx.%[1]s. 600 IN A %[2]s\n", s.domain, s.addr)
		g.sites, addrs = append(g.sites, s), append(addrs, s.addr)
	}
	g.port = commonPort(t, addrs...)
	for i, s := range g.sites {
		if other != nil && other(i) != nil {
			other(i)(t, net.JoinHostPort(s.addr, g.port))
			continue
		}
		s.sink = g.serve(t, s, what(i))
	}
	d := dnsserver.New(dnsserver.MustZone(zone.String()))
	addr, err := d.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	g.dns = addr.String()
	return g
}

func (g *ground) serve(t *testing.T, s *site, cfg sink.Config) *sink.Server {
	t.Helper()
	if cfg.Recorder == nil {
		cfg.Recorder = g.taken
	}
	cfg.Hostname = "mx." + s.domain
	l, err := net.Listen("tcp", net.JoinHostPort(s.addr, g.port))
	if err != nil {
		t.Fatal(err)
	}
	server := sink.New(cfg)
	go server.Serve(l)
	t.Cleanup(server.Close)
	return server
}

// mailer is who takes the mail and delivers it: the relay, or Postfix.
type mailer struct {
	addr string
	*process
}

// relayMailer runs the relay with further lines of configuration.
func relayMailer(t *testing.T, g *ground, extra string) *mailer {
	t.Helper()
	r := newRelay(t, g.dns, g.port, extra)
	r.start(t)
	return &mailer{r.addr, r.process}
}

// postfixTuning is what Postfix's TUNING_README and QSHAPE_README advise for bulk mail to few
// destinations, and the same number of connections as the relay has.
const postfixTuning = `default_process_limit = 200
in_flow_delay = 0
initial_destination_concurrency = 20
smtp_destination_concurrency_limit = 20
smtp_destination_concurrency_failed_cohort_limit = 10
smtp_connection_cache_on_demand = yes
smtp_connection_reuse_time_limit = 300s
smtp_tls_security_level = none
smtpd_tls_security_level = none
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
virtual_mailbox_domains =
`

// postfixMailer runs a tuned Postfix that finds the sites by a transport table, without DNS.
func postfixMailer(t *testing.T, g *ground) *mailer {
	t.Helper()
	var table []string
	for _, s := range g.sites {
		table = append(table, fmt.Sprintf("%s=smtp:[%s]:%s", s.domain, s.addr, g.port))
	}
	port := commonPort(t, "127.0.0.1")
	_, p := postfixWith(t, "127.0.0.1", port, postfixTuning+"transport_maps = inline:{ "+strings.Join(table, ", ")+" }\n")
	return &mailer{"127.0.0.1:" + port, p}
}

// usage is the processor time that a process group has had, those of its members that ended
// included.
func (m *mailer) usage(t *testing.T) time.Duration {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		cannot(t, "there is no /proc to read processor time from")
	}
	group, ticks := strconv.Itoa(m.cmd.Process.Pid), 0
	for _, d := range dirs {
		b, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue // no process, or it has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest) // proc(5): f[0] is the third field, state
		if len(f) < 15 || f[2] != group {
			continue
		}
		for _, v := range f[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(v)
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 on every Linux
}

// memory gives a line of /proc/PID/status in MB: VmRSS is now, VmHWM the most.
func (m *mailer) memory(t *testing.T, which string) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, which+":"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024
		}
	}
	t.Fatalf("/proc/PID/status has no %s", which)
	return 0
}

// table prints rows with aligned columns, and under what circumstances they came about.
func table(t *testing.T, title string, rows [][]string) {
	t.Helper()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	w.Flush()
	t.Logf("%s\n%s(%s, %s, load average %s)", title, b.String(), processor(), runtime.Version(), loadAverage())
}

func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return fmt.Sprintf("%d x %s", runtime.NumCPU(), strings.TrimSpace(model))
		}
	}
	return fmt.Sprintf("%d processors", runtime.NumCPU())
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// median is of an odd number of values, or the higher of the middle two.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// quantile gives the value below which the share q of the sorted ones lie.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
