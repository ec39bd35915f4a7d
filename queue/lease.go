package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// Why says what a lease is for.
type Why uint8

const (
	Due          Why = 0 // for an attempt
	BounceAsked  Why = 1 // an operator asked for a bounce: report and settle it
	DelayWarning Why = 2 // notify the sender of the delay; nothing is leased, see Warned
	Damaged      Why = 4 // the content is not what was written: report and settle it, send nothing
)

// Expired is a Why and an Outcome. As a Why: older than Config.MaxAge; report and settle it. As an
// Outcome: it was too old, and that was reported.
const Expired = 3

var whys = []string{Due: "due", Expired: "expired", BounceAsked: "bounce asked", DelayWarning: "delay warning",
	Damaged: "damaged"}

// String gives the word for a log.
func (w Why) String() string { return schedule.Word(whys, uint8(w)) }

// Pending is one recipient in a lease.
type Pending struct {
	Index    int             // in Message.Recipients
	Attempts int             // so far
	Last     reply.Reply     // to the last attempt; zero before the first
	Via      string          // which way that took, as passed to Defer; "" before the first
	Detour   envelope.Detour // what an operator has chosen for it
	Key      parking.Key     // what it was parked or deferred under last, zero before
	Since    time.Time       // when its age began to count: accepted or, if that was later, released
}

// Lease is recipients of one message, handed out by Next or Take. Each must come back by Settle, Defer,
// Park or Return, together or one by one and in any order; those of a DelayWarning by Warned or
// WarnLater.
type Lease struct {
	Why        Why
	Message    *envelope.Message // shared: do not change it
	Recipients []Pending
}

// warning is recipients whose sender gets a notice of the delay.
type warning struct {
	id    uint64
	rcpts []uint16
	from  uint32 // seconds: not before; 0 at once
}

// claim is what was taken from the schedule for a lease, before the disk is read.
type claim struct {
	why   Why
	id    uint64
	rcpts []Pending
	notes []noteRef
	data  store.Place
	msg   *envelope.Message // nil: not read yet
	one   [1]Pending        // for rcpts
}

// noteRef is where the journal has the last reply to a recipient.
type noteRef struct {
	pending int // index in claim.rcpts
	place   store.Place
}

// Next waits for something to do and hands it out: in turn what expired or is to be bounced, and what
// is due; warnings before what is due. Of what is due the first tier goes first, with a share for each of
// the others, and of a tier, in turn, what is new and what is due again. So
// however much expires at once, and however slowly that is reported, mail goes on. It ends with the
// context's error or ErrClosed.
func (q *Queue) Next(ctx context.Context) (*Lease, error) {
	for {
		l, err := q.wait(ctx)
		if err != nil {
			return nil, err
		}
		if lease := q.complete(l); lease != nil {
			return lease, nil
		}
	}
}

// wait blocks until there is something to hand out and takes it off the schedule.
func (q *Queue) wait(ctx context.Context) (*claim, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	watching := false
	for {
		if q.closed {
			return nil, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			q.due.Signal() // for whoever the last signal was not
			return nil, err
		}
		if l := q.pick(); l != nil {
			return l, nil
		}
		if !watching {
			watching = true
			stop := context.AfterFunc(ctx, func() {
				q.mu.Lock()
				defer q.mu.Unlock()
				q.due.Broadcast()
			})
			defer stop()
		}
		q.count.waiters++
		q.due.Wait()
		q.count.waiters--
	}
}

// pick takes what is first in turn off the schedule; nil when there is nothing to do.
func (q *Queue) pick() *claim {
	if q.health.stalled != nil {
		return nil
	}
	if q.Frozen() {
		q.thaw()
		return nil
	}
	ending := q.s.Front(q.ready.ending)
	if ending != schedule.None && !q.ready.wasEnding {
		q.ready.wasEnding = true
		return q.claim(ending)
	}
	q.ready.wasEnding = false
	if l := q.pickDue(); l != nil || ending == schedule.None {
		return l
	}
	return q.claim(ending)
}

// Frozen reports whether nothing is to be delivered now: Config.Frozen does, or too much of what has become of mail is
// not durable in time.
func (q *Queue) Frozen() bool {
	return q.cfg.Frozen != nil && (q.w.unknown() > mostUnknown || q.cfg.Frozen())
}

// thaw has Next look again in a second.
func (q *Queue) thaw() {
	if q.ready.thawing {
		return
	}
	q.ready.thawing = true
	time.AfterFunc(time.Second, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.ready.thawing = false
		q.due.Broadcast()
	})
}

