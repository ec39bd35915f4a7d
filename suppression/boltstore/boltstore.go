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
	"log/slog"
	"slices"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/sidestore"
	"example.org/mta/suppression"
)

// The file's buckets.
const (
	listed    = "suppression"
	pending   = "pending"
	counters  = "counters"
	providers = "providers"
)

// Format is what this program knows of the list's formats. A format is the newest version that an entry can have. The
// last program that stated none wrote version 1.
var Format = format.Store{Name: "suppression list", Reads: 1, Writes: version, Unstated: 1}

// Store is the list's store. Open makes one.
type Store struct {
	file   *sidestore.File
	bucket string
	form   func() int
}

var _ suppression.Store = (*Store)(nil)

// Open opens or makes the file at path, and its second copy: an unsubscription is a promise. One that is damaged is set
// aside. form returns the version to write entries in, of those in [Format], and is asked for each; nil: the newest.
func Open(path string, form func() int, now func() time.Time, log *slog.Logger) (*Store, error) {
	if form == nil {
		form = func() int { return version }
	}
	file, err := sidestore.Open(sidestore.Config{
		Path: path, Name: "suppression list", Buckets: []string{listed, pending, counters, providers}, Copy: true,
		Sound: sound, Now: now, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &Store{file, listed, form}, nil
}

// sound returns why an entry is not one.
func sound(bucket string, key, value []byte) error {
	switch bucket {
	case counters:
		return suppression.CheckCounter(string(key), value)
	case providers:
		return suppression.CheckProvider(string(key), value)
	}
	k, err := decodeKey(key)
	if err == nil {
		_, err = decodeEntry(k, value)
	}
	return err
}

// Close closes the file. It is a matter of the list's store alone.
func (s *Store) Close() error {
	if s.bucket != listed {
		return nil
	}
	return s.file.Close()
}

// Damage returns what was wrong with the file when it was opened; nil when nothing was.
func (s *Store) Damage() error { return s.file.Damage() }

// Backup returns the file's content at one instant, and its size in octets.
func (s *Store) Backup() (io.ReadCloser, int64, error) { return s.file.Backup() }

// Pending is the store of entries that were set aside, in the same file.
func (s *Store) Pending() *Store { return &Store{s.file, pending, s.form} }

// Counters are the values of [suppression.FeederConfig.Counters], in the same file.
func (s *Store) Counters() *Values { return &Values{s.file, counters} }

// Providers are the values of [suppression.FeederConfig.Providers], in the same file.
func (s *Store) Providers() *Values { return &Values{s.file, providers} }

// Apply implements suppression.Store. A batch is one transaction, all of it or nothing.
func (s *Store) Apply(_ context.Context, changes []suppression.Change) error {
	all := make([]sidestore.Change, len(changes))
	for i := range changes {
		c := &changes[i]
		all[i] = sidestore.Change{Bucket: s.bucket, Key: encodeKey(c.Key)}
		if !c.Remove {
			all[i].Value = encodeEntry(&c.Entry, s.form())
		}
	}
	err := s.file.Apply(all)
	if errors.Is(err, sidestore.ErrUnknownOutcome) {
		return fmt.Errorf("%w: %w", suppression.ErrUnknownOutcome, err)
	}
	return err
}

// Get implements suppression.Store.
func (s *Store) Get(_ context.Context, keys []suppression.Key) (found []suppression.Entry, err error) {
	err = s.file.Get(s.bucket, len(keys), func(i int) []byte {
		return encodeKey(keys[i])
	}, func(i int, value []byte) error {
		e, err := decodeEntry(keys[i], value)
		found = append(found, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// errEnough ends a scan.
var errEnough = errors.New("enough")

// Scan implements suppression.Store. What is changed while it runs may or may not be seen.
func (s *Store) Scan(ctx context.Context, after suppression.Key, each func(suppression.Entry) bool) error {
	err := s.file.Each(s.bucket, encodeKey(after), func(k, v []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		key, err := decodeKey(k)
		if err != nil {
			return err
		}
		e, err := decodeEntry(key, v)
		if err == nil && !each(e) {
			err = errEnough
		}
		return err
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
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

var sources = []suppression.Source{"", suppression.Bounce, suppression.Operator, suppression.Import, suppression.Tenant,
	suppression.Unsubscribe,
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

// lastSecond is the end of the year 9999, in seconds since 1970: RFC 3339 has no later times, so JSON has none.
const lastSecond = 253402300799

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
		return e, fmt.Errorf(
			"the entry of %q has version %d, and this program knows 1 to %d: start the newer one that has written "+
				"it: %w", k.Address, form, version, format.ErrRefused)
	}
	e.Source = sources[b[1]]
	b = b[2:]
	for _, t := range []*time.Time{&e.Added, &e.Expires} {
		s, n := binary.Uvarint(b)
		if n <= 0 {
			return e, errShort(k)
		}
		if s != 0 {
			*t = time.Unix(int64(min(s, lastSecond)), 0).UTC()
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

// Values are values by name.
type Values struct {
	file   *sidestore.File
	bucket string
}

var _ suppression.Values = (*Values)(nil)

// Put implements suppression.Values. It is one transaction.
func (v *Values) Put(values map[string][]byte) error {
	changes := make([]sidestore.Change, 0, len(values))
	for name, value := range values {
		changes = append(changes, sidestore.Change{Bucket: v.bucket, Key: []byte(name), Value: value})
	}
	return v.file.Apply(changes)
}

// Each implements suppression.Values.
func (v *Values) Each(each func(name string, value []byte) error) error {
	return v.file.Each(v.bucket, nil, func(k, value []byte) error { return each(string(k), value) })
}
