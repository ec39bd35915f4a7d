package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/sidestore"
	"example.org/mta/mta/accounting"
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

const (
	statesBucket  = "streams-1"
	refusedBucket = "refused-1"
)

// cursors is the file of cursors.
type cursors struct{ file *sidestore.File }

// openCursors opens or makes the file. Of one that is damaged, the cursors that are sound are kept; the other streams
// begin anew with the oldest record, so that none is missing.
func openCursors(path string, now func() time.Time, log *slog.Logger) (*cursors, error) {
	f, err := sidestore.Open(sidestore.Config{
		Path: path, Name: "cursors of streams", Buckets: []string{statesBucket, refusedBucket}, Sound: soundCursor,
		Now: now, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return &cursors{f}, nil
}

// soundCursor returns why an entry is not one.
func soundCursor(bucket string, _, value []byte) error {
	if bucket == statesBucket {
		return json.Unmarshal(value, new(state))
	}
	return json.Unmarshal(value, new([]Refused))
}

func (c *cursors) close() error { return c.file.Close() }

// Backup returns the content of the file of cursors at one instant, and its size in octets.
func (s *Streams) Backup() (io.ReadCloser, int64, error) { return s.cursors.file.Backup() }

// load reads all states, by the name of the stream.
func (c *cursors) load() (map[string]state, error) {
	all := make(map[string]state)
	return all, c.file.Each(statesBucket, nil, func(name, value []byte) error {
		var s state
		if err := json.Unmarshal(value, &s); err != nil {
			return fmt.Errorf("the cursor of stream %q: %w", name, err)
		}
		all[string(name)] = s
		return nil
	})
}

// Kept is a stream in a file of cursors.
type Kept struct {
	At      Position  // everything before was answered
	Removed time.Time // when the configuration no longer had it; zero: it had
}

// ReadKept returns the streams of a file of cursors that no relay has open, by their names; none if there is no file.
func ReadKept(path string, now func() time.Time, log *slog.Logger) (map[string]Kept, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c, err := openCursors(path, now, log)
	if err != nil {
		return nil, err
	}
	states, err := c.load()
	all := make(map[string]Kept, len(states))
	for name, s := range states {
		at, _ := accounting.ParsePosition(s.At) // a stream without a position has read nothing
		all[name] = Kept{at, s.Removed}
	}
	return all, errors.Join(err, c.close())
}

// save writes states in one transaction with one sync.
func (c *cursors) save(states map[string]state) error {
	if len(states) == 0 {
		return nil
	}
	changes := make([]sidestore.Change, 0, len(states))
	for name, s := range states {
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		changes = append(changes, sidestore.Change{Bucket: statesBucket, Key: []byte(name), Value: text})
	}
	return c.file.Apply(changes)
}

// forget drops all that is kept of a stream.
func (c *cursors) forget(name string) error {
	return c.file.Apply([]sidestore.Change{{Bucket: statesBucket, Key: []byte(name)},
		{Bucket: refusedBucket, Key: []byte(name)}})
}

// refuse notes an event that was set aside. One goroutine does so for each stream.
func (c *cursors) refuse(name string, r Refused) error {
	list, err := c.refused(name)
	if err != nil {
		return err
	}
	list = append(list, r)
	text, err := json.Marshal(list[max(0, len(list)-keptRefused):])
	if err != nil {
		return err
	}
	return c.file.Apply([]sidestore.Change{{Bucket: refusedBucket, Key: []byte(name), Value: text}})
}

// refused lists the events that were set aside, oldest first.
func (c *cursors) refused(name string) (list []Refused, err error) {
	err = c.file.Get(refusedBucket, 1, func(int) []byte { return []byte(name) }, func(_ int, value []byte) error {
		return json.Unmarshal(value, &list)
	})
	return list, err
}
