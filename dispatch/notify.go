package dispatch

import (
	"sync"

	"example.org/mta/internal/dsn"
	"example.org/mta/internal/envelope"
)

// Notification is a report to the sender about some recipients of a message.
type Notification struct {
	Kind     dsn.Kind
	Message  *envelope.Message
	Attempts []Attempt
}

// Wanted returns the attempts that the sender asked to have reported (RFC 3461, section 4.1). If a host took
// over the request for a success report, that host reports (5.2.1); BY can ask for one by this relay (RFC 2852, 4.1.4).
// The null sender never gets a report, or
// mail could loop (RFC 5321, section 6.1).
func (n *Notification) Wanted() []Attempt {
	if n.Message.Sender.Null() {
		return nil
	}
	event := [...]envelope.Notify{
		dsn.Failed: envelope.NotifyFailure, dsn.Delayed: envelope.NotifyDelay, dsn.Delivered: envelope.NotifySuccess,
	}[n.Kind]
	var out []Attempt
	for i := range n.Attempts {
		a := &n.Attempts[i]
		notify := n.Message.Recipients[a.Pending.Index].Notify
		switch {
		case a.Result.Relayed && notify&envelope.NotifyNever == 0:
		case n.Kind == dsn.Delivered && a.Result.DSN, !notify.Wants(event):
			continue
		}
		out = append(out, *a)
	}
	return out
}

// Reporter writes reports into the queue on its own goroutines, since that waits for the disk and its callers
// must not. Several workers let reports share a sync. The dispatcher bounds the reports that wait: it takes
// no leases while there are too many.
type Reporter struct {
	write func(Notification) error

	mu      sync.Mutex // guards the rest
	wake    sync.Cond
	waiting []task
	closed  bool
	workers sync.WaitGroup
}

type task struct {
	n    Notification
	done func(error)
}

const reportWorkers = 16

// StartReporter starts a Reporter that writes reports with write. Close ends it.
func StartReporter(write func(Notification) error) *Reporter {
	r := &Reporter{write: write}
	r.wake.L = &r.mu
	for range reportWorkers {
		r.workers.Go(r.work)
	}
	return r
}

func (r *Reporter) notify(n Notification, done func(error)) {
	r.mu.Lock()
	r.waiting = append(r.waiting, task{n, done})
	r.mu.Unlock()
	r.wake.Signal()
}

func (r *Reporter) work() {
	for {
		r.mu.Lock()
		for len(r.waiting) == 0 && !r.closed {
			r.wake.Wait()
		}
		if len(r.waiting) == 0 {
			r.mu.Unlock()
			return
		}
		t := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.mu.Unlock()
		err := r.write(t.n)
		t.done(err)
	}
}

// Close writes the reports that wait, and ends the workers. Later reports are never written, and their
// recipients stay leased: the next start hands them out again.
func (r *Reporter) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wake.Broadcast()
	r.workers.Wait()
}
