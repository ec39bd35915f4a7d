package queue

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// State is what a recipient is doing, as far as the queue knows. Operators see the states of
// internal/envelope, where a leased recipient is waiting, active or ending.
type State = schedule.State

// The states of a recipient.
const (
	StateDue        = schedule.Due        // is handed out as soon as Next is called
	StateDeferred   = schedule.Deferred   // waits for its next attempt
	StateParked     = schedule.Parked     // waits under its key until it is taken
	StateHeld       = schedule.Held       // an operator stopped it
	StateLeased     = schedule.Leased     // handed out
	StateEnding     = schedule.Ending     // is about to be bounced
	StateUnreadable = schedule.Unreadable // its record is damaged
)

// Filter selects recipients. All conditions that are set must hold; the zero Filter selects all.
type Filter struct {
	States    []State
	Key       parking.Key // what it waits, or last waited, for; zero for any
	Domain    string      // of the recipient, A-label form; "*.example.com" is all below it
	Recipient string      // address, in any case; "@example.com" is all of a domain
	Sender    string      // the same; "<>" is the null sender
	Tenant    string
	Campaign  string
	Tag       string        // one of the message's
	OlderThan time.Duration // accepted at least so long ago
	NewerThan time.Duration // accepted at most so long ago
	// Leased selects among those that are handed out, where States has StateLeased: only their holder
	// knows what they are doing. ending is as in ItemRecipient. It is called without any lock; nil
	// selects all.
	Leased func(id envelope.ID, recipient int, ending bool) bool
}

// needsEnvelope reports whether the envelope must be read to know.
func (f *Filter) needsEnvelope() bool {
	return f.Domain != "" || f.Recipient != "" || f.Sender != "" || f.Tenant != "" || f.Campaign != "" || f.Tag != ""
}

// message reports whether the message of an envelope is selected.
func (f *Filter) message(m *envelope.Message) bool {
	return matchAddress(f.Sender, m.Sender) &&
		(f.Tenant == "" || f.Tenant == m.Tenant) && (f.Campaign == "" || f.Campaign == m.Campaign) &&
		(f.Tag == "" || slices.Contains(m.Tags, f.Tag))
}

// recipient reports whether a recipient of a selected message is.
func (f *Filter) recipient(r *envelope.Recipient) bool {
	return matchAddress(f.Recipient, r.Address) && matchDomain(f.Domain, r.Address)
}

func matchAddress(want string, a envelope.Address) bool {
	switch {
	case want == "":
		return true
	case want == "<>":
		return a.Null()
	case want[0] == '@':
		return strings.EqualFold(want[1:], a.Domain())
	}
	return strings.EqualFold(want, string(a))
}

func matchDomain(want string, a envelope.Address) bool {
	if want == "" {
		return true
	}
	domain := a.Domain()
	if below, wide := strings.CutPrefix(want, "*"); wide && strings.HasPrefix(below, ".") {
		return len(domain) > len(below) && strings.EqualFold(domain[len(domain)-len(below):], below)
	}
	return strings.EqualFold(want, domain)
}

// candidate is a message with the recipients that the schedule alone says are selected, as they
// were at one instant.
type candidate struct {
	id    uint64
	data  store.Place
	rcpts []candidateRecipient
	since time.Time // when it was accepted
}

// keep drops all recipients but these, which it sorts. There can be 65,535 of them.
func (c *candidate) keep(rcpts []uint16) {
	slices.Sort(rcpts)
	c.rcpts = slices.DeleteFunc(c.rcpts, func(r candidateRecipient) bool {
		_, kept := slices.BinarySearch(rcpts, r.entry.Rcpt)
		return !kept
	})
}

// numbers lists the recipients.
func (c *candidate) numbers() (rcpts []uint16) {
	for i := range c.rcpts {
		rcpts = append(rcpts, c.rcpts[i].entry.Rcpt)
	}
	return rcpts
}

type candidateRecipient struct {
	entry schedule.Entry
	line  parking.Line
	last  *Attempt    // while it is in memory only: it is in the journal a moment later
	note  store.Place // of the record that has it otherwise; zero when there was none
}

// walker goes through the schedule in order of id, a bit at a time, so that nobody waits for it.
type walker struct {
	q      *Queue
	f      Filter
	down   bool
	states [schedule.States]bool
	key    uint32
	picker picker
	oldest uint64 // ids that OlderThan and NewerThan leave
	newest uint64
	before uint64 // recipients that are attempted at this second or later are left out

	notBefore uint64 // and so are those before this one

	at      uint64 // where to go on
	done    bool
	batch   []candidate
	single  bool // for one message: finding the names that the filter can mean would cost more than its envelope
	reading bool // the envelope of each candidate is read, even where the filter needs none
	reads   int  // envelopes read
	ahead   store.ReadAhead

	until  time.Time // when the walk is cut short; zero: never
	cut    bool      // it was, before at
	looked int       // entries examined
	given  int       // candidates that next has looked at
	pause  func()    // called before each bit; nil: nothing
}

