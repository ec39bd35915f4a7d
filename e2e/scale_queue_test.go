package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// backlogSites is how many sites a large queue is for. The first has a tenth of it.
const backlogSites = 1000

func backlogSite(i int) string {
	if i%10 == 0 {
		return "site0.backlog.example"
	}
	return fmt.Sprintf("site%d.backlog.example", i%backlogSites)
}

// TestScaleQueue starts the relay on ten million queued messages, and has it take mail beside a
// relay whose queue is empty, in turns.
func TestScaleQueue(t *testing.T) {
	besideOthers(t, fullScale())
	n := scaled(t, "QUEUE", 10_000_000, 20_000)
	g := farSites(t, 1, sink.Config{})
	full := newRelay(t, g.DNS, g.Port, "")
	filled := fillQueue(t, filepath.Join(full.dir, "data", "queue"), n)
	var f figures
	ready := full.startTimed(t, 5*time.Minute)
	f.add(fmt.Sprintf("%s queued: ready after", count(n)), "10 s", "%.2f s", ready.Seconds())
	f.add("resident memory when ready", "500 MB", "%.0f MB", full.memory(t, "VmRSS"))
	f.add("most resident memory until then", "", "%.0f MB", full.memory(t, "VmHWM"))
	listBacklog(t, full, &f)

	empty := newRelay(t, g.DNS, g.Port, "")
	empty.start(t)
	loaded, unloaded := g.inTurns(t, full.addr, empty.addr)
	f.add("accepted a second, with the backlog", "80 % of that of an empty queue", "%.0f, %.0f %%", loaded, 100*loaded/unloaded)
	f.add("accepted a second, empty queue", "", "%.0f", unloaded)
	f.add("most resident memory after that load", "500 MB", "%.0f MB", full.memory(t, "VmHWM"))
	if most := full.memory(t, "VmHWM"); fullScale() && most > 500 {
		t.Errorf("%.0f MB of memory, want at most 500", most)
	}
	disk, free := diskUse(t, full.dir)
	f.add("on disk", "", "%.1f GB", float64(disk)/1e9)
	f.add("filled by package queue in", "", "%.0f s, %.0f messages a second accepted and deferred", filled.Seconds(), float64(n)/filled.Seconds())
	began := time.Now()
	if !full.stop(60 * time.Second) {
		t.Error("the relay did not end by itself within 60 s")
	}
	f.add("stopped in", "", "%.2f s", time.Since(began).Seconds())
	f.print(t, fmt.Sprintf("A queue of %s messages for %d sites (%.0f GB free):", count(n), backlogSites, float64(free)/1e9))
}

// fillQueue puts n messages in a queue, each of which was tried once and is to be tried again
// tomorrow: what a large backlog looks like that nothing can be done about now.
func fillQueue(t *testing.T, dir string, n int) time.Duration {
	t.Helper()
	began := time.Now()
	q, err := queue.Open(queue.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	var next atomic.Int64
	const writers = 1024 // a group commit's worth
	errs := make(chan error, writers+1)
	for range writers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := putBacklog(q, i); err != nil {
					errs <- err
					cancel()
					return
				}
			}
		})
	}
	all.Go(func() { errs <- deferAll(ctx, q, n) })
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	return time.Since(began)
}

var backlogBody = []byte("From: sender@client.example\r\nSubject: one of very many\r\nMIME-Version: 1.0\r\n\r\n" + strings.Repeat(strings.Repeat("x", 72)+"\r\n", 3))

func putBacklog(q *queue.Queue, i int) error {
	to := envelope.Address(fmt.Sprintf("user%d@%s", i, backlogSite(i)))
	m := &envelope.Message{Sender: "sender@client.example", Recipients: []envelope.Recipient{{Address: to}}, Received: time.Now(), Tenant: "acme"}
	d := q.Begin()
	if _, err := d.Write(backlogBody); err != nil {
		return err
	}
	return d.Commit(m)
}

func deferAll(ctx context.Context, q *queue.Queue, n int) error {
	why := reply.Reply{Code: 451, Enhanced: reply.Enhanced{4, 7, 1}, Text: "greylisted, please come back", Command: "RCPT"}
	tomorrow := time.Now().Add(24 * time.Hour)
	for i := range n {
		l, err := q.Next(ctx)
		if err != nil {
			return err
		}
		site := l.Message.Recipients[0].Address.Domain()
		if err := q.Defer(l.Message.ID, []int{0}, tomorrow.Add(time.Duration(i%36_000)*time.Second), queue.Attempt{Reply: why}, parking.Key{Name: site}); err != nil {
			return err
		}
	}
	return nil
}

// listBacklog asks for pages as an operator would.
func listBacklog(t *testing.T, r *relay, f *figures) {
	t.Helper()
	c := r.control(t)
	for _, page := range []struct {
		what   string
		filter api.Filter
		order  api.Order
	}{
		{"first page (100) of a site with a thousandth", api.Filter{Site: "site7.backlog.example"}, ""},
		{"first page (100) of a site with a tenth", api.Filter{Site: "site0.backlog.example"}, ""},
		{"the same by next attempt", api.Filter{Site: "site0.backlog.example"}, api.NextAttempt},
		{"first page (100) of everything", api.Filter{}, ""},
	} {
		list := func() error {
			l, err := api.OpList.Call(t.Context(), c, api.ListQuery{Filter: page.filter, Page: api.Page{Limit: 100, Order: page.order}})
			for err == nil && len(l.Messages) == 0 && l.Next != "" { // the time for a page was up
				l, err = api.OpList.Call(t.Context(), c, api.ListQuery{Filter: page.filter, Page: api.Page{Limit: 100, Order: page.order, After: l.Next}})
			}
			switch {
			case err != nil:
				return err
			case len(l.Messages) == 0:
				return errors.New(page.what + ": nothing is listed")
			}
			for _, m := range l.Messages {
				if s := page.filter.Site; s != "" && m.Recipients[0].Site != s {
					return fmt.Errorf("%s: lists mail for %s", page.what, m.Recipients[0].Site)
				}
			}
			return nil
		}
		began := time.Now()
		if err := list(); err != nil {
			t.Fatal(err)
		}
		first := time.Since(began)
		f.add(page.what, "100 ms", "%s the first time, %s after", milliseconds(first), milliseconds(medianOf(t, 9, list)))
	}
}
