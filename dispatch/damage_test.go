package dispatch

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs/vfstest"
)

// TestDamagedContentIsReported: an octet of a large content is not what was written. The message is not sent; its
// sender gets one report, which is made without the content.
func TestDamagedContentIsReported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q, err := queue.Open(queue.Config{Dir: "/q", FS: fs, SegmentSize: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		s := newStage(t)
		s.room = 0 // all mail waits
		w := &ReportWriter{Queue: q, Policy: s.Dispatcher.Policy, Sites: s.Dispatcher.Sites, Ids: new(envelope.IDs), Now: time.Now, Log: s.Dispatcher.Log, Events: s}
		reports := StartReporter(w.Write)
		defer reports.Close()
		s.Dispatcher.Queue, s.Dispatcher.Notifier, s.Dispatcher.Now = q, reports, time.Now
		m := &envelope.Message{Sender: "ann@client.example", Received: time.Now(), Recipients: []envelope.Recipient{{Address: "a@x.example"}}}
		draft := q.Begin()
		io.WriteString(draft, "Subject: x\r\n\r\n"+strings.Repeat("a line\r\n", 80_000))
		if err := draft.Commit(m); err != nil {
			t.Fatal(err)
		}
		f, err := fs.OpenWrite("/q/large/0000000000000001")
		if err != nil {
			t.Fatal(err)
		}
		f.WriteAt([]byte("\n"), 300_003) // a bare newline now
		if _, err := q.Body(m.ID); err == nil {
			t.Fatal("the content was opened")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Dispatcher.run(ctx) })
		defer running.Wait()
		defer cancel()
		time.Sleep(time.Hour)

		if stats := q.Stats(); stats.Bounced != 1 || stats.Accepted != 2 || stats.DamagedRecords != 1 {
			t.Fatalf("%+v", stats)
		}
		l, err := q.List(queue.Filter{Recipient: "ann@client.example"}, queue.Page{})
		if err != nil || len(l.Items) != 1 {
			t.Fatal(l.Items, err)
		}
		body, err := q.Body(l.Items[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		if err != nil || !strings.Contains(string(text), "5.3.0") || !strings.Contains(string(text), "please send it again") {
			t.Errorf("%v\n%s", err, text)
		}
	})
}
