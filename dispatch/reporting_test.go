package dispatch

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// expiring is a queue in which all has expired.
type expiring struct {
	*stage
	taken int
}

func (q *expiring) Next(context.Context) (*queue.Lease, error) {
	if q.taken++; q.taken > 1000 {
		return nil, queue.ErrClosed
	}
	l := q.lease(envelope.ID(q.taken), 48*time.Hour, "a@x.example")
	l.Why = queue.Expired
	return l, nil
}

// slowReports is a notifier that has none written until it is told to.
type slowReports struct{ done []func(error) }

func (r *slowReports) notify(_ Notification, done func(error)) { r.done = append(r.done, done) }

// TestReportsBoundWhatIsTakenUp: what expires, or is given up, at once is leased as fast as it can be
// reported, however much it is.
func TestReportsBoundWhatIsTakenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newStage(t)
		q, reports := &expiring{stage: s}, &slowReports{}
		s.Dispatcher.Queue, s.Dispatcher.Notifier = q, reports
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		s.Dispatcher.reporting.limit = 100
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Dispatcher.run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer running.Wait()
		defer cancel()
		for turn := 1; turn <= 3; turn++ {
			synctest.Wait()
			if q.taken != 100*turn {
				t.Fatalf("turn %d: %d messages are leased", turn, q.taken)
			}
			durable := reports.done
			reports.done = nil
			for _, done := range durable[1:] {
				done(nil)
			}
			durable[0](nil)
		}
	})
}

// fullDisk has no room while it is full.
type fullDisk struct {
	vfs.FS
	full atomic.Bool
}

func (d *fullDisk) Free(dir string) (int64, error) {
	if d.full.Load() {
		return 0, nil
	}
	return d.FS.Free(dir)
}

// TestDelayIsReportedWhenTheDiskHasRoomAgain: once, about those who still wait, and with a pause between
// the attempts at it.
func TestDelayIsReportedWhenTheDiskHasRoomAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk := &fullDisk{FS: vfstest.Memory()}
		q, err := queue.Open(queue.Config{Dir: "/q", FS: disk, SegmentSize: 1 << 20, DelayAfter: func() time.Duration { return 4 * time.Hour }})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		m := &envelope.Message{Sender: "ann@client.example", Received: time.Now(), Recipients: []envelope.Recipient{{Address: "a@x.example"}, {Address: "b@x.example"}}}
		draft := q.Begin()
		io.WriteString(draft, "Subject: x\r\n\r\nx\r\n")
		if err := draft.Commit(m); err != nil {
			t.Fatal(err)
		}
		s := newStage(t)
		s.room = 0 // all mail waits
		w := &ReportWriter{Queue: q, Policy: s.Dispatcher.Policy, Sites: s.Dispatcher.Sites, Ids: new(envelope.IDs), Now: time.Now, Log: s.Dispatcher.Log, Events: s}
		var tries atomic.Int64
		reports := StartReporter(func(n Notification) error {
			tries.Add(1)
			return w.Write(n)
		})
		defer reports.Close()
		s.Dispatcher.Queue, s.Dispatcher.Notifier, s.Dispatcher.Now = q, reports, time.Now
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Dispatcher.run(ctx) })
		defer running.Wait()
		defer cancel()

		time.Sleep(3 * time.Hour)
		disk.full.Store(true)
		time.Sleep(3*time.Hour + time.Second)
		if n := tries.Load(); n < 24 || n > 25 {
			t.Errorf("%d attempts at the report in 2 hours, want one in 5 minutes", n)
		}
		waits, err := q.Get(m.ID)
		if err != nil {
			t.Fatal(err)
		}
		q.Take(waits.Recipients[0].Line, 1)
		if err := q.Settle(m.ID, []int{0}, queue.Delivered); err != nil {
			t.Fatal(err)
		}
		q.Park(m.ID, []int{1}, parking.Line{Key: parking.Key{Name: "mx.x.example"}}, time.Time{})
		disk.full.Store(false)
		time.Sleep(12 * time.Hour)
		if n := q.Stats().Accepted - 2; n != 1 {
			t.Fatalf("%d reports, want 1", n)
		}
		l, err := q.List(queue.Filter{Recipient: "ann@client.example"}, queue.Page{})
		if err != nil || len(l.Items) != 1 {
			t.Fatalf("%+v, %v", l.Items, err)
		}
		body, err := q.Body(l.Items[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(body)
		if strings.Count(string(text), "Action: delayed") != 1 || !strings.Contains(string(text), "Final-Recipient: rfc822; b@x.example") {
			t.Errorf("report:\n%s", text)
		}
	})
}
