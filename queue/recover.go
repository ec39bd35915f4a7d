package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/journal"
	"example.org/mta/queue/schedule"
)

// found is a segment as the start finds it.
type found struct {
	id    journal.Segment
	size  int64 // of the file
	end   int64 // what of it is to be trusted, or journal.Unknown
	index bool  // there is a file with its index
	run   *run
	open  opening
	seg   *segment
}

// recover brings back what the directory has. It returns the largest segment number in use.
func (q *Queue) recover() (last uint32, err error) {
	began := time.Now()
	list, last, err := q.listSegments()
	if err != nil {
		return 0, err
	}
	defer func() {
		for i := range list {
			if list[i].run != nil {
				list[i].run.close()
			}
		}
	}()
	if list, err = q.readIndexes(list); err != nil {
		return 0, err
	}
	bodies, err := q.listLarge()
	if err != nil {
		return 0, err
	}
	if err := q.load(list, bodies); err != nil {
		return 0, err
	}
	q.removeOrphans(bodies)
	q.count.Recovered = int64(q.table.Len())
	if len(list) > 0 {
		q.log.Info("queue: opened", "dir", q.cfg.Dir, "recipients", q.table.Len(), "segments", len(list), "took", time.Since(began))
	}
	return last, nil
}

// listSegments finds the segments, in order of number.
func (q *Queue) listSegments() (list []found, last uint32, err error) {
	files, err := q.fs.List(q.cfg.Dir)
	if err != nil {
		return nil, 0, fmt.Errorf("queue: reading directory: %w", err)
	}
	indexes := map[journal.Segment]bool{}
	for _, f := range files {
		if strings.HasSuffix(f.Name, tmpSuffix) || strings.HasSuffix(f.Name, spareSuffix) {
			q.fs.Remove(q.path(f.Name)) // was being written, or never used; if it stays it does no harm
			continue
		}
		id, suffix, ok := parseSegmentName(f.Name)
		if !ok {
			continue
		}
		last = max(last, id.Number)
		switch suffix {
		case segmentSuffix:
			list = append(list, found{id: id, size: f.Size, end: journal.Unknown})
		case indexSuffix:
			indexes[id] = true
		}
	}
	slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.id.Number, b.id.Number) })
	for i := range list {
		list[i].index = indexes[list[i].id]
		delete(indexes, list[i].id)
	}
	for id := range indexes { // of segments that are gone
		q.fs.Remove(q.indexPath(id))
	}
	aside, err := q.fs.List(q.path(damagedDir))
	if err != nil {
		return nil, 0, fmt.Errorf("queue: reading directory: %w", err)
	}
	for _, f := range aside {
		if id, _, ok := parseSegmentName(f.Name); ok {
			last = max(last, id.Number)
			q.count.damagedFiles++
		}
	}
	return list, last, nil
}

// readIndexes opens the index of each segment, or makes it. Files in which nothing was ever
// synced are deleted; those that can't be read at all are left alone and out of the list.
func (q *Queue) readIndexes(list []found) ([]found, error) {
	q.findEnds(list)
	kept := list[:0]
	for i := range list {
		f := list[i]
		if f.index {
			r, err := openIndex(q.fs, q.indexPath(f.id), f.id)
			format := (*formatError)(nil)
			switch {
			case err == nil:
				f.run = r
			case errors.As(err, &format):
				format.file = q.indexPath(f.id)
				return nil, fmt.Errorf("queue: %w", format)
			default:
				q.log.Warn("queue: an index can't be used and is made again from its segment", "file", q.indexPath(f.id), "error", err)
			}
		}
		use := true
		if f.run == nil {
			var err error
			if use, err = q.scanSegment(&f); err != nil {
				return nil, err
			}
		}
		if use {
			kept = append(kept, f)
		}
	}
	return kept, nil
}

