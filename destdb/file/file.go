// Package file keeps destdb's records in a bbolt file. What it holds are hints: of a file that is damaged, what is sound
// is kept. It has no goroutine; the scheduler's clock calls Save, at most once a second and never on a job's path.
//
// Beside them it keeps small values by name for other parts of the program, each with a checksum.
package file

import (
	"encoding/json"
	"io"
	"log/slog"
	"slices"

	"example.org/mta/destdb"
	"example.org/mta/internal/format"
	"example.org/mta/internal/sidestore"
)

// Format is what this program knows of the database's formats.
var Format = format.Store{Name: "destination database", Reads: 1, Writes: 1, Unstated: 1}

const bucket = "records-1" // the number goes up when old records can't be read any more

// Store is a file with records.
type Store struct{ file *sidestore.File }

// Open opens the file, or makes it. One that is damaged is set aside. An error means that the file can't be used: it is
// locked by another process, or its directory can't be written.
func Open(path string, log *slog.Logger) (*Store, error) {
	f, err := sidestore.Open(sidestore.Config{
		Path: path, Name: "destination database", Buckets: []string{bucket}, Sound: sound, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &Store{f}, nil
}

// sound returns why an entry is not one.
func sound(part string, key, value []byte) error {
	if part != bucket {
		_, err := open(string(key), value)
		return err
	}
	var r destdb.Record
	return json.Unmarshal(value, &r)
}

// atOnce is how many records are read or written in one transaction. A bbolt transaction keeps the
// new keys of a page in one sorted list until its end: with all of a large database in one, each key
// would move half of those before it.
const atOnce = 1000

// Load hands all records to learn, some at a time.
func (s *Store) Load(learn func([]destdb.Record)) error {
	var some []destdb.Record
	err := s.file.Each(bucket, nil, func(_, value []byte) error {
		var r destdb.Record
		if err := json.Unmarshal(value, &r); err != nil {
			return err
		}
		if some = append(some, r); len(some) == atOnce {
			learn(some)
			some = nil
		}
		return nil
	})
	if err == nil && len(some) > 0 {
		learn(some)
	}
	return err
}

// Save replaces and removes records. It does so in several transactions when they are many: of one
// that fails, those before it are kept, and to save all again does no harm.
func (s *Store) Save(records []destdb.Record) error {
	for part := range slices.Chunk(records, atOnce) {
		changes := make([]sidestore.Change, len(part))
		for i := range part {
			key, err := json.Marshal(part[i].Key)
			if err != nil {
				return err
			}
			changes[i] = sidestore.Change{Bucket: bucket, Key: key}
			if part[i].Gone {
				continue
			}
			if changes[i].Value, err = json.Marshal(&part[i]); err != nil {
				return err
			}
		}
		if err := s.file.Apply(changes); err != nil {
			return err
		}
	}
	return nil
}

// Backup returns the file's content at one instant, and its size in octets.
func (s *Store) Backup() (io.ReadCloser, int64, error) { return s.file.Backup() }

// Close closes the file.
func (s *Store) Close() error { return s.file.Close() }
