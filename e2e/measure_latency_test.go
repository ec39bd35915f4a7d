package e2e

import (
	"fmt"
	"testing"
	"time"

	"mta/internal/sink"
)

// TestMeasureOneSiteFarAway sends to one site whose replies come 50 ms late, over 20
// connections: the relay in its three modes, and Postfix, in turns.
func TestMeasureOneSiteFarAway(t *testing.T) {
	const connections = 20
	mode := func(name string) func(*testing.T, *ground) *mailer {
		return func(t *testing.T, g *ground) *mailer {
			return relayMailer(t, g, fmt.Sprintf("domain \"*\" {\n  connection_limit = %d\n  pipelining = %q\n}\n", connections, name))
		}
	}
	contenders := []*struct {
		name     string
		start    func(*testing.T, *ground) *mailer
		messages int
		fullOnly bool

		rate, steady, cpu []float64
	}{
		{name: "relay, CHUNKING", start: mode("auto"), messages: sized(50_000, 2000)},
		{name: "relay, PIPELINING alone", start: mode("pipelining"), messages: sized(9000, 200)},
		{name: "relay, lock-step", start: mode("lockstep"), messages: sized(2000, 30)},
		{name: "Postfix", start: postfixMailer, messages: sized(3000, 0), fullOnly: true},
	}
	for range sized(3, 1) {
		for _, c := range contenders {
			if c.fullOnly && !fullSize() {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				g := newGround(t, 1, func(int) sink.Config { return sink.Config{Latency: 50 * time.Millisecond} }, nil)
				m := c.start(t, g)
				l := &load{messages: c.messages, connections: 20, size: 2048,
					to: func(int) []string { return []string{"user@" + g.sites[0].domain} }}
				before := m.usage(t)
				l.submit(t, m.addr)
				all := g.arrived(t, l, 3*time.Minute)
				c.rate = append(c.rate, float64(len(all))/all[len(all)-1].At.Sub(l.began).Seconds())
				c.steady = append(c.steady, steadyRate(all))
				c.cpu = append(c.cpu, (m.usage(t)-before).Seconds()*1000/float64(len(all)))
			})
		}
	}
	if !fullSize() || t.Failed() {
		return
	}
	postfix := median(contenders[3].steady)
	rows := [][]string{{"", "v Postfix", "messages/s, steady", "with start and end", "CPU s per 1000", "messages", "each run"}}
	for _, c := range contenders {
		rows = append(rows, []string{c.name, fmt.Sprintf("%.1f", median(c.steady)/postfix), fmt.Sprintf("%.0f", median(c.steady)),
			fmt.Sprintf("%.0f", median(c.rate)), fmt.Sprintf("%.2f", median(c.cpu)), fmt.Sprint(c.messages), fmt.Sprintf("%.0f", c.steady)})
	}
	table(t, "One site, replies 50 ms late, 20 connections, 2 KB:", rows)
}
