package events_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/events"
	"example.org/mta/mta/events/sinks"
)

// reloads has how many reloads TestReloadsLeaveNothingBehind makes, 100 for a long run.
const reloads = "MTA_TEST_RELOADS"

// footprint is what a process takes.
type footprint struct{ goroutines, files, kib int }

func taken(t *testing.T) (f footprint) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return footprint{runtime.NumGoroutine(), len(open), int(m.HeapAlloc >> 10)}
}

// TestReloadsLeaveNothingBehind: 200 streams to web hooks, live, with settings that change at each reload. Goroutines,
// files and memory stay as they were after the first.
func TestReloadsLeaveNothingBehind(t *testing.T) {
	const streams = 200
	times := 10
	if n, _ := strconv.Atoi(os.Getenv(reloads)); n > 0 {
		times = n
	}
	var requests atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer hook.Close()
	dir := t.TempDir()
	w, err := accounting.Open(accounting.Config{Dir: filepath.Join(dir, "log"), NodeID: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s, err := events.Open(events.Config{Log: w, Path: filepath.Join(dir, "streams.db"), NodeID: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	var first footprint
	for i := range times {
		all := make([]events.Settings, streams)
		for j := range all {
			transport := sinks.NewTransport(nil, nil) // as a relay has one for each stream with an authority
			all[j] = events.Settings{
				Name: fmt.Sprintf("s%d", j), Batch: 10 + i%2, Lanes: 1, Linger: time.Millisecond, Hold: time.Hour, Format: "records",
				Filter: events.Filter{Tenants: []string{fmt.Sprintf("t%d", j)}},
				Open: func() (events.Sink, error) {
					return sinks.NewHook(sinks.HookOptions{URL: hook.URL, Format: events.Records{}, Timeout: time.Minute, Transport: transport}), nil
				},
			}
		}
		if err := s.Set(all); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			s.Start()
		}
		want := requests.Load() + streams
		for j := range streams {
			w.Add(&accounting.Record{Type: accounting.Delivery, Message: accounting.Message{ID: envelope.ID(1 + i*streams + j), Tenant: fmt.Sprintf("t%d", j)}, Recipient: "r@example.net", Time: time.Now()})
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); requests.Load() < want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("reload %d: %d requests, want %d", i, requests.Load(), want)
			}
		}
		if i == 2 {
			first = taken(t)
		}
	}
	// Connections of the last streams but one are on their way out.
	var last footprint
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		last = taken(t)
		flat := last.goroutines <= first.goroutines+100 && last.files <= first.files+100 && last.kib <= first.kib+first.kib/4+2048
		if flat || time.Now().After(deadline) {
			if !flat {
				t.Errorf("after %d reloads %+v, after three %+v", times, last, first)
			}
			break
		}
	}
	t.Logf("after three reloads %+v, after %d %+v", first, times, last)
}
