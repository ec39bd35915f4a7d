// Package suppression keeps the list of addresses that must get no mail: durable, for one
// tenant's mail or for all, each with its reason, its source and, perhaps, an end.
//
// The order of use: Open reads the store once, Match is asked about each recipient and mostly
// answers from memory, Feed takes what a bounce taught and returns at once, Add and Remove are the
// operator's and return when it is durable, Close writes what is left.
//
// Memory is bounded: about ten bits for each entry (a Bloom filter, so that an address that is not
// on the list costs no look at the disk, except for one in a hundred), and what was fed in the last
// moment. The filter is made anew when most of its entries are gone.
//
// Long-lived goroutine: keeper writes what was fed, renews the filter and, once an hour, removes what has ended.
// Open starts it, Close stops it and waits.
package suppression

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
)

const (
	// feedDelay is how long the keeper waits for more to write at once.
	feedDelay = 100 * time.Millisecond
	// retryDelay is how long it rests when the store failed.
	retryDelay = time.Second
	// sweepEvery is how often what has ended is removed.
	sweepEvery = time.Hour
	// maxFed bounds what waits to be written. What is beyond it is forgotten; the next bounce
	// brings it again.
	maxFed = 100_000
	// batch is how many changes are written at once.
	batch = 1000
	// anyNumber means no limit.
	anyNumber = math.MaxInt
)

// Config is what a List works with. Store is needed.
type Config struct {
	Store   Store
	MostOwn int // entries that a tenant may have added itself, see [List.AddOwn]; 0: any number
	// Note is called with the keys of [Shared] before entries change, but for those that have ended, and what it
	// returns after it. Nil: nobody shares the list.
	Note func(keys []string) (done func(), err error)
	Now  func() time.Time // nil: time.Now
	Log  *slog.Logger     // nil: none
}

// List is the list. Its methods are safe for use by many goroutines.
type List struct {
	store   Store
	mostOwn int
	note    func(keys []string) (done func(), err error)
	now     func() time.Time
	log     *slog.Logger

	stop   context.CancelFunc
	ended  chan struct{} // closed when the keeper is done
	kick   chan struct{} // there is something to write, or the filter to be renewed
	forgot atomic.Int64  // entries that were fed and are lost

	writing sync.Mutex // held while the store is changed, so that changes have one order; before mu

	mu     sync.RWMutex // guards the rest
	filter filter
	next   *filter       // is being made, see renew
	count  tally         // of the entries in the store
	fed    map[Key]Entry // not written yet
}

// Open reads which addresses the store has. It takes about a second for a million.
func Open(ctx context.Context, c Config) (*List, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	l := &List{
		store: c.Store, mostOwn: cmp.Or(c.MostOwn, anyNumber), note: c.Note, now: c.Now, log: c.Log,
		ended: make(chan struct{}), kick: make(chan struct{}, 1), fed: make(map[Key]Entry),
	}
	err := c.Store.Scan(ctx, Key{}, func(e Entry) bool {
		l.filter.add(e.Key)
		l.count.add(&e, 1)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("reading the suppression list: %w", err)
	}
	ctx, l.stop = context.WithCancel(context.Background())
	go l.keep(ctx)
	return l, nil
}

// Close writes what was fed and closes the store.
func (l *List) Close() error {
	l.stop()
	<-l.ended
	err := l.writeFed(context.Background())
	if cerr := l.store.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("closing the suppression list: %w", err)
	}
	return nil
}

// Keeps is Match for addresses that can be suppressed at all: see [Exempt].
func (l *List) Keeps(tenant string, a envelope.Address) (Entry, bool) {
	if Exempt(a) {
		return Entry{}, false
	}
	return l.Match(tenant, a)
}

// Match finds the entry that keeps a tenant's mail from an address: the tenant's own, else one
// for everybody's. When the store can't be read it finds none, since our own failure must refuse
// nobody's mail, and says so in the log.
func (l *List) Match(tenant string, a envelope.Address) (Entry, bool) {
	if l.empty() {
		return Entry{}, false
	}
	everybodys := KeyOf("", a)
	keys := [2]Key{{tenant, everybodys.Address}, everybodys}
	list := keys[:]
	if tenant == "" {
		list = keys[1:]
	}
	now := l.now()
	var suspects []Key
	l.mu.RLock()
	for _, k := range list {
		if e, ok := l.fed[k]; ok && !e.Ended(now) {
			l.mu.RUnlock()
			return e, true
		}
		if l.filter.has(k) {
			suspects = append(suspects, k)
		}
	}
	l.mu.RUnlock()
	if len(suspects) == 0 {
		return Entry{}, false
	}
	found, err := l.store.Get(context.Background(), suspects)
	if err != nil {
		l.log.Error("suppression list could not be read; mail goes on as if the address were not on it", "error", err)
		return Entry{}, false
	}
	for _, k := range suspects {
		for _, e := range found {
			if e.Key == k && !e.Ended(now) {
				return e, true
			}
		}
	}
	return Entry{}, false
}

// empty reports whether the list has never had an entry since it was opened, as most have not.
func (l *List) empty() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.filter.layers) == 0 && len(l.fed) == 0
}

