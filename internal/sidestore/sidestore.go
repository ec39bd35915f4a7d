// Package sidestore keeps entries in a bbolt file that may be damaged: the stores beside the queue, none of which may
// keep the relay from starting, nor answer anything but what was stored.
//
// The file is looked at before bbolt opens it, each entry has a sum, and what must not be lost has a second copy of the
// whole file. A file that is damaged is set aside. Its copy takes its place, else the entries that are sound.
//
// The sums are in a separate bucket, which programs without them pass by: either can open the file of the other.
// The bucket has the number of the last transaction that kept it. After one that did not, by a program without sums,
// the entries are taken as they are. It has no goroutines.
package sidestore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Config is what a File is opened with.
type Config struct {
	Path    string
	Name    string   // of the store, for errors and the log
	Buckets []string // that are there from the beginning; changes make others
	Copy    bool     // there is a second copy: each change costs two syncs
	// Sound returns why an entry is damaged, nil when it is not. It is asked for entries without a sum, of earlier
	// programs. May be nil.
	Sound func(bucket string, key, value []byte) error
	Now   func() time.Time // nil: time.Now
	Log   *slog.Logger     // nil: none
}

// File is an open file, perhaps with its copy. It is safe for use by many goroutines.
type File struct {
	Config
	dbs    []*bolt.DB // the file, then its copy
	damage error
	broken atomic.Pointer[error] // it was damaged while it is open
	bare   atomic.Bool           // the disk did not take its sums: the next change makes them
}

// Damage returns what was wrong with the file when it was opened; nil when nothing was.
func (f *File) Damage() error { return f.damage }

// Change puts an entry in the place of the one with its key, or removes that.
type Change struct {
	Bucket     string
	Key, Value []byte // Value nil: removed
}

