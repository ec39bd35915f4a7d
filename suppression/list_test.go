package suppression_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	. "example.org/mta/suppression"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store without a disk, that can fail.
type memory struct {
	mu      sync.Mutex
	entries map[Key]Entry
	fail    error
	reads   int // of Get
	writes  int
	closed  bool
}

func newMemory() *memory { return &memory{entries: map[Key]Entry{}} }

func (m *memory) Apply(_ context.Context, changes []Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.writes++
	for _, c := range changes {
		if c.Remove {
			delete(m.entries, c.Key)
		} else {
			m.entries[c.Key] = c.Entry
		}
	}
	return nil
}

func (m *memory) Get(_ context.Context, keys []Key) (found []Entry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.fail != nil {
		return nil, m.fail
	}
	for _, k := range keys {
		if e, ok := m.entries[k]; ok {
			found = append(found, e)
		}
	}
	return found, nil
}

func (m *memory) Scan(_ context.Context, after Key, each func(Entry) bool) error {
	m.mu.Lock()
	var all []Entry
	for _, e := range m.entries {
		if compare(e.Key, after) > 0 {
			all = append(all, e)
		}
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b Entry) int { return compare(a.Key, b.Key) })
	for _, e := range all {
		if !each(e) {
			break
		}
	}
	return m.fail
}

func (m *memory) Close() error { m.closed = true; return nil }

func (m *memory) set(fail error) {
	m.mu.Lock()
	m.fail = fail
	m.mu.Unlock()
}

func (m *memory) has(k Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.entries[k]
	return ok
}

func compare(a, b Key) int {
	return strings.Compare(a.Tenant+"\x00"+a.Address, b.Tenant+"\x00"+b.Address)
}

