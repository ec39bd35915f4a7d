package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"example.org/mta/lab/bench"
)

// TestMeasureThrottledBacklog has a million messages, or as many as MTA_MEASURE_BACKLOG says, wait for
// a site that takes one a second, and looks what the waiting costs.
func TestMeasureThrottledBacklog(t *testing.T) {
	besideOthers(t, fullSize())
	messages, watch := sized(t, 1_000_000, 2000), 2*time.Second
	if fullSize() {
		watch = 30 * time.Second
	}
	if s := os.Getenv("MTA_MEASURE_BACKLOG"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("MTA_MEASURE_BACKLOG=%s: want the number of messages", s)
		}
		messages = n
	}
	g := sites(t, &bench.Host{})
	r := measuredRelay(t, g, bench.RelayOptions{Config: "domain \"*\" {\n  max_message_rate = \"1/s\"\n}\n"})
	idle := megabytes(t, r.PID, "VmRSS")
	l := &bench.Load{Messages: messages, Connections: 64, Size: 1024,
		To: func(n int) []string { return []string{"user" + strconv.Itoa(n) + "@" + g.Domains[0].Name} }}
	submit(t, l, r.Address)
	filled := megabytes(t, r.PID, "VmHWM")
	<-time.After(2 * time.Second) // let what the filling left to do be done
	before, had, began := used(t, r.PID), g.Taken.Tally(), time.Now()
	<-time.After(watch)
	cpu, took, got := used(t, r.PID)-before, time.Since(began), g.Taken.Tally()
	delivered := got.Unique - had.Unique
	if delivered > int64(took.Seconds())+2 {
		t.Errorf("%d messages were delivered in %v, want one a second", delivered, took)
	}
	if err := allCome("deliveries", int(had.Unique)+1, func() int { return int(g.Taken.Tally().Unique) }); err != nil {
		t.Error(err) // a busy machine may have no time for one within the watch
	}
	if got.Duplicates() != 0 || got.Nameless != 0 {
		t.Errorf("%+v: want each message once", got)
	}
	if queued, err := r.Queued(t.Context()); err != nil || queued+g.Taken.Tally().Unique < int64(messages) {
		t.Errorf("%d recipients are queued and %d have their mail (%v), want %d together", queued, got.Unique, err, messages)
	}
	if !fullSize() {
		return
	}
	now := megabytes(t, r.PID, "VmRSS")
	publish(t, fmt.Sprintf("%d messages that wait for a site with 1/s", messages), markdown([][]string{
		{"CPU, % of a core", "memory MB", "most while filling", "before", "octets a message", "accepted/s", "delivered meanwhile"},
		{fmt.Sprintf("%.2f", 100*cpu.Seconds()/took.Seconds()), fmt.Sprintf("%.0f", now), fmt.Sprintf("%.0f", filled), fmt.Sprintf("%.0f", idle),
			fmt.Sprintf("%.0f", (now-idle)*(1<<20)/float64(messages)), fmt.Sprintf("%.0f", float64(messages)/l.Took.Seconds()), fmt.Sprintf("%d in %.0f s", delivered, took.Seconds())}}), footnote(t))
}

// used is the processor time that the process has had.
func used(t *testing.T, pid int) time.Duration {
	t.Helper()
	d, err := bench.ProcessorTime(pid)
	if err != nil {
		cannot(t, err.Error())
	}
	return d
}