// findEnds reads, from the opened records, where the segments before end.
func (q *Queue) findEnds(list []found) {
	ends := map[uint32]int64{}
	for i := range list {
		f := &list[i]
		rec, err := q.readRecord(place{id: f.id, off: 0, size: noteGuess})
		if err == nil && rec.Kind == kindOpened {
			f.open, _ = decodeOpening(rec.Payload)
		}
		for _, e := range f.open.ends {
			ends[e.number] = e.end
		}
		q.ids.Observe(envelope.ID(f.open.lastID))
		for _, m := range f.open.marks {
			q.arrivals.Mark(m)
		}
	}
	for i := range list {
		f := &list[i]
		if end, ok := ends[f.id.Number]; ok {
			f.end = end
		} else if f.size < f.open.allocated {
			f.end = f.size // it was trimmed
		}
	}
}

// scanSegment makes the index of a segment from its records. It reports false when the segment
// is not to be used. An error says that a newer program has written it.
func (q *Queue) scanSegment(f *found) (use bool, _ error) {
	name := q.segmentPath(f.id)
	ix, res, err := scanIndex(q.fs, name, f.id, f.end)
	if format := (*formatError)(nil); errors.As(err, &format) {
		return false, fmt.Errorf("queue: %w", format)
	}
	if err != nil {
		q.reportDamage(&damageError{file: name, off: 0, err: err}, "a journal segment can't be read at all; it is left where it is, and what is in it is not served")
		q.count.damagedFiles++
		return false, nil
	}
	if res.Torn > 0 {
		q.log.Info("queue: the end of a journal segment was never synced, so that nothing in it was promised; it is void", "file", name, "offset", res.End, "octets", res.Torn)
	}
	q.countDamage(f.id, ix.damaged)
	if res.End == 0 && len(ix.damaged) == 0 {
		q.fs.Remove(name) // a segment that was made and never used; if it stays it does no harm
		return false, nil
	}
	f.run = ix.run()
	if len(ix.damaged) > 0 {
		f.index = true // there must be none
		q.fs.Remove(q.indexPath(f.id))
	} else if err := ix.write(q.fs, q.indexPath(f.id)); err != nil {
		q.log.Warn("queue: writing an index; it is tried again", "file", q.indexPath(f.id), "error", err)
	} else {
		f.index = true
	}
	return true, nil
}

func (q *Queue) listLarge() (map[uint64]int64, error) {
	files, err := q.fs.List(q.path(largeDir))
	if err != nil {
		return nil, fmt.Errorf("queue: reading directory: %w", err)
	}
	sizes := map[uint64]int64{}
	for _, f := range files {
		if n, ok := parseLargeName(f.Name); ok {
			sizes[n] = f.Size
			q.largeSeq.Store(max(q.largeSeq.Load(), n))
		}
	}
	return sizes, nil
}

// load fills the schedule.
func (q *Queue) load(list []found, bodies map[uint64]int64) error {
	if len(list) >= schedule.MaxSegments-1 {
		return fmt.Errorf("queue: %d journal segments are more than there can be", len(list))
	}
	runs := make([]*run, len(list))
	for i := range list {
		f := &list[i]
		runs[i] = f.run
		f.seg = &segment{
			id: f.id, maxID: f.run.maxID, size: f.run.end, sealed: true, indexed: f.index,
			trimmed: f.size <= f.run.end, damaged: len(f.run.damaged) > 0, unread: f.run.unread(),
		}
		q.segs.add(f.seg)
		q.ids.Observe(envelope.ID(f.run.maxID))
	}
	now := q.now()
	l := newLoader(q, list, bodies, now)
	rep := newReplay(runs, func(of, on int, changed bool) { q.segs.depend(list[of].seg, list[on].seg, changed) })
	if err := rep.all(l.message); err != nil {
		return fmt.Errorf("queue: reading an index failed: %w", err)
	}
	l.judgeClock(now)
	return l.loadKeys()
}

// loader puts histories on the schedule.
type loader struct {
	q      *Queue
	list   []found
	bodies map[uint64]int64
	keys   [][]uint32 // numbers of a run's keys, one more each; 0 when not looked up yet
	now    uint32
	newest uint32 // when the newest record about mail that is left was written

	names [][]uint16                // numbers of the origins and domains that a run's keys are; 0 when not looked up yet
	old   [len(AgeLimits)]time.Time // when what is older than a class was accepted at the latest; zero when younger mail was met
}

