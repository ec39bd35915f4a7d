package queue

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
)

const (
	// noteDelay is how long a settled or deferred record waits for a group that it can ride
	// along with, before it is written by itself. A crash repeats what was settled in that time
	// and in the sync after it, and nothing else.
	noteDelay = 50 * time.Millisecond
	// notesAtOnce is when it waits no longer, in octets.
	notesAtOnce = 256 << 10
	// groupOctets bounds a group, unless one record is larger.
	groupOctets = 4 << 20
	// sharedOctets bounds a group while several tenants submit, and for sharedFor after that: who comes
	// while a group is written waits for all of it, and should not for megabytes of somebody else.
	sharedOctets = 256 << 10
	sharedFor    = time.Minute
	// arenaSize is the room for payloads of notes that is taken at once.
	arenaSize = 32 << 10
	// proofDelay is how long nothing is written before a record says that all before it was synced.
	proofDelay = time.Second
	// mostUnknown is how many notes may not be durable where what becomes of mail is to be known elsewhere in time.
	mostUnknown = 1000
	// retryDelay is how long the writer rests when no segment can be written.
	retryDelay = 500 * time.Millisecond
)

// note is a record about a message that was accepted before.
type note struct {
	kind    store.Kind
	id      uint64
	payload []byte
	seq     uint64
	of      *store.Segment // that has the message's data
	large   uint64         // file that can go once this is durable, or 0
	offset  int64          // where it was written
}

// barrier waits until the notes up to seq are durable.
type barrier struct {
	seq  uint64
	done chan error
}

// writer is the one that writes to the journal.
type writer struct {
	q       *Queue
	kick    chan struct{}
	stopped chan struct{}
	renew   atomic.Bool // a new segment is to be begun: its opened record has something to remember

	mu       sync.Mutex // guards what waits
	closing  bool
	accepts  lines
	shared   time.Time // when mail of several tenants waited last
	notes    []note
	octets   int64     // of notes
	since    time.Time // when the first of notes came
	writing  int       // notes of the group that is being written
	seq      uint64    // of the last note
	barriers []barrier
	arena    []byte // room for payloads of notes

	making sync.Mutex // guards the two below while a segment is made, so that numbers are used in order
	number uint32     // of the last segment made
	spare  *spare     // the next segment, nil when it is still to be made

	// The goroutine's own.
	active *store.Segment
	file   vfs.File
	begun  bool      // the opened record of the active segment is durable
	proven bool      // a synced record follows the last group, or could not be written
	wrote  time.Time // when that was written
	buf    []byte
	timer  *time.Timer
	failed time.Time // when writing failed last; zero when all is well

	idleAccepts []*Draft // arrays to use again
	idleNotes   []note
}

// spare is a segment file that was made in advance.
type spare struct {
	id   store.SegmentID
	file vfs.File
}

// newWriter makes a writer whose segments get numbers above last.
func newWriter(q *Queue, last uint32) *writer {
	return &writer{q: q, kick: make(chan struct{}, 1), stopped: make(chan struct{}),
		timer: time.NewTimer(time.Hour), number: last}
}

// accept queues messages, which stay together; it reports false when the queue is closed.
func (w *writer) accept(drafts ...*Draft) bool {
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return false
	}
	first := false
	for _, d := range drafts {
		first = w.accepts.push(d) || first
	}
	w.mu.Unlock()
	if first {
		w.q.nudge(w.kick)
	}
	return true
}

// note queues a record. The payload is what encode appends. It is called with Queue.mu held, so
// that the journal has the order of the schedule's changes.
func (w *writer) note(kind store.Kind, id uint64, of *store.Segment, large uint64, encode func([]byte) []byte) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cap(w.arena)-len(w.arena) < 256 {
		w.arena = make([]byte, 0, arenaSize) // the payloads keep what they need of the old one
	}
	start, room := len(w.arena), cap(w.arena)
	w.arena = encode(w.arena)
	payload := w.arena[start:len(w.arena):len(w.arena)]
	if cap(w.arena) > room {
		// A moved message, mostly. What it was appended to was copied for it, and would be, larger
		// each time, for all that follow.
		payload, w.arena = bytes.Clone(payload), nil
	}
	w.seq++
	if len(w.notes) == 0 {
		w.since = time.Now()
		w.q.nudge(w.kick)
	}
	w.notes = append(w.notes, note{kind: kind, id: id, payload: payload, seq: w.seq, of: of, large: large})
	before := w.octets
	w.octets += store.RecordSize(len(payload))
	if before < notesAtOnce && w.octets >= notesAtOnce {
		w.q.nudge(w.kick)
	}
	return w.seq
}

