// Package boltstore is a suppression.Store in a local bbolt file, for a relay on one machine. It
// has no goroutines of its own.
package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/suppression"
)

var bucket = []byte("suppression")

// Store is the store. Open makes one.
type Store struct{ db *bolt.DB }

var _ suppression.Store = (*Store)(nil)

// Open opens or makes the file at path.
func Open(path string) (*Store, error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("opening suppression list %s (another process may have it open; if it is damaged, put a copy or an empty list in its place: 'mta suppress import'): %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening suppression list %s: %w", path, errors.Join(err, db.Close()))
	}
	return &Store{db}, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Apply implements suppression.Store. A batch is one transaction and one sync, all of it or
// nothing.
func (s *Store) Apply(_ context.Context, changes []suppression.Change) error {
	// Neighbours go into one page: in order they are written once.
	sorted := slices.Clone(changes)
	slices.SortStableFunc(sorted, func(a, b suppression.Change) int { return bytes.Compare(encodeKey(a.Key), encodeKey(b.Key)) })
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	b := tx.Bucket(bucket)
	for i := range sorted {
		c := &sorted[i]
		if c.Remove {
			err = b.Delete(encodeKey(c.Key))
		} else {
			err = b.Put(encodeKey(c.Key), encodeEntry(&c.Entry))
		}
		if err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		// bbolt may have written the meta page before it failed to sync it.
		return fmt.Errorf("%w: %w", suppression.ErrUnknownOutcome, err)
	}
	return nil
}

// Get implements suppression.Store.
func (s *Store) Get(_ context.Context, keys []suppression.Key) (found []suppression.Entry, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucket)
		for _, k := range keys {
			v := b.Get(encodeKey(k))
			if v == nil {
				continue
			}
			e, err := decodeEntry(k, v)
			if err != nil {
				return err
			}
			found = append(found, e)
		}
		return nil
	})
	return found, err
}

// scanStep is how many entries are read in one transaction: a long one would keep the pages of all
// that is changed meanwhile from being used again.
const scanStep = 1000

// Scan implements suppression.Store. What is changed while it runs may or may not be seen.
func (s *Store) Scan(ctx context.Context, after suppression.Key, each func(suppression.Entry) bool) error {
	for at := encodeKey(after); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		step, err := s.step(at)
		if err != nil {
			return err
		}
		for i := range step {
			if !each(step[i]) {
				return nil
			}
		}
		if len(step) < scanStep {
			return nil
		}
		at = encodeKey(step[len(step)-1].Key)
	}
}

// step reads the entries behind a key.
func (s *Store) step(after []byte) (step []suppression.Entry, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		k, v := c.Seek(after)
		if bytes.Equal(k, after) {
			k, v = c.Next()
		}
		for ; k != nil && len(step) < scanStep; k, v = c.Next() {
			key, err := decodeKey(k)
			if err != nil {
				return err
			}
			e, err := decodeEntry(key, v)
			if err != nil {
				return err
			}
			step = append(step, e)
		}
		return nil
	})
	return step, err
}

// A key is the tenant, a NUL, and the address; neither has a NUL in it.
func encodeKey(k suppression.Key) []byte {
	if k == (suppression.Key{}) {
		return nil // before all
	}
	return append(append([]byte(k.Tenant), 0), k.Address...)
}

func decodeKey(b []byte) (suppression.Key, error) {
	tenant, address, ok := bytes.Cut(b, []byte{0})
	if !ok {
		return suppression.Key{}, fmt.Errorf("key %q is not one of an entry", b)
	}
	return suppression.Key{Tenant: string(tenant), Address: string(address)}, nil
}

// An entry is the version of its form, its source, when it was added and when it ends in seconds
// since 1970 (0: never), and the reason.
const version = 1

var sources = []suppression.Source{"", suppression.Bounce, suppression.Operator, suppression.Import, suppression.Tenant, suppression.Unsubscribe}

func encodeEntry(e *suppression.Entry) []byte {
	b := make([]byte, 0, 2+2*binary.MaxVarintLen64+len(e.Reason))
	b = append(b, version, byte(max(0, slices.Index(sources, e.Source))))
	b = binary.AppendUvarint(b, seconds(e.Added))
	b = binary.AppendUvarint(b, seconds(e.Expires))
	return append(b, e.Reason...)
}

func seconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(t.Unix(), 1))
}

func decodeEntry(k suppression.Key, b []byte) (suppression.Entry, error) {
	e := suppression.Entry{Key: k}
	if len(b) < 2 || b[0] != version || int(b[1]) >= len(sources) {
		return e, fmt.Errorf("entry of %q has a form that this program does not know", k.Address)
	}
	e.Source = sources[b[1]]
	b = b[2:]
	for _, t := range []*time.Time{&e.Added, &e.Expires} {
		s, n := binary.Uvarint(b)
		if n <= 0 {
			return e, fmt.Errorf("entry of %q is shorter than it says", k.Address)
		}
		if s != 0 {
			*t = time.Unix(int64(s), 0).UTC()
		}
		b = b[n:]
	}
	e.Reason = string(b)
	return e, nil
}
