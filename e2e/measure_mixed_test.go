package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"mta/internal/sink"
)

const mixedSites = 10

// mixedRecipients makes every sixth message one for 50 recipients, five at each of the sites,
// and the others messages for one.
func mixedRecipients(g *ground) func(n int) []string {
	return func(n int) []string {
		if n%6 != 0 {
			return []string{"single@" + g.sites[n%mixedSites].domain}
		}
		var to []string
		for i := range 50 {
			to = append(to, fmt.Sprintf("big%d@%s", i, g.sites[i%mixedSites].domain))
		}
		return to
	}
}

// TestMeasureSmallMailAmongBigEnvelopes has single messages and envelopes of 50 recipients go to
// ten sites: how late is a single message that goes with big ones?
func TestMeasureSmallMailAmongBigEnvelopes(t *testing.T) {
	relayStart := func(t *testing.T, g *ground) *mailer { return relayMailer(t, g, "") }
	contenders := []*struct {
		name     string
		start    func(*testing.T, *ground) *mailer
		rate     int // messages a second; 0: as fast as they are taken
		fullOnly bool

		p50, p99, worst, rcpts []float64
	}{
		{name: "relay", start: relayStart},
		{name: "relay, 500 messages/s", start: relayStart, rate: 500, fullOnly: true},
		{name: "Postfix", start: postfixMailer, fullOnly: true},
		{name: "Postfix, 100 messages/s", start: postfixMailer, rate: 100, fullOnly: true},
	}
	for range sized(3, 1) {
		for _, c := range contenders {
			if c.fullOnly && !fullSize() {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				g := newGround(t, mixedSites, func(int) sink.Config { return sink.Config{} }, nil)
				m := c.start(t, g)
				l := &load{messages: sized(6000, 600), connections: 20, size: 2048, rate: c.rate, to: mixedRecipients(g)}
				l.submit(t, m.addr)
				all := g.arrived(t, l, 5*time.Minute)
				delays := singleDelays(l, all)
				c.p50 = append(c.p50, quantile(delays, 0.5).Seconds()*1000)
				c.p99 = append(c.p99, quantile(delays, 0.99).Seconds()*1000)
				c.worst = append(c.worst, delays[len(delays)-1].Seconds()*1000)
				c.rcpts = append(c.rcpts, float64(len(all))/all[len(all)-1].At.Sub(l.began).Seconds())
			})
		}
	}
	if !fullSize() || t.Failed() {
		return
	}
	rows := [][]string{{"", "p99 v the relay's", "p50 ms", "p99 ms", "worst ms", "recipients/s", "p99 of each run"}}
	for _, c := range contenders {
		rows = append(rows, []string{c.name, fmt.Sprintf("%.1f", median(c.p99)/median(contenders[0].p99)), fmt.Sprintf("%.1f", median(c.p50)),
			fmt.Sprintf("%.0f", median(c.p99)), fmt.Sprintf("%.0f", median(c.worst)), fmt.Sprintf("%.0f", median(c.rcpts)), fmt.Sprintf("%.0f", c.p99)})
	}
	table(t, "1000 messages of 50 recipients among 5000 of one, ten sites: from the end of its content to the site, for mail to one:", rows)
}

// singleDelays is how long each message to one recipient took from the end of its content to
// its site, shortest first.
func singleDelays(l *load, all []sink.Delivery) []time.Duration {
	var out []time.Duration
	for _, d := range all {
		n, err := strconv.Atoi(d.ID)
		if err == nil && n%6 != 0 {
			out = append(out, d.At.Sub(l.done[n]))
		}
	}
	slices.Sort(out)
	return out
}