func newLoader(q *Queue, list []found, bodies map[uint64]int64, now time.Time) *loader {
	l := &loader{q: q, list: list, bodies: bodies, now: uint32(now.Unix())}
	l.keys, l.names = make([][]uint32, len(list)), make([][]uint16, len(list))
	for i, limit := range AgeLimits {
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
		l.wroteAt(secondsSince1970(l.list[i].open.created))
	}
	if n := len(l.list); n > 0 {
		clock.resume(&l.list[n-1].open, now, running)
	}
	if silence := now.Sub(time.Unix(int64(l.newest), 0)); silence > longestSilence && l.q.table.Len() > 0 {
		clock.wentAhead(silence, running)
	}
	if ahead := l.q.arrivals.Latest().Sub(now); ahead > schedule.ClockSlack {
		clock.wasSetBack(ahead, running)
	}
	l.q.arrivals.Clamp(uint64(l.q.ids.Next(now)), now.UnixMilli())
}

// wroteAt notes when something was written, unless the clock was ahead.
func (l *loader) wroteAt(at uint32) {
	if at <= l.now {
		l.newest = max(l.newest, at)
	}
}

func (l *loader) message(h *history) error {
	q := l.q
	seg := l.list[h.run].seg
	seg.messages++
	seg.live += schedule.Octets(h.size)
	accepted := time.Unix(int64(h.at), 0)
	if h.at == 0 {
		accepted = envelope.ID(h.id).Time() // all that there is to go by
	}
	l.wroteAt(secondsSince1970(accepted))
	q.arrivals.Add(h.id, accepted)
	l.age(h.id)
	q.tenants.Add(h.id, l.tenant(&h.tenant), h.tenant.octets)
	if h.plan.scheduled() {
		q.starts.Add(h.id, h.plan.start())
	}
	if h.moved {
		q.moves[h.id] = h.plan
	}
	if h.expires != 0 {
		q.expiries.add(h.id, h.expires)
	}
	if h.large != 0 {
		size, ok := l.bodies[h.large]
		q.large[h.id] = largeBody{h.large, size}
		q.count.largeOctets += size
		q.count.largeLive += size
		if !ok {
			q.contentBroken(h.id, &damageError{file: q.largePath(h.large), off: 0, err: errors.New("file is missing")})
		}
	}
	e := schedule.Entry{ID: h.id, Size: h.size}
	e.SetTier(h.tier)
	e.SetData(schedule.LocOf(seg.handle, h.off))
	names := schedule.Names{Origin: l.origin(h)}
	for i := range h.rcpts {
		if rc := &h.rcpts[i]; rc.living {
			e.Rcpt = uint16(i)
			l.wroteAt(rc.said)
			e.Due = l.due(h, rc)
			names.Domain = l.domain(h.run, rc.domain)
			l.recipient(e, names, rc)
		}
	}
	return nil
}

func (l *loader) recipient(e schedule.Entry, names schedule.Names, rc *recipientHistory) {
	q := l.q
	e.SetAttempts(rc.attempts)
	e.Key = l.key(rc)
	e.SetWarned(rc.marks&markWarned != 0)
	state := schedule.Deferred
	switch {
	case rc.marks&markRemove != 0:
		state = schedule.Unreadable // finishRemovals ends it
		switch {
		case rc.marks&markCancel != 0:
			e.SetAction(schedule.Cancel)
		case rc.marks&markTransfer != 0:
			e.SetAction(schedule.Transfer)
		default:
			e.SetAction(schedule.Remove)
		}
	case rc.marks&markBounce != 0:
		state = schedule.Ending
		e.SetAction(schedule.Bouncing)
	case rc.marks&markHeld != 0:
		state = schedule.Held
	case e.Due <= l.now:
		state = schedule.Due
	}
	s := q.table.Append(e, names, state)
	p := q.table.At(s)
	q.keys.Hold(p)
	if rc.noteRun >= 0 {
		q.setNote(p, schedule.LocOf(l.list[rc.noteRun].seg.handle, rc.noteOff))
	}
	switch state {
	case schedule.Due:
		q.table.Push(q.backlog[e.Tier()], s)
	case schedule.Ending:
		q.table.Push(q.ending, s)
	case schedule.Deferred:
		q.wheel.Add(s)
	}
}

