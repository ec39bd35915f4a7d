package bench

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"example.org/mta/internal/legible"
)

// Report is what a measurement has found. Rates are a second; times are in seconds.
type Report struct {
	Server   string   `json:"server"`
	Scenario Scenario `json:"scenario"`
	Machine  Machine  `json:"machine"`

	Accepted   int   `json:"accepted"`   // messages
	Delivered  int64 `json:"delivered"`  // to recipients, copies not counted
	Recipients int64 `json:"recipients"` // that the messages have, at domains that live

	// From the first command of the generator to the end of the last content at its site; and, without
	// the start, when connections are made, and the end, when they run dry, between the first fifth and
	// the last tenth of the deliveries.
	MessagesPerSecond         float64 `json:"messages_per_second"`
	SteadyMessagesPerSecond   float64 `json:"steady_messages_per_second"`
	RecipientsPerSecond       float64 `json:"recipients_per_second"`
	SteadyRecipientsPerSecond float64 `json:"steady_recipients_per_second"`

	Acceptance Spread  `json:"acceptance"`      // from the end of the content to its 250, at the generator
	Delivery   Spread  `json:"delivery"`        // from the end of the content at the generator to its end at the site
	Small      *Spread `json:"small,omitempty"` // the same for messages to one recipient, where others have many

	// of the server, for 1,000 accepted messages; 0 is not known
	CPUPerThousand  float64 `json:"cpu_seconds_per_1000"`
	OwnPerThousand  float64 `json:"own_cpu_seconds_per_1000"`    // of this program, load and sites
	PeakMemory      int64   `json:"peak_memory"`                 // octets; 0 is not known
	SyncsPerMessage float64 `json:"syncs_per_message,omitempty"` // 0 is not known

	Account
}

// Spread is how a time was distributed, in seconds.
type Spread struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

func (m *measurement) report(before, after reading) (*Report, error) {
	var doubts map[string]int
	if m.server.Doubts != nil {
		var err error
		if doubts, err = m.server.Doubts(); err != nil {
			return nil, err
		}
	}
	r := &Report{Server: m.server.Name, Scenario: m.scenario, Machine: ThisMachine(),
		Accepted: m.load.Accepted(), Recipients: m.expected, Account: *Settle(m.load, m.ground, doubts)}
	if r.Scenario.Dead == 0 {
		r.Scenario.Death = "" // of nobody
	}
	r.Delivered = int64(len(r.firsts))
	r.rates()
	r.delays(m.load, m.scenario.mixed())
	thousands := float64(r.Accepted) / 1000
	if thousands > 0 {
		r.CPUPerThousand = (after.cpu - before.cpu).Seconds() / thousands
		r.OwnPerThousand = (after.own - before.own).Seconds() / thousands
		r.SyncsPerMessage = float64(after.syncs-before.syncs) / float64(r.Accepted)
	}
	return r, nil
}

