package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/mta/lab/bench"
)

// contender is a server at a piece of work, and what was measured of it.
type contender struct {
	name     string
	start    func(*testing.T, *bench.Ground) bench.Server
	scenario bench.Scenario
	small    int  // messages when it is only to be right
	fullOnly bool // not run then

	reports []*bench.Report
}

// relayDefault has what 'mta bench' gives it: the defaults, and 20 connections to a site.
func relayDefault(t *testing.T, g *bench.Ground) bench.Server {
	return measuredRelay(t, g, bench.RelayOptions{Limit: 20}).Server()
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
smtpd_peername_lookup = no
smtpd_client_connection_count_limit = 0
virtual_mailbox_domains =
`

// postfixTuned runs a Postfix that finds the sites by a transport table, without DNS.
func postfixTuned(t *testing.T, g *bench.Ground) bench.Server {
	t.Helper()
	var table []string
	for _, line := range g.Transports() {
		table = append(table, strings.Replace(line, " ", "=", 1))
	}
	port := quietPort(t)
	_, p := postfixWith(t, "127.0.0.1", port, postfixTuning+postfixTLS(t, g)+"transport_maps = inline:{ "+strings.Join(table, ", ")+" }\n")
	return bench.Server{Name: "Postfix", Address: "127.0.0.1:" + port, PID: p.cmd.Process.Pid}
}

// postfixTLS has the settings for TLS, as TLS_README advises them: sessions and connections are used
// again. What a host refuses because its connection has had enough messages is tried again after a second,
// as the relay does.
func postfixTLS(t *testing.T, g *bench.Ground) string {
	t.Helper()
	if g.TLS == nil {
		return "smtp_tls_security_level = none\nsmtpd_tls_security_level = none\n"
	}
	dir := scratch(t)
	if err := bench.WriteCertificate(g.TLS, dir); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`smtpd_tls_security_level = may
smtpd_tls_cert_file = %[1]s/certificate.pem
smtpd_tls_key_file = %[1]s/key.pem
smtp_tls_security_level = encrypt
smtp_tls_connection_reuse = yes
smtp_tls_session_cache_database = btree:$data_directory/smtp_scache
queue_run_delay = 1s
minimal_backoff_time = 1s
maximal_backoff_time = 2s
`, dir)
}

// quietPort finds a free port of 127.0.0.1 below those that systems give to outgoing connections and
// to whoever asks for any port (from 32768 on Linux): between this look and Postfix's own it is not
// taken by one of the thousands that come and go meanwhile.
func quietPort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20_000 + rand.IntN(10_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("found no free port from 20000 to 29999")
	return ""
}

// compete has the contenders work in turns, as often as measurements are taken, another one first
// each time. Each run has a server of its own with an empty queue, and sites of its own.
func compete(t *testing.T, all ...*contender) {
	t.Helper()
	for run := range runs(t) {
		for i := range all {
			c := all[(i+run)%len(all)]
			if c.fullOnly && !fullSize() {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, run+1), func(t *testing.T) { c.work(t) })
		}
	}
}

// work takes one measurement. It fails the test when a message came twice or not at all; figures of
// such a run are not kept.
func (c *contender) work(t *testing.T) {
	s := c.scenario.Scaled(scale(t))
	s.Patience = 20 * time.Second
	if !fullSize() {
		s.Messages = c.small
	}
	g, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if fullSize() {
		syscall.Sync() // what the server before has left to be written is not to keep this one's syncs waiting
	}
	r, err := bench.Measure(t.Context(), s, g, c.start(t, g), nil)
	switch {
	case err != nil:
		t.Errorf("%v; %+v", err, r)
	case !r.Right():
		t.Error(&r.Account)
	default:
		if err := r.Write(t.Output()); err != nil {
			t.Error(err)
		}
		c.reports = append(c.reports, r)
	}
}

// of gives a figure of each run.
func (c *contender) of(what func(*bench.Report) float64) (all []float64) {
	for _, r := range c.reports {
		all = append(all, what(r))
	}
	return all
}

func (c *contender) median(what func(*bench.Report) float64) float64 { return median(c.of(what)) }

func (c *contender) each(what func(*bench.Report) float64) string {
	var all []string
	for _, v := range c.of(what) {
		all = append(all, number(v))
	}
	return strings.Join(all, " ")
}

// What the tables have of a report.
func endToEnd(r *bench.Report) float64   { return r.MessagesPerSecond }
func steady(r *bench.Report) float64     { return r.SteadyMessagesPerSecond }
func recipients(r *bench.Report) float64 { return r.RecipientsPerSecond }
func cpu(r *bench.Report) float64        { return r.CPUPerThousand }
func acceptP50(r *bench.Report) float64  { return r.Acceptance.P50 }
func acceptP99(r *bench.Report) float64  { return r.Acceptance.P99 }
func deliverP50(r *bench.Report) float64 { return r.Delivery.P50 }
func deliverP99(r *bench.Report) float64 { return r.Delivery.P99 }
func memory(r *bench.Report) float64     { return float64(r.PeakMemory) / (1 << 20) }

// small is of the messages to one recipient.
func smallP50(r *bench.Report) float64   { return r.Small.P50 }
func smallP99(r *bench.Report) float64   { return r.Small.P99 }
func smallWorst(r *bench.Report) float64 { return r.Small.Max }

// raw is a table of the figures in the reports, a row for each contender.
func raw(all ...*contender) string {
	rows := [][]string{{"", "messages", "messages/s", "steady", "CPU s per 1,000", "accepted p50, ms", "p99", "delivered p50, ms", "p99", "memory MB"}}
	for _, c := range all {
		if len(c.reports) == 0 {
			rows = append(rows, append([]string{c.name, "not measured"}, slices.Repeat([]string{""}, len(rows[0])-2)...))
			continue
		}
		ms := func(of func(*bench.Report) float64) string { return number(1000 * c.median(of)) }
		rows = append(rows, []string{c.name, fmt.Sprint(c.reports[0].Scenario.Messages), number(c.median(endToEnd)), number(c.median(steady)), number(c.median(cpu)),
			ms(acceptP50), ms(acceptP99), ms(deliverP50), ms(deliverP99), number(c.median(memory))})
	}
	return markdown(rows)
}
