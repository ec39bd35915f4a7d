// Package file keeps destdb's records in a bbolt file. What it holds are hints: a file that can't be
// read is set aside and a new one begun. It has no goroutine; the scheduler's clock calls Save, at
// most once a second and never on a job's path.
//
// BUGS: bbolt trusts the headers of its inner pages. Single bits that rot there, in a file that is
// otherwise sound, can make it read for ever; removing the file helps.
package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"mta/destdb"
)

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
	err := s.open()
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

// Load gives all records. When they can't be read the file is set aside, and there are none.
func (s *Store) Load() ([]destdb.Record, error) {
	records, err := s.load()
	if err == nil {
		return records, nil
	}
	if err := s.setAside(err); err != nil {
		return nil, fmt.Errorf("loading the destination database %s: %w", s.path, err)
	}
	return nil, nil
}

func (s *Store) load() (records []destdb.Record, err error) {
	defer guard(&err)()
	err = s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).ForEach(func(_, v []byte) error {
			var r destdb.Record
			if err := json.Unmarshal(v, &r); err != nil {
				return err
			}
			records = append(records, r)
			return nil
		})
	})
	return records, err
}

// Save replaces and removes records, in one transaction.
func (s *Store) Save(records []destdb.Record) (err error) {
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