// lookEvery is after how many messages the clock is read.
const lookEvery = 32

// endAfter cuts the walk short after a time; 0: never.
func (w *walker) endAfter(d time.Duration) { w.until = w.q.until(d) }

// late reports whether the time for the walk is over.
func (w *walker) late() bool { return w.q.late(w.until) }

// until gives the end of a time that begins now; zero for 0, which never ends.
func (q *Queue) until(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return q.now().Add(d)
}

func (q *Queue) late(until time.Time) bool { return !until.IsZero() && !q.now().Before(until) }

// cursor is where a walk that was cut short goes on, "" where it has ended.
func (w *walker) cursor() string {
	if !w.cut {
		return ""
	}
	return envelope.ID(w.at).String()
}

// newWalker starts at an id; 0 is the first or, going down, the last.
func (q *Queue) newWalker(f Filter, down bool, from uint64) *walker {
	w := &walker{q: q, f: f, down: down, newest: math.MaxUint64, before: math.MaxUint64, reading: f.needsEnvelope()}
	for s := range w.states {
		w.states[s] = len(f.States) == 0 || slices.Contains(f.States, State(s))
	}
	w.bounds(q.now())
	w.at = max(from, w.oldest)
	if down {
		if from == 0 {
			from = ^uint64(0)
		}
		w.at = min(from, w.newest)
	}
	return w
}

// bounds finds the ids that OlderThan and NewerThan leave.
func (w *walker) bounds(now time.Time) {
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	if w.f.OlderThan > 0 {
		w.newest = w.q.arrivals.After(now.Add(-w.f.OlderThan)) - 1
	}
	if w.f.NewerThan > 0 {
		w.oldest = w.q.arrivals.After(now.Add(-w.f.NewerThan - time.Millisecond))
	}
}

// next gives the next selected message, with its envelope if the filter needs it; nil at the
// end. The candidate is valid until the call after.
func (w *walker) next() (*candidate, *envelope.Message) {
	for {
		for len(w.batch) > 0 {
			c := &w.batch[0]
			if w.given++; w.given%lookEvery == 0 && w.late() {
				w.at, w.cut, w.done, w.batch = c.id, true, true, nil
				return nil, nil
			}
			w.batch = w.batch[1:]
			if !w.holder(c) {
				continue
			}
			if !w.reading {
				return c, nil
			}
			if m := w.envelope(c); m != nil && w.match(c, m) {
				return c, m
			}
		}
		if !w.done && w.looked > 0 && w.late() {
			w.cut, w.done = true, true
		}
		if w.done {
			return nil, nil
		}
		if w.pause != nil {
			w.pause()
		}
		w.fill()
	}
}

// holder leaves in the candidate what Filter.Leased selects, and reports whether there is any.
func (w *walker) holder(c *candidate) bool {
	if w.f.Leased != nil {
		c.rcpts = slices.DeleteFunc(c.rcpts, func(r candidateRecipient) bool {
			e := &r.entry
			return e.State() == schedule.Leased && !w.f.Leased(envelope.ID(e.ID), int(e.Rcpt), e.Action().Ends())
		})
	}
	return len(c.rcpts) > 0
}

// envelope reads the envelope of a candidate; nil when it can't be.
func (w *walker) envelope(c *candidate) *envelope.Message {
	w.reads++
	if !w.down {
		if m := w.ahead.Envelope(w.q.dir, c.data); m != nil {
			m.ID = envelope.ID(c.id)
			w.q.date(m, c.id)
			return m
		}
	}
	m, err := w.q.envelopeOf(c.id, c.data)
	if err != nil && !errors.Is(err, ErrUnknown) {
		w.q.reportDamage(err, "a message is left out of a listing")
	}
	return m
}

// match leaves in the candidate what the envelope says is selected, and reports whether there
// is any.
func (w *walker) match(c *candidate, m *envelope.Message) bool {
	if !w.f.message(m) {
		return false
	}
	c.rcpts = slices.DeleteFunc(c.rcpts, func(r candidateRecipient) bool {
		return int(r.entry.Rcpt) >= len(m.Recipients) || !w.f.recipient(&m.Recipients[r.entry.Rcpt])
	})
	return len(c.rcpts) > 0
}

