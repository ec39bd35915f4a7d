package events_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/events"
	"example.org/mta/mta/events/sinks"
)

// benchHook is the address of a hook in another process, so that its work does not count.
const benchHook = "MTA_BENCH_HOOK"

// cpu is what the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// track is a log with streams to a hook.
type track struct {
	w       *accounting.Writer
	streams *events.Streams
	n       int
}

func newTrack(b *testing.B, hook string, settings []events.Settings) *track {
	dir := b.TempDir()
	log := filepath.Join(dir, "log")
	w, err := accounting.Open(accounting.Config{Dir: log, NodeID: "mta1.example.com"})
	if err != nil {
		b.Fatal(err)
	}
	s, err := events.Open(events.Config{Log: w, Path: filepath.Join(dir, "streams.db"), NodeID: "mta1.example.com"})
	if err != nil {
		b.Fatal(err)
	}
	transport := sinks.NewTransport(nil, nil)
	for i := range settings {
		set := &settings[i]
		set.Lanes, set.Linger, set.Hold, set.Format = max(1, set.Lanes), time.Second, time.Hour, "records"
		if set.Batch == 0 {
			set.Batch = 1000
		}
		set.Open = func() (events.Sink, error) {
			return sinks.NewHook(sinks.HookOptions{URL: hook, Format: events.Records{}, Gzip: true, Timeout: 30 * time.Second, Transport: transport}), nil
		}
	}
	if err := s.Set(settings); err != nil {
		b.Fatal(err)
	}
	s.Start()
	b.Cleanup(func() {
		_ = s.Close(context.Background())
		_ = w.Close()
	})
	return &track{w: w, streams: s}
}

// add writes n records, as many a second as rate, of tenants by turns.
func (t *track) add(n, rate, tenants int) {
	began := time.Now()
	for i := range n {
		tenant := ""
		if tenants > 0 {
			tenant = fmt.Sprintf("tenant%d", t.n%tenants)
		}
		t.w.Add(&accounting.Record{
			Type: accounting.Delivery, Message: accounting.Message{ID: envelope.ID(1<<40 + t.n/2), Sender: "bounces@example.com", Size: 2117, Tenant: tenant, Created: time.Now()}, Recipient: envelope.Address(fmt.Sprintf("user%d@site.example", t.n)),
			Queue: "site.example", Attempt: accounting.Attempt{Site: "site.example", DeliveryProtocol: "ESMTP", Queued: 1234 * time.Microsecond}, Time: time.Now(), Session: fmt.Sprintf("1m82fn%06d", t.n),
			Response: reply.Reply{Code: 250, Enhanced: reply.Enhanced{2, 0, 0}, Text: fmt.Sprintf("queued as %d", t.n)},
		})
		t.n++
		if i%100 == 99 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
	}
	_ = t.w.Flush(context.Background())
}

// settled waits until nothing waits. It looks seldom, since a look at a thousand streams costs something.
func (t *track) settled() {
	for ; ; time.Sleep(50 * time.Millisecond) {
		waiting := int64(0)
		for _, s := range t.streams.List() {
			waiting += s.LagEvents + s.LagBytes
		}
		if waiting == 0 {
			return
		}
	}
}

// relayGC has the collector work as often as in a relay, whose heap is larger (cmd/mta/serve.go).
const relayGC = 320

// BenchmarkHead prints the processor's time for each event, at 20,000 events a second: of the log alone, and with
// streams at its head. MTA_BENCH_HOOK names a hook in another process.
func BenchmarkHead(b *testing.B) {
	hook := os.Getenv(benchHook)
	if hook == "" {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }))
		defer h.Close()
		hook = h.URL
	}
	defer debug.SetGCPercent(debug.SetGCPercent(relayGC))
	const rate, seconds, tenants = 20_000, 5, 1000
	for _, c := range []struct {
		name    string
		streams int
		tenants bool
	}{{"none", 0, false}, {"one", 1, false}, {"ten", 10, false}, {"thousand", tenants, true}} {
		b.Run(c.name, func(b *testing.B) {
			settings := make([]events.Settings, c.streams)
			for i := range settings {
				if settings[i].Name = fmt.Sprintf("s%d", i); c.tenants {
					settings[i].Filter.Tenants = []string{fmt.Sprintf("tenant%d", i)}
				}
			}
			t := newTrack(b, hook, settings)
			t.add(2*rate, rate, tenants) // the streams connect, and their turns part
			t.settled()
			before, from := cpu(), t.n
			for b.Loop() {
				t.add(rate*seconds, rate, tenants)
				t.settled()
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(t.n-from), "cpu-us/event")
		})
	}
}

// BenchmarkCatchUp prints how many events a second a hook takes that answers after 50 ms, from a backlog, while 10,000
// new ones a second come; and the memory for it.
func BenchmarkCatchUp(b *testing.B) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(50 * time.Millisecond)
		w.WriteHeader(204)
	}))
	defer h.Close()
	for _, lanes := range []int{1, 4} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			t := newTrack(b, h.URL, []events.Settings{{Name: "app", Lanes: lanes}})
			for b.Loop() {
				if err := t.streams.Pause("app"); err != nil {
					b.Fatal(err)
				}
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				before := m.HeapAlloc
				t.add(200_000, 1_000_000, 0)
				runtime.GC()
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(int64(m.HeapAlloc)-int64(before))/(1<<20), "MiB-away")
				if err := t.streams.Resume("app"); err != nil {
					b.Fatal(err)
				}
				began, from := time.Now(), t.streams.List()[0].Delivered
				t.add(60_000, 10_000, 0)
				b.ReportMetric(float64(t.streams.List()[0].Delivered-from)/time.Since(began).Seconds(), "events/s")
			}
		})
	}
}
