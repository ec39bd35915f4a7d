package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/minheap"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/schedule"
)

// Order says what a listing begins with.
type Order uint8

const (
	OldestFirst Order = iota
	NewestFirst
	NextAttempt // what is to be attempted first; what waits for no time comes last
)

// Page says which part of a listing is wanted.
type Page struct {
	Order  Order
	Limit  int    // messages; 0: 100, at most 10,000
	Cursor string // what the page before returned as next; "" for the first page
}

// Item is a message in a listing, with the recipients that were selected.
type Item struct {
	ID         envelope.ID
	Sender     envelope.Address
	Size       int64 // octets of content
	Received   time.Time
	Tenant     string
	User       string
	Campaign   string
	Tier       uint8
	Peer       string
	HeloName   string
	Protocol   string
	Session    string
	EnvID      string
	Release    time.Time // see envelope.Message; so are those up to APIKey
	Expires    time.Time
	Tags       []string
	Meta       string
	Pool       string
	APIKey     string
	Total      int // recipients that the message was accepted for
	Recipients []ItemRecipient
	Unreadable bool // the record is damaged: all but ID and Recipients' states is unknown
	// Cancelled says, of what was removed, that its sender has cancelled it.
	Cancelled bool
}

// ItemRecipient is a recipient in a listing.
type ItemRecipient struct {
	Index    int
	Address  envelope.Address
	State    State
	Line     parking.Line // what it waits, or last waited, for
	Attempts int          // so far
	Next     time.Time    // of the next attempt; zero when it waits for no time
	Last     reply.Reply
	Via      string    // see Attempt
	Warned   bool      // the sender was notified of the delay
	Start    time.Time // when its age began to count, see Pending.Since
	// Ending says that it is being given up: the report to its sender is to be written, or is being.
	Ending bool
	// Asked is what an operator wants done with it when it comes back from where it was handed out to;
	// 0 is nothing.
	Asked Action
	// Scheduled says that it was not tried yet because it waits for the time, Next, that it was
	// submitted for.
	Scheduled bool
}

const (
	defaultLimit = 100
	maxLimit     = 10_000
	// maxReads bounds the envelopes that are read for a page, so that a filter that selects
	// little of much does not keep the caller waiting.
	maxReads = 50_000
)

// List gives the selected messages, a page at a time. next is the cursor of the following page,
// "" after the last. A page can have fewer messages than asked for, or none, and a next: then
// there was much to look through.
func (q *Queue) List(f Filter, p Page) (items []Item, next string, err error) {
	if p.Limit <= 0 {
		p.Limit = defaultLimit
	}
	p.Limit = min(p.Limit, maxLimit)
	if p.Order == NextAttempt {
		return q.listByTime(f, p)
	}
	from := uint64(0)
	if p.Cursor != "" {
		id, err := envelope.ParseID(p.Cursor)
		if err != nil {
			return nil, "", fmt.Errorf("cursor of a listing: %w", err)
		}
		from = uint64(id)
	}
	w := q.newWalker(f, p.Order == NewestFirst, from)
	for {
		c, m := w.next()
		switch {
		case c == nil:
			return items, "", nil
		case len(items) == p.Limit || w.reads > maxReads:
			return items, envelope.ID(c.id).String(), nil
		}
		items = append(items, q.item(c, m))
	}
}

// item puts a candidate in words. m is nil when it was not read yet.
func (q *Queue) item(c *candidate, m *envelope.Message) Item {
	it := Item{ID: envelope.ID(c.id)}
	if m == nil {
		var err error
		if m, err = q.envelopeOf(c.id, c.data); err != nil {
			it.Unreadable = true
		}
	}
	if m != nil {
		it = itemOf(m)
		it.ID = envelope.ID(c.id)
	}
	// Downward walks give recipients last to first.
	slices.SortFunc(c.rcpts, func(a, b candidateRecipient) int { return cmp.Compare(a.entry.Rcpt, b.entry.Rcpt) })
	replies := replyReader{q: q}
	for i := range c.rcpts {
		r := q.itemRecipient(&c.rcpts[i], m)
		if last := c.rcpts[i].last; last != nil {
			r.Last, r.Via = last.Reply, last.Via
		} else if note := c.rcpts[i].note; note != (place{}) {
			last, _ := replies.follow(note, c.id, c.rcpts[i].entry.Rcpt) // a listing does without
			r.Last, r.Via = last.Reply, last.Via
		}
		it.Recipients = append(it.Recipients, r)
	}
	return it
}

// itemOf is what a message says of itself.
func itemOf(m *envelope.Message) Item {
	it := Item{
		Sender: m.Sender, Size: m.Size, Received: m.Received, Total: len(m.Recipients),
		Tenant: m.Tenant, User: m.User, Campaign: m.Campaign, Tier: m.Tier,
		HeloName: m.HeloName, Protocol: m.Protocol, Session: m.Session, EnvID: m.EnvID,
		Release: m.Release, Expires: m.Expires, Tags: m.Tags, Meta: m.Meta, Pool: m.Pool, APIKey: m.APIKey,
	}
	if m.Peer.IsValid() {
		it.Peer = m.Peer.String()
	}
	return it
}

// only gives the item with some of its recipients, which are in ascending order.
func (it Item) only(rcpts []uint16) Item {
	it.Recipients = slices.DeleteFunc(it.Recipients, func(r ItemRecipient) bool {
		_, found := slices.BinarySearch(rcpts, uint16(r.Index))
		return !found
	})
	return it
}

