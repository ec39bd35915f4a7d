package dispatch

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs/vfstest"
)

// successWorld is the relay between a queue, whose disk can be short of space, and hosts that take all mail when they
// are asked to, in virtual time.
type successWorld struct {
	*stage
	t       *testing.T
	disk    *fullDisk
	queue   *queue.Queue
	reports *Reporter
	lost    atomic.Bool // reports are never written: the relay is killed before
	refused bool        // by the hosts
	release time.Time   // of the message, see envelope.Message
	stop    func()
}

// start is that of the relay, also after a stop.
func (w *successWorld) start() {
	var err error
	w.queue, err = queue.Open(queue.Config{
		Dir: "/q", FS: w.disk, SegmentSize: 1 << 20, DelayAfter: func() time.Duration { return 4 * time.Hour }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.stage = newStage(w.t)
	d := w.stage.Dispatcher
	writer := &ReportWriter{
		Queue: w.queue, Policy: d.Policy, Sites: d.Sites, Ids: new(envelope.IDs), Now: time.Now, Log: d.Log, Events: w.stage}
	w.reports = StartReporter(writer.Write)
	d.Queue, d.Notifier, d.Now = w.queue, w, time.Now
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx) })
	w.stop = func() {
		cancel()
		running.Wait()
		w.reports.Close()
		if err := w.queue.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *successWorld) notify(n Notification, done func(error)) {
	if !w.lost.Load() {
		w.reports.notify(n, done)
	}
}

// accept puts a message to two recipients into the queue, of whose delivery its sender wants to know, and to a third.
func (w *successWorld) accept() {
	m := &envelope.Message{Sender: "ann@client.example", Received: time.Now(), Release: w.release, Recipients: []envelope.Recipient{
		{Address: "a@x.example", Notify: envelope.NotifySuccess},
		{Address: "b@x.example", Notify: envelope.NotifySuccess | envelope.NotifyDelay}, {Address: "c@x.example"}}}
	draft := w.queue.Begin()
	io.WriteString(draft, "Subject: a question\r\n\r\nThe body.\r\n")
	if err := draft.Commit(m); err != nil {
		w.t.Fatal(err)
	}
}

// deliver has the host take all jobs, and gives to how many recipients they are.
func (w *successWorld) deliver() (n int) {
	time.Sleep(time.Second)
	synctest.Wait()
	jobs := w.jobs
	w.jobs = nil
	for _, j := range jobs {
		if j.Message.Sender.Null() {
			continue
		}
		var rs []delivery.Result
		for _, i := range j.Recipients {
			n++
			r := delivery.Result{Recipient: i, Attempted: true, Host: route.Host{Name: "mx1.x.example"}, Reply: reply.Reply{Code: 250, Text: "taken"}}
			if w.refused {
				r.Reply = reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 1, 1}, Command: "RCPT", Text: "no such user"}
			}
			rs = append(rs, r)
		}
		j.Done(j, rs)
	}
	synctest.Wait()
	return n
}

// written gives the reports in the queue.
func (w *successWorld) written() (texts []string) {
	synctest.Wait()
	l, err := w.queue.List(queue.Filter{Recipient: "ann@client.example"}, queue.Page{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, it := range l.Items {
		body, err := w.queue.Body(it.ID)
		if err != nil {
			w.t.Fatal(err)
		}
		text, _ := io.ReadAll(body)
		body.Close()
		texts = append(texts, string(text))
	}
	return texts
}

// wantReport demands one report, about the two recipients, with the header of their message.
func (w *successWorld) wantReport() {
	w.t.Helper()
	all := w.written()
	if len(all) != 1 {
		w.t.Fatalf("%d reports, want 1", len(all))
	}
	for _, want := range []string{"\nFinal-Recipient: rfc822; a@x.example\r", "\nFinal-Recipient: rfc822; b@x.example\r",
		"\nRemote-MTA: dns; mx1.x.example\r", "\nAction: relayed\r", "\nContent-Type: text/rfc822-headers\r", "\nSubject: a question\r"} {
		if !strings.Contains(all[0], want) {
			w.t.Errorf("there is no %q in\n%s", want, all[0])
		}
	}
	if strings.Contains(all[0], "c@x.example") || strings.Contains(all[0], "The body.") {
		w.t.Errorf("it has more than the sender asked for:\n%s", all[0])
	}
	if s := w.queue.Stats(); s.Queued != 1 || s.Accepted+s.Recovered != s.Delivered+1 {
		w.t.Errorf("%+v: want all settled but for the report", s)
	}
}

// TestSuccessIsSettledWhenItsReportIsDurable: a report of success is written while the message is still there, and a
// relay that is killed before that makes it later.
func TestSuccessIsSettledWhenItsReportIsDurable(t *testing.T) {
	for name, killed := range map[string]bool{"at once": false, "killed before the report": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := &successWorld{t: t, disk: &fullDisk{FS: vfstest.Memory()}}
				w.start()
				defer func() { w.stop() }()
				w.accept()
				w.lost.Store(killed)
				if n := w.deliver(); n != 3 {
					t.Fatalf("delivered to %d", n)
				}
				if killed {
					if n := w.queue.Stats().Queued; n != 2 {
						t.Fatalf("%d are queued while their report is not durable, want 2", n)
					}
					w.stop()
					w.lost.Store(false)
					w.start()
					if n := w.deliver(); n != 2 {
						t.Fatalf("delivered to %d again: nobody knew that they were", n)
					}
				}
				w.wantReport()
			})
		})
	}
}