// Apply makes changes, in order, as one transaction with one sync for each copy. After an error of [ErrUnknownOutcome]
// they may have been made; to make them again does no harm.
func (f *File) Apply(changes []Change) error {
	sorted := slices.Clone(changes) // neighbours go into one page: in order they are written once
	slices.SortStableFunc(sorted, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), bytes.Compare(a.Key, b.Key))
	})
	for i, db := range f.dbs {
		err := f.guarded(func() error {
			if i == 0 && f.bare.Load() {
				if err := f.prepare(db); err != nil {
					return err
				}
				f.bare.Store(false)
			}
			return apply(db, sorted)
		})
		if err != nil && i > 0 { // the file has them
			err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrUnknownOutcome is of changes of which nobody knows whether they were made.
var ErrUnknownOutcome = errors.New("the outcome of the change is unknown")

func apply(db *bolt.DB, changes []Change) error {
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := write(tx, changes); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		// bbolt may have written the head before it failed to sync it
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return nil
}

func write(tx *bolt.Tx, changes []Change) error {
	all, err := tx.CreateBucketIfNotExists(sumsBucket)
	if err != nil {
		return err
	}
	buffer := make([]byte, 0, sumSize*len(changes)) // bbolt keeps what it is given until the commit
	var entries, sums *bolt.Bucket
	for i := range changes {
		c := &changes[i]
		if i == 0 || c.Bucket != changes[i-1].Bucket {
			if entries, err = tx.CreateBucketIfNotExists([]byte(c.Bucket)); err != nil {
				return err
			}
			if sums, err = all.CreateBucketIfNotExists([]byte(c.Bucket)); err != nil {
				return err
			}
		}
		if c.Value == nil {
			err = errors.Join(entries.Delete(c.Key), sums.Delete(c.Key))
		} else {
			start := len(buffer)
			buffer = appendSum(buffer, c.Key, c.Value)
			err = errors.Join(entries.Put(c.Key, c.Value), sums.Put(c.Key, buffer[start:]))
		}
		if err != nil {
			return err
		}
	}
	return all.Put(keptKey, kept(tx))
}

// Get calls each with the values of those of n keys that are there, by their index. A value counts within the call
// only.
func (f *File) Get(bucket string, n int, keys func(i int) []byte, each func(i int, value []byte) error) error {
	return f.view(bucket, func(entries *bolt.Bucket, summed func() *bolt.Bucket) error {
		for i := range n {
			key := keys(i)
			value := entries.Get(key)
			if value == nil {
				continue
			}
			var err error
			if summed == nil {
				err = f.entryError(bucket, key, value)
			} else {
				err = check(key, value, summed().Get(key))
			}
			if err != nil {
				return err
			}
			if err := each(i, value); err != nil {
				return err
			}
		}
		return nil
	})
}

// step is how many entries are read in one transaction: a long one would keep the pages of all that is changed
// meanwhile from being used again.
const step = 1000

// Each calls each with the entries behind a key, in the order of their keys, until it returns an error. Nil is before
// all. What is changed meanwhile may or may not be seen; each may change the file. It may keep what it is given.
func (f *File) Each(bucket string, after []byte, each func(key, value []byte) error) error {
	for {
		var some []Change
		err := f.view(bucket, func(entries *bolt.Bucket, sums func() *bolt.Bucket) error {
			c := entries.Cursor()
			k, v := behind(c, after)
			next := func() error { return f.entryError(bucket, k, v) }
			if sums != nil {
				s := sums().Cursor()
				_, sum := s.Seek(k)
				next = func() error {
					err := check(k, v, sum)
					_, sum = s.Next()
					return err
				}
			}
			for ; k != nil && len(some) < step; k, v = c.Next() {
				if err := next(); err != nil {
					return err
				}
				some = append(some, Change{Key: bytes.Clone(k), Value: bytes.Clone(v)})
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, e := range some {
			if err := each(e.Key, e.Value); err != nil {
				return err
			}
			after = e.Key
		}
		if len(some) < step {
			return nil
		}
	}
}

// behind moves a cursor to the first entry behind a key.
func behind(c *bolt.Cursor, after []byte) (key, value []byte) {
	key, value = c.Seek(after)
	if after != nil && bytes.Equal(key, after) {
		key, value = c.Next()
	}
	return key, value
}

// view reads a bucket and its sums, nil while the file has none. There is nothing to read in one that no change has
// made.
func (f *File) view(bucket string, read func(entries *bolt.Bucket, sums func() *bolt.Bucket) error) error {
	return f.guarded(func() error {
		bare := f.bare.Load() // before the transaction begins: sums that come later are in later ones
		return f.dbs[0].View(func(tx *bolt.Tx) error {
			name := []byte(bucket)
			entries := tx.Bucket(name)
			if entries == nil {
				return nil
			}
			if bare {
				return read(entries, nil)
			}
			return read(entries, func() *bolt.Bucket { return tx.Bucket(sumsBucket).Bucket(name) })
		})
	})
}

// guarded makes an error of a panic, and of a fault: bbolt maps the file, and one that is damaged while it is open can
// have less than its pages say. bbolt may hold its locks then, so the file is left alone from there on.
func (f *File) guarded(do func() error) (err error) {
	if err := f.broken.Load(); err != nil {
		return *err
	}
	defer f.guard(&err, debug.SetPanicOnFault(true))
	return do()
}

func (f *File) guard(err *error, before bool) {
	debug.SetPanicOnFault(before)
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s, %s, was damaged while it was open, restart the relay: %v", f.Name, f.Path, p)
		broken := *err
		f.broken.Store(&broken)
	}
}

// Backup returns the file's content at one instant, and its size in octets.
func (f *File) Backup() (from io.ReadCloser, size int64, err error) {
	err = f.guarded(func() (err error) {
		from, size, err = CopyOf(f.dbs[0])
		return err
	})
	return from, size, err
}

// Close closes the file.
func (f *File) Close() error {
	return f.guarded(func() (err error) {
		for _, db := range f.dbs {
			err = errors.Join(err, db.Close())
		}
		return err
	})
}

// CopySuffix is the end of the name of a second copy.
const CopySuffix = ".copy"

func (f *File) copyPath() string { return f.Path + CopySuffix }

// options are those of all files. The list of free pages is made anew at each opening, which boltcheck has made safe.
func options() *bolt.Options {
	return &bolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bolt.FreelistMapType}
}

func regular(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	return err
}
