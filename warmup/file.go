package warmup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/internal/sidestore"
)

var (
	recordsBucket = []byte("records-2")
	oldBucket     = []byte("warmup") // records without a sum
	beforeBucket  = []byte("before") // records as they were before the clock jumped ahead
	metaBucket    = []byte("meta")
	clockKey      = []byte("clock")
	epochKey      = []byte("epoch")
)

// header is what precedes a record's value: the sum of all that follows, fence, version.
const header = 20

// sealed reports whether a record is what was written.
func sealed(v []byte) bool {
	return len(v) >= header && binary.BigEndian.Uint32(v) == crc32.Checksum(v[4:], castagnoli)
}

// seal puts the sum before a record.
func seal(v []byte) { binary.BigEndian.PutUint32(v, crc32.Checksum(v[4:], castagnoli)) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// File is a Store in a local bbolt file, for a relay on one machine. It has no goroutines. Locks live in memory, since
// the file belongs to one process; fences and the clock are written along with each record, so that neither goes back
// over a restart. A file that is damaged is set aside and a new one begun. A machine's clock that was wrong at a start,
// and is right again, is healed (file_clock.go).
type File struct {
	db     *bolt.DB
	now    func() time.Time
	damage error // what was wrong with the file
	begun  bool  // there was no file
	broken error // the file was damaged while it is open; nil: it wasn't

	mu     sync.Mutex // guards the rest, and is held while the file is written
	opened time.Time  // with the monotonic clock
	base   Instant
	epoch  uint64 // how often the file was opened, in the upper half of each fence
	last   Instant
	keys   map[string]*lock

	// Of a Write, to be used again by the next:
	done []held
	puts []*Change
	buf  []byte
}

// held is a change under its lock.
type held struct {
	*Change
	lock *lock
}

type lock struct {
	version uint64
	fence   uint64
	owner   string
	expires Instant
}

var _ Store = (*File)(nil)

// OpenFile opens or makes the file at path. One that is damaged is set aside: Damage has more. now is the
// local clock, nil for time.Now; its wall time is read once, then its monotonic reading counts, so a
// step of the machine's clock changes no window before the next restart. An error means that no file
// can be used there, or that another process has it open.
func OpenFile(path string, now func() time.Time) (*File, error) {
	if now == nil {
		now = time.Now
	}
	s := &File{now: now, opened: now(), keys: make(map[string]*lock)}
	err := sidestore.Check(path)
	if s.begun = errors.Is(err, fs.ErrNotExist); err != nil && !s.begun {
		if err := s.setAside(path, err); err != nil {
			return nil, fmt.Errorf("opening warm-up store %s: %w", path, err)
		}
	}
	if err := s.open(path); err != nil {
		return nil, fmt.Errorf("opening warm-up store %s (another process may have it open): %w", path, err)
	}
	if err := s.load(path); err != nil {
		return nil, fmt.Errorf("opening warm-up store %s: %w", path, errors.Join(err, s.Close()))
	}
	return s, nil
}

func (s *File) open(path string) (err error) {
	defer s.guard(&err)()
	s.db, err = bolt.Open(path, 0o600,
		&bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	return err
}

// load reads what the file has: the clock, the epoch, which records there are.
func (s *File) load(path string) (err error) {
	defer s.guard(&err)()
	return s.db.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(metaBucket)
		if err != nil {
			return err
		}
		// A lock that was taken but never written under leaves no trace in the file. A new epoch
		// keeps its fence from being given again.
		if v := meta.Get(epochKey); len(v) == 8 {
			s.epoch = binary.BigEndian.Uint64(v)
		}
		s.epoch++
		if err := meta.Put(epochKey, binary.BigEndian.AppendUint64(nil, s.epoch)); err != nil {
			return err
		}
		records, err := tx.CreateBucketIfNotExists(recordsBucket)
		if err != nil {
			return err
		}
		if err := upgrade(tx, records); err != nil {
			return err
		}
		if err := s.dropDamaged(path, records); err != nil {
			return err
		}
		if err := s.setClock(tx, records, meta); err != nil {
			return err
		}
		return records.ForEach(func(k, v []byte) error {
			s.keys[string(k)] = &lock{fence: binary.BigEndian.Uint64(v[4:]), version: binary.BigEndian.Uint64(v[12:])}
			return nil
		})
	})
}

// upgrade takes over the records of a file that had no sums.
func upgrade(tx *bolt.Tx, records *bolt.Bucket) error {
	old := tx.Bucket(oldBucket)
	if old == nil {
		return nil
	}
	err := old.ForEach(func(k, v []byte) error {
		r := append(make([]byte, 4), v...)
		seal(r)
		return records.Put(k, r)
	})
	if err != nil {
		return err
	}
	return tx.DeleteBucket(oldBucket)
}

// Close closes the file.
func (s *File) Close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil { // the process's end closes it
		return nil
	}
	defer s.guard(&err)()
	return s.db.Close()
}

func (s *File) clock() Instant {
	s.last = max(s.last, s.base+Instant(s.now().Sub(s.opened)/time.Millisecond))
	return s.last
}

// Claim implements Store.
func (s *File) Claim(_ context.Context, owner string, ttl time.Duration, keys []Key,
	dst []Record) ([]Record, Instant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	missing := false
	first := len(dst)
	for _, k := range keys {
		l := s.keys[k.Name]
		if l == nil {
			l = &lock{}
			s.keys[k.Name] = l
		}
		if l.owner != "" && l.owner != owner && now < l.expires {
			dst = append(dst, Record{Name: k.Name, Busy: true})
			continue
		}
		l.owner, l.expires = owner, now+Instant(ttl/time.Millisecond)
		l.fence = max(l.fence, s.epoch<<32) + 1
		dst = append(dst, Record{Name: k.Name, Fence: l.fence, Version: l.version})
		missing = missing || l.version != k.Have
	}
	if !missing {
		return dst, now, nil
	}
	err := s.view(func(b *bolt.Bucket) error {
		for i, k := range keys {
			if r := &dst[first+i]; !r.Busy && r.Version != k.Have && r.Version > 0 {
				v := b.Get([]byte(k.Name))
				if !sealed(v) {
					return fmt.Errorf("reading warm-up record of %q: it is damaged, or not there", k.Name)
				}
				r.Value = bytes.Clone(v[header:])
			}
		}
		return nil
	})
	return dst, now, err
}