// flush waits until all notes so far are durable. An error means that they are not yet: they are
// kept and written as soon as it can be.
func (w *writer) flush() error {
	done := make(chan error, 1)
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return ErrClosed
	}
	w.barriers = append(w.barriers, barrier{w.seq, done})
	w.mu.Unlock()
	w.q.nudge(w.kick)
	return <-done
}

// pending is how many octets of notes are not durable.
func (w *writer) pending() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.octets
}

// unknown is how many notes are not durable.
func (w *writer) unknown() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.notes) + w.writing
}

// close writes what waits and ends the goroutine. The error is nil when all is durable.
func (w *writer) close() error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.q.nudge(w.kick)
	<-w.stopped
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.notes); n > 0 {
		return fmt.Errorf("%w: %d records of outcomes could not be written: those recipients will be tried again",
			ErrStorage, n)
	}
	if !w.failed.IsZero() {
		return fmt.Errorf("messages that were refused last can be in the queue at the next start: %w", w.q.lastFault())
	}
	return nil
}

// group is what is written at once.
type group struct {
	accepts  []*Draft
	keyings  []*keying // of accepts
	notes    []note
	barriers []barrier
	closing  bool
}

func (w *writer) run() {
	defer close(w.stopped)
	defer w.timer.Stop()
	for {
		g := w.collect()
		w.commit(&g)
		w.reuse(&g)
		if g.closing && w.done() {
			break
		}
	}
	if w.file != nil {
		w.end()
		w.file.Close()
	}
	if w.spare != nil {
		w.spare.file.Close()
		w.q.dir.FS.Remove(w.q.dir.SparePath(w.spare.id))
	}
}

// done reports whether a closing writer has done what it can.
func (w *writer) done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accepts.waiting == 0 && (len(w.notes) == 0 || !w.failed.IsZero())
}

// collect waits for work and takes what fits in a group.
func (w *writer) collect() group {
	for {
		w.mu.Lock()
		wait, ok := w.idleFor()
		if ok {
			g := w.take()
			w.mu.Unlock()
			return g
		}
		w.mu.Unlock()
		w.timer.Reset(wait)
		select {
		case <-w.kick:
		case <-w.timer.C:
		}
	}
}

// idleFor reports whether there is something to do now and, if not, how long nothing need be done.
func (w *writer) idleFor() (time.Duration, bool) {
	const long = time.Hour
	if w.closing || w.accepts.waiting > 0 {
		return 0, true
	}
	wait := long
	if !w.failed.IsZero() {
		wait = retryDelay - time.Since(w.failed)
		if len(w.barriers) > 0 {
			return 0, true
		}
		return wait, wait <= 0
	}
	if len(w.barriers) > 0 || w.octets >= notesAtOnce {
		return 0, true
	}
	if !w.proven && w.begun && w.active != nil {
		wait = proofDelay - time.Since(w.wrote)
	}
	if len(w.notes) > 0 {
		wait = min(wait, noteDelay-time.Since(w.since))
	}
	return wait, wait <= 0
}

// take moves what waits to a group, in order: notes first, since they make room.
func (w *writer) take() group {
	g := group{closing: w.closing}
	limit := min(groupOctets, w.q.cfg.SegmentSize/2)
	size := int64(0)
	n := 0
	for n < len(w.notes) && (n == 0 || size < limit) {
		size += store.RecordSize(len(w.notes[n].payload))
		n++
	}
	g.notes, w.writing = w.notes[:n:n], n
	w.octets -= size
	if n == len(w.notes) {
		w.notes, w.idleNotes = w.idleNotes[:0], nil
	} else {
		w.notes = append(w.idleNotes[:0], w.notes[n:]...)
		w.idleNotes = nil
	}
	g.accepts, w.idleAccepts = w.takeAccepts(w.idleAccepts[:0], size, limit), nil
	g.barriers, w.barriers = w.barriers, nil
	return g
}

