// Package boltstore is a suppression.Store in a local bbolt file, for a relay on one machine: the list, the
// entries that were set aside, and what the feeder has to remember. It has no goroutines.
package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/internal/boltcopy"
	"example.org/mta/internal/format"
	"example.org/mta/suppression"
)

// The file's buckets.
var (
	listed    = []byte("suppression")
	pending   = []byte("pending")
	counters  = []byte("counters")
	providers = []byte("providers")
)

// Format is what this program knows of the list's formats. A format is the newest version that an entry can have. The last
// program that stated none wrote version 1.
var Format = format.Store{Name: "suppression list", Reads: 1, Writes: version, Unstated: 1}

// Store is the list's store. Open makes one.
type Store struct {
	db     *bolt.DB
	bucket []byte
	form   func() int
}

var _ suppression.Store = (*Store)(nil)

// Open opens or makes the file at path. form returns the version to write entries in, of those in [Format], and is
// asked for each; nil: the newest.
func Open(path string, form func() int) (*Store, error) {
	if form == nil {
		form = func() int { return version }
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("opening suppression list %s (another process may have it open; if it is damaged, put a copy or an empty list in its place: 'mta suppress import'): %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, b := range [][]byte{listed, pending, counters, providers} {
			if _, err := tx.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening suppression list %s: %w", path, errors.Join(err, db.Close()))
	}
	return &Store{db, listed, form}, nil
}

// Close closes the file. It is a matter of the list's store alone.
func (s *Store) Close() error {
	if !bytes.Equal(s.bucket, listed) {
		return nil
	}
	return s.db.Close()
}

// Backup returns the file's content at one instant, and its size in octets.
func (s *Store) Backup() (io.ReadCloser, int64, error) { return boltcopy.Copy(s.db) }

// Pending is the store of entries that were set aside, in the same file.
func (s *Store) Pending() *Store { return &Store{s.db, pending, s.form} }

// Counters are the values of [feed.Config.Counters], in the same file.
func (s *Store) Counters() *Values { return &Values{s.db, counters} }

// Providers are the values of [feed.Config.Providers], in the same file.
func (s *Store) Providers() *Values { return &Values{s.db, providers} }

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
	b := tx.Bucket(s.bucket)
	for i := range sorted {
		c := &sorted[i]
		if c.Remove {
			err = b.Delete(encodeKey(c.Key))
		} else {
			err = b.Put(encodeKey(c.Key), encodeEntry(&c.Entry, s.form()))
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
		b := tx.Bucket(s.bucket)
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
		c := tx.Bucket(s.bucket).Cursor()
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
// since 1970 (0: never), the class and the provider with their lengths, and the reason. Version 1 had neither
// class nor provider, and neither Report nor Complaint.
const (
	version     = 2
	withClasses = 2
)

var sources = []suppression.Source{"", suppression.Bounce, suppression.Operator, suppression.Import, suppression.Tenant, suppression.Unsubscribe,
	suppression.Report, suppression.Complaint}

func encodeEntry(e *suppression.Entry, form int) []byte {
	b := make([]byte, 0, 2+4*binary.MaxVarintLen64+len(e.Class)+len(e.Provider)+len(e.Reason))
	source := e.Source
	switch {
	case form >= withClasses:
	case source == suppression.Report:
		source = suppression.Bounce // the word of a host, too
	case source == suppression.Complaint:
		source = suppression.Unsubscribe // the word of the recipient, too
	}
	b = append(b, byte(form), byte(max(0, slices.Index(sources, source))))
	b = binary.AppendUvarint(b, seconds(e.Added))
	b = binary.AppendUvarint(b, seconds(e.Expires))
	if form >= withClasses {
		for _, text := range []string{e.Class, e.Provider} {
			b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
		}
	}
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
	if len(b) < 2 || b[0] < 1 || int(b[1]) >= len(sources) {
		return e, fmt.Errorf("the entry of %q is damaged", k.Address)
	}
	form := int(b[0])
	if form > version {
		return e, fmt.Errorf("the entry of %q has version %d, and this program knows 1 to %d: start the newer one that has written it: %w", k.Address, form, version, format.ErrRefused)
	}
	e.Source = sources[b[1]]
	b = b[2:]
	for _, t := range []*time.Time{&e.Added, &e.Expires} {
		s, n := binary.Uvarint(b)
		if n <= 0 {
			return e, errShort(k)
		}
		if s != 0 {
			*t = time.Unix(int64(s), 0).UTC()
		}
		b = b[n:]
	}
	for _, text := range []*string{&e.Class, &e.Provider} {
		if form < withClasses {
			break
		}
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return e, errShort(k)
		}
		*text, b = string(b[n:n+int(size)]), b[n+int(size):]
	}
	e.Reason = string(b)
	return e, nil
}

func errShort(k suppression.Key) error {
	return fmt.Errorf("entry of %q is shorter than it says", k.Address)
}