// pickDue is pick for all that isn't ending.
func (q *Queue) pickDue() *claim {
	for len(q.ready.warnings) > 0 {
		w := q.ready.warnings[0]
		q.ready.warnings = q.ready.warnings[1:]
		if l := q.claimWarning(w); l != nil {
			return l
		}
	}
	var waiting envelope.TierSet
	for tier := range uint8(envelope.TierCount) {
		if !q.s.Empty(q.ready.fresh[tier]) || !q.s.Empty(q.ready.backlog[tier]) {
			waiting = waiting.With(tier)
		}
	}
	if waiting == 0 {
		return nil
	}
	tier := q.ready.tiers.Next(waiting)
	q.ready.tiers.Took(tier, waiting)
	fresh, backlog := q.s.Front(q.ready.fresh[tier]), q.s.Front(q.ready.backlog[tier])
	if q.ready.turn = backlog == schedule.None || fresh != schedule.None && !q.ready.turn; q.ready.turn {
		return q.claim(fresh)
	}
	return q.claim(backlog)
}

// claim leases the recipient in a slot and all others of its message that are there for the same
// reason.
func (q *Queue) claim(s schedule.Slot) *claim {
	first := *q.s.At(s)
	l := &claim{why: Due, id: first.ID, data: q.placeOf(first.Data(), schedule.Octets(first.Size))}
	state := first.State()
	if state == schedule.Ending {
		l.why = Expired
		if first.Action() == schedule.Bouncing {
			l.why = BounceAsked
		}
	}
	if h := q.cache.hot[first.ID]; h != nil {
		if l.msg = h.msg; first.Attempts() == 0 { // most likely none of them was tried
			if l.rcpts = l.one[:0]; len(l.msg.Recipients) > 1 {
				l.rcpts = make([]Pending, 0, len(l.msg.Recipients))
			}
		}
	}
	q.s.Run(first.ID, func(s schedule.Slot, e *schedule.Entry) bool {
		if e.State() != state || state == schedule.Parked && e.Key != first.Key ||
			state == schedule.Ending && e.Action() != first.Action() {
			return true
		}
		q.unlist(s, e)
		q.s.SetState(s, schedule.Leased)
		q.describe(l, e)
		return true
	})
	if _, broken := q.few.broken[first.ID]; broken && l.why == Due {
		l.why = Damaged
		q.few.broken[first.ID] = true
	}
	return l
}

// claimWarning is nil when nothing is left to warn of.
func (q *Queue) claimWarning(w warning) *claim {
	l := &claim{why: DelayWarning, id: w.id}
	for _, r := range w.rcpts {
		_, e := q.s.Find(w.id, r)
		if e == nil || !e.Warning() {
			continue
		}
		if e.Action().Ends() { // the sender gets the report of the failure instead
			e.SetWarning(false)
			continue
		}
		l.data = q.placeOf(e.Data(), schedule.Octets(e.Size))
		q.describe(l, e)
	}
	if len(l.rcpts) == 0 {
		return nil
	}
	if h := q.cache.hot[w.id]; h != nil {
		l.msg = h.msg
	}
	return l
}

// describe adds a recipient to a claim.
func (q *Queue) describe(l *claim, e *schedule.Entry) {
	p := Pending{Index: int(e.Rcpt), Attempts: int(e.Attempts()), Key: q.s.Keys.Key(e.Key), Since: q.s.Start(e.ID)}
	if r, ok := q.rcpts.replies[recipientKey{e.ID, e.Rcpt}]; ok {
		p.remember(r)
	} else if note := e.Note(); note != 0 {
		l.notes = append(l.notes, noteRef{len(l.rcpts), q.placeOf(note, store.NoteGuess)})
	}
	l.rcpts = append(l.rcpts, p)
}

// complete reads what a lease needs from the disk. It is nil when the message can't be read.
func (q *Queue) complete(l *claim) *Lease {
	var body []byte
	if l.msg == nil {
		m, c, err := q.fetch(l)
		if err != nil {
			if m, c, err = q.withoutContent(l, err); err != nil {
				q.setUnreadable(l, err)
				return nil
			}
		}
		l.msg = m
		if c.Large == 0 {
			body = c.Body
		}
	}
	q.readReplies(l)
	if l.why != DelayWarning {
		q.mu.Lock()
		q.lease(l, body)
		q.mu.Unlock()
	}
	return &Lease{Why: l.why, Message: l.msg, Recipients: l.rcpts}
}