// Write implements Store. A batch is one transaction and so one fsync.
func (s *File) Write(_ context.Context, changes []Change, dst []bool) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := len(dst)
	s.done, s.puts = s.done[:0], s.puts[:0]
	for i := range changes {
		c := &changes[i]
		l := s.keys[c.Name]
		if ok := l != nil && l.fence == c.Fence && (c.Value == nil || l.version == c.Version || s.same(l, c)); !ok {
			dst = append(dst, false)
			continue
		}
		dst, s.done = append(dst, true), append(s.done, held{c, l})
		if c.Value != nil && l.version == c.Version {
			s.puts = append(s.puts, c)
		}
	}
	if len(s.puts) > 0 {
		if err := s.put(s.puts); err != nil {
			// bbolt may have written the meta page before it failed to sync it.
			return dst[:first], fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
	}
	for _, h := range s.done {
		if h.Value != nil {
			h.lock.version = h.Version + 1
		}
		if h.Release {
			h.lock.owner = ""
		}
	}
	return dst, nil
}

// same reports whether c is a repetition of what was written.
func (s *File) same(l *lock, c *Change) bool {
	if l.version != c.Version+1 {
		return false
	}
	same := false
	err := s.view(func(b *bolt.Bucket) error {
		v := b.Get([]byte(c.Name))
		same = sealed(v) && bytes.Equal(v[header:], c.Value)
		return nil
	})
	return same && err == nil
}

// view reads the records. A file that was cut or overwritten while it is open is an error.
func (s *File) view(read func(records *bolt.Bucket) error) (err error) {
	if s.broken != nil {
		return s.broken
	}
	defer s.guard(&err)()
	return s.db.View(func(tx *bolt.Tx) error { return read(tx.Bucket(recordsBucket)) })
}

func (s *File) put(changes []*Change) (err error) {
	if s.broken != nil {
		return s.broken
	}
	defer s.guard(&err)()
	s.buf = s.buf[:0]
	// bbolt keeps the slices it is given until the commit, so they must not move: room first.
	need := 8
	for _, c := range changes {
		need += header + len(c.Value)
	}
	s.buf = slices.Grow(s.buf, need)
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(recordsBucket)
		for _, c := range changes {
			start := len(s.buf)
			s.buf = append(s.buf, 0, 0, 0, 0)
			s.buf = binary.BigEndian.AppendUint64(s.buf, c.Fence)
			s.buf = binary.BigEndian.AppendUint64(s.buf, c.Version+1)
			s.buf = append(s.buf, c.Value...)
			seal(s.buf[start:])
			if err := b.Put([]byte(c.Name), s.buf[start:]); err != nil {
				return err
			}
		}
		start := len(s.buf)
		s.buf = binary.BigEndian.AppendUint64(s.buf, uint64(s.clock()))
		return tx.Bucket(metaBucket).Put(clockKey, s.buf[start:])
	})
}

// Backup returns the file's content at one instant, and its size in octets.
func (s *File) Backup() (_ io.ReadCloser, _ int64, err error) {
	if s.broken != nil {
		return nil, 0, s.broken
	}
	defer s.guard(&err)()
	return sidestore.CopyOf(s.db)
}

// Each calls each with all records, in the order of their names, until one returns an error.
func (s *File) Each(each func(name string, value []byte) error) error {
	return s.view(func(b *bolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error { return each(string(k), v[header:]) })
	})
}

// Damage returns what was wrong with the file when it was opened, and where it is kept; nil when nothing
// was. Its records are lost, all or those that it names.
func (s *File) Damage() error { return s.damage }

// Begun reports whether there was no file, so that a new one was made.
func (s *File) Begun() bool { return s.begun }

// aside names the place for a damaged file. What was set aside before stays there.
func (s *File) aside(path string) string {
	return path + ".damaged-" + s.opened.UTC().Format("20060102T150405.000")
}

// setAside makes room for a new file.
func (s *File) setAside(path string, why error) error {
	aside := s.aside(path)
	s.damage = fmt.Errorf("%s was damaged: %w; it is kept as %s", path, why, aside)
	return os.Rename(path, aside)
}

// dropDamaged takes out the records that are not what was written, after the file was copied.
func (s *File) dropDamaged(path string, records *bolt.Bucket) error {
	var bad [][]byte
	err := records.ForEach(func(k, v []byte) error {
		if !sealed(v) {
			bad = append(bad, k)
		}
		return nil
	})
	if err != nil || len(bad) == 0 {
		return err
	}
	aside := s.aside(path)
	if err := copyFile(aside, path); err != nil {
		return err
	}
	s.damage = fmt.Errorf("%d records of %s were damaged, that of %s first; the file is kept as %s", len(bad),
		path, bad[0], aside)
	for _, k := range bad {
		if err := records.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// guard makes an error of a panic, and of a fault: bbolt maps the file, and one that was cut while it is
// open has less than its pages say. bbolt may hold its locks then, so the file is left alone from there on.
func (s *File) guard(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			s.broken = fmt.Errorf("the warm-up store's file was damaged while it was open, restart the relay: %v", p)
			*err = s.broken
		}
	}
}
