package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
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
	Cursor string // Listing.Next of the page before; "" for the first page
	// Time is how long to look for what fills the page, by Config.Now; 0: as long as it takes.
	Time time.Duration
}

// Listing is a page of messages.
type Listing struct {
	Items    []Item
	Next     string // the cursor of the following page; "" after the last
	Looked   int    // recipients that were examined
	Complete bool   // the page is full, or the last; if not, the time or the reads for a page were used up
}

// Item is a message in a listing, with the recipients that were selected.
type Item struct {
	envelope.Message
	Total      int             // recipients that the message was accepted for
	Recipients []ItemRecipient // in place of those of Message
	Unreadable bool            // the record is damaged: all but ID and Recipients' states is unknown
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
	Via      string // see Attempt
	Detour   envelope.Detour
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

// List gives the selected messages, a page at a time. The error is that of a cursor that is none.
func (v *View) List(f Filter, p Page) (Listing, error) {
	if p.Limit <= 0 {
		p.Limit = defaultLimit
	}
	p.Limit = min(p.Limit, maxLimit)
	if p.Order == NextAttempt {
		return v.listByTime(f, p)
	}
	from := uint64(0)
	if p.Cursor != "" {
		id, err := envelope.ParseID(p.Cursor)
		if err != nil {
			return Listing{}, fmt.Errorf("cursor of a listing: %w", err)
		}
		from = uint64(id)
	}
	w := v.Walk(f, p.Order == NewestFirst, from)
	w.endAfter(p.Time)
	var l Listing
	for {
		c, m := w.Next()
		l.Looked = w.looked
		switch {
		case c == nil:
			l.Next, l.Complete = w.cursor(), !w.cut
			return l, nil
		case len(l.Items) == p.Limit || w.reads > maxReads:
			l.Next, l.Complete = envelope.ID(c.ID).String(), len(l.Items) == p.Limit
			return l, nil
		}
		l.Items = append(l.Items, v.Item(c, m))
	}
}

// Item puts a candidate in words. m is nil when it was not read yet.
func (v *View) Item(c *Candidate, m *envelope.Message) (it Item) {
	if m == nil {
		var err error
		if m, err = v.q.Envelope(c.ID, nil); err != nil {
			it.Unreadable = true
		}
	}
	if m != nil {
		it.Message, it.Total = *m, len(m.Recipients)
	}
	it.ID = envelope.ID(c.ID)
	// Downward walks give recipients last to first.
	slices.SortFunc(c.Rcpts, func(a, b Recipient) int { return cmp.Compare(a.Rcpt, b.Rcpt) })
	replies := store.ReplyReader{Dir: v.dir}
	for i := range c.Rcpts {
		r := v.itemRecipient(&c.Rcpts[i], m)
		last, _, err := v.q.LastAttempt(&replies, c.ID, c.Rcpts[i].Rcpt)
		if err != nil {
			last.Reply = unreadable // the next attempt logs it
		}
		r.Last, r.Via, r.Detour = last.Reply, last.Via, last.Detour
		it.Recipients = append(it.Recipients, r)
	}
	return it
}

// unreadable stands in a listing for the reply to a last attempt whose record is damaged.
var unreadable = reply.Local(451, reply.Enhanced{4, 3, 0}, "queue", "the record of the last reply is damaged")

// Only gives the item with some of its recipients, which are in ascending order and for which a was asked.
func (it Item) Only(rcpts []uint16, a Action) Item {
	it.Recipients = slices.DeleteFunc(it.Recipients, func(r ItemRecipient) bool {
		_, found := slices.BinarySearch(rcpts, uint16(r.Index))
		return !found
	})
	for i := range it.Recipients {
		it.Recipients[i].Asked = a
	}
	return it
}

// AskedFor is what an operator has asked for, by the note that an entry carries of it, and Notes is the inverse.
var (
	AskedFor = [...]Action{schedule.Hold: Hold, schedule.Retry: RetryNow, schedule.Bounce: Bounce,
		schedule.Remove: Remove, schedule.Cancel: Cancel, schedule.Expiring: 0, schedule.Bouncing: 0,
		schedule.Transfer: Transfer, schedule.Leaving: Transfer, schedule.LeavingHeld: Transfer,
		schedule.Recall: 0}
	Notes = [...]schedule.Action{
		Hold: schedule.Hold, Unhold: schedule.Nothing, RetryNow: schedule.Retry, RetryScheduled: schedule.Retry,
		RetryHeld:          schedule.Retry,
		RetryHeldScheduled: schedule.Retry, Bounce: schedule.Bounce, Remove: schedule.Remove, Cancel: schedule.Cancel,
		Transfer: schedule.Transfer,
	}
)

func (v *View) itemRecipient(c *Recipient, m *envelope.Message) ItemRecipient {
	e := &c.Entry
	r := ItemRecipient{Index: int(e.Rcpt), State: e.State(), Line: c.Line, Attempts: int(e.Attempts()),
		Warned: e.Warned(), Ending: e.Action().Ends()}
	if r.State == StateLeased || e.Action().Removes() {
		r.Asked = AskedFor[e.Action()]
	}
	if m != nil && r.Index < len(m.Recipients) {
		r.Address = m.Recipients[r.Index].Address
	}
	if e.State() == schedule.Deferred || e.State() == schedule.Due {
		r.Next = time.Unix(int64(e.Due), 0).UTC()
	}
	if m != nil && e.State() == schedule.Deferred && e.Attempts() == 0 {
		r.Scheduled = store.PlanOf(m).Due(e.ID, r.Index) == e.Due
	}
	v.lock.Lock()
	r.Start = v.s.Start(e.ID)
	v.lock.Unlock()
	return r
}
