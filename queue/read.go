package queue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/journal"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/vfs"
)

// maxOpenFiles is how many segments are kept open for reading.
const maxOpenFiles = 128

// fileCache keeps segment files open for reading.
type fileCache struct {
	fs vfs.FS

	mu   sync.Mutex // guards open and the fields of its entries
	open map[journal.Segment]*openFile
}

type openFile struct {
	f     vfs.File
	users int
	stale bool // to be closed when the last user is done
}

func newFileCache(fs vfs.FS) *fileCache {
	return &fileCache{fs: fs, open: map[journal.Segment]*openFile{}}
}

// get opens a segment's file. release must be called when it is no longer read.
func (c *fileCache) get(id journal.Segment, name string) (f vfs.File, release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.open[id]
	if of == nil {
		c.shrink()
		// Opening under the lock keeps two readers from opening the same file twice; it reads
		// no content.
		file, err := c.fs.Open(name)
		if err != nil {
			return nil, nil, err
		}
		of = &openFile{f: file}
		c.open[id] = of
	}
	of.users++
	return of.f, func() { c.put(of) }, nil
}

func (c *fileCache) put(of *openFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.users--; of.users == 0 && of.stale {
		of.f.Close()
	}
}

// shrink makes room for one more.
func (c *fileCache) shrink() {
	for id, of := range c.open {
		if len(c.open) < maxOpenFiles {
			return
		}
		if of.users == 0 {
			of.f.Close()
			delete(c.open, id)
		}
	}
}

// drop closes a segment's file as soon as nobody reads it. It reports whether that is so now.
func (c *fileCache) drop(id journal.Segment) (idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.open[id]
	if of == nil {
		return true
	}
	delete(c.open, id)
	if of.users > 0 {
		of.stale = true
		return false
	}
	of.f.Close()
	return true
}

func (c *fileCache) close() {
	c.mu.Lock()
	ids := make([]journal.Segment, 0, len(c.open))
	for id := range c.open {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	for _, id := range ids {
		c.drop(id)
	}
}

// damageError is a place that can't be read.
type damageError struct {
	file string
	off  int64
	err  error // what reading or decoding said; nil when the octets are wrong
	disk bool  // the disk gave no octets; it may later
}

func (e *damageError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("%s: offset %d: octets are not what was written", e.file, e.off)
	}
	return fmt.Sprintf("%s: offset %d: %v", e.file, e.off, e.err)
}

func (e *damageError) Is(target error) bool { return target == ErrDamaged }
func (e *damageError) Unwrap() error        { return e.err }

// place is where a record lies, to be read without the lock. The file can be gone by then, since
// compaction has moved the record: then errGone says to look again.
type place struct {
	id   journal.Segment
	off  int64
	size int64 // an estimate of the record's, never too small
}

var errGone = errors.New("segment is gone")

// gone makes damage of a file that is not there although the schedule says so.
func (q *Queue) gone(p place, err error) error {
	if errors.Is(err, errGone) {
		return &damageError{file: q.segmentPath(p.id), off: p.off, err: fs.ErrNotExist}
	}
	return err
}

// placeOf must be called with the lock.
func (q *Queue) placeOf(l schedule.Loc, size int64) place {
	return place{id: q.segs.of(l).id, off: l.Offset(), size: size}
}

// readRecord reads and checks a record. The payload is the caller's.
func (q *Queue) readRecord(p place) (journal.Record, error) {
	rec, err := q.tryRecord(p)
	if err != nil && !q.has(p.id) {
		err = errGone
	}
	return rec, err
}

// has reports whether a segment is in use: if not, its file may be another one's by now, and
// that its records can't be read is no damage.
func (q *Queue) has(id journal.Segment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.segs.byHandle) == 0 {
		return true // before they are known, or in Fsck
	}
	for seg := range q.segs.all {
		if seg.id == id {
			return !seg.gone
		}
	}
	return false
}

func (q *Queue) tryRecord(p place) (journal.Record, error) {
	name := q.segmentPath(p.id)
	f, release, err := q.files.get(p.id, name)
	if isNotExist(err) {
		return journal.Record{}, errGone
	}
	if err != nil {
		return journal.Record{}, &damageError{file: name, off: p.off, err: err, disk: true}
	}
	defer release()
	b, err := readUpTo(f, p.off, p.size)
	if err != nil {
		return journal.Record{}, &damageError{file: name, off: p.off, err: err, disk: true}
	}
	if len(b) >= journal.HeaderSize {
		n, ok := journal.PayloadSize(b, p.id)
		if ok && journal.HeaderSize+n > len(b) {
			if b, err = readUpTo(f, p.off, int64(journal.HeaderSize+n)); err != nil {
				return journal.Record{}, &damageError{file: name, off: p.off, err: err, disk: true}
			}
		}
	}
	rec, ok := journal.Parse(b, p.id, p.off)
	if !ok {
		return journal.Record{}, &damageError{file: name, off: p.off}
	}
	return rec, nil
}

