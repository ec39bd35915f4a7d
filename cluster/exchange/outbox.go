// Package exchange drives the changes of one node of a cluster (package changes): an outbox and a position on its disk,
// calls to the engine twice a second, and the stores of the kinds.
package exchange

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/cluster/changes"
	"example.org/mta/internal/sidestore"
)

// The buckets of the file. The outbox is there twice: by key, with serial and what was read when the key was noted, and
// by serial.
const (
	states = "state"
	byKey  = "keys"
	byTurn = "serials"
)

const unknown time.Duration = math.MaxInt64

// state is what a node remembers besides its outbox.
type state struct {
	changes.Me
	changes.Origin
	Acknowledged uint64            // the serial of the last change that the engine has
	Read         map[string]uint64 // the position in each kind whose keys have been noted once
	Seen         map[string]uint64 // the furthest that it was in this era; missing: no further than now
	Bad          map[string]uint64 // of a kind: the first number that could not be applied
	Whole        bool              // all was read once
}

// Config is what an Exchange works with.
type Config struct {
	Path string // of its file in the data directory
	Now  func() time.Time
	Log  *slog.Logger
}

// Exchange is that of one node. It is safe for concurrent use.
type Exchange struct {
	cfg   Config
	file  *sidestore.File
	kinds map[string]changes.Kind
	wake  chan struct{}
	whole atomic.Bool // state.Whole

	mu     sync.Mutex // guards what follows, and the outbox
	idle   sync.Cond  // busy has become empty
	state  state
	last   uint64              // serial
	waits  int                 // keys in the outbox
	busy   map[uint64]struct{} // first serials of notes whose changes are being made
	sent   map[string]uint64   // of a kind: the last number that is known to follow from this node's changes
	engine changes.Engine      // while Run does
	me     changes.Me          // likewise
	failed error               // why the last step did
	since  time.Time           // when failed began
	asked  time.Time           // when the last call was sent after which all was read; zero: there was none
	age    time.Duration       // see Age; unknown otherwise
	most   int                 // changes of the next call, each way: fewer after one that took too long
	faults map[string]string   // of a kind: what could not be applied; of unsent and a kind: what could not be sent
}

// Open opens or makes the file. After damage all is exchanged anew.
func Open(cfg Config) (*Exchange, error) {
	file, err := sidestore.Open(sidestore.Config{Path: cfg.Path, Name: "the changes of the cluster",
		Buckets: []string{states, byKey, byTurn}, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	c := &Exchange{cfg: cfg, file: file, kinds: make(map[string]changes.Kind), wake: make(chan struct{}, 1),
		age: unknown, most: most, busy: make(map[uint64]struct{}), sent: make(map[string]uint64),
		faults: make(map[string]string)}
	c.idle.L = &c.mu
	err = file.Get(states, 1, func(int) []byte { return []byte(states) },
		func(_ int, value []byte) error { return json.Unmarshal(value, &c.state) })
	if err == nil {
		err = file.Each(byTurn, nil, func(serial, _ []byte) error {
			c.last = binary.BigEndian.Uint64(serial)
			c.waits++
			return nil
		})
	}
	c.whole.Store(c.state.Whole)
	if c.last = max(c.last, c.state.Acknowledged); err == nil && file.Damage() != nil {
		c.state.Era = ""
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the changes of the cluster, %s: %w", cfg.Path, err), file.Close())
	}
	return c, nil
}

// Add adds a kind, before Run. anew: its store has lost something. A kind that was read before is read again, and
// nothing of it is noted: the engine or the outbox has all that this node has changed, and the store may be older.
func (c *Exchange) Add(name string, k changes.Kind, anew bool) error {
	if c == nil {
		return nil
	}
	c.kinds[name] = k
	if _, known := c.state.Read[name]; !known || !anew {
		return nil
	}
	return c.saved(func(s *state) {
		s.Read[name] = 0
		delete(s.Seen, name)
	})
}

// Close closes the file. The kinds change nothing any more.
func (c *Exchange) Close() error {
	if c == nil {
		return nil
	}
	return c.file.Close()
}

// Waiting is how many keys have changed here and wait to be sent; 0 without a cluster.
func (c *Exchange) Waiting() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits
}

// Of is Note for a kind; nil without a cluster.
func (c *Exchange) Of(kind string) func(keys []string) (done func(), err error) {
	if c == nil {
		return nil
	}
	return func(keys []string) (done func(), err error) { return c.Note(kind, keys) }
}

// Note writes down that keys of a kind are about to change. Between it and done nothing is sent. Its caller has nothing
// else change these keys.
func (c *Exchange) Note(kind string, keys []string) (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.last + 1
	if err := c.note(kind, keys, max(c.state.Seen[kind], c.state.Read[kind])); err != nil {
		return nil, err
	}
	c.busy[first] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.busy, first); len(c.busy) == 0 {
			c.idle.Broadcast()
		}
		c.nudge()
	}, nil
}

// Age is the most that the rows which a kind applies now can have been in the engine: they were not there when the call
// before was sent.
func (c *Exchange) Age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.age
}

// Whole reports whether all that the nodes know was read once. Without a cluster it is.
func (c *Exchange) Whole() bool { return c == nil || c.whole.Load() }

// nudge has Run send soon what is noted.
func (c *Exchange) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// item is a key in the outbox.
type item struct {
	serial, seen uint64
	kind, key    string
}

func name(kind, key string) []byte { return []byte(kind + "\x00" + key) }