// takeAccepts moves messages to a group that has size octets, in turns of their tenants.
func (w *writer) takeAccepts(to []*Draft, size, limit int64) []*Draft {
	now := time.Now()
	if w.accepts.shared() {
		w.shared = now
	}
	if now.Sub(w.shared) < sharedFor {
		limit = min(limit, size+sharedOctets)
	}
	for d := w.accepts.front(); d != nil && (len(to) == 0 || size+d.recordSize() <= limit); d = w.accepts.front() {
		w.accepts.pop()
		if err := d.failed(); err != nil {
			d.answer(err)
			continue
		}
		size += d.recordSize()
		to = append(to, d)
	}
	return to
}

// reuse keeps the arrays of a group for a later one.
func (w *writer) reuse(g *group) {
	clear(g.notes)
	clear(g.accepts)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = 0
	if cap(g.notes) > cap(w.idleNotes) && cap(g.notes) <= 4096 {
		w.idleNotes = g.notes[:0]
	}
	if cap(g.accepts) > cap(w.idleAccepts) && cap(g.accepts) <= 4096 {
		w.idleAccepts = g.accepts[:0]
	}
}

func (d *Draft) recordSize() int64 { return store.RecordSize(len(d.head) + len(d.body)) }

// commit makes a group durable and answers everyone in it.
func (w *writer) commit(g *group) {
	if !w.failed.IsZero() && time.Since(w.failed) < retryDelay && !g.closing {
		w.refuse(g, w.q.lastFault())
		return
	}
	if len(g.notes) == 0 && len(g.accepts) == 0 && w.failed.IsZero() {
		if !g.closing && len(g.barriers) == 0 {
			w.prove()
		}
		w.answer(g)
		return
	}
	err := w.write(g)
	if err == nil {
		w.recovered()
		w.answer(g)
		return
	}
	w.q.setFault(err)
	// The clients are told only after the next segment says, durably, that the end of this one
	// is void: none of them may find its message accepted after all.
	rescue := group{notes: g.notes}
	if again := w.write(&rescue); again != nil {
		w.failed = time.Now()
		w.q.stall(again)
	} else {
		w.recovered()
		g.notes = nil
	}
	w.refuse(g, err)
}

// refuse answers the group with an error; its notes go back in front of those that wait.
func (w *writer) refuse(g *group, err error) {
	w.mu.Lock()
	if len(g.notes) > 0 {
		w.notes = append(append([]note(nil), g.notes...), w.notes...)
		for i := range g.notes {
			w.octets += store.RecordSize(len(g.notes[i].payload))
		}
		g.notes = nil
	}
	w.mu.Unlock()
	for _, d := range g.accepts {
		d.answer(err)
	}
	for _, b := range g.barriers {
		b.done <- err
	}
}

// answer reports success to everyone in a group.
func (w *writer) answer(g *group) {
	for _, d := range g.accepts {
		d.answer(nil)
	}
	if len(g.barriers) == 0 {
		return
	}
	w.mu.Lock()
	var later []barrier
	for _, b := range g.barriers {
		if len(w.notes) > 0 && w.notes[0].seq <= b.seq {
			later = append(later, b)
		} else {
			b.done <- nil
		}
	}
	w.barriers = append(later, w.barriers...)
	w.mu.Unlock()
}

func (w *writer) recovered() {
	if !w.failed.IsZero() {
		w.failed = time.Time{}
		w.q.unstall()
	}
}

