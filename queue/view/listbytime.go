package view

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"example.org/mta/internal/minheap"
	"example.org/mta/queue/schedule"
)

// timed is a message in the order of its next attempt.
type timed struct {
	due uint32
	id  uint64
}

func (a timed) compare(b timed) int {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id))
}

// timedCursor is where a listing by next attempt goes on.
type timedCursor struct {
	after timed
	part  uint64 // of v.parts; 0: of none
}

// String gives "DUE.ID", followed by the number of a part if there is one.
func (c timedCursor) String() string {
	s := fmt.Sprintf("%d.%d", c.after.due, c.after.id)
	if c.part > 0 {
		s += "." + strconv.FormatUint(c.part, 10)
	}
	return s
}

func parseTimedCursor(s string) (c timedCursor, err error) {
	words := strings.Split(s, ".")
	if len(words) != 2 && len(words) != 3 {
		return c, fmt.Errorf("cursor of a listing: %q is not one", s)
	}
	var numbers [3]uint64
	for i, word := range words {
		if numbers[i], err = strconv.ParseUint(word, 10, []int{32, 64, 64}[i]); err != nil {
			return c, fmt.Errorf("cursor of a listing: %q is not one", s)
		}
	}
	return timedCursor{timed{uint32(numbers[0]), numbers[1]}, numbers[2]}, nil
}

// byTime is a listing by next attempt: it looks through the schedule, without envelopes, for the messages that
// come first, and then at those messages in their order. What an operator changes meanwhile is shown as it is, and
// what has gone is left out.
type byTime struct {
	filter Filter // without functions
	after  timed  // the last message that was looked at
	size   int    // how many messages the schedule is asked for at once

	// A message is in first for each time at which a selected recipient is attempted: only its envelope
	// shows which recipients are meant.
	walker *Walker             // through the schedule; nil once it was looked through
	first  minheap.Heap[timed] // what comes first of what the walker has seen, the latest on top
	list   []timed             // what was found, and not looked at
	more   bool                // the schedule has more than that
}

// someByTime is how many messages the schedule is asked for at once when only envelopes show which of them
// are meant.
const someByTime = 16384

func (v *View) newByTime(f Filter, after timed, limit int) *byTime {
	b := &byTime{filter: f, after: after, size: 2 * (limit + 1)}
	b.filter.Leased, b.filter.Waits, b.filter.Last = nil, nil, nil
	if f.needsEnvelope() || f.Leased != nil || f.Waits != nil || f.Last != nil {
		b.size = max(b.size, someByTime)
	}
	b.begin(v)
	return b
}

// begin starts a look through the schedule for what comes after b.after. It has to look at every entry; one that
// is no earlier than all of what was found costs no more than that look, nor does one that was listed.
func (b *byTime) begin(v *View) {
	b.walker = v.Walk(b.filter, false, 0)
	b.walker.reading, b.walker.notBefore = false, uint64(b.after.due)
	b.first = laterFirst()
}

func laterFirst() minheap.Heap[timed] {
	return minheap.New(func(a, b timed) bool { return a.compare(b) > 0 }, nil)
}

// find goes on with the look through the schedule until its end, or the walker's time is up.
func (b *byTime) find() (ended bool) {
	w := b.walker
	for c, _ := w.Next(); c != nil; c, _ = w.Next() {
		for _, due := range attemptsOf(c) {
			t := timed{due: due, id: c.ID}
			if t.compare(b.after) <= 0 {
				continue
			}
			if b.first.Push(t); b.first.Len() > b.size {
				b.first.Pop()
			}
			if b.first.Len() == b.size {
				// of two at one time the first is that with the lower id, and it was seen
				w.before = uint64(b.first.Top().due)
			}
		}
	}
	if w.cut {
		return false
	}
	b.list = slices.SortedFunc(slices.Values(b.first.Values()), timed.compare)
	b.more, b.walker = b.first.Len() == b.size, nil
	return true
}

// listByTime lists a page. One that is cut short leaves a part behind, for the next page to go on with.
func (v *View) listByTime(f Filter, p Page) (l Listing, err error) {
	var from timedCursor
	if p.Cursor != "" {
		if from, err = parseTimedCursor(p.Cursor); err != nil {
			return l, err
		}
	}
	b := v.newByTime(f, from.after, p.Limit)
	if part := v.parts.get(from.part, b); part != nil {
		b = part
	}
	until := v.until(p.Time)
	cut := func() (Listing, error) {
		l.Next = timedCursor{b.after, v.parts.keep(b)}.String()
		return l, nil
	}
	for {
		if w := b.walker; w != nil {
			before := w.looked
			w.until, w.cut, w.done = until, false, false
			ended := b.find()
			if l.Looked += w.looked - before; !ended {
				return cut()
			}
		}
		for i, t := range b.list {
			if len(l.Items) == p.Limit {
				l.Next, l.Complete = timedCursor{after: b.after}.String(), true
				return l, nil
			}
			if i > 0 && v.late(until) {
				b.list = b.list[i:]
				return cut()
			}
			if c := v.PickOne(t.id, f); c != nil && firstAttempt(c) == t.due {
				l.Items = append(l.Items, v.Item(c, nil))
			}
			l.Looked++
			b.after = t
		}
		b.list = nil
		if !b.more {
			l.Complete = true
			return l, nil
		}
		b.begin(v)
		if v.late(until) {
			return cut()
		}
	}
}

// attemptsOf gives the times at which a candidate's recipients are attempted next, each once.
func attemptsOf(c *Candidate) []uint32 {
	times := make([]uint32, 0, 1)
	for i := range c.Rcpts {
		times = append(times, attemptAt(&c.Rcpts[i].Entry))
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// firstAttempt is the earliest next attempt of a candidate's recipients.
func firstAttempt(c *Candidate) uint32 {
	due := noTime
	for i := range c.Rcpts {
		due = min(due, attemptAt(&c.Rcpts[i].Entry))
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

// parts are the newest listings by next attempt that were cut short. The page that follows such a one goes on with
// it; without its part it would begin again after the same message, and might never get further.
type parts struct {
	mu   sync.Mutex // guards the rest
	last uint64     // number that was given
	kept [maxParts]*byTime
}

// maxParts bounds their memory, at 16 octets for each message that was found: a quarter of a mebibyte for a large one.
// It is more than the operators who look at once: with fewer, each takes away the part of the next.
const maxParts = 32

// keep gives the number of a part that is not changed afterwards.
func (p *parts) keep(b *byTime) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.kept[p.last%maxParts] = b
	return p.last
}

// get gives a copy of a part that does the same as b, which was not used; nil if there is none. The part stays: a
// page may be asked for several times.
func (p *parts) get(number uint64, b *byTime) *byTime {
	if number == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.kept[number%maxParts]
	if kept == nil || number > p.last || p.last-number >= maxParts || kept.after != b.after || kept.size != b.size ||
		!reflect.DeepEqual(kept.filter, b.filter) {
		return nil
	}
	return kept.clone()
}

func (b *byTime) clone() *byTime {
	c := *b
	c.first = laterFirst()
	for _, t := range b.first.Values() {
		c.first.Push(t)
	}
	if b.walker != nil {
		w := *b.walker
		w.batch, w.rcpts, w.copy = nil, nil, schedule.Stretch{}
		w.picker.domains, w.picker.origins = slices.Clone(w.picker.domains), slices.Clone(w.picker.origins)
		c.walker = &w
	}
	return &c
}