// withoutContent gives the envelope of a message whose record is damaged, if that is sound: then its sender
// can be told. The error is the one that says what is damaged.
func (q *Queue) withoutContent(l *claim, damage error) (*envelope.Message, store.Content, error) {
	if d := (*store.DamageError)(nil); !errors.As(damage, &d) || d.Disk {
		return nil, store.Content{}, damage
	}
	if m, c, err := q.dir.ReadMessage(l.data); err == nil {
		return m, c, nil // it was the way from the disk, and not what is on it
	}
	m, c, err := q.dir.SalvageMessage(l.data, l.id)
	if err != nil {
		return nil, store.Content{}, damage
	}
	q.date(m, l.id)
	q.contentBroken(l.id, damage)
	q.mu.Lock()
	defer q.mu.Unlock()
	seg := q.segs.ByID(l.data.ID)
	if seg != nil {
		seg.Stuck, seg.Damaged = true, true
	}
	if l.why == Due {
		l.why = Damaged
		q.few.broken[l.id] = true
	}
	return m, c, nil
}

// fetch reads the message, looking again for where it lies when compaction was quicker.
func (q *Queue) fetch(l *claim) (*envelope.Message, store.Content, error) {
	for {
		m, c, err := q.dir.ReadMessage(l.data)
		if err == nil {
			q.date(m, l.id)
		}
		if !errors.Is(err, store.ErrGone) {
			return m, c, err
		}
		q.mu.Lock()
		_, e := q.s.Find(l.id, uint16(l.rcpts[0].Index))
		now := l.data
		if e != nil {
			now = q.placeOf(e.Data(), schedule.Octets(e.Size))
		}
		q.mu.Unlock()
		if now == l.data {
			return nil, store.Content{}, q.dir.Gone(now, err)
		}
		l.data = now
	}
}

// readReplies fills in the last replies. One that can't be read is left out and logged.
func (q *Queue) readReplies(l *claim) {
	replies := store.ReplyReader{Dir: q.dir}
	for i := range l.notes {
		n := &l.notes[i]
		p := &l.rcpts[n.pending]
		r, err := q.follow(&replies, n.place, l.id, uint16(p.Index))
		if err != nil {
			q.reportDamage(err, "the reply to the last attempt is lost; the message is not")
		}
		p.remember(r)
	}
}

func (p *Pending) remember(a Attempt) { p.Last, p.Via, p.Detour = a.Reply, a.Via, a.Detour }

// lease enters in memory what was handed out.
func (q *Queue) lease(l *claim, body []byte) {
	h := q.cache.hot[l.id]
	if h == nil {
		h = &hot{msg: l.msg}
		q.s.Run(l.id, func(schedule.Slot, *schedule.Entry) bool { h.living++; return true })
		q.cache.hot[l.id] = h
		q.cache.charge(h, body)
	}
	h.leases += len(l.rcpts)
	for i := range l.rcpts {
		q.keepDetour(recipientKey{l.id, uint16(l.rcpts[i].Index)}, l.rcpts[i].Detour)
	}
}

// unlist takes an entry off whatever list it is on.
func (q *Queue) unlist(s schedule.Slot, e *schedule.Entry) {
	if e.State() == schedule.Parked {
		q.s.Keys.Unpark(s)
	} else {
		q.s.Unlink(s)
	}
}

// readAgain is when a message is tried to be read again that the disk did not give, in seconds.
const readAgain = 600

// setUnreadable keeps recipients whose message can't be read, and says so.
func (q *Queue) setUnreadable(l *claim, err error) {
	damage := (*store.DamageError)(nil)
	later := errors.As(err, &damage) && damage.Disk
	consequence := fmt.Sprintf(
		"message %s is kept and not handed out: 'retry' tries again to read it, 'remove' gives it up",
		envelope.ID(l.id))
	if later {
		consequence = fmt.Sprintf("message %s is kept, and tried to be read again in %d s",
			envelope.ID(l.id), readAgain)
	}
	q.reportDamage(err, consequence)
	if !later && q.cfg.OnUnreadable != nil && l.why != DelayWarning {
		q.cfg.OnUnreadable(envelope.ID(l.id), len(l.rcpts), err)
	}
	if gone := q.setAside(l, later); len(gone) > 0 {
		q.finishRemoval(l.id, gone)
	}
}