// askedFor is what an operator has asked for, by the note that an entry carries of it.
var askedFor = map[schedule.Action]Action{schedule.Hold: Hold, schedule.Retry: RetryNow, schedule.Bounce: Bounce, schedule.Remove: Remove, schedule.Cancel: Cancel}

func (q *Queue) itemRecipient(c *candidateRecipient, m *envelope.Message) ItemRecipient {
	e := &c.entry
	r := ItemRecipient{Index: int(e.Rcpt), State: e.State(), Line: c.line, Attempts: int(e.Attempts()), Warned: e.Warned(), Ending: e.Action().Ends()}
	if r.State == StateLeased {
		r.Asked = askedFor[e.Action()]
	}
	if m != nil && r.Index < len(m.Recipients) {
		r.Address = m.Recipients[r.Index].Address
	}
	if e.State() == schedule.Deferred || e.State() == schedule.Due {
		r.Next = time.Unix(int64(e.Due), 0).UTC()
	}
	if m != nil && e.State() == schedule.Deferred && e.Attempts() == 0 {
		r.Scheduled = planOf(m).due(e.ID, r.Index) == e.Due
	}
	q.mu.Lock()
	r.Start = q.startOf(e.ID)
	q.mu.Unlock()
	return r
}

// Get gives one message with all recipients that are still in the queue. ErrUnknown says that
// there are none.
func (q *Queue) Get(id envelope.ID) (Item, error) {
	c, ok := q.lookUp(uint64(id))
	if !ok {
		return Item{}, fmt.Errorf("message %s: %w", id, ErrUnknown)
	}
	return q.item(&c, nil), nil
}

// Pick gives those of some messages, by id, that a filter selects. What is not in the queue is left
// out.
func (q *Queue) Pick(ids []envelope.ID, f Filter) []Item {
	var items []Item
	for _, id := range ids {
		if c := q.pickOne(uint64(id), f); c != nil {
			items = append(items, q.item(c, nil))
		}
	}
	return items
}

// pickOne is nil when the message is not in the queue or not selected.
func (q *Queue) pickOne(id uint64, f Filter) *candidate {
	if f.isZero() {
		if c, ok := q.lookUp(id); ok {
			return &c
		}
		return nil
	}
	w := q.newWalker(f, false, id)
	w.newest = min(w.newest, id)
	c, _ := w.next()
	return c
}

// lookUp makes a candidate of one message.
func (q *Queue) lookUp(id uint64) (c candidate, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.table.Run(id, func(_ schedule.Slot, e *schedule.Entry) bool {
		c.id, c.data = id, q.placeOf(e.Data(), schedule.Octets(e.Size))
		c.rcpts = append(c.rcpts, q.candidate(e))
		return true
	})
	return c, len(c.rcpts) > 0
}

// timed is a message in the order of its next attempt.
type timed struct {
	due uint32
	id  uint64
}

func (a timed) compare(b timed) int {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id))
}

// listByTime looks through all that is selected, keeps the first of it, and then looks that up:
// what an operator changes meanwhile is shown as it is, and what has gone is left out.
func (q *Queue) listByTime(f Filter, p Page) (items []Item, next string, err error) {
	after := timed{}
	if p.Cursor != "" {
		if _, err := fmt.Sscanf(p.Cursor, "%d.%d", &after.due, &after.id); err != nil {
			return nil, "", fmt.Errorf("cursor of a listing: %q is not one", p.Cursor)
		}
	}
	first := q.firstByTime(f, after, p.Limit+1)
	if len(first) > p.Limit {
		first = first[:p.Limit]
		end := first[p.Limit-1]
		next = fmt.Sprintf("%d.%d", end.due, end.id)
	}
	for _, t := range first {
		if c := q.pickOne(t.id, f); c != nil {
			items = append(items, q.item(c, nil))
		}
	}
	return items, next, nil
}

// firstByTime gives the first n that are selected and come after one. It has to look at every
// entry; once it has n, one that is no earlier than all of them costs no more than that look.
func (q *Queue) firstByTime(f Filter, after timed, n int) []timed {
	w := q.newWalker(f, false, 0)
	first := minheap.New(func(a, b timed) bool { return a.compare(b) > 0 }, nil) // the latest on top
	for {
		c, _ := w.next()
		if c == nil {
			return slices.SortedFunc(slices.Values(first.Values()), timed.compare)
		}
		t := timed{due: firstAttempt(c), id: c.id}
		if t.compare(after) <= 0 {
			continue
		}
		if first.Push(t); first.Len() > n {
			first.Pop()
		}
		if first.Len() == n {
			w.before = uint64(first.Top().due) // of two at one time the first is that with the lower id, and it was seen
		}
	}
}

// firstAttempt is the earliest next attempt of a candidate's recipients.
func firstAttempt(c *candidate) uint32 {
	due := noTime
	for i := range c.rcpts {
		due = min(due, attemptAt(&c.rcpts[i].entry))
	}
	return due
}

// noTime is when a recipient is attempted that waits for no time.
const noTime = ^uint32(0)

// attemptAt is when a recipient is to be attempted next, in seconds since 1970.
func attemptAt(e *schedule.Entry) uint32 {
	switch e.State() {
	case schedule.Parked, schedule.Held, schedule.Unreadable:
		return noTime
	}
	return e.Due
}
