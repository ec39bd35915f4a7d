package queue

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/view"
)

// recover brings back what the directory has. It returns the largest segment number in use.
func (q *Queue) recover() (last uint32, err error) {
	began := time.Now()
	list, strays, last, aside, err := q.dir.ListSegments()
	if err != nil {
		return 0, err
	}
	defer func() {
		for i := range list {
			if list[i].Run != nil {
				list[i].Run.Close()
			}
		}
	}()
	q.dir.FindEnds(list, q.cfg.SegmentSize)
	q.observe(list)
	roll := q.dir.NewRoll(list, strays)
	o := store.Opener{Dir: q.dir, Log: q.log, Damage: q.reportDamage}
	if list, err = o.ReadIndexes(list); err != nil {
		return 0, err
	}
	if lost := roll.Missing(list, o.Unreadable); len(lost) > 0 {
		return 0, q.missing(lost)
	}
	for _, f := range strays { // of segments that were dropped
		q.dir.FS.Remove(q.dir.Path(f.Name))
	}
	q.count.damagedFiles = aside + len(o.Unreadable)
	bodies, err := q.dir.ListLarge()
	if err != nil {
		return 0, err
	}
	for n := range bodies {
		q.largeSeq.Store(max(q.largeSeq.Load(), n))
	}
	if err := q.load(list, bodies); err != nil {
		return 0, err
	}
	if !q.cfg.ReadOnly {
		q.removeOrphans(bodies)
	}
	q.count.Recovered = int64(q.s.Len())
	if len(list) > 0 {
		q.log.Info("queue: opened", "dir", q.cfg.Dir, "recipients", q.s.Len(), "segments", len(list), "took",
			time.Since(began))
	}
	return last, nil
}

// missing returns the error for segments that are lost: a start without them would lose their mail without a word.
func (q *Queue) missing(lost []store.SegmentID) error {
	var paths []string
	for _, id := range lost {
		paths = append(paths, q.dir.SegmentPath(id))
	}
	all := strings.Join(paths, " ")
	return fmt.Errorf("queue: %w: %s. Put them back (the first eight digits of a name count). "+
		"If they are lost for good, go on without their mail: touch %s", store.ErrMissing, all, all)
}

// observe takes note of the ids and times that the opened records of the segments have.
func (q *Queue) observe(list []store.Found) {
	for i := range list {
		q.ids.Observe(envelope.ID(list[i].Open.LastID))
		for _, m := range list[i].Open.Marks {
			q.s.Arrivals.Mark(m)
		}
	}
}

// load fills the schedule.
func (q *Queue) load(list []store.Found, bodies map[uint64]int64) error {
	if len(list) >= schedule.MaxSegments-1 {
		return fmt.Errorf("queue: %d journal segments are more than there can be", len(list))
	}
	runs, segs := make([]*store.Run, len(list)), make([]*store.Segment, len(list))
	for i := range list {
		f := &list[i]
		runs[i] = f.Run
		segs[i] = &store.Segment{
			ID: f.ID, MaxID: f.Run.MaxID, Size: f.Run.End, Sealed: true, Indexed: f.Index,
			Trimmed: f.Size <= f.Run.End, Damaged: len(f.Run.Damaged) > 0, Unread: f.Run.Unread(),
		}
		q.segs.Add(segs[i])
		q.ids.Observe(envelope.ID(f.Run.MaxID))
	}
	now := q.now()
	l := newLoader(q, list, segs, bodies, now)
	rep := store.NewReplay(runs, func(of, on int, changed bool) { q.segs.Depend(segs[of], segs[on], changed) })
	if err := rep.All(l.message); err != nil {
		return fmt.Errorf("queue: reading an index failed: %w", err)
	}
	l.judgeClock(now)
	return l.loadKeys()
}

// loader puts histories on the schedule.
type loader struct {
	q      *Queue
	list   []store.Found
	segs   []*store.Segment // of list
	bodies map[uint64]int64
	keys   [][]uint32 // numbers of a run's keys, one more each; 0 when not looked up yet
	now    uint32
	newest uint32 // when the newest record about mail that is left was written

	// numbers of the origins and domains that a run's keys are; 0 when not looked up yet
	names [][]uint16
	// when what is older than a class was accepted at the latest; zero when younger mail was met
	old [len(view.AgeLimits)]time.Time
}

func newLoader(q *Queue, list []store.Found, segs []*store.Segment, bodies map[uint64]int64, now time.Time) *loader {
	l := &loader{q: q, list: list, segs: segs, bodies: bodies, now: uint32(now.Unix())}
	l.keys, l.names = make([][]uint32, len(list)), make([][]uint16, len(list))
	for i, limit := range view.AgeLimits {
		l.old[i] = now.Add(-limit)
	}
	return l
}