// TestSuccessIsReportedWhenTheDiskHasRoomAgain: once, over a restart, too; nobody gets the message twice, or is told
// of a delay or a failure, whatever time or an operator does.
func TestSuccessIsReportedWhenTheDiskHasRoomAgain(t *testing.T) {
	for name, meanwhile := range map[string]func(*successWorld){
		"stays": func(*successWorld) {},
		"restarts": func(w *successWorld) {
			w.stop()
			w.start()
		},
		"bounced": func(w *successWorld) { w.queue.Change(queue.Selector{All: true}, queue.Bounce, false) },
		"retried": func(w *successWorld) { w.queue.Change(queue.Selector{All: true}, queue.RetryNow, false) },
		"too old": func(w *successWorld) { time.Sleep(48 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := &successWorld{t: t, disk: &fullDisk{FS: vfstest.Memory()}}
				w.start()
				defer func() { w.stop() }()
				w.accept()
				w.disk.full.Store(true)
				if n := w.deliver(); n != 3 {
					t.Fatalf("delivered to %d", n)
				}
				time.Sleep(time.Hour)
				meanwhile(w)
				time.Sleep(time.Hour)
				if n, reports := w.deliver(), len(w.written()); n > 0 || reports > 0 || w.queue.Stats().Queued != 2 {
					t.Fatalf("delivered to %d again, %d reports, %+v", n, reports, w.queue.Stats())
				}
				w.disk.full.Store(false)
				time.Sleep(10 * time.Minute)
				if n := w.deliver(); n > 0 {
					t.Fatalf("delivered to %d again", n)
				}
				w.wantReport()
			})
		})
	}
}

// TestAFailureStandsUntilItsReportCanBeQueued: while the disk is full, the hosts are not asked again, over a restart,
// too. One report and one record for each recipient follow.
func TestAFailureStandsUntilItsReportCanBeQueued(t *testing.T) {
	for name, x := range map[string]struct {
		meanwhile func(*successWorld)
		event     string
	}{
		"stays": {func(*successWorld) {}, "event Bounce"},
		"restarts": {func(w *successWorld) {
			w.stop()
			w.start()
		}, "event Bounce"},
		"retried":  {func(w *successWorld) { w.queue.Change(queue.Selector{All: true}, queue.RetryNow, false) }, "event Bounce"},
		"bounced":  {func(w *successWorld) { w.queue.Change(queue.Selector{All: true}, queue.Bounce, false) }, "event Bounce"},
		"too old":  {func(*successWorld) { time.Sleep(48 * time.Hour) }, "event Bounce"},
		"given up": {nil, "event AdminBounce"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := &successWorld{t: t, disk: &fullDisk{FS: vfstest.Memory()}, refused: true}
				if x.meanwhile == nil { // no attempt is due before it is given up
					w.release = time.Now().Add(24 * time.Hour)
				}
				w.start()
				defer func() { w.stop() }()
				w.accept()
				w.disk.full.Store(true)
				if x.meanwhile == nil {
					time.Sleep(time.Second) // the queue has looked at the disk
					w.queue.Change(queue.Selector{All: true}, queue.Bounce, false)
				} else if n := w.deliver(); n != 3 {
					t.Fatalf("tried %d", n)
				}
				time.Sleep(time.Hour)
				if x.meanwhile != nil {
					x.meanwhile(w)
				}
				time.Sleep(time.Hour)
				if n, reports := w.deliver(), len(w.written()); n > 0 || reports > 0 || w.queue.Stats().Queued != 3 {
					t.Fatalf("tried %d again, %d reports, %+v", n, reports, w.queue.Stats())
				}
				w.disk.full.Store(false)
				time.Sleep(10 * time.Minute)
				if n := w.deliver(); n > 0 {
					t.Fatalf("tried %d again", n)
				}
				all := w.written()
				if len(all) != 1 || x.meanwhile != nil && (!strings.Contains(all[0], "\nRemote-MTA: dns; mx1.x.example\r") || !strings.Contains(all[0], "550 5.1.1 no such user")) {
					t.Fatalf("%d reports: %s", len(all), strings.Join(all, "\n"))
				}
				records := 0
				for _, told := range w.told {
					if strings.HasPrefix(told, x.event+" ") {
						records++
					}
				}
				if s := w.queue.Stats(); s.Queued != 1 || s.Bounced != 3 || records != 3 {
					t.Errorf("%+v, %d records %q of %q", s, records, x.event, w.told)
				}
			})
		})
	}
}