// fill collects candidates under the lock: so many, or what it finds in so many entries.
func (w *walker) fill() {
	const most = 256
	q := w.q
	w.batch = w.batch[:0]
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.findKey() || !w.findState() {
		return
	}
	if !w.single {
		w.picker.pick(q, &w.f)
	}
	seen := 0
	ended := true
	last := uint64(0)
	visit := func(s schedule.Slot, e *schedule.Entry) bool {
		if e.ID < w.oldest || e.ID > w.newest {
			return false
		}
		if e.ID != last && (len(w.batch) == most || seen >= 8*atOnce) {
			w.at, ended = e.ID, false
			return false
		}
		seen++
		w.looked++
		last = e.ID
		w.consider(s, e)
		return true
	}
	if w.down {
		q.table.Descend(w.at, visit)
	} else {
		q.table.Ascend(w.at, visit)
	}
	w.done = ended
}

// findKey looks up the number that the filter's key has just now. Nothing has a key that is not
// there, and the walk is over.
func (w *walker) findKey() bool {
	if w.f.Key == (parking.Key{}) {
		return true
	}
	n, ok := w.q.keys.Lookup(parking.Line{Key: w.f.Key})
	w.key, w.done = n, !ok
	return ok
}

// findState ends the walk when nothing is in a state that the filter selects.
func (w *walker) findState() bool {
	w.done = len(w.f.States) > 0 && !slices.ContainsFunc(w.f.States, func(s State) bool { return w.q.table.Count(s) > 0 })
	return !w.done
}

// selects reports whether the schedule alone says that an entry is selected.
func (w *walker) selects(s schedule.Slot, e *schedule.Entry) bool {
	if !w.states[e.State()] || w.f.Key != (parking.Key{}) && w.q.keys.Of(e.Key) != w.key {
		return false
	}
	names := w.q.table.NamesAt(s)
	return w.picker.domains.has(names.Domain) && w.picker.origins.has(names.Origin)
}

// consider adds an entry to the batch if it is selected.
func (w *walker) consider(s schedule.Slot, e *schedule.Entry) {
	if !w.selects(s, e) {
		return
	}
	if at := uint64(attemptAt(e)); at < w.notBefore || at >= w.before {
		return
	}
	n := len(w.batch)
	if n == 0 || w.batch[n-1].id != e.ID {
		w.batch = append(w.batch, candidate{id: e.ID, data: w.q.placeOf(e.Data(), schedule.Octets(e.Size)), since: w.q.arrivals.Of(e.ID)})
		n++
	}
	c := &w.batch[n-1]
	c.rcpts = append(c.rcpts, w.q.candidate(e))
}

func (q *Queue) candidate(e *schedule.Entry) candidateRecipient {
	r := candidateRecipient{entry: *e, line: q.keys.Line(e.Key)}
	if last, ok := q.replies[recipientKey{e.ID, e.Rcpt}]; ok {
		kept := last // on the heap, which last then isn't for all others
		r.last = &kept
	} else if note := e.Note(); note != 0 {
		r.note = q.placeOf(note, store.NoteGuess)
	}
	return r
}

// envelopeOf reads a message's envelope, from memory if it is there. Compaction may have moved
// it since p was looked up. ErrUnknown says that the message is gone.
func (q *Queue) envelopeOf(id uint64, p store.Place) (*envelope.Message, error) {
	for {
		q.mu.Lock()
		h := q.hot[id]
		q.mu.Unlock()
		if h != nil {
			return h.msg, nil
		}
		m, err := q.dir.ReadEnvelope(p)
		if err == nil {
			m.ID = envelope.ID(id)
			q.date(m, id)
			return m, nil
		}
		if !errors.Is(err, store.ErrGone) {
			return nil, err
		}
		again, ok := q.whereIs(id)
		if !ok {
			return nil, ErrUnknown
		}
		if again == p {
			return nil, q.dir.Gone(p, err)
		}
		p = again
	}
}

// whereIs looks a message's data up.
func (q *Queue) whereIs(id uint64) (p store.Place, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.table.Run(id, func(_ schedule.Slot, e *schedule.Entry) bool {
		p, ok = q.placeOf(e.Data(), schedule.Octets(e.Size)), true
		return false
	})
	return p, ok
}

// Envelopes calls each with the messages in the queue that have this id or a later one and that wanted
// selects, in the order of their ids. Envelopes that can't be read are left out.
func (q *Queue) Envelopes(from envelope.ID, wanted func(envelope.ID) bool, each func(*envelope.Message)) {
	w := q.newWalker(Filter{}, false, uint64(from))
	for c, _ := w.next(); c != nil; c, _ = w.next() {
		if !wanted(envelope.ID(c.id)) {
			continue
		}
		if m, err := q.envelopeOf(c.id, c.data); err == nil {
			each(m)
		}
	}
}