// readUpTo reads n octets, or as many as there are.
func readUpTo(f io.ReaderAt, off, n int64) ([]byte, error) {
	b := make([]byte, n)
	m, err := f.ReadAt(b, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:m], err
}

// readMessage reads a message's record. Body is nil when it has its own file.
func (q *Queue) readMessage(p place) (*envelope.Message, content, error) {
	rec, err := q.readRecord(p)
	if err != nil {
		return nil, content{}, err
	}
	c, err := parseContent(rec.Payload)
	if err == nil && rec.Kind != kindAccepted && rec.Kind != kindMoved {
		err = fmt.Errorf("a message is expected and there is a record of kind %d", rec.Kind)
	}
	var m *envelope.Message
	if err == nil {
		m, err = decodeEnvelope(c.env)
	}
	if err != nil {
		return nil, content{}, &damageError{file: q.segmentPath(p.id), off: p.off, err: err}
	}
	m.ID, m.Size = envelope.ID(rec.ID), c.bodyLen
	return m, c, nil
}

// envelopeGuess is what is read at first for an envelope alone, in octets.
const envelopeGuess = 1 << 10

// readEnvelope reads the envelope of a message and not its content, for listings.
func (q *Queue) readEnvelope(p place) (*envelope.Message, error) {
	m, err := q.tryEnvelope(p)
	if err != nil && !q.has(p.id) {
		err = errGone
	}
	return m, err
}

func (q *Queue) tryEnvelope(p place) (*envelope.Message, error) {
	name := q.segmentPath(p.id)
	f, release, err := q.files.get(p.id, name)
	if isNotExist(err) {
		return nil, errGone
	}
	if err != nil {
		return nil, &damageError{file: name, off: p.off, err: err}
	}
	defer release()
	b, err := readUpTo(f, p.off, min(envelopeGuess, p.size))
	if err != nil {
		return nil, &damageError{file: name, off: p.off, err: err}
	}
	m, need, err := parseEnvelope(b)
	if need > int64(len(b)) {
		if b, err = readUpTo(f, p.off, need); err == nil && int64(len(b)) == need {
			m, _, err = parseEnvelope(b)
		}
	}
	if m == nil || err != nil {
		return nil, &damageError{file: name, off: p.off, err: err}
	}
	return m, nil
}

// parseEnvelope reads the envelope of the record that b begins with. Without one and without an error the record is
// not sound, or has need octets up to the end of its envelope, and b has not.
func parseEnvelope(b []byte) (m *envelope.Message, need int64, err error) {
	if len(b) < journal.HeaderSize {
		return nil, 0, nil
	}
	pre, err := parsePrelude(b[journal.HeaderSize:])
	if err != nil {
		return nil, 0, err
	}
	head := journal.HeaderSize + pre.size()
	need = int64(head) + int64(pre.envLen)
	switch {
	case need > journal.MaxPayload:
		return nil, 0, nil
	case need > int64(len(b)):
		return nil, need, nil
	}
	env := b[head:need]
	if journal.Checksum(0, env) != pre.envCRC {
		return nil, 0, nil
	}
	if m, err = decodeEnvelope(env); err != nil {
		return nil, 0, err
	}
	m.Size = pre.bodyLen
	return m, need, nil
}

// readAhead is what was read of a segment at once, for who reads its envelopes in the order of the journal.
type readAhead struct {
	id  journal.Segment
	off int64
	b   []byte
	end int64 // of what was read last, ahead or not
}

// aheadOctets is how much is read at once, and how far apart two envelopes may be for that.
const aheadOctets = 64 << 10

// envelope gives an envelope that lies near the one before; nil otherwise, or if it is not to be had that way: the
// segment may have grown since it was read.
func (a *readAhead) envelope(q *Queue, p place) *envelope.Message {
	near := p.id == a.id && p.off >= a.end && p.off < a.end+aheadOctets
	a.id, a.end = p.id, p.off+min(envelopeGuess, p.size)
	if !near {
		a.b = a.b[:0]
		return nil
	}
	if p.off < a.off || a.end > a.off+int64(len(a.b)) {
		f, release, err := q.files.get(p.id, q.segmentPath(p.id))
		if err != nil {
			return nil
		}
		defer release()
		if a.b == nil {
			a.b = make([]byte, aheadOctets)
		}
		n, _ := f.ReadAt(a.b[:cap(a.b)], p.off) // what it lacks is read again
		a.off, a.b = p.off, a.b[:n]
	}
	at := p.off - a.off
	m, _, _ := parseEnvelope(a.b[min(at, int64(len(a.b))):])
	return m
}

// replyReader reads what is known of last attempts. Those of a message often lie in one record, which it then reads
// once.
type replyReader struct {
	q    *Queue
	have place
	one  Attempt          // of a deferred record
	each []recipientState // of a moved record
}

