package suppression

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/bounce"
)

const (
	// maxDays is how far back rules look. A counter has a bit for each day, in 64.
	maxDays = 60
	// maxCounters bounds the memory of counters to about 20 MB, and their disk space to about 50 MB. What is beyond
	// them is not counted until others have ended.
	maxCounters = 400_000
)

// counter has the days on which an address was refused: bit i is that of day - i.
type counter struct {
	day  int32 // since 1970, UTC
	days uint64
}

func dayOf(t time.Time) int32 { return int32(t.Unix() / 86_400) }

// add counts a refusal, and says on how many days of those that count there was one.
func (c *counter) add(at time.Time, within time.Duration) int {
	on := dayOf(at)
	switch {
	case c.days == 0:
		c.day, c.days = on, 1
	case on >= c.day:
		c.days, c.day = c.days<<(on-c.day)|1, on // a shift by 64 or more leaves nothing
	case c.day-on < 64:
		c.days |= 1 << (c.day - on)
	}
	n := min(max(int(within/day), 1), maxDays)
	return bits.OnesCount64(c.days & (1<<n - 1))
}

const counterVersion = 1

func (c *counter) encode() []byte {
	b := append(make([]byte, 0, 16), counterVersion)
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(max(c.day, 0))), c.days)
}

func (c *counter) decode(b []byte) error {
	if len(b) == 0 || b[0] != counterVersion {
		return errors.New("it has a form that this program does not know")
	}
	d, n := binary.Uvarint(b[1:])
	if n <= 0 || d > 1<<30 {
		return errors.New("it is damaged")
	}
	days, m := binary.Uvarint(b[1+n:])
	if m <= 0 {
		return errors.New("it is damaged")
	}
	c.day, c.days = int32(d), days
	return nil
}

// counters count the refusals of addresses for which one is not enough. In memory a counter has the hash of its
// name alone.
type counters struct {
	store Values
	seed  maphash.Seed
	used  atomic.Int64 // len(by), for those who don't want the lock
	full  atomic.Int64 // refusals that were not counted

	mu    sync.RWMutex // guards the rest
	by    map[uint64]counter
	dirty map[string]struct{} // names of those to be written
}

func openCounters(store Values) (*counters, error) {
	c := &counters{store: store, seed: maphash.MakeSeed(), by: make(map[uint64]counter),
		dirty: make(map[string]struct{})}
	err := store.Each(func(name string, value []byte) error {
		k, class, n, err := readCounter(name, value)
		if err != nil {
			return err
		}
		if len(c.by) < maxCounters {
			c.by[c.hash(k, class)] = n
		}
		return nil
	})
	c.used.Store(int64(len(c.by)))
	return c, err
}

// CheckCounter returns why a value of [FeederConfig.Counters] is not valid.
func CheckCounter(name string, value []byte) error {
	_, _, _, err := readCounter(name, value)
	return err
}

func readCounter(name string, value []byte) (k Key, class string, n counter, err error) {
	k, class, ok := splitCounterName(name)
	if err = n.decode(value); err == nil && !ok {
		err = errors.New("it is of no address")
	}
	if err != nil {
		return k, class, n, fmt.Errorf("reading the counter of refusals %q: %w", name, err)
	}
	return k, class, n, nil
}

// counterName is the name of a counter in the store: tenant, address and class, between NULs.
func counterName(k Key, class string) string {
	return k.Tenant + "\x00" + k.Address + "\x00" + class
}

func splitCounterName(name string) (k Key, class string, ok bool) {
	tenant, rest, _ := strings.Cut(name, "\x00")
	address, class, ok := strings.Cut(rest, "\x00")
	return Key{Tenant: tenant, Address: address}, class, ok
}

func (c *counters) hash(k Key, class string) uint64 {
	return withClass(k.hash(c.seed), class)
}

func (k Key) hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(k.Tenant)
	h.WriteByte(0)
	h.WriteString(k.Address)
	return h.Sum64()
}

// withClass is the hash of a counter, of those of its key and its class (FNV-1a).
func withClass(h uint64, class string) uint64 {
	for i := range len(class) {
		h = (h ^ uint64(class[i])) * 1099511628211
	}
	return h
}

// add counts a refusal, and reports whether it is the one that puts the address on the list; then the counter is gone.
func (c *counters) add(k Key, class bounce.Class, at time.Time, r *Rule) (enough bool) {
	h := c.hash(k, class.String())
	c.mu.Lock()
	defer c.mu.Unlock()
	n, there := c.by[h]
	if !there && len(c.by) >= maxCounters || len(c.dirty) >= maxCounters {
		c.full.Add(1)
		return false
	}
	if enough = n.add(at, r.Within) >= r.After; enough {
		delete(c.by, h)
	} else {
		c.by[h] = n
	}
	c.used.Store(int64(len(c.by)))
	c.dirty[counterName(k, class.String())] = struct{}{}
	return enough
}

// reset forgets the refusals of an address, and reports whether there were any.
func (c *counters) reset(k Key, classes map[bounce.Class]Rule) (were bool) {
	key := k.hash(c.seed)
	c.mu.RLock()
	for class := range classes {
		if _, there := c.by[withClass(key, class.String())]; there {
			were = true
		}
	}
	c.mu.RUnlock()
	if !were {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for class := range classes {
		if h := withClass(key, class.String()); c.by[h].days != 0 {
			delete(c.by, h)
			c.dirty[counterName(k, class.String())] = struct{}{}
		}
	}
	c.used.Store(int64(len(c.by)))
	return true
}

// flush writes what has changed.
func (c *counters) flush() error {
	for {
		values := c.changed()
		if len(values) == 0 {
			return nil
		}
		if err := c.store.Put(values); err != nil {
			c.mu.Lock()
			for name := range values {
				c.dirty[name] = struct{}{}
			}
			c.mu.Unlock()
			return fmt.Errorf("writing counters of refusals: %w", err)
		}
	}
}

// changed gives some of what must be written, and takes it for written.
func (c *counters) changed() map[string][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	values := make(map[string][]byte, min(len(c.dirty), writeBatch))
	for name := range c.dirty {
		if len(values) == writeBatch {
			break
		}
		k, class, _ := splitCounterName(name)
		if n, there := c.by[c.hash(k, class)]; there {
			values[name] = n.encode()
		} else {
			values[name] = nil
		}
		delete(c.dirty, name)
	}
	return values
}

// sweep forgets the counters that are older than any rule looks back.
func (c *counters) sweep(now time.Time) error {
	oldest := dayOf(now) - maxDays
	var ended []string
	err := c.store.Each(func(name string, value []byte) error {
		var n counter
		if n.decode(value) == nil && n.day < oldest {
			ended = append(ended, name)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading counters of refusals: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range ended {
		k, class, _ := splitCounterName(name)
		h := c.hash(k, class)
		if n, there := c.by[h]; there && n.day >= oldest {
			continue // refused again meanwhile
		}
		delete(c.by, h)
		c.dirty[name] = struct{}{}
	}
	c.used.Store(int64(len(c.by)))
	return nil
}
