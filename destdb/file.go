package destdb

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/sidestore"
)

// Format is what this program knows of the database's formats.
var Format = format.Store{Name: "destination database", Reads: 1, Writes: 1, Unstated: 1}

const bucket = "records-1" // the number goes up when old records can't be read any more

// File keeps records in a bbolt file. What it holds are hints: of a file that is damaged, what is sound is kept. It has
// no goroutine; the scheduler's clock calls Save, at most once a second and never on a job's path. Beside them it keeps
// small values by name for other parts of the program, each with a checksum.
type File struct{ file *sidestore.File }

// OpenFile opens the file, or makes it. One that is damaged is set aside. An error means that the file can't be used:
// it is locked by another process, or its directory can't be written.
func OpenFile(path string, log *slog.Logger) (*File, error) {
	f, err := sidestore.Open(sidestore.Config{
		Path: path, Name: "destination database", Buckets: []string{bucket}, Sound: sound, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// OpenDB opens the file, and brings back what was learned, as it counts now.
func OpenDB(path string, now time.Time, log *slog.Logger) (*File, *DB, error) {
	f, err := OpenFile(path, log)
	if err != nil {
		return nil, nil, err
	}
	db := New(Lifetimes{})
	if err := f.Load(func(records []Record) {
		for i := range records {
			records[i].Judge(now)
		}
		db.Learn(records)
	}); err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, db, nil
}

// sound returns why an entry is not one.
func sound(part string, key, value []byte) error {
	if part != bucket {
		_, err := unsealed(string(key), value)
		return err
	}
	var r Record
	return json.Unmarshal(value, &r)
}

// atOnce is how many records are read or written in one transaction. A bbolt transaction keeps the
// new keys of a page in one sorted list until its end: with all of a large database in one, each key
// would move half of those before it.
const atOnce = 1000

// Load hands all records to learn, some at a time.
func (s *File) Load(learn func([]Record)) error {
	var some []Record
	err := s.file.Each(bucket, nil, func(_, value []byte) error {
		var r Record
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
func (s *File) Save(records []Record) error {
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

// Damage returns what was wrong with the file when it was opened; nil when nothing was.
func (s *File) Damage() error { return s.file.Damage() }

// Backup returns the file's content at one instant, and its size in octets.
func (s *File) Backup() (io.ReadCloser, int64, error) { return s.file.Backup() }

// Close closes the file.
func (s *File) Close() error { return s.file.Close() }

// Values is a part of the file that keeps small values by name, each with a checksum.
type Values struct {
	store  *File
	bucket string
}

// The parts of the file. The number goes up when old values can't be read any more.
const (
	WarmupCopies = "copies-1"  // second copies of warm-up states, by IP address
	STSPolicies  = "mta-sts-1" // MTA-STS policies, by domain
	TLSReports   = "tlsrpt-1"  // what is counted for TLS reports, by day and domain
)

// Values gives a part of the file.
func (s *File) Values(part string) Values { return Values{s, part} }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(name string, value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, value)
}

// unsealed returns the value in what is kept under a name, which has a checksum before it.
func unsealed(name string, kept []byte) ([]byte, error) {
	if len(kept) <= 4 || binary.BigEndian.Uint32(kept) != checksum(name, kept[4:]) {
		return nil, fmt.Errorf("the value of %q is damaged", name)
	}
	return kept[4:], nil
}

// Save keeps values under their names, in place of what was there; nil removes.
func (v Values) Save(values map[string][]byte) error {
	changes := make([]sidestore.Change, 0, len(values))
	for name, value := range values {
		c := sidestore.Change{Bucket: v.bucket, Key: []byte(name)}
		if value != nil {
			c.Value = append(binary.BigEndian.AppendUint32(nil, checksum(name, value)), value...)
		}
		changes = append(changes, c)
	}
	return v.store.file.Apply(changes)
}

// Load gives all values. Those that are not what was saved are left out.
func (v Values) Load() (values map[string][]byte, err error) {
	values = make(map[string][]byte)
	return values, v.store.file.Each(v.bucket, nil, func(name, kept []byte) error {
		if value, err := unsealed(string(name), kept); err == nil {
			values[string(name)] = value
		}
		return nil
	})
}