// judgeClock holds the clock against what is on the disk. Without mail there is nothing to hold it against: an
// idle relay writes nothing.
func (l *loader) judgeClock(now time.Time) {
	clock, running := &l.q.clock, time.Now()
	clock.look(now, running)
	for i := range l.list {
		l.wroteAt(store.SecondsSince1970(l.list[i].Open.Created))
	}
	if n := len(l.list); n > 0 {
		clock.resume(&l.list[n-1].Open, now, running)
	}
	if silence := now.Sub(time.Unix(int64(l.newest), 0)); silence > longestSilence && l.q.s.Len() > 0 {
		clock.wentAhead(silence, running)
	}
	if ahead := l.q.s.Arrivals.Latest().Sub(now); ahead > schedule.ClockSlack {
		clock.wasSetBack(ahead, running)
	}
	l.q.s.Arrivals.Clamp(uint64(l.q.ids.Next(now)), now.UnixMilli())
}

// wroteAt notes when something was written, unless the clock was ahead.
func (l *loader) wroteAt(at uint32) {
	if at <= l.now {
		l.newest = max(l.newest, at)
	}
}

func (l *loader) message(h *store.History) error {
	q := l.q
	seg := l.segs[h.Run]
	seg.Messages++
	seg.Live += schedule.Octets(h.Size)
	accepted := time.Unix(int64(h.At), 0)
	if h.At == 0 {
		accepted = envelope.ID(h.ID).Time() // all that there is to go by
	}
	l.wroteAt(store.SecondsSince1970(accepted))
	q.s.Arrivals.Add(h.ID, accepted)
	l.age(h.ID)
	q.s.Tenants.Add(h.ID, l.tenant(&h.Tenant), h.Tenant.Octets)
	if h.Plan.Scheduled() {
		q.s.Starts.Add(h.ID, h.Plan.Start())
	}
	if h.Moved {
		q.few.moves[h.ID] = h.Plan
	}
	if h.Expires != 0 {
		q.few.expiries.add(h.ID, h.Expires)
	}
	if h.Large != 0 {
		size, ok := l.bodies[h.Large]
		q.few.large[h.ID] = largeBody{h.Large, size}
		q.count.largeOctets += size
		q.count.largeLive += size
		if !ok {
			q.contentBroken(h.ID,
				&store.DamageError{File: q.dir.LargePath(h.Large), Off: 0, Err: errors.New("file is missing")})
		}
	}
	e := schedule.Entry{ID: h.ID, Size: h.Size}
	e.SetTier(h.Tier)
	e.SetData(schedule.LocOf(seg.Handle, h.Off))
	names := schedule.Names{Origin: l.origin(h)}
	for i := range h.Rcpts {
		if rc := &h.Rcpts[i]; rc.Living {
			e.Rcpt = uint16(i)
			l.wroteAt(rc.Said)
			e.Due = l.due(h, rc)
			names.Domain = l.domain(h.Run, rc.Domain)
			l.recipient(e, names, rc)
		}
	}
	return nil
}

func (l *loader) recipient(e schedule.Entry, names schedule.Names, rc *store.RecipientHistory) {
	q := l.q
	e.SetAttempts(rc.Attempts)
	e.Key = l.key(rc)
	e.SetWarned(rc.Marks&store.MarkWarned != 0)
	state := schedule.Deferred
	switch {
	case rc.Marks&store.MarkRemove != 0:
		state = schedule.Unreadable // finishRemovals ends it
		switch {
		case rc.Marks&store.MarkCancel != 0:
			e.SetAction(schedule.Cancel)
		case rc.Marks&store.MarkTransfer != 0:
			e.SetAction(schedule.Transfer)
		default:
			e.SetAction(schedule.Remove)
		}
	case rc.Marks&store.MarkBounce != 0 && q.cfg.Leaving != nil:
		state, e.Due = schedule.Due, l.now
		q.rcpts.replies[recipientKey{e.ID, e.Rcpt}] = Attempt{Reply: *q.cfg.Leaving}
	case rc.Marks&store.MarkBounce != 0:
		state = schedule.Ending
		e.SetAction(schedule.Bouncing)
	case rc.Marks&store.MarkHeld != 0:
		state = schedule.Held
	case e.Due <= l.now:
		state = schedule.Due
	}
	note := schedule.Loc(0)
	if rc.NoteRun >= 0 {
		note = schedule.LocOf(l.segs[rc.NoteRun].Handle, rc.NoteOff)
	}
	q.place(e, names, state, note)
}

// place puts a recipient that is not new on the schedule; note is where its last attempt is written down, 0 without
// one.
func (q *Queue) place(e schedule.Entry, names schedule.Names, state schedule.State, note schedule.Loc) {
	s := q.s.Append(e, names, state)
	p := q.s.At(s)
	q.s.Keys.Hold(p)
	if note != 0 {
		q.setNote(p, note)
	}
	switch state {
	case schedule.Due:
		q.s.Push(q.ready.backlog[e.Tier()], s)
	case schedule.Ending:
		q.s.Push(q.ready.ending, s)
	case schedule.Deferred:
		q.s.Wheel.Add(s)
	}
}

// longestWait is the longest that a recipient was ever deferred for, in seconds.
const longestWait = 7 * 24 * 3600

