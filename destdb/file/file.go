// Package file keeps destdb's records in a bbolt file. What it holds are hints: a file that can't be
// read is set aside and a new one begun. It has no goroutine; the scheduler's clock calls Save, at
// most once a second and never on a job's path.
//
// Beside them it keeps small values by name for other parts of the program, each with a checksum.
package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"example.org/mta/destdb"
	"example.org/mta/internal/boltcheck"
	"example.org/mta/internal/boltcopy"
	"example.org/mta/internal/format"
)

// Format is what this program knows of the database's formats.
var Format = format.Store{Name: "destination database", Reads: 1, Writes: 1, Unstated: 1}

var bucket = []byte("records-1") // the number goes up when old records can't be read any more

// lockWait is how long Open waits for another process to let go of the file.
const lockWait = 2 * time.Second

// Store is a file with records.
type Store struct {
	path string
	log  *slog.Logger
	db   *bbolt.DB
}

// Open opens the file, or makes it. One that is corrupt is renamed to path with ".corrupt" behind it,
// in place of an earlier one. An error means that the file can't be used: it is locked by another
// process, or its directory can't be written.
func Open(path string, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{path: path, log: log}
	err := boltcheck.Check(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) || !exists(path) {
		err = s.open()
	}
	if err != nil && !errors.Is(err, bolterrors.ErrTimeout) && exists(path) {
		err = s.setAside(err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the destination database %s: %w", path, err)
	}
	return s, nil
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// open opens the file. Damage can make bbolt panic anywhere: it reads by mapping.
func (s *Store) open() (err error) {
	defer guard(&err)()
	// NoFreelistSync would have bbolt walk the file at the start in a goroutine of its own, where a
	// damaged page is a panic that nobody can catch.
	s.db, err = bbolt.Open(s.path, 0o600, &bbolt.Options{Timeout: lockWait})
	if err != nil {
		return err
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
}

// setAside begins a new file.
func (s *Store) setAside(why error) error {
	if s.db != nil {
		_ = s.close()
	}
	aside := s.path + ".corrupt"
	s.log.Warn("the destination database is corrupt and is begun anew", "file", s.path, "kept", aside, "error", why)
	if err := os.Rename(s.path, aside); err != nil {
		return err
	}
	return s.open()
}

// atOnce is how many records are read or written in one transaction. A bbolt transaction keeps the
// new keys of a page in one sorted list until its end: with all of a large database in one, each key
// would move half of those before it.
const atOnce = 1000

// Load hands all records to learn. When one can't be read the file is set aside; what came before it
// has been learned then.
func (s *Store) Load(learn func([]destdb.Record)) error {
	var last []byte
	for {
		records, at, err := s.read(last)
		if err != nil {
			if err := s.setAside(err); err != nil {
				return fmt.Errorf("loading the destination database %s: %w", s.path, err)
			}
			return nil
		}
		if len(records) == 0 {
			return nil
		}
		learn(records)
		last = at
	}
}

// read gives the records behind a key, and the last one's key. That keys ascend is checked: in a
// damaged file they might go round and round.
func (s *Store) read(behind []byte) (records []destdb.Record, last []byte, err error) {
	defer guard(&err)()
	err = s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		k, v := c.Seek(behind)
		if behind != nil && bytes.Equal(k, behind) {
			k, v = c.Next()
		}
		last = bytes.Clone(behind)
		for ; k != nil && len(records) < atOnce; k, v = c.Next() {
			if bytes.Compare(k, last) <= 0 {
				return fmt.Errorf("damaged: key %q comes after %q", k, last)
			}
			var r destdb.Record
			if err := json.Unmarshal(v, &r); err != nil {
				return err
			}
			records, last = append(records, r), append(last[:0], k...)
		}
		return nil
	})
	return records, last, err
}

// Save replaces and removes records. It does so in several transactions when they are many: of one
// that fails, those before it are kept, and to save all again does no harm.
func (s *Store) Save(records []destdb.Record) error {
	for part := range slices.Chunk(records, atOnce) {
		if err := s.savePart(part); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) savePart(records []destdb.Record) (err error) {
	defer guard(&err)()
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		for i := range records {
			if err := save(b, &records[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func save(b *bbolt.Bucket, r *destdb.Record) error {
	key, err := json.Marshal(r.Key)
	if err != nil {
		return err
	}
	if r.Gone {
		return b.Delete(key)
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return b.Put(key, value)
}

// Backup returns the file's content at one instant, and its size in octets.
func (s *Store) Backup() (_ io.ReadCloser, _ int64, err error) {
	defer guard(&err)()
	return boltcopy.Copy(s.db)
}

// Close closes the file.
func (s *Store) Close() error {
	if err := s.close(); err != nil {
		return fmt.Errorf("closing the destination database %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) close() (err error) {
	defer guard(&err)()
	return s.db.Close()
}

// guard makes an error of a panic, and of a fault: bbolt maps the file, and a file that was cut has
// less than its pages say.
func guard(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			*err = fmt.Errorf("damaged: %v", p)
		}
	}
}