// read gives the last attempt at one recipient from the record that has it.
func (r *replyReader) read(p place, rcpt uint16) (Attempt, error) {
	if p != r.have {
		if err := r.load(p); err != nil {
			r.have = place{}
			return Attempt{}, err
		}
		r.have = p
	}
	for i := range r.each {
		if r.each[i].rcpt == rcpt {
			return r.each[i].last, nil
		}
	}
	return r.one, nil
}

// follow reads the last attempt at a recipient, looking again for where it lies when compaction
// was quicker.
func (r *replyReader) follow(p place, id uint64, rcpt uint16) (Attempt, error) {
	for {
		last, err := r.read(p, rcpt)
		if !errors.Is(err, errGone) {
			return last, err
		}
		r.q.mu.Lock()
		last, now := r.q.replies[recipientKey{id, rcpt}], place{}
		if _, e := r.q.table.Find(id, rcpt); e != nil && e.Note() != 0 {
			now = r.q.placeOf(e.Note(), noteGuess)
		}
		r.q.mu.Unlock()
		switch now {
		case place{}:
			return last, nil
		case p:
			return last, r.q.gone(p, err)
		}
		p = now
	}
}

func (r *replyReader) load(p place) error {
	rec, err := r.q.readRecord(p)
	if err != nil {
		return err
	}
	r.one, r.each = Attempt{}, nil
	switch rec.Kind {
	case kindDeferred:
		var f deferral
		f, err = decodeDeferral(rec.Payload)
		r.one = f.last
	case kindMoved:
		var c content
		if c, err = parseContent(rec.Payload); err == nil {
			_, r.each, err = decodeStates(c.states)
		}
	default:
		err = fmt.Errorf("a reply is expected and there is a record of kind %d", rec.Kind)
	}
	if err != nil {
		return &damageError{file: r.q.segmentPath(p.id), off: p.off, err: err}
	}
	return nil
}

// Body opens the content of a message that is in the queue, whatever its state. A content that
// is damaged ends with an error that is ErrDamaged, never with io.EOF.
func (q *Queue) Body(id envelope.ID) (io.ReadCloser, error) {
	for last := (place{}); ; {
		q.mu.Lock()
		if h := q.hot[uint64(id)]; h != nil && h.body != nil {
			body := h.body
			q.mu.Unlock()
			return io.NopCloser(bytes.NewReader(body)), nil
		}
		var p place
		found := false
		q.table.Run(uint64(id), func(_ schedule.Slot, e *schedule.Entry) bool {
			p, found = q.placeOf(e.Data(), schedule.Octets(e.Size)), true
			return false
		})
		q.mu.Unlock()
		if !found {
			return nil, fmt.Errorf("message %s: %w", id, ErrUnknown)
		}
		_, c, err := q.readMessage(p)
		if errors.Is(err, errGone) && p != last {
			last = p
			continue
		}
		if err = q.gone(p, err); err == nil && c.large != 0 {
			err = q.checkLarge(c.prelude)
		}
		if err != nil {
			if damage := (*damageError)(nil); errors.As(err, &damage) && !damage.disk {
				q.contentBroken(uint64(id), err)
			}
			return nil, err
		}
		if c.large != 0 {
			return q.openLarge(c.prelude)
		}
		return io.NopCloser(bytes.NewReader(c.body)), nil
	}
}

// checkLarge reads a content that has its own file to see whether it is what was written: none of it may
// be sent, or judged, if it is not.
func (q *Queue) checkLarge(p prelude) error {
	r, err := q.openLarge(p)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// openLarge opens a content that has its own file.
func (q *Queue) openLarge(p prelude) (io.ReadCloser, error) {
	name := q.largePath(p.large)
	f, err := q.fs.Open(name)
	if err != nil {
		return nil, &damageError{file: name, off: 0, err: err, disk: !isNotExist(err)}
	}
	return &largeReader{f: f, name: name, prelude: p}, nil
}

// largeReader reads a content from its own file and checks it on the way: the last octets are
// given only when all are right.
type largeReader struct {
	prelude
	f    vfs.File
	name string
	off  int64
	crc  uint32
	err  error
}

func (r *largeReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.off == r.bodyLen {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.bodyLen-r.off)]
	n, err := r.f.ReadAt(p, r.off)
	r.crc = journal.Checksum(r.crc, p[:n])
	r.off += int64(n)
	if n < len(p) {
		short := err == nil || errors.Is(err, io.EOF)
		if short {
			err = io.ErrUnexpectedEOF
		}
		r.err = &damageError{file: r.name, off: r.off, err: err, disk: !short}
		return 0, r.err
	}
	if r.off == r.bodyLen && r.crc != r.bodyCRC {
		r.err = &damageError{file: r.name, off: 0}
		return 0, r.err
	}
	return n, nil
}

func (r *largeReader) Close() error { return r.f.Close() }
