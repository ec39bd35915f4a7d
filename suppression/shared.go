package suppression

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Shared is a list as the nodes of a cluster share it: values of JSON by key, which is the tenant, a NUL and the
// address. It implements changes.Kind.
type Shared struct{ List *List }

var sources = []Source{Bounce, Report, Complaint, Operator, Import, Tenant, Unsubscribe}

func names(keys []Key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.Tenant + "\x00" + k.Address
	}
	return all
}

func keyOf(name string) (k Key, err error) {
	tenant, address, ok := strings.Cut(name, "\x00")
	if !ok || address == "" || strings.Contains(address, "\x00") {
		return k, errors.New("want a tenant, a NUL and an address as its key")
	}
	return Key{tenant, address}, nil
}

// All calls each with the keys of all entries, some at a time.
func (s Shared) All(ctx context.Context, each func(keys []string) error) error {
	return s.List.Each(ctx, Query{}, func(some []Entry) error { return each(names(keysOf(some))) })
}

// Get returns the entries that are there.
func (s Shared) Get(ctx context.Context, keys []string) (map[string][]byte, error) {
	wanted := make([]Key, 0, len(keys))
	for _, name := range keys {
		if k, err := keyOf(name); err == nil {
			wanted = append(wanted, k)
		}
	}
	there, err := s.List.stored(ctx, wanted)
	if err != nil {
		return nil, err
	}
	values := make(map[string][]byte, len(there))
	for k, e := range there {
		if values[k.Tenant+"\x00"+k.Address], err = json.Marshal(shared(*e)); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// shared is an entry without its key.
type shared struct {
	Key      `json:"-"`
	Reason   string    `json:"reason,omitempty"`
	Source   Source    `json:"source"`
	Class    string    `json:"class,omitempty"`
	Provider string    `json:"provider,omitempty"`
	Added    time.Time `json:"added"`
	Expires  time.Time `json:"expires,omitzero"`
}

func parse(name string, value []byte) (Entry, error) {
	k, err := keyOf(name)
	var e shared
	if err == nil {
		err = json.Unmarshal(value, &e)
	}
	if err == nil && (!slices.Contains(sources, e.Source) || e.Added.IsZero()) {
		err = fmt.Errorf("it was added at %s by %q", e.Added, e.Source)
	}
	e.Key, e.Reason = k, shorten(e.Reason)
	return Entry(e), err
}

// Look returns the rank of an entry, and when it ends. A recipient's wish has the highest.
func (Shared) Look(key string, value []byte) (rank int, until time.Time, err error) {
	e, err := parse(key, value)
	if rank = 1; e.Source.ByRecipient() {
		rank = 2
	}
	return rank, e.Expires, err
}

// Apply puts entries on the list or takes them off it, unless they stay.
func (s Shared) Apply(ctx context.Context, values map[string][]byte, stays func(key string) bool) error {
	l := s.List
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.writeAll(ctx); err != nil { // what was fed before is noted then, and stays
		return err
	}
	var changes []Change
	for name, value := range values {
		c := Change{Remove: value == nil}
		var err error
		if c.Key, err = keyOf(name); err == nil && !c.Remove {
			c.Entry, err = parse(name, value)
		}
		if err != nil && !c.Remove {
			return err
		} else if err == nil && !stays(name) {
			changes = append(changes, c)
		}
	}
	there, err := l.stored(ctx, keysOf(changes))
	if err != nil {
		return err
	}
	some := changes[:0]
	for _, c := range changes {
		if old := there[c.Key]; c.Remove != (old == nil) || old != nil && !c.Remove && !old.same(&c.Entry) {
			some = append(some, c)
		}
	}
	_, err = l.put(ctx, some, anyNumber, nil)
	return err
}
