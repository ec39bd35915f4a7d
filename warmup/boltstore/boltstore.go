// Package boltstore is a warmup.Store in a local bbolt file, for a relay on one machine. It has
// no goroutines of its own. Locks live in memory, since the file belongs to one process; fences
// and the clock are written along with each record, so that neither goes back over a restart.
package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"mta/warmup"
)

var (
	recordsBucket = []byte("warmup")
	metaBucket    = []byte("meta")
	clockKey      = []byte("clock")
	epochKey      = []byte("epoch")
)

// header is what precedes a record's value: fence, version.
const header = 16

// Store is the store. Open makes one.
type Store struct {
	db  *bolt.DB
	now func() time.Time

	mu     sync.Mutex // guards the rest, and is held while the file is written
	opened time.Time  // with the monotonic clock
	base   warmup.Instant
	epoch  uint64 // how often the file was opened, in the upper half of each fence
	last   warmup.Instant
	keys   map[string]*lock
	buf    []byte
}

type lock struct {
	version uint64
	fence   uint64
	owner   string
	expires warmup.Instant
}

var _ warmup.Store = (*Store)(nil)

// Open opens or makes the file at path. now is the local clock, nil for time.Now; its wall time
// is read once, then its monotonic reading counts, so a step of the machine's clock changes no
// window before the next restart, and never backwards.
func Open(path string, now func() time.Time) (*Store, error) {
	if now == nil {
		now = time.Now
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("opening warm-up store %s (another process may have it open): %w", path, err)
	}
	s := &Store{db: db, now: now, opened: now(), keys: make(map[string]*lock)}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("opening warm-up store %s: %w", path, errorsJoin(err, db.Close()))
	}
	return s, nil
}

func errorsJoin(err, second error) error {
	if second != nil {
		return fmt.Errorf("%w (and closing it: %v)", err, second)
	}
	return err
}

func (s *Store) load() error {
	s.base = warmup.Instant(s.opened.UnixMilli())
	return s.db.Update(func(tx *bolt.Tx) error {
		meta, err := tx.CreateBucketIfNotExists(metaBucket)
		if err != nil {
			return err
		}
		if v := meta.Get(clockKey); len(v) == 8 {
			s.base = max(s.base, warmup.Instant(binary.BigEndian.Uint64(v)))
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
		return records.ForEach(func(k, v []byte) error {
			if len(v) < header {
				return fmt.Errorf("record of %q is too short", k)
			}
			s.keys[string(k)] = &lock{fence: binary.BigEndian.Uint64(v), version: binary.BigEndian.Uint64(v[8:])}
			return nil
		})
	})
}

// Close closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.Close()
}

func (s *Store) clock() warmup.Instant {
	s.last = max(s.last, s.base+warmup.Instant(s.now().Sub(s.opened)/time.Millisecond))
	return s.last
}

// Claim implements warmup.Store.
func (s *Store) Claim(_ context.Context, owner string, ttl time.Duration, keys []warmup.Key, dst []warmup.Record) ([]warmup.Record, warmup.Instant, error) {
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
			dst = append(dst, warmup.Record{Name: k.Name, Busy: true})
			continue
		}
		l.owner, l.expires = owner, now+warmup.Instant(ttl/time.Millisecond)
		l.fence = max(l.fence, s.epoch<<32) + 1
		dst = append(dst, warmup.Record{Name: k.Name, Fence: l.fence, Version: l.version})
		missing = missing || l.version != k.Have
	}
	if !missing {
		return dst, now, nil
	}
	err := s.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(recordsBucket)
		for i, k := range keys {
			if r := &dst[first+i]; !r.Busy && r.Version != k.Have && r.Version > 0 {
				v := b.Get([]byte(k.Name))
				if len(v) < header {
					return fmt.Errorf("reading warm-up record of %q: it is not there", k.Name)
				}
				r.Value = bytes.Clone(v[header:])
			}
		}
		return nil
	})
	return dst, now, err
}

// Write implements warmup.Store. A batch is one transaction and so one fsync.
func (s *Store) Write(_ context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, put := len(dst), 0
	for i := range changes {
		c := &changes[i]
		l := s.keys[c.Name]
		ok := l != nil && l.fence == c.Fence && (c.Value == nil || l.version == c.Version || s.same(l, c))
		dst = append(dst, ok)
		if ok && c.Value != nil && l.version == c.Version {
			put++
		}
	}
	if put > 0 {
		if err := s.put(changes, dst[first:]); err != nil {
			// bbolt may have written the meta page before it failed to sync it.
			return dst[:first], fmt.Errorf("%w: %w", warmup.ErrUnknownOutcome, err)
		}
	}
	for i := range changes {
		if c := &changes[i]; dst[first+i] {
			l := s.keys[c.Name]
			if c.Value != nil {
				l.version = c.Version + 1
			}
			if c.Release {
				l.owner = ""
			}
		}
	}
	return dst, nil
}

// same says whether c is a repetition of what was written.
func (s *Store) same(l *lock, c *warmup.Change) bool {
	if l.version != c.Version+1 {
		return false
	}
	same := false
	err := s.db.View(func(tx *bolt.Tx) error {
		v := tx.Bucket(recordsBucket).Get([]byte(c.Name))
		same = len(v) >= header && bytes.Equal(v[header:], c.Value)
		return nil
	})
	return same && err == nil
}

func (s *Store) put(changes []warmup.Change, ok []bool) error {
	s.buf = s.buf[:0]
	// bbolt keeps the slices it is given until the commit, so they must not move: room first.
	need := 8
	for i := range changes {
		need += header + len(changes[i].Value)
	}
	s.buf = slices.Grow(s.buf, need)
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(recordsBucket)
		for i := range changes {
			c := &changes[i]
			if !ok[i] || c.Value == nil || s.keys[c.Name].version != c.Version {
				continue
			}
			start := len(s.buf)
			s.buf = binary.BigEndian.AppendUint64(s.buf, c.Fence)
			s.buf = binary.BigEndian.AppendUint64(s.buf, c.Version+1)
			s.buf = append(s.buf, c.Value...)
			if err := b.Put([]byte(c.Name), s.buf[start:]); err != nil {
				return err
			}
		}
		start := len(s.buf)
		s.buf = binary.BigEndian.AppendUint64(s.buf, uint64(s.clock()))
		return tx.Bucket(metaBucket).Put(clockKey, s.buf[start:])
	})
}

// Keys implements warmup.Store.
func (s *Store) Keys(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, l := range s.keys {
		if l.version > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
