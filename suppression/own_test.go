package suppression_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	. "example.org/mta/suppression"
)

// own are entries that a tenant adds itself.
func own(tenant string, from, to int) (all []Entry) {
	for i := from; i < to; i++ {
		all = append(all, Entry{Key: KeyOf(tenant, envelope.Address(fmt.Sprintf("r%d@example.net", i))), Source: Tenant})
	}
	return all
}

// A tenant has a limit for what it adds itself, over restarts; nothing else counts or is limited.
func TestATenantsOwnEntriesAreLimited(t *testing.T) {
	s, ctx := newMemory(), context.Background()
	begin := func() *List {
		l, err := Open(ctx, Config{Store: s, MostOwn: 5})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := begin()
	add := func(all []Entry, want Added, refused bool) {
		t.Helper()
		if got, err := l.AddOwn(ctx, all); got != want || errors.Is(err, ErrTooMany) != refused {
			t.Errorf("added %+v, %v; want %+v, refused %v", got, err, want, refused)
		}
	}
	add(append(own("acme", 0, 3), own("acme", 0, 1)...), Added{New: 3, Unchanged: 1}, false)
	add(own("acme", 3, 6), Added{}, true)
	if _, found := l.Match("acme", "r3@example.net"); found {
		t.Error("a refused addition has added some")
	}
	l.Feed(entry("acme", "r4@example.net"))
	l.Sync(ctx)
	for _, source := range []Source{Import, Operator, Unsubscribe} {
		if _, err := l.Add(ctx, []Entry{{Key: KeyOf("acme", envelope.Address(source+"@example.net")), Source: source}}); err != nil {
			t.Error(err)
		}
	}
	add(own("acme", 3, 5), Added{New: 1, Changed: 1}, false) // takes the place of the bounce
	add(own("acme", 5, 6), Added{}, true)
	add(own("other", 0, 5), Added{New: 5}, false)
	if _, err := l.Add(ctx, own("acme", 5, 7)); err != nil { // an operator's import of what was exported
		t.Error(err)
	}
	shut(t, l)
	l = begin()
	defer func() { shut(t, l) }()
	add(own("acme", 7, 8), Added{}, true)
	changed := own("acme", 0, 1)
	changed[0].Reason = "asked us to"
	add(changed, Added{Changed: 1}, false)
	if n, err := l.Remove(ctx, []Key{own("acme", 0, 1)[0].Key, own("acme", 1, 2)[0].Key, KeyOf("acme", "operator@example.net")}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	add(own("acme", 7, 8), Added{}, true) // seven less two are five
	if _, err := l.Add(ctx, []Entry{{Key: own("acme", 2, 3)[0].Key, Source: Unsubscribe}}); err != nil {
		t.Error(err)
	}
	add(own("acme", 7, 8), Added{New: 1}, false) // what is now the recipient's wish no longer counts
	add(own("acme", 8, 9), Added{}, true)
}

// A recipient's wish outlives what others add, until it is removed.
func TestARecipientsWishStays(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx := context.Background()
		for _, wish := range []Source{Unsubscribe, Complaint} {
			for _, other := range []Source{Tenant, Operator, Import, Bounce} {
				l := open(t, newMemory())
				k := KeyOf("acme", "joe@example.net")
				l.Add(ctx, []Entry{{Key: k, Source: wish, Reason: "the wish"}})
				done, err := l.Add(ctx, []Entry{{Key: k, Source: other, Expires: time.Now().Add(time.Hour)}})
				time.Sleep(2 * time.Hour)
				if e, found := l.Match("acme", "joe@example.net"); !found || e.Source != wish || e.Reason != "the wish" || done != (Added{Unchanged: 1}) || err != nil {
					t.Errorf("%s after %s: %+v %v, %+v %v", other, wish, e, found, done, err)
				}
				shut(t, l)
			}
			l := open(t, newMemory())
			k := KeyOf("acme", "joe@example.net")
			l.AddOwn(ctx, []Entry{{Key: k, Source: Tenant}})
			l.Feed(Entry{Key: k, Source: wish, Added: time.Now()})
			l.Sync(ctx)
			if e, _ := l.Match("acme", "joe@example.net"); e.Source != wish {
				t.Errorf("%s after the tenant: %+v", wish, e)
			}
			if n, err := l.Remove(ctx, []Key{k}); n != 1 || err != nil {
				t.Errorf("%d were removed, %v", n, err)
			}
			l.Add(ctx, []Entry{{Key: k, Source: wish, Expires: time.Now().Add(time.Minute)}}) // an operator's import
			time.Sleep(time.Hour / 2)
			if done, _ := l.AddOwn(ctx, []Entry{{Key: k, Source: Tenant}}); done.Changed != 1 {
				t.Errorf("after its end: %+v", done)
			}
			shut(t, l)
		}
	})
}

// changing is a store that is changed while it is read.
type changing struct {
	*memory
	midway func()
}

func (c *changing) Scan(ctx context.Context, after Key, each func(Entry) bool) error {
	err := c.memory.Scan(ctx, after, each)
	if c.midway != nil {
		c.midway()
	}
	return err
}

// Memory does not grow with the entries that are gone, and a filter that is made anew misses none.
func TestFilterIsMadeAnew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, s := context.Background(), &changing{memory: newMemory()}
		l := open(t, s)
		defer shut(t, l)
		l.Add(ctx, own("acme", 0, 1000))
		late := 1000
		s.midway = func() { // behind what was read
			l.Add(ctx, own("acme", late, late+1))
			late++
		}
		most := int64(0)
		for round := range 30 {
			some := own("acme", (round+1)*10_000, (round+2)*10_000)
			l.Add(ctx, some)
			keys := make([]Key, len(some))
			for i := range some {
				keys[i] = some[i].Key
			}
			l.Remove(ctx, keys)
			time.Sleep(time.Second)
			synctest.Wait()
			most = max(most, l.Stats().Bytes)
		}
		if most > 200_000 || late < 1003 {
			t.Errorf("%d octets of memory for %d entries; made anew %d times", most, l.Stats().Entries, late-1000)
		}
		for _, e := range own("acme", 0, late) {
			if _, found := l.Match("acme", envelope.Address(e.Address)); !found {
				t.Errorf("%s is not found", e.Address)
			}
		}
		s.midway = nil
	})
}
