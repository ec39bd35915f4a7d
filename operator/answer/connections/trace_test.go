package connections

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/delivery/smtpclient"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/operator/api"
)

// TestTraceNeverWaits: who doesn't take lines loses them, and is told how many, in their place.
func TestTraceNeverWaits(t *testing.T) {
	tr := NewTracer(time.Now, func() {})
	stuck, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	got, lost := 0, 0
	ended, begun := make(chan error, 1), make(chan struct{})
	var once, first sync.Once
	idle := make(chan struct{}, 1)
	go func() {
		ended <- tr.Trace(ctx, api.TraceQuery{}, func(l api.TraceLine) error {
			first.Do(func() { close(stuck); <-release })
			lost += l.Lost
			if l.Session != "" {
				got++
			}
			return nil
		}, func() {
			once.Do(func() { close(begun) })
			select {
			case idle <- struct{}{}:
			default:
			}
		})
	}()
	<-begun
	trace := tr.Watch(watched)
	trace.Line(nil, smtpclient.ToHost, []byte("NOOP"))
	<-stuck
	const writers, each = 4, 5000
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				trace.Line(nil, smtpclient.FromHost, []byte("250 ok"))
			}
		})
	}
	wg.Wait() // although nobody takes a line
	for len(idle) > 0 {
		<-idle
	}
	close(release)
	<-idle
	cancel()
	<-ended
	if got+lost != 1+writers*each || got != 1+maxTraceLines {
		t.Errorf("%d lines shown and %d lost, want %d and together %d", got, lost, 1+maxTraceLines, 1+writers*each)
	}
	if tr.Watch(watched) != nil {
		t.Error("a connection is watched after the last watcher has gone")
	}
}

// TestTraceBoundsOctets: large pieces fill the buffer before many lines do.
func TestTraceBoundsOctets(t *testing.T) {
	w := &watcher{TraceQuery: api.TraceQuery{Content: true}, lines: make(chan api.TraceLine, maxTraceLines)}
	tr := NewTracer(time.Now, func() {})
	tr.watchers.Store(&[]*watcher{w})
	m := &envelope.Message{Recipients: []envelope.Recipient{{Address: "bob@box.example"}}}
	piece := []byte(strings.Repeat("a line of the content\r\n", 2*maxTraceOctets/23))
	tr.Watch(watched).Content(&smtpclient.Transaction{Message: m, Recipients: []int{0}}, piece)
	if kept := w.octets.Load(); kept > maxTraceOctets || kept < maxTraceOctets/2 || w.lost.Load() == 0 {
		t.Errorf("%d octets kept, %d lines lost", kept, w.lost.Load())
	}
	if l := <-w.lines; len(l.Text) > maxTracePiece || !strings.HasSuffix(l.Text, "\r\n") {
		t.Errorf("a piece of %d octets", len(l.Text))
	}
}

var watched = delivery.Watched{
	Host: route.Host{Name: "mx.box.example", Addr: netip.MustParseAddrPort("127.0.0.1:25")}, Site: "mx.box.example", Source: "default", Session: "1",
}

// BenchmarkNobodyWatches is what tracing costs each new connection while nobody watches.
func BenchmarkNobodyWatches(b *testing.B) {
	tr := NewTracer(time.Now, func() {})
	b.ReportAllocs()
	for b.Loop() {
		if tr.Watch(watched) != nil {
			b.Fatal("somebody watches")
		}
	}
}