// rates are those of the deliveries; where dead hosts are among the living, of these only.
func (r *Report) rates() {
	if len(r.firsts) == 0 {
		return
	}
	slices.SortFunc(r.firsts, func(a, b arrival) int { return int(a.at - b.at) })
	messages := make(map[int]bool, r.Accepted)
	for _, f := range r.firsts {
		messages[f.message] = true
	}
	share := float64(len(messages)) / float64(len(r.firsts))
	r.RecipientsPerSecond = perSecond(len(r.firsts), r.firsts[len(r.firsts)-1].at)
	from, to := len(r.firsts)/5, (len(r.firsts)-1)*9/10
	r.SteadyRecipientsPerSecond = perSecond(to-from, r.firsts[to].at-r.firsts[from].at)
	r.MessagesPerSecond, r.SteadyMessagesPerSecond = share*r.RecipientsPerSecond, share*r.SteadyRecipientsPerSecond
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func (r *Report) delays(l *Load, mixed bool) {
	var acceptance, all, small []time.Duration
	for n, heard := range l.Heard {
		if heard > 0 {
			acceptance = append(acceptance, heard-l.Sent[n])
		}
	}
	for _, f := range r.firsts {
		d := f.at - l.Sent[f.message]
		all = append(all, d)
		if f.alone {
			small = append(small, d)
		}
	}
	r.Acceptance, r.Delivery = spread(acceptance), spread(all)
	if mixed {
		s := spread(small)
		r.Small = &s
	}
}

// spread sorts d.
func spread(d []time.Duration) Spread {
	if len(d) == 0 {
		return Spread{}
	}
	slices.Sort(d)
	at := func(q float64) float64 { return d[min(len(d)-1, int(q*float64(len(d))))].Seconds() }
	return Spread{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: d[len(d)-1].Seconds()}
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	line := func(title, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s %s\n", title, fmt.Sprintf(format, args...))
	}
	line("server", "%s", r.Server)
	line("load", "%s", r.Scenario.submitted())
	line("sites", "%s", r.Scenario.sites())
	line("machine", "%s", r.Machine)
	line("rate", "%.0f messages/s end to end, %.0f steady", r.MessagesPerSecond, r.SteadyMessagesPerSecond)
	if r.Scenario.Recipients > 1 {
		line("", "%.0f recipients/s end to end, %.0f steady", r.RecipientsPerSecond, r.SteadyRecipientsPerSecond)
	}
	line("acceptance", "%s", r.Acceptance)
	line("delivery", "%s", r.Delivery)
	if r.Small != nil {
		line("", "%s for messages to one recipient", r.Small)
	}
	line("processor", "%s", known(r.CPUPerThousand > 0, "%.3f s per 1,000 messages", r.CPUPerThousand))
	line("", "%.3f s more for load and sites", r.OwnPerThousand)
	line("memory", "%s", known(r.PeakMemory > 0, "%.0f MB at most", float64(r.PeakMemory)/(1<<20)))
	line("syncs", "%s", known(r.SyncsPerMessage > 0, "%.3f per message", r.SyncsPerMessage))
	line("account", "%d messages accepted, %d of %d deliveries made", r.Accepted, r.Delivered, r.Recipients)
	line("", "%s", &r.Account)
	_, err := io.WriteString(w, b.String())
	return err
}

func known(is bool, format string, value any) string {
	if !is {
		return "not known"
	}
	return fmt.Sprintf(format, value)
}

// String is what is right or wrong, in a line.
func (a *Account) String() string {
	s := "right: each recipient had each message once"
	if !a.Right() {
		s = fmt.Sprintf("WRONG: %d lost, %d duplicated, %d strange", a.Lost, a.Duplicated, a.Strange)
	}
	if a.Ambiguous > 0 {
		s += fmt.Sprintf("; %d further copies, logged as possible", a.Ambiguous)
	}
	if a.Unsure > 0 {
		s += fmt.Sprintf("; %d in doubt at the generator", a.Unsure)
	}
	if a.Later > 0 {
		s += fmt.Sprintf("; %d times the generator had to try again", a.Later)
	}
	return s
}

// String is the spread in a line.
func (s Spread) String() string {
	return fmt.Sprintf("p50 %s  p99 %s  p99.9 %s  max %s", seconds(s.P50), seconds(s.P99),
		seconds(s.P999), seconds(s.Max))
}

// seconds writes a time with three digits.
func seconds(v float64) string {
	switch {
	case v < 0.01:
		return fmt.Sprintf("%.2f ms", v*1000)
	case v < 1:
		return fmt.Sprintf("%.0f ms", v*1000)
	}
	return fmt.Sprintf("%.1f s", v)
}

func (s *Scenario) submitted() string {
	t := fmt.Sprintf("%d messages of %d octets over %d connections", s.Messages, s.Size, s.Connections)
	switch {
	case s.mixed():
		t += fmt.Sprintf(", 1 of %d to %d recipients", s.BigEvery, s.Recipients)
	case s.Recipients > 1:
		t += fmt.Sprintf(", each to %d recipients", s.Recipients)
	}
	if s.Rate > 0 {
		t += fmt.Sprintf(", %d/s", s.Rate)
	}
	return t
}

func plural(n int, noun string) string { return legible.Count(n, noun) }

func (s *Scenario) sites() string {
	parts := []string{plural(s.Domains, "domain") + " on " + plural(s.Hosts, "host")}
	add := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(s.Dead > 0, "%d of them %s", s.Dead, s.Death)
	add(s.Latency > 0, "replies %v late", s.Latency)
	add(s.Jitter > 0, "up to %v more", s.Jitter)
	add(s.NoPipelining, "no PIPELINING")
	add(s.NoChunking, "no CHUNKING")
	add(s.Temporary > 0, "%g of messages deferred with 451", s.Temporary)
	add(s.Drop > 0, "connections are cut with %g at each step", s.Drop)
	add(s.HostConnections > 0, "%d connections to a host", s.HostConnections)
	add(s.HostMessages > 0, "%d messages on a connection", s.HostMessages)
	return strings.Join(parts, ", ")
}

// Machine is what a measurement was made on, without which its figures say little.
type Machine struct {
	Processors int    `json:"processors"`
	Model      string `json:"model"`
	Memory     int64  `json:"memory"` // octets
	System     string `json:"system"`
	Go         string `json:"go"`   // of this program
	Load       string `json:"load"` // average of 1, 5 and 15 minutes, this measurement included
}

// ThisMachine describes the machine that this runs on; "unknown" is what can't be found out.
func ThisMachine() Machine {
	m := Machine{Processors: runtime.NumCPU(), Model: "unknown processor", System: runtime.GOOS, Go: runtime.Version(),
		Load: "unknown"}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.Model = strings.TrimSpace(model)
				break
			}
		}
	}
	if n, err := kilobytes("/proc/meminfo", "MemTotal"); err == nil {
		m.Memory = n
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.System = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	return m
}

// String is the machine in a line.
func (m Machine) String() string {
	return fmt.Sprintf("%d x %s, %d GB, %s, %s, load average %s", m.Processors, m.Model, m.Memory>>30,
		m.System, m.Go, m.Load)
}