func pair(a, b uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, a), b)
}

// there returns the items of keys in the outbox.
func (c *Exchange) there(kind string, keys []string) (map[string]item, error) {
	found := make(map[string]item)
	err := c.file.Get(byKey, len(keys), func(i int) []byte { return name(kind, keys[i]) }, func(i int, v []byte) error {
		if len(v) != 16 {
			return fmt.Errorf("the note of key %q is damaged", keys[i])
		}
		found[keys[i]] = item{binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:]), kind, keys[i]}
		return nil
	})
	return found, err
}

// note puts keys into the outbox. One that is there gets a later serial, and was seen what it was. The caller has mu.
func (c *Exchange) note(kind string, keys []string, seen uint64) error {
	there, err := c.there(kind, keys)
	if err != nil {
		return err
	}
	var writes []sidestore.Change
	last, again := c.last, make(map[string]bool, len(keys))
	for _, key := range keys {
		if again[key] {
			continue
		}
		again[key] = true
		saw := seen
		if old, ok := there[key]; ok {
			saw = min(saw, old.seen)
			writes = append(writes, sidestore.Change{Bucket: byTurn, Key: turn(old.serial)})
		}
		last++
		writes = append(writes, sidestore.Change{Bucket: byKey, Key: name(kind, key), Value: pair(last, saw)},
			sidestore.Change{Bucket: byTurn, Key: turn(last), Value: append(turn(saw), name(kind, key)...)})
	}
	if err := c.file.Apply(writes); err != nil {
		return fmt.Errorf("noting changes for the cluster: %w", err)
	}
	c.last, c.waits = last, c.waits+len(again)-len(there)
	return nil
}

func turn(serial uint64) []byte { return binary.BigEndian.AppendUint64(nil, serial) }

var errEnough = errors.New("enough")

// take returns the first items of the outbox, and whether there are more to be sent.
func (c *Exchange) take() (items []item, more bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stop := c.last + 1
	for first := range c.busy {
		stop = min(stop, first)
	}
	err = c.file.Each(byTurn, nil, func(k, v []byte) error {
		serial := binary.BigEndian.Uint64(k)
		if more = len(items) == c.most; more || serial >= stop {
			return errEnough
		}
		if len(v) < 8 {
			return fmt.Errorf("note %d is damaged", serial)
		}
		kind, key, _ := strings.Cut(string(v[8:]), "\x00")
		items = append(items, item{serial, binary.BigEndian.Uint64(v), kind, key})
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return items, more, err
}

// stays returns what keeps a row from being applied: its key is in the outbox, other than as one of some items.
func (c *Exchange) stays(kind string, items map[string]item) func(key string) bool {
	return func(key string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		there, err := c.there(kind, []string{key})
		now, waits := there[key]
		return err != nil || waits && now != items[key]
	}
}

// acknowledge takes items out of the outbox, unless they were noted anew. Of those that were not sent the engine has no
// serial.
func (c *Exchange) acknowledge(items []item, sent []int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var writes []sidestore.Change
	for _, x := range items {
		there, err := c.there(x.kind, []string{x.key})
		if err != nil {
			return err
		}
		if there[x.key] == x {
			writes = append(writes, sidestore.Change{Bucket: byKey, Key: name(x.kind, x.key)},
				sidestore.Change{Bucket: byTurn, Key: turn(x.serial)})
		}
	}
	err := c.save(func(s *state) {
		if len(sent) > 0 {
			s.Acknowledged = items[sent[len(sent)-1]].serial
		}
	}, writes...)
	if err == nil {
		c.waits -= len(writes) / 2
	}
	return err
}

// save changes the state, on the disk first. The caller has mu.
func (c *Exchange) save(change func(*state), with ...sidestore.Change) error {
	next := c.state
	next.Read, next.Seen, next.Bad = make(map[string]uint64), make(map[string]uint64), make(map[string]uint64)
	for kind, n := range c.state.Read {
		next.Read[kind], next.Seen[kind] = n, max(c.state.Seen[kind], n)
	}
	for kind, n := range c.state.Bad {
		next.Bad[kind] = n
	}
	change(&next)
	for kind, n := range c.state.Read {
		if next.Read[kind] < n { // old rows come again
			c.asked = time.Time{}
		}
	}
	text, err := json.Marshal(next)
	if err == nil {
		err = c.file.Apply(append(with, sidestore.Change{Bucket: states, Key: []byte(states), Value: text}))
	}
	if err != nil {
		return fmt.Errorf("writing down what was read of the cluster's changes: %w", err)
	}
	c.state = next
	return nil
}

// begin forgets the outbox and what was read, as all is exchanged anew with an engine.
func (c *Exchange) begin(me changes.Me, r changes.Result) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.busy) > 0 {
		c.idle.Wait()
	}
	var writes []sidestore.Change
	for _, bucket := range []string{byKey, byTurn} {
		err := c.file.Each(bucket, nil, func(k, _ []byte) error {
			writes = append(writes, sidestore.Change{Bucket: bucket, Key: k})
			return nil
		})
		if err != nil {
			return err
		}
	}
	c.last, c.asked = max(c.last, r.Serial), time.Time{}
	err := c.save(func(s *state) {
		*s = state{Me: me, Origin: r.Origin, Acknowledged: r.Serial, Whole: s.Whole}
	}, writes...)
	if err == nil {
		c.waits = 0
	}
	return err
}
