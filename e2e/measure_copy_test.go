package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.org/mta/lab/bench"
)

// copying is a contender that may keep a copy of its queue in the database; and how many octets there were, of each run,
// for each that it accepted.
type copying struct {
	*contender
	sent, wal []float64 // sent to the database, and of its WAL
}

// TestMeasureCopy has a node that keeps a copy of its queue in the database and one that keeps none do the same work in
// turns. Relay, clients, sites and both databases, which sync, share a machine and its disk.
func TestMeasureCopy(t *testing.T) {
	besideOthers(t, fullSize())
	primary, standby := newPair(t, "fsync=on")
	hasRun(t, primary, standby)
	ca := filepath.Join(scratch(t), "ca")
	runClient(t, "", binary, "cluster", "ca", "init", ca)
	runClient(t, "", binary, "cluster", "ca", "issue", ca, "1")
	moved := func() (sent, wal float64) { return sentTo(t, primary), walOf(t, primary) }
	node := func(name string, s bench.Scenario, replicate bool) *copying {
		c := &copying{contender: &contender{name: name, scenario: s, small: 200}}
		c.start = func(t *testing.T, g *bench.Ground) bench.Server {
			primary.schema(t)
			r := measuredRelay(t, g, bench.RelayOptions{Limit: 20, Env: []string{"MTA_CLUSTER_DATABASE=" + both(primary, standby)},
				Config: takingAll + strings.Replace(membership(t, ca, 1), "cluster {", fmt.Sprintf("cluster {\nreplicate = %v", replicate), 1)})
			if fullSize() {
				sent, wal := moved()
				t.Cleanup(func() {
					octets := float64(s.Size-78) * float64(s.Messages) * scale(t) // contents are up to a line shorter
					nowSent, nowWAL := moved()
					c.sent, c.wal = append(c.sent, (nowSent-sent)/octets), append(c.wal, (nowWAL-wal)/octets)
				})
			}
			return r.Server()
		}
		return c
	}
	many := bench.DefaultScenario()
	many.Messages, many.Connections, many.Domains, many.Hosts = 40_000, 200, 10, 10
	one, stays := many, many
	one.Messages, one.Connections = 2000, 1
	stays.Messages, stays.Dead = 100_000, 1 // a tenth stays, so that segments are compacted
	var all []*contender
	nodes := []*copying{node("200 clients", many, false), node("200 clients, `replicate`", many, true),
		node("one client", one, false), node("one client, `replicate`", one, true),
		node("200 clients, `replicate`, one of ten sites silent", stays, true)}
	for _, n := range nodes {
		all = append(all, n.contender)
	}
	compete(t, all...)
	if !fullSize() {
		return
	}
	rows := [][]string{{"", "messages/s", "CPU s per 1,000", "accepted p50", "p99", "sent to the database per octet accepted", "its WAL"}}
	for _, n := range nodes {
		rows = append(rows, []string{n.name, number(n.median(endToEnd)), number(n.median(cpu)), duration(n.median(acceptP50)),
			duration(n.median(acceptP99)), number(median(n.sent)), number(median(n.wal))})
	}
	publish(t, "A copy of the queue in the database", markdown(rows), footnote(t))
}

// sentTo is how many octets clients have sent to a database over connections that are open.
func sentTo(t *testing.T, d *database) (octets float64) {
	t.Helper()
	out, err := exec.Command("ss", "-tinH", "dport = :"+d.port).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`bytes_sent:(\d+)`).FindAllSubmatch(out, -1) {
		n, _ := strconv.ParseFloat(string(found[1]), 64)
		octets += n
	}
	return octets
}

// walOf is how many octets of WAL a database has written.
func walOf(t *testing.T, d *database) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(d.ask(t, "SELECT pg_current_wal_lsn() - '0/0'"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