// setAside keeps recipients that could not be handed out; later says that it is worth trying again. To
// an operator who acted on them meanwhile they have come back: it gives those that are to be removed.
func (q *Queue) setAside(l *claim, later bool) (gone []uint16) {
	aside := func(s schedule.Slot, e *schedule.Entry) { q.s.SetState(s, schedule.Unreadable) }
	if later {
		aside = func(s schedule.Slot, e *schedule.Entry) {
			e.Due = q.seconds() + readAgain
			q.deferEntry(s, e)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range l.rcpts {
		s, e := q.s.Find(l.id, uint16(p.Index))
		if e == nil {
			continue
		}
		if l.why == DelayWarning {
			e.SetWarning(false)
			e.SetWarned(true) // there is nothing to tell the sender with
			continue
		}
		if !later {
			seg := q.segs.Of(e.Data())
			seg.Stuck, seg.Damaged = true, true
		}
		if q.settleDown(s, e, aside) {
			gone = append(gone, e.Rcpt)
		}
	}
	return gone
}

// reportDamage logs and counts a place that can't be read.
func (q *Queue) reportDamage(err error, consequence string) {
	q.mu.Lock()
	q.count.damagedRecords++
	q.mu.Unlock()
	q.log.Error("queue: DAMAGE: "+consequence, "error", err)
}

// Take hands out the first n messages of a line, oldest parked first. It does not wait, not for the
// journal to be written either: see Writable.
func (q *Queue) Take(line parking.Line, n int) []*Lease { return q.take(line, n, q.s.Keys.First) }

// TakeNewest hands out n messages as Take does, those first that were parked last.
func (q *Queue) TakeNewest(line parking.Line, n int) []*Lease { return q.take(line, n, q.s.Keys.Last) }

// take gives less than n only when nothing is left: what turns out to be unreadable is made up for.
func (q *Queue) take(line parking.Line, n int, turn func(number uint32) schedule.Slot) []*Lease {
	var leases []*Lease
	for len(leases) < n {
		taken := q.claimParked(line, n-len(leases), turn)
		if len(taken) == 0 {
			break
		}
		for _, l := range taken {
			if lease := q.complete(l); lease != nil {
				leases = append(leases, lease)
			}
		}
	}
	return leases
}

// claimParked takes up to n messages of a line off the schedule.
func (q *Queue) claimParked(line parking.Line, n int, turn func(number uint32) schedule.Slot) (taken []*claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k, ok := q.s.Keys.Lookup(line)
	for ok && len(taken) < n && !q.closed {
		s := turn(k)
		if s == schedule.None {
			break
		}
		taken = append(taken, q.claim(s))
	}
	return taken
}

// Parked is how many recipients wait in a line until Take asks for them.
func (q *Queue) Parked(line parking.Line) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k, ok := q.s.Keys.Lookup(line); ok {
		return q.s.Keys.Waiting(k)
	}
	return 0
}

// Park makes leased recipients wait in a line until Take asks for it, or until a time, within a sweep: then all
// of their message that is parked is due, for whoever takes it to give up what is too old. The zero time is never.
// It is in memory only: after a restart they are due. Recipients that are not leased are left alone.
func (q *Queue) Park(id envelope.ID, recipients []int, line parking.Line, until time.Time) {
	q.park(id, recipients, line, until, q.s.Keys.Park)
}

// ParkFirst is Park at the head of the line: for mail that was taken and keeps its place.
func (q *Queue) ParkFirst(id envelope.ID, recipients []int, line parking.Line, until time.Time) {
	q.park(id, recipients, line, until, q.s.Keys.ParkFirst)
}

func (q *Queue) park(id envelope.ID, recipients []int, line parking.Line, until time.Time, join func(schedule.Slot)) {
	q.release(id, recipients, func(s schedule.Slot, e *schedule.Entry) {
		q.s.Keys.Set(e, q.s.Keys.Number(line))
		q.s.SetState(s, schedule.Parked)
		join(s)
		q.waitUntil(e.ID, until)
	})
}

// ParkedInLines is how many recipients wait under a key, in all its lines.
func (q *Queue) ParkedInLines(key parking.Key) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k, ok := q.s.Keys.Lookup(parking.Line{Key: key}); ok {
		return q.s.Keys.InLines(k)
	}
	return 0
}