// write puts a group in the active segment, a new one if it does not fit, syncs it and enters
// the outcome in the schedule. After an error the segment is sealed where the last good sync
// left it.
func (w *writer) write(g *group) error {
	size := int64(0)
	for i := range g.notes {
		size += store.RecordSize(len(g.notes[i].payload))
	}
	for _, d := range g.accepts {
		size += d.recordSize()
	}
	for _, k := range w.assign(g) {
		size += k.bound()
	}
	if w.active != nil && w.begun && (w.active.Size+size > w.q.cfg.SegmentSize || w.renew.Swap(false)) {
		w.seal()
	}
	if w.active == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	buf := w.build(g)
	err := w.put(buf)
	if err != nil {
		w.q.failures.Journal.Failed(store.FailureClass(err),
			"file", w.q.dir.SegmentPath(w.active.ID), "offset", w.active.Size, "octets", len(buf), "error", err)
		w.seal()
		return store.StorageError("writing the journal", err)
	}
	if !w.begun { // an error costs a proof only
		w.file.Truncate(w.q.cfg.SegmentSize + store.UsedMark)
		w.q.markInUse(w.active.ID)
	}
	w.begun, w.proven, w.wrote = true, false, time.Now()
	w.q.failures.Journal.Well()
	w.q.written(w.active, g, int64(len(buf)))
	if w.active.Size > w.q.cfg.SegmentSize*7/8 {
		w.q.nudge(w.q.kick.janitor) // it makes the next one
	}
	return nil
}

// prove writes, after a quiet moment, that all so far was synced: else a start could not tell damage in the
// last group from one that was being written when the power went. It needs no sync: a power cut that takes it
// away takes only the proof.
func (w *writer) prove() {
	w.proven = true
	if w.active == nil || !w.begun {
		return
	}
	b, start := store.BeginRecord(nil)
	b = store.FinishRecord(append(b, w.q.form()), start, w.active.ID, w.active.Size, store.KindSynced, 0)
	if w.active.Size+int64(len(b)) > w.q.cfg.SegmentSize {
		return
	}
	w.file.WriteAt(b, w.active.Size) // it counts as no part of the segment: the next group is written over it
}

func (w *writer) put(buf []byte) error {
	off := w.active.Size
	if n, err := w.file.WriteAt(buf, off); err != nil {
		return err
	} else if n < len(buf) {
		return fmt.Errorf("short write: %d of %d octets", n, len(buf))
	}
	return w.file.Sync()
}

// assign finds the keyed records that a group needs: one for each batch with a key.
func (w *writer) assign(g *group) []*keying {
	for _, d := range g.accepts {
		if k := d.keying(); k != nil {
			if k.inGroup == 0 {
				g.keyings = append(g.keyings, k)
			}
			k.inGroup++
		}
	}
	return g.keyings
}

// build makes the octets of a group, gives the messages their ids and notes where each lies.
func (w *writer) build(g *group) []byte {
	b := w.buf[:0]
	id, base := w.active.ID, w.active.Size
	var start int
	now := w.q.now()
	if !w.begun {
		b, start = store.BeginRecord(b)
		b = store.FinishRecord(store.AppendOpening(b, w.q.form(), w.q.opening(now)), start, id, base,
			store.KindOpened, 0)
	}
	for i := range g.notes {
		n := &g.notes[i]
		if n.kind == store.KindKeyed && !w.q.isCurrent(n) {
			continue
		}
		b, start = store.BeginRecord(b)
		n.offset = base + int64(start)
		b = store.FinishRecord(append(b, n.payload...), start, id, base, n.kind, n.id)
	}
	for _, d := range g.accepts {
		d.msg.ID = w.q.ids.Next(now)
		if k := d.keying(); k != nil {
			k.Own = append(k.Own, store.Placed{Position: d.position, ID: d.msg.ID})
		}
	}
	for _, k := range g.keyings {
		b, start = store.BeginRecord(b)
		k.offset = base + int64(start)
		b = store.FinishRecord(k.append(b, w.q.form()), start, id, base, store.KindKeyed, 0)
		k.size = base + int64(len(b)) - k.offset
	}
	for _, d := range g.accepts {
		b, start = store.BeginRecord(b)
		d.offset = base + int64(start)
		b = append(append(b, d.head...), d.body...)
		store.Sign(b[start+store.HeaderSize:], uint64(d.msg.ID))
		kind := store.KindAccepted
		if d.standings != nil {
			kind = store.KindMoved
		}
		b = store.FinishRecord(b, start, id, base, kind, uint64(d.msg.ID))
	}
	w.buf = b
	if cap(w.buf) > 2*groupOctets {
		w.buf = nil
	}
	return b
}

