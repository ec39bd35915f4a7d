package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"mta/internal/sink"
)

// TestMeasureThrottledBacklog has 100,000 messages, or as many as MTA_MEASURE_BACKLOG says, wait
// for a site that takes one a second, and looks what the waiting costs.
func TestMeasureThrottledBacklog(t *testing.T) {
	messages, watch := sized(100_000, 2000), time.Duration(sized(30, 2))*time.Second
	if s := os.Getenv("MTA_MEASURE_BACKLOG"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("MTA_MEASURE_BACKLOG=%s: want the number of messages", s)
		}
		messages = n
	}
	g := newGround(t, 1, func(int) sink.Config { return sink.Config{} }, nil)
	m := relayMailer(t, g, "domain \"*\" {\n  max_message_rate = \"1/s\"\n}\n")
	idle := m.memory(t, "VmRSS")
	l := &load{messages: messages, connections: 64, size: 1024,
		to: func(n int) []string { return []string{fmt.Sprintf("user%d@%s", n, g.sites[0].domain)} }}
	l.submit(t, m.addr)
	filled := m.memory(t, "VmHWM")
	<-time.After(2 * time.Second) // let what the filling left to do be done
	before, had, began := m.usage(t), g.taken.Tally(), time.Now()
	<-time.After(watch)
	cpu, took, got := m.usage(t)-before, time.Since(began), g.taken.Tally()
	delivered := got.Unique - had.Unique
	if delivered == 0 || delivered > int64(took.Seconds())+2 {
		t.Errorf("%d messages were delivered in %v, want one a second", delivered, took)
	}
	if got.Duplicates() != 0 || got.Nameless != 0 {
		t.Errorf("%+v: want each message once", got)
	}
	if !fullSize() {
		return
	}
	table(t, "A backlog for a site with 1/s:", [][]string{
		{"messages", "CPU, % of a core", "memory MB", "most while filling", "before", "octets a message", "accepted/s", "delivered meanwhile"},
		{fmt.Sprint(messages), fmt.Sprintf("%.2f", 100*cpu.Seconds()/took.Seconds()), fmt.Sprintf("%.0f", m.memory(t, "VmRSS")), fmt.Sprintf("%.0f", filled),
			fmt.Sprintf("%.0f", idle), fmt.Sprintf("%.0f", (m.memory(t, "VmRSS")-idle)*(1<<20)/float64(messages)),
			fmt.Sprintf("%.0f", float64(messages)/l.took.Seconds()), fmt.Sprintf("%d in %.0f s", delivered, took.Seconds())}})
}