// longestWait is the longest that a recipient was ever deferred for, in seconds.
const longestWait = 7 * 24 * 3600

// due is when a recipient is due. What the clock said when that was written down is held against what it
// says now: if it was ahead, the recipient waits as long as it was to wait then, from now on.
func (l *loader) due(h *history, rc *recipientHistory) uint32 {
	switch {
	case rc.due == 0:
		return min(secondsSince1970(l.q.arrivals.Of(h.id)), l.now)
	case rc.due <= l.now, h.plan.scheduled() && rc.due <= h.plan.start():
		return rc.due
	case rc.said > l.now:
		return l.now + rc.due - min(rc.said, rc.due)
	case rc.said == 0 && rc.due-l.now > longestWait:
		return l.now
	}
	return rc.due
}

// tenant gives whose a message is.
func (l *loader) tenant(h *tenantHistory) string {
	if h.run < 0 {
		return ""
	}
	names := l.list[h.run].run.keys
	if int(h.key) >= len(names) {
		return ""
	}
	return names[h.key]
}

// age notes how old the next message is. Ages fall from message to message, unless a clock was wrong.
func (l *loader) age(id uint64) {
	accepted := l.q.arrivals.Of(id)
	for i, limit := range l.old {
		if limit.IsZero() || accepted.After(limit) {
			l.old[i] = time.Time{}
			continue
		}
		l.q.table.BeginOld(i, id+1)
	}
	l.q.newest = id
}

// origin gives the number of a message's origin.
func (l *loader) origin(h *history) uint16 {
	tenant := l.tenant(&h.tenant)
	text, known := l.list[h.run].run.nameOf(h.origin)
	if !known {
		return l.q.origins.Number(schedule.Origin{Tenant: tenant, Folded: true}, h.living)
	}
	cached := l.cached(h.run, h.origin)
	*cached = l.q.origins.Again(*cached, schedule.OriginOf(tenant, text), h.living)
	return *cached
}

// domain gives the number of a recipient's domain.
func (l *loader) domain(run int, key uint32) uint16 {
	name, known := l.list[run].run.nameOf(key)
	if !known {
		return 0
	}
	cached := l.cached(run, key)
	*cached = l.q.domains.Again(*cached, name, 1)
	return *cached
}

// cached is the number that a name of a run had last.
func (l *loader) cached(run int, key uint32) *uint16 {
	if l.names[run] == nil {
		l.names[run] = make([]uint16, len(l.list[run].run.keys))
	}
	return &l.names[run][key-1]
}

// key gives the number of the key that a recipient waited under.
func (l *loader) key(rc *recipientHistory) uint32 {
	if rc.keyRun < 0 {
		return 0
	}
	names := l.list[rc.keyRun].run.keys
	if int(rc.key) >= len(names) {
		return 0
	}
	if l.keys[rc.keyRun] == nil {
		l.keys[rc.keyRun] = make([]uint32, len(names))
	}
	known := &l.keys[rc.keyRun][rc.key]
	if *known == 0 {
		*known = l.q.keys.Number(parking.Line{Key: parking.Parse(names[rc.key])}) + 1
	}
	return *known - 1
}

// removeOrphans deletes contents that no message names: of drafts that were never committed, and
// of messages that were settled just before the end.
func (q *Queue) removeOrphans(bodies map[uint64]int64) {
	needed := map[uint64]bool{}
	for _, l := range q.large {
		needed[l.number] = true
		q.largeSeq.Store(max(q.largeSeq.Load(), l.number))
	}
	n := 0
	for number := range bodies {
		if needed[number] {
			continue
		}
		if err := q.fs.Remove(q.largePath(number)); err != nil {
			q.log.Warn("queue: removing a content that no message names", "file", q.largePath(number), "error", err)
			continue
		}
		n++
	}
	if n > 0 {
		q.log.Info("queue: removed contents that no message names", "files", n)
	}
}