// open begins a new segment: one that was made in advance, or one made now.
func (w *writer) open() error {
	s, err := w.takeSpare()
	if err == nil {
		if err = w.q.use(s); err != nil {
			s.file.Close()
		}
	}
	if err != nil {
		w.q.failures.Journal.Failed(store.FailureClass(err), "step", "beginning a segment", "error", err)
		return err
	}
	w.active, w.file, w.begun = &store.Segment{ID: s.id, MaxID: store.NoBound}, s.file, false
	if err := w.q.addSegment(w.active); err != nil {
		w.active = nil
		s.file.Close()
		w.q.dir.FS.Remove(w.q.dir.SegmentPath(s.id))
		return err
	}
	return nil
}

// takeSpare gives the segment that was made in advance, or makes one.
func (w *writer) takeSpare() (*spare, error) {
	w.making.Lock()
	defer w.making.Unlock()
	if s := w.spare; s != nil {
		w.spare = nil
		return s, nil
	}
	s, err := w.make()
	if err == nil {
		w.q.failures.Spare.Well()
	}
	return s, err
}

// makeSpare makes the next segment in advance.
func (w *writer) makeSpare() {
	w.making.Lock()
	defer w.making.Unlock()
	if w.spare != nil || w.q.failures.Spare.Lately(tendAgain) {
		return // each group written to a nearly full segment asks for it
	}
	s, err := w.make()
	if err != nil {
		w.q.failures.Spare.Failed(store.FailureClass(err), "error", err)
		return
	}
	w.spare = s
	w.q.failures.Spare.Well()
}

func (w *writer) make() (*spare, error) {
	w.number++
	return w.q.makeSegment(newSegment(w.number))
}

// recycle makes the next segment from a file that is needed no longer and that nobody reads: a
// sync is quicker where the file has blocks already (130 us against 200 us, ext4), since the
// file system has nothing of its own to write. What the file holds is void, since the new
// segment has another salt. It reports false when the file was left as it is.
func (w *writer) recycle(name string, size int64) bool {
	w.making.Lock()
	defer w.making.Unlock()
	if w.spare != nil || size < w.q.cfg.SegmentSize*3/4 {
		return false
	}
	w.number++
	id := newSegment(w.number)
	if err := w.q.dir.FS.Rename(name, w.q.dir.SparePath(id)); err != nil {
		return false
	}
	f, err := w.q.dir.FS.OpenWrite(w.q.dir.SparePath(id))
	if err == nil {
		if err = f.Truncate(min(size, w.q.cfg.SegmentSize)); err != nil { // without the mark
			f.Close()
		} else {
			w.spare, err = w.q.allocate(id, f)
		}
	}
	if err != nil { // it is not the old segment any more, at least
		w.q.log.Warn("queue: using a journal segment's file again", "error", err)
	}
	return true
}

// end cuts the active segment off where the last good sync left it, so that the next start knows that all of
// it was synced. If that fails, it takes the end for what it finds.
func (w *writer) end() {
	if !w.begun || w.file.Truncate(w.active.Size) != nil {
		return
	}
	w.file.Sync()
}

// seal ends the active segment where the last good sync left it.
func (w *writer) seal() {
	w.file.Close() // readers have their own
	w.file = nil
	w.q.sealSegment(w.active)
	w.active = nil
}

// newSegment gives a segment its salt.
func newSegment(number uint32) store.SegmentID {
	var salt [4]byte
	rand.Read(salt[:]) // never fails
	return store.SegmentID{Number: number, Salt: binary.LittleEndian.Uint32(salt[:])}
}

// makeSegment makes an empty segment file, under its name as a spare.
func (q *Queue) makeSegment(id store.SegmentID) (*spare, error) {
	f, err := q.dir.FS.Create(q.dir.SparePath(id))
	if err == nil {
		return q.allocate(id, f)
	}
	return nil, store.StorageError("creating a journal segment", err)
}

