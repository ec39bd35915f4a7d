package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/internal/boltcheck"
	"example.org/mta/internal/boltcopy"
	"example.org/mta/internal/format"
)

// state is what is kept of a stream over restarts.
type state struct {
	At      string    `json:"at"` // everything before was answered
	Gap     *gap      `json:"gap,omitempty"`
	Paused  bool      `json:"paused,omitempty"`
	Since   time.Time `json:"since"`            // nothing is too old before it has waited since then
	Removed time.Time `json:"removed,omitzero"` // when the configuration no longer had the stream
}

// gap is events that a stream did not get, and whose receiver has yet to hear of that.
type gap struct {
	From  string    `json:"from"`  // the first event
	To    string    `json:"to"`    // the last; with Unknown the first after the gap
	Since time.Time `json:"since"` // when the first happened; zero: unknown
	Until time.Time `json:"until"` // when the last happened; zero: unknown
	Count int64     `json:"count"` // of those that waited for too long
	// Unknown: files were deleted or damaged, so nobody counted their events.
	Unknown bool `json:"unknown,omitempty"`
}

// Refused is an event that a receiver refuses, and was set aside for that.
type Refused struct {
	Event   string    `json:"event_id"`
	Type    string    `json:"type"`
	Message string    `json:"id,omitempty"`
	Reason  string    `json:"reason"` // the receiver's
	At      time.Time `json:"at"`
}

// keptRefused is how many refused events are kept of a stream, the newest.
const keptRefused = 100

// CursorFormat is what this program knows of the formats of the cursors.
var CursorFormat = format.Store{Name: "cursors of streams", Reads: 1, Writes: 1, Unstated: 1}

var (
	statesBucket  = []byte("streams-1")
	refusedBucket = []byte("refused-1")
)

// cursors is the file of cursors.
type cursors struct{ db *bolt.DB }

// openCursors opens or makes the file. One that is damaged is set aside: damaged is its new name then, and
// the streams begin anew with the oldest record, so that none is missing.
func openCursors(path string, now time.Time) (c *cursors, damaged string, err error) {
	switch err := boltcheck.Check(path); {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	default:
		damaged = path + ".damaged-" + now.UTC().Format("20060102T150405")
		if err := os.Rename(path, damaged); err != nil {
			return nil, "", fmt.Errorf("setting the damaged cursors of streams aside: %w", err)
		}
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, "", fmt.Errorf("opening the cursors of streams, %s (another process may have it open): %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{statesBucket, refusedBucket} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("opening the cursors of streams, %s: %w", path, errors.Join(err, db.Close()))
	}
	return &cursors{db}, damaged, nil
}

func (c *cursors) close() error { return c.db.Close() }

// Backup returns the content of the file of cursors at one instant, and its size in octets.
func (s *Streams) Backup() (io.ReadCloser, int64, error) { return boltcopy.Copy(s.cursors.db) }

// load reads all states, by the name of the stream.
func (c *cursors) load() (map[string]state, error) {
	all := make(map[string]state)
	err := c.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(statesBucket).ForEach(func(name, value []byte) error {
			var s state
			if err := json.Unmarshal(value, &s); err != nil {
				return fmt.Errorf("the cursor of stream %q: %w", name, err)
			}
			all[string(name)] = s
			return nil
		})
	})
	return all, err
}

// save writes states in one transaction with one sync.
func (c *cursors) save(states map[string]state) error {
	if len(states) == 0 {
		return nil
	}
	return c.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(statesBucket)
		for name, s := range states {
			text, err := json.Marshal(s)
			if err != nil {
				return err
			}
			if err := b.Put([]byte(name), text); err != nil {
				return err
			}
		}
		return nil
	})
}

// forget drops all that is kept of a stream.
func (c *cursors) forget(name string) error {
	return c.db.Update(func(tx *bolt.Tx) error {
		return errors.Join(tx.Bucket(statesBucket).Delete([]byte(name)), tx.Bucket(refusedBucket).Delete([]byte(name)))
	})
}

// refuse notes an event that was set aside.
func (c *cursors) refuse(name string, r Refused) error {
	return c.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(refusedBucket)
		var list []Refused
		if value := b.Get([]byte(name)); value != nil {
			if err := json.Unmarshal(value, &list); err != nil {
				list = nil
			}
		}
		list = append(list, r)
		text, err := json.Marshal(list[max(0, len(list)-keptRefused):])
		if err != nil {
			return err
		}
		return b.Put([]byte(name), text)
	})
}

// refused lists the events that were set aside, oldest first.
func (c *cursors) refused(name string) (list []Refused, err error) {
	err = c.db.View(func(tx *bolt.Tx) error {
		if value := tx.Bucket(refusedBucket).Get([]byte(name)); value != nil {
			return json.Unmarshal(value, &list)
		}
		return nil
	})
	return list, err
}