func open(t *testing.T, s Store) *List {
	t.Helper()
	l, err := Open(context.Background(), Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func shut(t *testing.T, l *List) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func entry(tenant, address string) Entry {
	return Entry{Key: KeyOf(tenant, envelope.Address(address)), Reason: "no such user", Source: Bounce, Added: time.Now()}
}

// What is fed counts at once, is durable within a second, in few writes, and is there after a
// restart.
func TestT3_WhatIsFedIsDurableWithinASecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newMemory()
		l := open(t, s)
		for i := range 3000 {
			a := envelope.Address(fmt.Sprintf("r%d@example.net", i))
			l.Feed(entry("acme", string(a)))
			if _, ok := l.Match("acme", a); !ok {
				t.Fatalf("%s is not on the list when it was just fed", a)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(s.entries); n != 3000 || s.writes > 10 {
			t.Errorf("%d of 3000 were durable after a second, in %d writes", n, s.writes)
		}
		l.Feed(entry("", "last@example.net"))
		shut(t, l)
		if !s.closed || !s.has(KeyOf("", "last@example.net")) {
			t.Error("what was fed last is not in the store that was closed")
		}
		l = open(t, s)
		defer shut(t, l)
		if st := l.Stats(); st.Entries != 3001 || st.Unwritten != 0 {
			t.Errorf("after a restart: %+v", st)
		}
		if e, ok := l.Match("acme", "R17@EXAMPLE.net"); !ok || e.Reason != "no such user" || e.Source != Bounce {
			t.Errorf("after a restart: %+v %v", e, ok)
		}
	})
}

// A tenant's entry keeps only its own mail back; one of nobody's keeps back everybody's.
func TestMatch(t *testing.T) {
	s := newMemory()
	l := open(t, s)
	defer shut(t, l)
	if _, err := l.Add(context.Background(), []Entry{entry("acme", "a@example.net"), entry("", "b@bücher.example"), entry("", `"x y"@example.net`)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tenant, address string
		want            bool
	}{
		{"acme", "a@example.net", true}, {"acme", "A@Example.NET", true}, {"other", "a@example.net", false}, {"", "a@example.net", false},
		{"acme", "b@xn--bcher-kva.example", true}, {"", "B@BÜCHER.example", true}, {"acme", "c@example.net", false},
		{"", `"X Y"@example.net`, true}, {"", "", false}, {"", "a", false},
	} {
		if _, ok := l.Match(c.tenant, envelope.Address(c.address)); ok != c.want {
			t.Errorf("mail of %q to %s: on the list %v, want %v", c.tenant, c.address, ok, c.want)
		}
	}
	if !Exempt("PostMaster@example.net") || !Exempt("postmaster") || Exempt("postmaster2@example.net") {
		t.Error("who is exempt is wrong")
	}
}

// Addresses that are not on the list cost no look at the store, but for one in a hundred.
func TestLookUpsStayInMemory(t *testing.T) {
	s := newMemory()
	l := open(t, s)
	defer shut(t, l)
	const n = 50_000
	var some []Entry
	for i := range n {
		some = append(some, entry("", fmt.Sprintf("on%d@example.net", i)))
	}
	if added, err := l.Add(context.Background(), some); added.New != n || err != nil {
		t.Fatalf("added %+v, %v", added, err)
	}
	s.reads = 0
	for i := range n {
		if _, ok := l.Match("", envelope.Address(fmt.Sprintf("off%d@example.net", i))); ok {
			t.Fatalf("off%d is on the list", i)
		}
	}
	if s.reads > n*3/100 {
		t.Errorf("the store was read %d times for %d addresses that are not on the list", s.reads, n)
	}
	t.Logf("%d reads for %d addresses that are not on the list, %d octets for %d that are", s.reads, n, l.Stats().Bytes, n)
	if b := l.Stats().Bytes; b > n*4 {
		t.Errorf("%d octets of memory for %d entries", b, n)
	}
	for i := range n {
		if _, ok := l.Match("", envelope.Address(fmt.Sprintf("on%d@example.net", i))); !ok {
			t.Fatalf("on%d is not on the list", i)
		}
	}
}

// Adding and removing count what they changed, and removing also stops what is on its way.
func TestAddAndRemove(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newMemory()
		l := open(t, s)
		defer shut(t, l)
		ctx := context.Background()
		e := entry("", "a@example.net")
		e.Source, e.Reason = Operator, strings.Repeat("é", 500)
		if n, err := l.Add(ctx, []Entry{e, e, entry("", "b@example.net")}); n != (Added{New: 2, Unchanged: 1}) || err != nil {
			t.Fatalf("added %+v, %v", n, err)
		}
		if got, _ := l.Match("", "a@example.net"); len(got.Reason) > MaxReason || len(got.Reason) < MaxReason-3 || strings.Contains(got.Reason, "\ufffd") {
			t.Errorf("reason of %d octets", len(got.Reason))
		}
		fed := entry("", "a@example.net")
		l.Feed(fed)
		l.Feed(entry("", "c@example.net"))
		if n, err := l.Remove(ctx, []Key{KeyOf("", "c@example.net"), KeyOf("", "b@example.net"), KeyOf("", "b@example.net"), KeyOf("", "z@example.net")}); n != 2 || err != nil {
			t.Fatalf("removed %d, %v", n, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, a := range []envelope.Address{"b@example.net", "c@example.net"} {
			if _, ok := l.Match("", a); ok || s.has(KeyOf("", a)) {
				t.Errorf("%s has come back", a)
			}
		}
		if got, ok := l.Match("", "a@example.net"); !ok || got.Source != Operator {
			t.Errorf("a bounce took the operator's place: %+v %v", got, ok)
		}
		if st := l.Stats(); st.Entries != 1 || st.Unwritten != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// What says what is there already changes nothing and is not written; a time that isn't given is
// no change.
func TestAddUnchanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newMemory()
		l := open(t, s)
		defer shut(t, l)
		ctx := context.Background()
		first := entry("", "a@example.net")
		first.Source, first.Added, first.Expires = Import, time.Now(), time.Now().Add(time.Hour)
		add := func(change func(*Entry)) Added {
			t.Helper()
			e := first
			change(&e)
			done, err := l.Add(ctx, []Entry{e})
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		if got := add(func(*Entry) {}); got != (Added{New: 1}) {
			t.Fatalf("the first: %+v", got)
		}
		time.Sleep(time.Minute)
		for name, change := range map[string]func(*Entry){
			"the same":                 func(*Entry) {},
			"parts of a second":        func(e *Entry) { e.Added = e.Added.Add(time.Millisecond) },
			"without a time of adding": func(e *Entry) { e.Added = time.Time{} },
		} {
			if got := add(change); got != (Added{Unchanged: 1}) {
				t.Errorf("%s: %+v", name, got)
			}
		}
		for name, change := range map[string]func(*Entry){
			"a reason":                    func(e *Entry) { e.Reason = "other" },
			"a source":                    func(e *Entry) { e.Source = Operator },
			"an end":                      func(e *Entry) { e.Expires = e.Expires.Add(time.Minute) },
			"no end":                      func(e *Entry) { e.Expires = time.Time{} },
			"a time of adding":            func(e *Entry) { e.Added = e.Added.Add(time.Minute) },
			"a reason, no time of adding": func(e *Entry) { e.Reason, e.Added = "none", time.Time{} },
		} {
			if got := add(change); got != (Added{Changed: 1}) {
				t.Errorf("%s: %+v", name, got)
			}
			if e, _ := l.Match("", "a@example.net"); e.Added.IsZero() {
				t.Errorf("%s: no time of adding", name)
			}
			add(func(*Entry) {})
		}
	})
}

// An entry ends by itself, at its time and not with the sweep, which takes it out of the store.
func TestEntriesEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newMemory()
		l := open(t, s)
		defer shut(t, l)
		e := entry("", "a@example.net")
		e.Expires = time.Now().Add(10 * time.Minute)
		fed := entry("", "b@example.net")
		fed.Expires = e.Expires
		l.Add(context.Background(), []Entry{e, entry("", "c@example.net")})
		l.Feed(fed)
		for _, a := range []envelope.Address{"a@example.net", "b@example.net"} {
			if _, ok := l.Match("", a); !ok {
				t.Fatalf("%s is not on the list", a)
			}
		}
		time.Sleep(10 * time.Minute)
		for _, a := range []envelope.Address{"a@example.net", "b@example.net"} {
			if _, ok := l.Match("", a); ok {
				t.Errorf("%s is on the list after its end", a)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.entries) != 1 || l.Stats().Entries != 1 {
			t.Errorf("%d entries are stored, %d counted, want the one without an end", len(s.entries), l.Stats().Entries)
		}
	})
}

var errDisk = errors.New("the disk is gone")

// A store that fails refuses nobody's mail, keeps what was fed, and is tried again.
func TestStoreThatFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newMemory()
		l := open(t, s)
		defer shut(t, l)
		l.Add(context.Background(), []Entry{entry("", "old@example.net")})
		s.set(errDisk)
		if _, ok := l.Match("", "old@example.net"); ok {
			t.Error("mail is refused by a list that can't be read")
		}
		l.Feed(entry("", "new@example.net"))
		if _, err := l.Add(context.Background(), []Entry{entry("", "x@example.net")}); !errors.Is(err, errDisk) {
			t.Errorf("adding: %v", err)
		}
		time.Sleep(10 * time.Second)
		if _, ok := l.Match("", "new@example.net"); !ok || l.Stats().Unwritten != 1 {
			t.Error("what was fed is lost")
		}
		s.set(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !s.has(KeyOf("", "new@example.net")) {
			t.Error("it was not tried again")
		}
	})
}