// allocate gives a spare its room on the disk, durably: a segment that is shorter later was
// trimmed, and one that is longer was used.
func (q *Queue) allocate(id store.SegmentID, f vfs.File) (*spare, error) {
	err := f.Allocate(q.cfg.SegmentSize)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		q.dir.FS.Remove(q.dir.SparePath(id)) // if it stays it does no harm, and the next start removes it
		return nil, store.StorageError("creating a journal segment", err)
	}
	q.free.octets.Add(-q.cfg.SegmentSize) // until it is looked at again
	return &spare{id: id, file: f}, nil
}

// markInUse makes an empty index, by which a start misses the newest segment if its file is gone.
func (q *Queue) markInUse(id store.SegmentID) {
	if f, err := q.dir.FS.Create(q.dir.IndexPath(id)); err == nil {
		f.Close()
	}
}

// use gives a spare its name as a segment, durably.
func (q *Queue) use(s *spare) error {
	err := q.dir.FS.Rename(q.dir.SparePath(s.id), q.dir.SegmentPath(s.id))
	if err == nil {
		err = q.dir.FS.SyncDir(q.cfg.Dir)
	}
	if err != nil {
		for _, name := range []string{q.dir.SparePath(s.id), q.dir.SegmentPath(s.id)} {
			q.dir.FS.Remove(name) // if it stays the next start finds that it was never used
		}
		return store.StorageError("creating a journal segment", err)
	}
	return nil
}

// written enters a durable group in the schedule.
func (q *Queue) written(seg *store.Segment, g *group, octets int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	seg.Size += octets
	q.count.Syncs++
	q.count.Records += uint64(len(g.notes) + len(g.accepts))
	for i := range g.notes {
		q.noteWritten(seg, &g.notes[i])
	}
	if len(g.accepts) > 0 {
		q.count.group(len(g.accepts))
	}
	for _, d := range g.accepts {
		q.enter(seg, d)
	}
	for _, k := range g.keyings {
		q.keyWritten(seg, store.KeyHead{Key: k.Key, Imported: k.Request == k.Key, Until: k.Until}, k.offset, k.size)
		k.done()
	}
	for range min(len(g.accepts), q.count.waiters) {
		q.due.Signal()
	}
}

// enter puts an accepted message on the schedule.
func (q *Queue) enter(seg *store.Segment, d *Draft) {
	m := d.msg
	size := schedule.SizeClass(d.recordSize())
	e := schedule.Entry{ID: uint64(m.ID), Due: store.SecondsSince1970(m.Received), Size: size}
	e.SetData(schedule.LocOf(seg.Handle, d.offset))
	e.SetTier(m.Tier)
	if q.s.Arrivals.Add(e.ID, m.Received) {
		q.w.renew.Store(true)
	}
	q.s.Tenants.Add(e.ID, m.Tenant, d.size)
	p := store.PlanOf(m)
	if p.Scheduled() {
		q.s.Starts.Add(e.ID, p.Start())
	}
	if at := store.ExpiryOf(m); at != 0 {
		q.few.expiries.add(e.ID, at)
	}
	q.s.Newest = e.ID
	n := len(m.Recipients)
	names := schedule.Names{Origin: q.s.Origins.Number(
		schedule.Origin{Tenant: m.Tenant, Campaign: m.Campaign, Sender: m.Sender.Domain()}, len(m.Recipients))}
	last, due := "", false // due: one that was in another queue
	for i := range m.Recipients {
		if domain := m.Recipients[i].Address.Domain(); i == 0 || domain != last {
			names.Domain, last = q.s.Domains.Number(domain, 0), domain
		}
		q.s.Domains.Count(names.Domain, 1)
		e.Rcpt = uint16(i)
		if d.standings != nil {
			due = q.enterStanding(e, names, &d.standings[i], e.Data()) || due
		} else {
			q.enterRecipient(e, names, p)
		}
	}
	q.count.Accepted += int64(n)
	seg.Messages++
	seg.Live += schedule.Octets(size)
	if d.file != nil {
		q.few.large[uint64(m.ID)] = largeBody{d.file.number, d.size}
		q.count.largeOctets += d.size
		q.count.largeLive += d.size
	}
	if !p.Scheduled() && d.standings == nil || due {
		q.cache.admit(m, d.body, n)
	}
}