// due is when a recipient is due. What the clock said when that was written down is held against what it
// says now: if it was ahead, the recipient waits as long as it was to wait then, from now on.
func (l *loader) due(h *store.History, rc *store.RecipientHistory) uint32 {
	switch {
	case rc.Due == 0:
		return min(store.SecondsSince1970(l.q.s.Arrivals.Of(h.ID)), l.now)
	case rc.Due <= l.now, h.Plan.Scheduled() && rc.Due <= h.Plan.Start():
		return rc.Due
	case rc.Said > l.now:
		return l.now + rc.Due - min(rc.Said, rc.Due)
	case rc.Said == 0 && rc.Due-l.now > longestWait:
		return l.now
	}
	return rc.Due
}

// tenant gives whose a message is.
func (l *loader) tenant(h *store.TenantHistory) string {
	if h.Run < 0 {
		return ""
	}
	names := l.list[h.Run].Run.Keys
	if int(h.Key) >= len(names) {
		return ""
	}
	return names[h.Key]
}

// age notes how old the next message is. Ages fall from message to message, unless a clock was wrong.
func (l *loader) age(id uint64) {
	accepted := l.q.s.Arrivals.Of(id)
	for i, limit := range l.old {
		if limit.IsZero() || accepted.After(limit) {
			l.old[i] = time.Time{}
			continue
		}
		l.q.s.BeginOld(i, id+1)
	}
	l.q.s.Newest = id
}

// origin gives the number of a message's origin.
func (l *loader) origin(h *store.History) uint16 {
	tenant := l.tenant(&h.Tenant)
	text, known := l.list[h.Run].Run.NameOf(h.Origin)
	if !known {
		return l.q.s.Origins.Number(schedule.Origin{Tenant: tenant, Folded: true}, h.Living)
	}
	cached := l.cached(h.Run, h.Origin)
	*cached = l.q.s.Origins.Again(*cached, schedule.OriginOf(tenant, text), h.Living)
	return *cached
}

// domain gives the number of a recipient's domain.
func (l *loader) domain(run int, key uint32) uint16 {
	name, known := l.list[run].Run.NameOf(key)
	if !known {
		return 0
	}
	cached := l.cached(run, key)
	*cached = l.q.s.Domains.Again(*cached, name, 1)
	return *cached
}

// cached is the number that a name of a run had last.
func (l *loader) cached(run int, key uint32) *uint16 {
	if l.names[run] == nil {
		l.names[run] = make([]uint16, len(l.list[run].Run.Keys))
	}
	return &l.names[run][key-1]
}

// key gives the number of the key that a recipient waited under.
func (l *loader) key(rc *store.RecipientHistory) uint32 {
	if rc.KeyRun < 0 {
		return 0
	}
	names := l.list[rc.KeyRun].Run.Keys
	if int(rc.Key) >= len(names) {
		return 0
	}
	if l.keys[rc.KeyRun] == nil {
		l.keys[rc.KeyRun] = make([]uint32, len(names))
	}
	known := &l.keys[rc.KeyRun][rc.Key]
	if *known == 0 {
		*known = l.q.s.Keys.Number(parking.ParseLine(names[rc.Key])) + 1
	}
	return *known - 1
}

// removeOrphans deletes contents that no message names: of drafts that were never committed, and
// of messages that were settled just before the end.
func (q *Queue) removeOrphans(bodies map[uint64]int64) {
	needed := map[uint64]bool{}
	for _, l := range q.few.large {
		needed[l.number] = true
		q.largeSeq.Store(max(q.largeSeq.Load(), l.number))
	}
	n := 0
	for number := range bodies {
		if needed[number] {
			continue
		}
		if err := q.dir.FS.Remove(q.dir.LargePath(number)); err != nil {
			q.log.Warn("queue: removing a content that no message names", "file", q.dir.LargePath(number), "error", err)
			continue
		}
		n++
	}
	if n > 0 {
		q.log.Info("queue: removed contents that no message names", "files", n)
	}
}

// loadKeys brings back the keys of requests. The latest record of a key counts.
func (l *loader) loadKeys() error {
	q, records := l.q, 0
	for i := range l.list {
		records += l.list[i].Run.Keyed
	}
	if records == 0 {
		return nil
	}
	limit := q.keyTables[0].Limit
	ages := map[*schedule.KeyTable][]uint32{}
	for i := range q.keyTables {
		t := schedule.NewKeyTable(max(limit, records))
		q.keyTables[i], ages[t] = t, nil
	}
	now := l.now
	if q.clock.doubtful(q.clock.running) > 0 {
		now = 0
	}
	for i := range l.list {
		seg := l.segs[i]
		err := l.list[i].Run.EachKey(func(it *store.KeyItem) error {
			if it.Until > now {
				t, n := q.setKey(seg, *it)
				if ages[t] == nil {
					ages[t] = make([]uint32, min(records, schedule.MaxKeys)+2)
				}
				ages[t][n] = it.At
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for t, at := range ages {
		t.Order(at)
		for t.Limit = limit; t.Count > limit; {
			t.Evicted++
			q.dropKey(t, t.Evictable())
		}
	}
	return nil
}