// Pages go through the whole list in order, and a filter picks from it.
func TestPages(t *testing.T) {
	s := newMemory()
	l := open(t, s)
	defer shut(t, l)
	var all []Entry
	for i := range 95 {
		e := entry([]string{"", "acme", "zeta"}[i%3], fmt.Sprintf("r%d@d%d.example", i, i%2))
		if i%5 == 0 {
			e.Source = Import
		}
		all = append(all, e)
	}
	l.Add(context.Background(), all)
	acme := "acme"
	for _, c := range []struct {
		q    Query
		want int
	}{{Query{}, 95}, {Query{Tenant: &acme}, 32}, {Query{Tenant: new(string)}, 32}, {Query{Source: Import}, 19}, {Query{Domain: "d1.example"}, 47}} {
		var got []Entry
		for after, more := (Key{}), true; more; {
			page, last, rest, err := l.Page(context.Background(), c.q, after, 10)
			if err != nil || len(page) > 10 {
				t.Fatalf("%d entries, %v", len(page), err)
			}
			if c.q.Tenant != nil && last.Tenant != *c.q.Tenant && last != (Key{}) {
				t.Errorf("a page of tenant %q looks at %q", *c.q.Tenant, last.Tenant)
			}
			got = append(got, page...)
			after, more = last, rest
		}
		if len(got) != c.want || !slices.IsSortedFunc(got, func(a, b Entry) int { return compare(a.Key, b.Key) }) {
			t.Errorf("%+v: %d entries, want %d in order", c.q, len(got), c.want)
		}
	}
}

func TestTenantsAndGet(t *testing.T) {
	s := newMemory()
	l := open(t, s)
	defer shut(t, l)
	ctx := context.Background()
	if got, err := l.Tenants(ctx); len(got) != 0 || err != nil {
		t.Errorf("tenants of an empty list: %q, %v", got, err)
	}
	ended := entry("zeta", "x@example.net")
	ended.Expires = time.Now().Add(-time.Second)
	l.Add(ctx, []Entry{entry("zeta", "a@example.net"), entry("zeta", "b@example.net"), entry("acme", "a@example.net"), ended})
	l.Feed(entry("", "ü@example.net"))
	if got, err := l.Tenants(ctx); !slices.Equal(got, []string{"", "acme", "zeta"}) || err != nil {
		t.Errorf("tenants %q, %v", got, err)
	}
	got, err := l.Get(ctx, []Key{KeyOf("zeta", "a@example.net"), ended.Key, KeyOf("", "ü@example.net"), KeyOf("", "a@example.net")})
	if err != nil || len(got) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func BenchmarkMatchOfWhatIsNotThere(b *testing.B) {
	s := newMemory()
	l, err := Open(context.Background(), Config{Store: s})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var some []Entry
	for i := range 100_000 {
		some = append(some, entry("", fmt.Sprintf("on%d@example.net", i)))
	}
	l.Add(context.Background(), some)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		l.Match("acme", "somebody@example.com")
	}
}
