package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/vfs"
)

// maxOpenFiles is how many segments are kept open for reading.
const maxOpenFiles = 128

// fileCache keeps segment files open for reading.
type fileCache struct {
	fs vfs.FS

	mu   sync.Mutex // guards open and the fields of its entries
	open map[SegmentID]*openFile
}

type openFile struct {
	f     vfs.File
	users int
	stale bool // to be closed when the last user is done
}

func newFileCache(fs vfs.FS) *fileCache {
	return &fileCache{fs: fs, open: map[SegmentID]*openFile{}}
}

// Get opens a segment's file. release must be called when it is no longer read.
func (c *fileCache) Get(id SegmentID, name string) (f vfs.File, release func(), err error) {
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

// Drop closes a segment's file as soon as nobody reads it. It reports whether that is so now.
func (c *fileCache) Drop(id SegmentID) (idle bool) {
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

// Close closes all files that nobody reads.
func (c *fileCache) Close() {
	c.mu.Lock()
	ids := make([]SegmentID, 0, len(c.open))
	for id := range c.open {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	for _, id := range ids {
		c.Drop(id)
	}
}

// DamageError is a place that can't be read.
type DamageError struct {
	File string
	Off  int64
	Err  error // what reading or decoding said; nil when the octets are wrong
	Disk bool  // the disk gave no octets; it may later
}

// Error names the place.
func (e *DamageError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: offset %d: octets are not what was written", e.File, e.Off)
	}
	return fmt.Sprintf("%s: offset %d: %v", e.File, e.Off, e.Err)
}

// Is reports whether target is ErrDamaged.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }
func (e *DamageError) Unwrap() error        { return e.Err }

// Place is where a record lies, to be read without the lock. The file can be gone by then, since
// compaction has moved the record: then errGone says to look again.
type Place struct {
	ID   SegmentID
	Off  int64
	Size int64 // an estimate of the record's, never too small
}

// ErrGone is returned for a segment that is not in use any more.
var ErrGone = errors.New("segment is gone")

// Gone makes damage of a file that is not there although the schedule says so.
func (d *Dir) Gone(p Place, err error) error {
	if errors.Is(err, ErrGone) {
		return &DamageError{File: d.SegmentPath(p.ID), Off: p.Off, Err: fs.ErrNotExist}
	}
	return err
}

// opened is the file of a record that is being read.
type opened struct {
	vfs.File
	Place
	d       *Dir
	release func()
}

// open opens the file that a record lies in.
func (d *Dir) open(p Place) (opened, error) {
	o := opened{Place: p, d: d}
	var err error
	o.File, o.release, err = d.Files.Get(p.ID, d.SegmentPath(p.ID))
	switch {
	case IsNotExist(err):
		return o, ErrGone
	case err != nil:
		return o, o.damage(err, true)
	}
	return o, nil
}

// damage makes an error of what can't be read; disk says that the disk gave no octets.
func (o *opened) damage(err error, disk bool) error {
	if o.d.isGone(o.ID) {
		return ErrGone
	}
	return &DamageError{File: o.d.SegmentPath(o.ID), Off: o.Off, Err: err, Disk: disk}
}

// upTo reads n octets from where the record begins, or as many as there are.
func (o *opened) upTo(n int64) ([]byte, error) {
	b, err := readUpTo(o.File, o.Off, n)
	if err != nil {
		return nil, o.damage(err, true)
	}
	return b, nil
}

// ReadRecord reads and checks a record. The payload is the caller's.
func (d *Dir) ReadRecord(p Place) (rec Record, err error) {
	f, err := d.open(p)
	if err != nil {
		return rec, err
	}
	defer f.release()
	b, err := f.upTo(p.Size)
	if err != nil {
		return rec, err
	}
	if h, ok := claim(b, p.ID); ok && HeaderSize+int(h.length) > len(b) {
		if b, err = f.upTo(int64(HeaderSize + h.length)); err != nil {
			return rec, err
		}
	}
	rec, ok := ParseRecord(b, p.ID, p.Off)
	if !ok {
		return rec, f.damage(nil, false)
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

// ReadMessage reads a message's record. Body is nil when it has its own file.
func (d *Dir) ReadMessage(p Place) (*envelope.Message, Content, error) {
	rec, err := d.ReadRecord(p)
	if err != nil {
		return nil, Content{}, err
	}
	c, err := ParseContent(rec.Payload)
	if err == nil && rec.Kind != KindAccepted && rec.Kind != KindMoved {
		err = fmt.Errorf("a message is expected and there is a record of kind %d", rec.Kind)
	}
	var m *envelope.Message
	if err == nil {
		m, err = DecodeEnvelope(c.Env)
	}
	if err != nil {
		return nil, Content{}, &DamageError{File: d.SegmentPath(p.ID), Off: p.Off, Err: err}
	}
	m.ID, m.Size = envelope.ID(rec.ID), c.BodyLen
	return m, c, nil
}

// NoteGuess is what is read at first of a record with a reply, in octets.
const NoteGuess = 512

// envelopeGuess is what is read at first for an envelope alone, in octets.
const envelopeGuess = 1 << 10

// ReadEnvelope reads the envelope of a message and not its content, for listings.
func (d *Dir) ReadEnvelope(p Place) (*envelope.Message, error) {
	f, err := d.open(p)
	if err != nil {
		return nil, err
	}
	defer f.release()
	b, err := f.upTo(min(envelopeGuess, p.Size))
	if err != nil {
		return nil, err
	}
	m, need, err := parseEnvelope(b)
	if need > int64(len(b)) {
		if b, err = f.upTo(need); err != nil {
			return nil, err
		}
		if int64(len(b)) == need {
			m, _, err = parseEnvelope(b)
		}
	}
	if m == nil || err != nil {
		return nil, f.damage(err, false)
	}
	return m, nil
}

// parseEnvelope reads the envelope of the record that b begins with. Without one and without an error the record is
// not sound, or has need octets up to the end of its envelope, and b has not.
func parseEnvelope(b []byte) (m *envelope.Message, need int64, err error) {
	if len(b) < HeaderSize {
		return nil, 0, nil
	}
	pre, err := parsePrelude(b[HeaderSize:])
	if err != nil {
		return nil, 0, err
	}
	head := HeaderSize + pre.size()
	need = int64(head) + int64(pre.EnvLen)
	switch {
	case need > MaxPayload:
		return nil, 0, nil
	case need > int64(len(b)):
		return nil, need, nil
	}
	env := b[head:need]
	if Checksum(0, env) != pre.EnvCRC {
		return nil, 0, nil
	}
	if m, err = DecodeEnvelope(env); err != nil {
		return nil, 0, err
	}
	m.Size = pre.BodyLen
	return m, need, nil
}

// ReadAhead is what was read of a segment at once, for who reads its envelopes in the order of the journal.
type ReadAhead struct {
	id  SegmentID
	off int64
	b   []byte
	end int64 // of what was read last, ahead or not
}

// aheadOctets is how much is read at once, and how far apart two envelopes may be for that.
const aheadOctets = 64 << 10

// Envelope gives an envelope that lies near the one before; nil otherwise, or if it is not to be had that way: the
// segment may have grown since it was read.
func (a *ReadAhead) Envelope(d *Dir, p Place) *envelope.Message {
	near := p.ID == a.id && p.Off >= a.end && p.Off < a.end+aheadOctets
	a.id, a.end = p.ID, p.Off+min(envelopeGuess, p.Size)
	if !near {
		a.b = a.b[:0]
		return nil
	}
	if p.Off < a.off || a.end > a.off+int64(len(a.b)) {
		f, release, err := d.Files.Get(p.ID, d.SegmentPath(p.ID))
		if err != nil {
			return nil
		}
		defer release()
		if a.b == nil {
			a.b = make([]byte, aheadOctets)
		}
		n, _ := f.ReadAt(a.b[:cap(a.b)], p.Off) // what it lacks is read again
		a.off, a.b = p.Off, a.b[:n]
	}
	at := p.Off - a.off
	m, _, _ := parseEnvelope(a.b[min(at, int64(len(a.b))):])
	return m
}

// ReplyReader reads what is known of last attempts. Those of a message often lie in one record, which it then reads
// once.
type ReplyReader struct {
	Dir  *Dir
	have Place
	one  Attempt          // of a deferred record
	each []RecipientState // of a moved record
}

// Read gives the last attempt at one recipient from the record that has it.
func (r *ReplyReader) Read(p Place, rcpt uint16) (Attempt, error) {
	if p != r.have {
		if err := r.load(p); err != nil {
			r.have = Place{}
			return Attempt{}, err
		}
		r.have = p
	}
	for i := range r.each {
		if r.each[i].Rcpt == rcpt {
			return r.each[i].Last, nil
		}
	}
	return r.one, nil
}

func (r *ReplyReader) load(p Place) error {
	rec, err := r.Dir.ReadRecord(p)
	if err != nil {
		return err
	}
	r.one, r.each = Attempt{}, nil
	switch rec.Kind {
	case KindDeferred:
		var f Deferral
		f, err = DecodeDeferral(rec.Payload)
		r.one = f.Last
	case KindMoved:
		var c Content
		if c, err = ParseContent(rec.Payload); err == nil {
			_, r.each, err = DecodeStates(c.States)
		}
	default:
		err = fmt.Errorf("a reply is expected and there is a record of kind %d", rec.Kind)
	}
	if err != nil {
		return &DamageError{File: r.Dir.SegmentPath(p.ID), Off: p.Off, Err: err}
	}
	return nil
}

// CheckLarge reads a content that has its own file to see whether it is what was written: none of it may
// be sent, or judged, if it is not.
func (d *Dir) CheckLarge(p Prelude) error {
	r, err := d.OpenLarge(p)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// OpenLarge opens a content that has its own file.
func (d *Dir) OpenLarge(p Prelude) (io.ReadCloser, error) {
	name := d.LargePath(p.Large)
	f, err := d.FS.Open(name)
	if err != nil {
		return nil, &DamageError{File: name, Off: 0, Err: err, Disk: !IsNotExist(err)}
	}
	return &largeReader{f: f, name: name, Prelude: p}, nil
}

// largeReader reads a content from its own file and checks it on the way: the last octets are
// given only when all are right.
type largeReader struct {
	Prelude
	f    vfs.File
	name string
	off  int64
	crc  uint32
	err  error
}

// Read gives the next octets.
func (r *largeReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.off == r.BodyLen {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), r.BodyLen-r.off)]
	n, err := r.f.ReadAt(p, r.off)
	r.crc = Checksum(r.crc, p[:n])
	r.off += int64(n)
	if n < len(p) {
		short := err == nil || errors.Is(err, io.EOF)
		if short {
			err = io.ErrUnexpectedEOF
		}
		r.err = &DamageError{File: r.name, Off: r.off, Err: err, Disk: !short}
		return 0, r.err
	}
	if r.off == r.BodyLen && r.crc != r.BodyCRC {
		r.err = &DamageError{File: r.name, Off: 0}
		return 0, r.err
	}
	return n, nil
}

// Close closes the file.
func (r *largeReader) Close() error { return r.f.Close() }