// File notes what leased recipients are about, so that filters and summaries have them in that line while they are
// out. It is in memory only. Recipients that are not leased are left alone. It reports whether an operator asked for
// something that comes into force when they come back. A retry is no such thing: the attempt for which they are filed
// is the one that was asked for. A reroute is: the attempt goes the old way.
func (q *Queue) File(id envelope.ID, recipients []int, line parking.Line) (asked bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range recipients {
		if _, e := q.find(id, r); e != nil && e.State() == schedule.Leased {
			if n := q.s.Keys.Number(line); e.Key != n {
				q.s.Keys.Set(e, n)
			}
			if e.Action() == schedule.Retry && !q.rcpts.detours[recipientKey{e.ID, e.Rcpt}].asked {
				e.SetAction(schedule.Nothing)
			}
			asked = asked || e.Action() != schedule.Nothing
		}
	}
	return asked
}

// Return makes leased recipients due again as if they had not been handed out.
func (q *Queue) Return(id envelope.ID, recipients []int) {
	now := q.seconds()
	q.release(id, recipients, func(s schedule.Slot, e *schedule.Entry) { q.makeDue(s, e, now) })
}

// makeDue puts an entry that is on no list where Next finds it.
func (q *Queue) makeDue(s schedule.Slot, e *schedule.Entry, now uint32) {
	if why := e.Action(); why.Ends() { // it could not be read when it was to be reported, or the report failed
		q.end(s, e, why)
		return
	}
	e.Due = min(e.Due, now)
	q.s.SetState(s, schedule.Due)
	if e.Attempts() == 0 {
		q.s.Push(q.ready.fresh[e.Tier()], s)
	} else {
		q.s.Push(q.ready.backlog[e.Tier()], s)
	}
	q.due.Signal()
}

// release ends the lease of recipients and does rest with each, unless an operator has asked
// for something else meanwhile.
func (q *Queue) release(id envelope.ID, recipients []int, rest func(schedule.Slot, *schedule.Entry)) {
	q.mu.Lock()
	notify := func() {}
	defer func() { q.mu.Unlock(); notify() }()
	var gone []uint16
	n, due := 0, false
	for _, r := range recipients {
		s, e := q.find(id, r)
		if e == nil || e.State() != schedule.Leased {
			continue
		}
		n++
		if q.settleDown(s, e, rest) {
			gone = append(gone, e.Rcpt)
		}
		due = due || e.State() == schedule.Due
	}
	gone = sorted(gone)
	notify = q.removal(uint64(id), gone)
	q.cache.endLease(uint64(id), n, due)
	q.s.Tidy()
}

// find gives a recipient's entry; nil when there is none.
func (q *Queue) find(id envelope.ID, rcpt int) (schedule.Slot, *schedule.Entry) {
	if rcpt < 0 || rcpt > store.MaxRecipients {
		return schedule.None, nil
	}
	return q.s.Find(uint64(id), uint16(rcpt))
}

// settleDown does with an entry that is no longer leased what an operator asked for, or else
// rest. It reports true when the entry is to be removed, which the caller must do; it is leased no more
// all the same, so that a recipient that is named twice comes back once, and nobody else's affair.
func (q *Queue) settleDown(s schedule.Slot, e *schedule.Entry,
	rest func(schedule.Slot, *schedule.Entry)) (remove bool) {
	q.forgetDetour(e)
	switch e.Action() {
	case schedule.Hold:
		e.SetAction(schedule.Nothing)
		q.s.SetState(s, schedule.Held)
	case schedule.Bounce:
		q.end(s, e, schedule.Bouncing)
	case schedule.Remove, schedule.Cancel, schedule.Transfer:
		q.s.SetState(s, schedule.Ending)
		return true
	case schedule.Retry:
		e.SetAction(schedule.Nothing)
		q.makeDue(s, e, q.seconds())
	case schedule.Recall:
		e.SetAction(schedule.Nothing)
		if rest(s, e); e.State() == schedule.Due {
			q.awaitLeave(s, e)
		}
	default:
		rest(s, e)
	}
	return false
}

// end puts an entry that is on no list where Next finds it first: to be reported, and settled.
func (q *Queue) end(s schedule.Slot, e *schedule.Entry, why schedule.Action) {
	e.SetAction(why)
	q.s.SetState(s, schedule.Ending)
	q.s.Push(q.ready.ending, s)
	q.due.Signal()
}

// sorted gives recipients in ascending order and once each.
func sorted(rcpts []uint16) []uint16 {
	if !slices.IsSorted(rcpts) {
		slices.Sort(rcpts)
	}
	return slices.Compact(rcpts)
}
