package dispatch

import (
	"sync"

	"example.org/mta/internal/envelope"
)

// notificationKind is what is reported to the sender of a message.
type notificationKind uint8

const (
	NotifyFailed notificationKind = iota
	notifyDelayed
	notifyDelivered
)

// Notification is a report to the sender about some recipients of a message.
type Notification struct {
	Kind     notificationKind
	Message  *envelope.Message
	Attempts []Attempt
}

// Wanted leaves the recipients about whom the sender wants to hear (RFC 3461, 4.1), from us: of
// what a host took over with the wish to be told, that host tells (5.2.1). The null sender never
// hears anything: that is how mail loops end (RFC 5321, 6.1).
func (n *Notification) Wanted() []Attempt {
	if n.Message.Sender.Null() {
		return nil
	}
	event := map[notificationKind]envelope.Notify{
		NotifyFailed:    envelope.NotifyFailure,
		notifyDelayed:   envelope.NotifyDelay,
		notifyDelivered: envelope.NotifySuccess,
	}[n.Kind]
	var out []Attempt
	for _, a := range n.Attempts {
		if n.Kind == notifyDelivered && a.Result.DSN {
			continue
		}
		if n.Message.Recipients[a.Pending.Index].Notify.Wants(event) {
			out = append(out, a)
		}
	}
	return out
}

// Reporter writes notifications into the queue on goroutines of its own, since that waits for
// the disk and those who have something to report must not. Several workers let reports share a
// sync. What waits is bounded by the dispatcher, which takes nothing up while that is too much.
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

// Close writes what is waiting and ends the workers. What is notified after it, by whoever was still at
// work, is told nobody, and its recipients stay leased: the next start hands them out again.
func (r *Reporter) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.wake.Broadcast()
	r.workers.Wait()
}