// Feed adds an entry that the relay has found out by itself. It returns at once; the entry counts
// from now on and is durable within a second. It takes the place of none that an operator made, nor of one that
// lasts longer.
func (l *List) Feed(e Entry) {
	e.Reason = shorten(e.Reason)
	l.mu.Lock()
	if len(l.fed) >= maxFed {
		l.mu.Unlock()
		l.forgot.Add(1)
		return
	}
	l.fed[e.Key] = e
	l.mu.Unlock()
	l.wake()
}

// wake has the keeper look at what there is to do.
func (l *List) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Sync returns when what was fed before is durable.
func (l *List) Sync(ctx context.Context) error { return l.writeFed(ctx) }

// Merge is Feed for many entries, durable on return. It says how many were written.
func (l *List) Merge(ctx context.Context, entries []Entry) (merged int, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	for some := range slices.Chunk(entries, batch) {
		n, err := l.merge(ctx, some)
		if merged += n; err != nil {
			return merged, err
		}
	}
	return merged, nil
}

// Added is what an Add did, in entries.
type Added struct {
	New       int
	Changed   int // were there, and were other
	Unchanged int // were there as they are, or are a recipient's wish, which stays
}

// Add puts entries on the list, in place of those that are there; a recipient's wish stays. A zero Entry.Added is now,
// or, when nothing else of the entry changes, as it was. It is durable on return.
func (l *List) Add(ctx context.Context, entries []Entry) (Added, error) {
	return l.add(ctx, entries, anyNumber)
}

// AddOwn is Add for entries that a tenant adds itself. It returns [ErrTooMany] in place of adding to more than
// Config.MostOwn; entries of other sources don't count.
func (l *List) AddOwn(ctx context.Context, entries []Entry) (Added, error) {
	return l.add(ctx, entries, l.mostOwn)
}

// ErrTooMany is of a tenant that has added as many entries as it may.
var ErrTooMany = errors.New("the tenant has added as many suppressions as it may")

func (l *List) add(ctx context.Context, entries []Entry, most int) (done Added, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	for len(entries) > 0 {
		some := entries[:min(len(entries), batch)]
		entries = entries[len(some):]
		changes, unchanged, err := l.changes(ctx, some)
		done.Unchanged += unchanged
		if err != nil {
			return done, err
		}
		n, err := l.apply(ctx, changes, most)
		if err != nil {
			return done, err
		}
		done.New += n
		done.Changed += len(changes) - n
	}
	return done, nil
}

// Preview counts what Add would do.
func (l *List) Preview(ctx context.Context, entries []Entry) (would Added, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.writeAll(ctx); err != nil {
		return would, err
	}
	for len(entries) > 0 {
		some := entries[:min(len(entries), batch)]
		entries = entries[len(some):]
		changes, unchanged, err := l.changes(ctx, some)
		if err != nil {
			return would, err
		}
		there, err := l.stored(ctx, keysOf(changes))
		if err != nil {
			return would, err
		}
		would.Unchanged += unchanged
		for i := range changes {
			if e := &changes[i].Entry; there[e.Key] != nil {
				would.Changed++
			} else {
				would.New++
				there[e.Key] = e // named twice, it is new once
			}
		}
	}
	return would, nil
}

// changes leaves out the entries that the store has as they are, and says how many.
func (l *List) changes(ctx context.Context, entries []Entry) (changes []Change, unchanged int, err error) {
	there, err := l.stored(ctx, keysOf(entries))
	if err != nil {
		return nil, 0, err
	}
	now := l.now()
	for _, e := range entries {
		e.Reason = shorten(e.Reason)
		if old := there[e.Key]; old != nil && (old.same(&e) || old.stays(&e, now)) {
			unchanged++
			continue
		}
		if e.Added.IsZero() {
			e.Added = now
		}
		there[e.Key] = &e // named twice, it is compared with the first
		changes = append(changes, Change{Entry: e})
	}
	return changes, unchanged, nil
}

