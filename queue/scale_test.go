package queue

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
)

var (
	scale      = flag.Int("queue.scale", 10_000, "messages in TestScale")
	scaleBody  = flag.Int("queue.scalebody", 200, "octets of content of each")
	scaleNames = flag.Int("queue.scaledomains", 1000, "domains of the recipients in TestScale")
	scaleReady = flag.String("queue.scaledir", "", "directory that TestScale has filled, in its second process")
)

// TestScale fills a queue, defers all of it, and opens it again in a new process, which says how
// long that takes and how much memory. The bounds hold for any number: a constant, and so much
// for each message.
func TestScale(t *testing.T) {
	if *scaleReady != "" {
		scaleOpen(t)
		return
	}
	dir := t.TempDir()
	scaleFill(t, dir)
	cmd := exec.Command(os.Args[0], "-test.run=^TestScale$", "-test.v", "-test.timeout=10m", "-queue.scaledir="+dir, fmt.Sprint("-queue.scale=", *scale), fmt.Sprint("-queue.scaledomains=", *scaleNames))
	out, err := cmd.CombinedOutput()
	t.Logf("\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

func scaleFill(t *testing.T, dir string) {
	q, err := Open(Config{Dir: dir, MinFree: 1, Log: testLog(t), SegmentSize: scaleSegment()})
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), *scaleBody)
	began := time.Now()
	each(*scale, 1024, func(i int) {
		m := &envelope.Message{Sender: "sender@example.com", Recipients: []envelope.Recipient{{Address: envelope.Address(fmt.Sprintf("r%d@d%d.example", i, i%*scaleNames))}}, Tenant: "acme"}
		d := q.Begin()
		d.Write(body)
		if err := d.Commit(m); err != nil {
			t.Error(err)
		}
	})
	accepted := time.Since(began)
	// Half of them were tried once and wait; a tenth is settled.
	until := time.Now().Add(24 * time.Hour)
	for i := range *scale {
		l := next(t, q)
		switch {
		case i%10 == 0:
			q.Settle(l.Message.ID, []int{0}, Delivered)
		case i%2 == 0:
			q.Park(l.Message.ID, []int{0}, siteLine("site"), time.Time{})
		default:
			q.Defer(l.Message.ID, []int{0}, until.Add(time.Duration(i%40000)*time.Second), Attempt{Reply: greylisted}, site(fmt.Sprint("site", i%1000)))
		}
	}
	worked := time.Since(began) - accepted
	if err := q.w.flush(); err != nil {
		t.Fatal(err)
	}
	s := balanced(t, q)
	t.Logf("%d accepted in %v, handed out and back in %v; %d MB on disk, %d MB living, %d segments", *scale, accepted.Round(time.Millisecond), worked.Round(time.Millisecond), s.Bytes>>20, s.LiveBytes>>20, s.Segments)
	shut(t, q)
}

// scaleSegment is small for small numbers, so that there are many segments in any case.
func scaleSegment() int64 { return min(64<<20, max(1<<20, int64(*scale)*100)) }

func scaleOpen(t *testing.T) {
	began := time.Now()
	q, err := Open(Config{Dir: *scaleReady, MinFree: 1, SegmentSize: scaleSegment()})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	peak := memoryPeak(t)
	runtime.GC()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	s := balanced(t, q)
	want := int64(*scale - (*scale+9)/10)
	if s.Recovered != want {
		t.Fatalf("%d recovered, want %d", s.Recovered, want)
	}
	n := float64(s.Queued)
	t.Logf("%d queued: opened in %v (%.2f s per million); heap %.1f octets each, peak of the process %d MB (%.1f octets each)",
		s.Queued, took.Round(time.Millisecond), took.Seconds()/n*1e6, float64(ms.HeapAlloc)/n, peak>>20, float64(peak)/n)
	if limit := 64<<20 + int64(n*50); peak > limit && !raceEnabled {
		t.Errorf("peak of %d octets, want at most %d", peak, limit)
	}
	if limit := 5*time.Second + time.Duration(n)*time.Microsecond; took > limit {
		t.Errorf("opened in %v, want at most %v", took, limit)
	}
	began = time.Now()
	l, err := q.List(Filter{Key: site("site7")}, Page{Limit: 50})
	if took := time.Since(began); err != nil || len(l.Items) == 0 {
		t.Errorf("%d items, %v", len(l.Items), err)
	} else {
		t.Logf("first page of a key: %v", took.Round(time.Microsecond))
	}
	began = time.Now()
	l, err = q.List(Filter{States: []State{StateDeferred}}, Page{Limit: 50, Order: NextAttempt})
	if took := time.Since(began); err != nil || len(l.Items) != 50 {
		t.Errorf("%d items, %v", len(l.Items), err)
	} else {
		t.Logf("first page by next attempt: %v", took.Round(time.Microsecond))
	}
	began = time.Now()
	q.Summary(Filter{})
	t.Logf("look at all: %v", time.Since(began).Round(time.Microsecond))
	for what, count := range map[string]func() Counts{"site": func() Counts { return q.CountLines(func(l parking.Line) string { return l.Key.String() }) }, "domain": q.CountDomains, "tenant": q.CountTenants} {
		began = time.Now()
		rows := len(count().Rows)
		t.Logf("summary by %s: %d rows in %v", what, rows, time.Since(began).Round(time.Microsecond))
	}
	for _, order := range []Order{OldestFirst, NextAttempt} {
		began = time.Now()
		l, err = q.List(Filter{Recipient: "r7@d7.example"}, Page{Limit: 50, Order: order, Time: 200 * time.Millisecond})
		if err != nil {
			t.Error(err)
		}
		t.Logf("a recipient, in order %d: %d found, %d examined, complete: %v, in %v", order, len(l.Items), l.Looked, l.Complete, time.Since(began).Round(time.Microsecond))
	}
	shut(t, q)
}

// memoryPeak is the largest resident size that the process has had.
func memoryPeak(t *testing.T) int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc/self/status here: memory can't be measured")
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kb int64
	fmt.Sscan(rest, &kb)
	return kb << 10
}
