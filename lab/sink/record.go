package sink

import (
	"cmp"
	"context"
	"hash/maphash"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Level is how much a Recorder keeps.
type Level uint8

const (
	// Hashes keeps a hash for each delivery, some 30 octets: enough to count what came twice.
	Hashes Level = iota
	// Deliveries keeps who got what when.
	Deliveries
	// Contents keeps the messages, too.
	Contents
)

// Delivery is one message for one recipient, taken once.
type Delivery struct {
	ID         string // X-Mta-Test-Id, or Message-ID without brackets; "" when there was neither
	Recipient  string
	Server     string         // the hostname of the sink
	Client     netip.AddrPort // whose source address it came from
	Connection uint64
	Opened     time.Time // when the connection was accepted
	At         time.Time // when the content had been read
	Due        time.Time // when its final reply leaves, later than At where replies are delayed
	Answered   bool      // false: the sink never sent its final reply, so a second copy is no fault
}

// Message is a transaction that ended well.
type Message struct {
	ID         string
	Server     string
	Helo       string
	TLS        bool
	Client     netip.AddrPort
	Connection uint64
	Sender     string
	MailParams string // as on the wire
	Recipients []string
	RcptParams []string // as on the wire, by recipient; empty when no recipient had any
	Content    []byte   // dots unstuffed
	At         time.Time
	Answered   bool
}

// Tally is a Recorder's sums. A delivery is a message for one recipient.
type Tally struct {
	Messages   int64 // transactions
	Deliveries int64 // copies of messages, by recipient
	Unique     int64 // different deliveries, by id and recipient
	Excused    int64 // copies beyond the first of which an earlier one was never answered for
	Nameless   int64 // deliveries without an id; they count in Deliveries only
	Untracked  int64 // deliveries beyond the limit; they count in Deliveries only
}

// Duplicates is the copies beyond the first that nothing excuses.
func (t Tally) Duplicates() int64 {
	return t.Deliveries - t.Nameless - t.Untracked - t.Unique - t.Excused
}

// Recorder keeps what sinks took, to say what came once, twice or never. It is safe for use by
// many goroutines.
type Recorder struct {
	level Level
	limit int64
	seed  maphash.Seed

	mu struct { // guards what follows
		sync.Mutex
		tally      Tally
		open       map[uint64]bool // hash of id and recipient -> answered for at least once
		deliveries []Delivery
		messages   []Message
		waiting    []waiter
	}
}

type waiter struct {
	unique int64
	done   chan struct{}
}

// NewRecorder makes a recorder that keeps that much of at most limit deliveries; 0 is a million.
func NewRecorder(level Level, limit int64) *Recorder {
	limit = cmp.Or(limit, 1_000_000)
	r := &Recorder{level: level, limit: limit, seed: maphash.MakeSeed()}
	r.mu.open = make(map[uint64]bool)
	return r
}

func (r *Recorder) identifies() bool { return r != nil }
func (r *Recorder) captures() bool   { return r != nil && r.level == Contents }

// add takes the message that x has just read.
func (r *Recorder) add(x *session, answered bool) {
	if r == nil {
		return
	}
	id, now := x.content.id(), time.Now()
	due := now
	if x.lane != nil {
		due = later(now, later(x.ready, x.arrived).Add(x.srv.cfg.Latency+x.srv.faults.work[End]))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.tally.Messages++
	if r.level == Contents && int64(len(r.mu.messages)) < r.limit {
		r.mu.messages = append(r.mu.messages, x.message(id, now, answered))
	}
	for _, rcpt := range x.tx.recipients {
		r.deliver(Delivery{ID: id, Recipient: rcpt, Server: x.srv.cfg.Hostname, Client: x.client,
			Connection: x.about.Number, Opened: x.about.Opened, At: now, Due: due, Answered: answered})
	}
	r.wake()
}

func (r *Recorder) deliver(d Delivery) {
	t := &r.mu.tally
	t.Deliveries++
	if d.ID == "" {
		t.Nameless++
		return
	}
	key := r.key(d.ID, d.Recipient)
	before, known := r.mu.open[key]
	if !known && int64(len(r.mu.open)) >= r.limit {
		t.Untracked++
		return
	}
	switch {
	case !known:
		t.Unique++
	case !before:
		t.Excused++
	}
	r.mu.open[key] = before || d.Answered
	if r.level >= Deliveries {
		r.mu.deliveries = append(r.mu.deliveries, d)
	}
}

func (r *Recorder) key(id, recipient string) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	h.WriteString(id)
	h.WriteByte(0)
	h.WriteString(recipient)
	return h.Sum64()
}

// wake notifies those whose number has been reached. r.mu is held.
func (r *Recorder) wake() {
	r.mu.waiting = slices.DeleteFunc(r.mu.waiting, func(w waiter) bool {
		if r.mu.tally.Unique < w.unique {
			return false
		}
		close(w.done)
		return true
	})
}

// message describes the message that x has just read.
func (x *session) message(id string, now time.Time, answered bool) Message {
	return Message{ID: id, Server: x.srv.cfg.Hostname, Helo: x.helo, TLS: x.encrypted, Client: x.client,
		Connection: x.about.Number, Sender: x.tx.sender, MailParams: x.tx.mailParams,
		Recipients: slices.Clone(x.tx.recipients), RcptParams: slices.Clone(x.tx.rcptParams),
		Content: x.content.whole, At: now, Answered: answered}
}

// Tally gives the sums so far.
func (r *Recorder) Tally() Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.tally
}

// Deliveries lists what was kept at level Deliveries or Contents, oldest first.
func (r *Recorder) Deliveries() []Delivery { return r.DeliveriesFrom(0) }

// DeliveriesFrom is Deliveries without the first n, for those who look again and again.
func (r *Recorder) DeliveriesFrom(n int) []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.deliveries[min(n, len(r.mu.deliveries)):])
}

// Messages lists what was kept at level Contents, oldest first.
func (r *Recorder) Messages() []Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mu.messages)
}

// Has reports whether recipient got the message.
func (r *Recorder) Has(id, recipient string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.mu.open[r.key(id, recipient)]
	return ok
}

// Wait returns nil once there were that many different deliveries, or ctx's error.
func (r *Recorder) Wait(ctx context.Context, unique int64) error {
	w := waiter{unique, make(chan struct{})}
	r.mu.Lock()
	r.mu.waiting = append(r.mu.waiting, w)
	r.wake()
	r.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