// Remove takes entries off the list and says how many were there. It is durable on return.
func (l *List) Remove(ctx context.Context, keys []Key) (removed int, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.writeAll(ctx); err != nil { // or what was fed before would come back
		return 0, err
	}
	for len(keys) > 0 {
		some := keys[:min(len(keys), batch)]
		keys = keys[len(some):]
		there, err := l.stored(ctx, some)
		if err != nil {
			return removed, err
		}
		var changes []Change
		for _, k := range some {
			if there[k] != nil { // what is not there is not noted, or it would wait in each node's exchange
				changes = append(changes, Change{Entry: Entry{Key: k}, Remove: true})
			}
		}
		n, err := l.apply(ctx, changes, anyNumber)
		removed -= n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// apply changes the store and says by how many entries it has grown. The filter comes first: an
// address must not be found missing that is in the store already. It returns ErrTooMany if a tenant would have more
// entries of its own than most. The caller has l.writing.
func (l *List) apply(ctx context.Context, changes []Change, most int) (grown int, err error) {
	return l.put(ctx, changes, most, l.note)
}

// put is apply with another note.
func (l *List) put(ctx context.Context, changes []Change, most int, note func([]string) (func(), error),
) (grown int, err error) {
	if len(changes) == 0 {
		return 0, nil
	}
	there, err := l.stored(ctx, keysOf(changes))
	if err != nil {
		return 0, err
	}
	var c tally
	for i := range changes {
		k := changes[i].Key
		if old := there[k]; old != nil {
			c.add(old, -1)
		}
		if there[k] = nil; !changes[i].Remove {
			there[k] = &changes[i].Entry // named twice, it counts once
			c.add(there[k], 1)
		}
	}
	l.mu.Lock()
	for tenant, n := range c.own {
		if l.count.own[tenant]+n > most {
			l.mu.Unlock()
			return 0, ErrTooMany
		}
	}
	for i := range changes {
		if !changes[i].Remove {
			l.filter.add(changes[i].Key)
			if l.next != nil {
				l.next.add(changes[i].Key)
			}
		}
	}
	l.mu.Unlock()
	if note != nil {
		done, err := note(names(keysOf(changes)))
		if err != nil {
			return 0, err
		}
		defer done()
	}
	if err := l.store.Apply(ctx, changes); err != nil {
		return 0, fmt.Errorf("writing the suppression list: %w", err)
	}
	l.mu.Lock()
	l.count.merge(&c)
	l.mu.Unlock()
	if l.stale() {
		l.wake()
	}
	return c.all, nil
}

// Get gives those of the entries that are there and have not ended, what was fed last included.
func (l *List) Get(ctx context.Context, keys []Key) ([]Entry, error) {
	if err := l.writeFed(ctx); err != nil {
		return nil, err
	}
	found, err := l.store.Get(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("reading the suppression list: %w", err)
	}
	now := l.now()
	return slices.DeleteFunc(found, func(e Entry) bool { return e.Ended(now) }), nil
}

// Tenants gives the tenants that have entries, "" for everybody's, in order. It looks at one entry
// of each.
func (l *List) Tenants(ctx context.Context) (tenants []string, err error) {
	if err := l.writeFed(ctx); err != nil {
		return nil, err
	}
	for after := (Key{}); ; {
		found := false
		err := l.store.Scan(ctx, after, func(e Entry) bool {
			tenants, found = append(tenants, e.Tenant), true
			return false
		})
		if err != nil {
			return nil, fmt.Errorf("reading the suppression list: %w", err)
		}
		if !found {
			return tenants, nil
		}
		after = Key{Tenant: tenants[len(tenants)-1], Address: beyondAll}
	}
}

// beyondAll is behind every address of a tenant: no address has this octet.
const beyondAll = "\xff"

// Query says which entries are wanted. All that is set must fit.
type Query struct {
	Tenant *string // of exactly this tenant; "" is everybody's. nil: all
	Domain string  // of the address, A-label form
	Source Source
	ByHost bool // what hosts said, see [Source.ByHost]
	// Provider served the address when the entry was made.
	Provider string
	Since    time.Time // added then or later
}

func (q *Query) fits(e *Entry) bool {
	return (q.Tenant == nil || *q.Tenant == e.Tenant) && (q.Source == "" || q.Source == e.Source) &&
		(!q.ByHost || e.Source.ByHost()) &&
		(q.Domain == "" || envelope.Address(e.Address).Domain() == q.Domain) &&
		(q.Provider == "" || q.Provider == e.Provider) && !e.Added.Before(q.Since)
}

// maxLooks bounds how many entries are looked at for a page.
const maxLooks = 200_000

// Page gives entries in the order of tenant and address, from the one behind after on. more says
// that there can be others behind last, even if the page has fewer than limit: then there was much
// to look through.
func (l *List) Page(ctx context.Context, q Query, after Key, limit int) (page []Entry, last Key, more bool, err error) {
	if err := l.writeFed(ctx); err != nil {
		return nil, Key{}, false, err
	}
	if q.Tenant != nil && after.Tenant < *q.Tenant { // what is before it is of others
		after = Key{Tenant: *q.Tenant}
	}
	now, looks := l.now(), 0
	err = l.store.Scan(ctx, after, func(e Entry) bool {
		if q.Tenant != nil && e.Tenant != *q.Tenant { // as is all that follows
			return false
		}
		if len(page) == limit || looks == maxLooks {
			more = true
			return false
		}
		looks++
		last = e.Key
		if !e.Ended(now) && q.fits(&e) {
			page = append(page, e)
		}
		return true
	})
	if err != nil {
		return nil, Key{}, false, fmt.Errorf("reading the suppression list: %w", err)
	}
	return page, last, more, nil
}

// Stats is how the list is.
type Stats struct {
	Entries   int   // what has ended included, for an hour at most
	Unwritten int   // fed, and not durable yet
	Forgotten int64 // fed, and lost because too much waited to be written
	Bytes     int64 // of memory
}

// Stats gives the numbers of this instant.
func (l *List) Stats() Stats {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return Stats{Entries: l.count.all, Unwritten: len(l.fed), Forgotten: l.forgot.Load(), Bytes: l.filter.bytes()}
}
