package mta

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/accounting"
)

// BenchmarkReports is the whole way of a report of 2.7 KB about a message that was delivered before: from 200 connections to
// the durable 250. Its client is in the same process. "recorded" is of refusals from which nothing follows; "suppressed"
// of unknown recipients, each another one.
func BenchmarkReports(b *testing.B) {
	for _, c := range []struct{ name, status, words string }{
		{"recorded", "5.7.1", "message content rejected as spam"}, {"suppressed", "5.1.1", "user unknown"},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkReports(b, c.status, c.words) })
	}
}

func benchmarkReports(b *testing.B, status, words string) {
	w := newWorld(b, sink.Config{}, "log { level = \"error\" }\nadmission { mode = \"off\" }\n"+strings.Replace(inboundConfig, "FORWARD", "", 1))
	const clients = 200
	n := (b.N + clients - 1) / clients
	body := "Subject: benchmark\r\n\r\n" + strings.Repeat(strings.Repeat("x", 78)+"\r\n", 5)
	each := func(f func(client int)) {
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() { f(c) })
		}
		all.Wait()
	}
	each(func(c int) {
		w.flights(b, 0, n, func(i int) (from, to, content string) {
			return "ann@client.example", fmt.Sprintf("r%d-%d@box.example", c, i), fmt.Sprintf("From: ann@client.example\r\nX-Mta-Test-Id: %d-%d\r\n%s", c, i, body)
		})
	})
	if b.Failed() {
		return
	}
	w.arrived(int64(n * clients))
	sent := w.delivered(b)
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	each(func(c int) {
		w.flights(b, 1, n, func(i int) (from, to, content string) {
			m := sent[c*n+i]
			r := lateBounce(string(m.Recipient), status, words)
			to = string(returnpath.Bounce) + w.token(returnpath.Bounce, &envelope.Message{ID: m.ID, Received: m.Created}, 0) + "@b.acme.example"
			return "", to, strings.Replace(r, "I could not deliver", strings.Repeat(strings.Repeat("y", 70)+"\r\n", 30)+"I could not deliver", 1)
		})
	})
	took := time.Since(began)
	b.StopTimer()
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	b.ReportMetric(float64(n*clients)/took.Seconds(), "reports/s")
	b.ReportMetric(float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano())/float64(n*clients)/1e3, "cpu-µs/report")
}

// delivered gives the records of all deliveries, once they are written.
func (w *world) delivered(b *testing.B) (all []*accounting.Record) {
	if err := w.accounting.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	q := accounting.Query{Types: []accounting.Type{accounting.Delivery}}
	err := w.accounting.Read(b.Context(), q, func(line []byte) error {
		r, err := accounting.Parse(line)
		all = append(all, r)
		return err
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return all
}
