package queue

import (
	"cmp"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/vfs/vfstest"
)

func TestFilterMatches(t *testing.T) {
	m := &envelope.Message{Sender: "Ann@Client.example", Tenant: "acme"}
	r := &envelope.Recipient{Address: "bob@mail.box.example"}
	for _, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Sender: "ann@client.example"}, true},
		{Filter{Sender: "@client.EXAMPLE"}, true},
		{Filter{Sender: "@example"}, false},
		{Filter{Sender: "<>"}, false},
		{Filter{Tenant: "acme"}, true},
		{Filter{Tenant: "other"}, false},
		{Filter{Recipient: "@mail.box.example"}, true},
		{Filter{Recipient: "bob@box.example"}, false},
		{Filter{Domain: "mail.box.example"}, true},
		{Filter{Domain: "*.box.example"}, true},
		{Filter{Domain: "*.mail.box.example"}, false},
		{Filter{Domain: "box.example"}, false},
	} {
		if got := c.f.SelectsMessage(m) && c.f.SelectsRecipient(r); got != c.want {
			t.Errorf("%+v: %v", c.f, got)
		}
	}
	if f := (Filter{Sender: "<>"}); !f.SelectsMessage(&envelope.Message{}) {
		t.Error("<> doesn't select the null sender")
	}
}

// TestFilterFindsWhatItSelects holds lists against a look at every message, while names lose their numbers to others:
// filters look only at the recipients of numbers that can be meant.
func TestFilterFindsWhatItSelects(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		q.s.Domains.Most, q.s.Origins.Most = 20, 20
		rng := rand.New(rand.NewSource(1))
		for i := range 700 {
			happen(t, q, rng)
			m := message(1+rng.Intn(3), fmt.Sprintf("D%d.example", rng.Intn(60)))
			m.Tenant, m.Campaign = fmt.Sprint("t", rng.Intn(3)), fmt.Sprint("c", rng.Intn(40))
			m.Sender = envelope.Address(fmt.Sprintf("ann@s%d.example", rng.Intn(4)))
			accept(t, q, m, "x")
			if i%100 != 99 {
				continue
			}
			all, err := q.List(Filter{}, Page{Limit: 10_000})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []Filter{
				{Domain: "d7.EXAMPLE"}, {Domain: "d3.example", States: []State{StateDeferred}}, {Recipient: "r1@d5.example"}, {Recipient: "@d41.example"},
				{Tenant: "t1"}, {Tenant: "acme", Campaign: "spring"}, {Campaign: "c17"}, {Sender: "<>"}, {Sender: "@s2.example", Tenant: "t2"}, {Sender: "ANN@a.example"},
			} {
				for _, order := range []Order{OldestFirst, NewestFirst, NextAttempt} {
					if got, want := listed(t, q, f, order), selectedOf(all.Items, f); !reflect.DeepEqual(got, want) {
						t.Fatalf("%+v in order %d: %d recipients are found, want %d", f, order, len(got), len(want))
					}
				}
			}
		}
		if q.s.Domains.Leftover(q.s.Domains.FamilyOf("")) == 0 || len(q.s.Origins.Families) < 4 {
			t.Error("no name has lost its number with mail")
		}
	})
}

// listed gives the recipients in a listing.
func listed(t *testing.T, q *Queue, f Filter, order Order) map[recipientKey]bool {
	all := map[recipientKey]bool{}
	for page := (Page{Order: order, Limit: 50}); ; {
		l, err := q.List(f, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range l.Items {
			for _, r := range it.Recipients {
				all[recipientKey{uint64(it.ID), uint16(r.Index)}] = true
			}
		}
		if page.Cursor = l.Next; l.Next == "" {
			return all
		}
	}
}

// selectedOf gives the recipients of messages that a filter selects.
func selectedOf(items []Item, f Filter) map[recipientKey]bool {
	all := map[recipientKey]bool{}
	for i := range items {
		it := &items[i]
		m := &envelope.Message{Sender: it.Sender, Tenant: it.Tenant, Campaign: it.Campaign}
		for _, r := range it.Recipients {
			if f.SelectsMessage(m) && f.SelectsRecipient(&envelope.Recipient{Address: r.Address}) && (len(f.States) == 0 || slices.Contains(f.States, r.State)) {
				all[recipientKey{uint64(it.ID), uint16(r.Index)}] = true
			}
		}
	}
	return all
}

// TestListEndsInTime: a filter that selects little of much has its time, by the clock that was given; the pages
// together have all, and say how far they looked.
func TestListEndsInTime(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		var reads atomic.Int64
		started := time.Now()
		cfg.Now = func() time.Time { return started.Add(time.Duration(reads.Add(1)) * 10 * time.Millisecond) } // 10 ms pass with each look at it
		q := open(t, cfg)
		defer shut(t, q)
		const mail = 3000
		for i := range mail {
			m := message(1, "example.net")
			if i%1000 == 500 {
				m.Tags = []string{"rare"}
			}
			accept(t, q, m, "x")
		}
		for _, order := range []Order{OldestFirst, NewestFirst, NextAttempt} {
			pages, looked, items := 0, 0, 0
			for page := (Page{Order: order, Limit: 50, Time: 200 * time.Millisecond}); ; pages++ {
				before := q.now()
				l, err := q.List(Filter{Tag: "rare"}, page)
				// The queue's own goroutines look at the clock, too. All of the mail at once would take half a minute.
				if took := q.now().Sub(before); err != nil || took > time.Second+time.Duration(len(l.Items))*50*time.Millisecond {
					t.Fatalf("a page took %v, %v", took, err)
				}
				looked, items = looked+l.Looked, items+len(l.Items)
				if l.Complete != (l.Next == "") || l.Looked == 0 && !l.Complete {
					t.Fatalf("%+v", l)
				}
				if page.Cursor = l.Next; l.Next == "" {
					break
				}
			}
			if items != 3 || looked < mail || pages < 3 {
				t.Errorf("order %d: %d of 3 messages on %d pages, which looked at %d of %d recipients", order, items, pages, looked, mail)
			}
		}
		for what, by := range map[string]Naming{
			"envelope": {Envelope: func(*envelope.Message, int) string { return "all" }},
			"state":    {State: func(s RecipientState) string { return s.State.String() }},
		} {
			rows, pages := 0, 0
			for cursor := ""; ; pages++ {
				x, err := q.Tally(Filter{Leased: func(envelope.ID, int, bool) bool { return true }}, by, cursor, 200*time.Millisecond)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range x.Rows {
					rows += r.Total
				}
				if cursor = x.Next; cursor == "" {
					break
				}
			}
			if rows != mail || pages < 3 {
				t.Errorf("by %s: %d of %d recipients are counted in %d parts", what, rows, mail, pages+1)
			}
		}
		if l, err := q.List(Filter{States: []State{StateHeld}}, Page{}); err != nil || l.Looked > 0 || !l.Complete {
			t.Errorf("nothing is held, and the list of that is %+v, %v", l, err)
		}
	})
}

// A page by next attempt that is cut short is gone on with, in the order of the whole, however often it is asked for.
func TestListByNextAttemptGoesOn(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		var reads atomic.Int64
		started := time.Now()
		cfg.Now = func() time.Time { return started.Add(time.Duration(reads.Add(1)) * time.Millisecond) }
		q := open(t, cfg)
		defer shut(t, q)
		rng := rand.New(rand.NewSource(1))
		const mail = 3000
		for i := range mail {
			m := message(1, "example.net")
			m.Tenant = []string{"a", "b"}[i%2]
			accept(t, q, m, "x")
			l := next(t, q)
			q.Defer(m.ID, indexes(l), started.Add(1000*time.Hour+time.Duration(rng.Intn(900))*time.Second), Attempt{Reply: greylisted}, site("s"))
		}
		for _, f := range []Filter{{}, {Tenant: "b"}} {
			whole, err := q.List(f, Page{Order: NextAttempt, Limit: 10_000})
			if err != nil || !slices.IsSortedFunc(whole.Items, func(a, b Item) int { return cmp.Compare(soonest(a), soonest(b)) }) {
				t.Fatalf("%d items not in order, %v", len(whole.Items), err)
			}
			var got []Item
			cut, looked := 0, 0
			for cursor := ""; ; {
				page := Page{Order: NextAttempt, Limit: 400, Cursor: cursor, Time: 5 * time.Millisecond}
				l, err := q.List(f, page)
				again, _ := q.List(f, page)
				if n := min(len(l.Items), len(again.Items)); err != nil || !reflect.DeepEqual(l.Items[:n], again.Items[:n]) || again.Looked == 0 {
					t.Fatalf("%+v, asked for twice: %d and %d items, %v", page, len(l.Items), len(again.Items), err)
				}
				if got, looked = append(got, l.Items...), looked+l.Looked; !l.Complete {
					cut++
				}
				if cursor = l.Next; cursor == "" || cut == mail {
					break
				}
			}
			if !reflect.DeepEqual(got, whole.Items) || cut < 10 {
				t.Errorf("%+v: %d items in another order than %d of the whole, %d pages were cut short", f, len(got), len(whole.Items), cut)
			}
			t.Logf("%d recipients examined on pages, %d of them cut short", looked, cut)
		}
	})
}

// TestListByNextAttemptOfManyReaders: twenty operators who go through the queue at once all get to its end.
func TestListByNextAttemptOfManyReaders(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		var reads atomic.Int64
		started := time.Now()
		cfg.Now = func() time.Time { return started.Add(time.Duration(reads.Add(1)) * time.Millisecond) }
		q := open(t, cfg)
		defer shut(t, q)
		for i := range 1000 {
			m := accept(t, q, message(1, "example.net"), "x")
			q.Defer(m.ID, indexes(next(t, q)), started.Add(time.Duration(1e6+i)*time.Second), Attempt{Reply: greylisted}, site("s"))
		}
		const readers = 20
		var pages [readers]Page
		for i := range pages {
			pages[i] = Page{Order: NextAttempt, Limit: 10, Time: 5 * time.Millisecond}
		}
		cut := 0
		for range 400 {
			for i := range pages {
				if pages[i].Limit == 0 {
					continue
				}
				l, err := q.List(Filter{}, pages[i])
				if err != nil {
					t.Fatal(err)
				}
				if pages[i].Cursor = l.Next; l.Complete {
					pages[i].Limit = 0
				} else {
					cut++
				}
			}
		}
		for i := range pages {
			if pages[i].Limit > 0 {
				t.Errorf("reader %d is not at the end", i)
			}
		}
		if cut < 2*readers {
			t.Errorf("%d pages were cut short", cut)
		}
	})
}

// A cursor whose part is no longer there begins after the message that it names.
func TestListByNextAttemptWithoutItsPart(t *testing.T) {
	q := open(t, small(t, vfstest.Memory()))
	defer shut(t, q)
	accept(t, q, message(1, "example.net"), "x")
	for _, cursor := range []string{"0.0.17", "0.0.18446744073709551615", "0.0"} {
		if l, err := q.List(Filter{}, Page{Order: NextAttempt, Cursor: cursor}); err != nil || len(l.Items) != 1 {
			t.Errorf("%s: %d items, %v", cursor, len(l.Items), err)
		}
	}
	for _, cursor := range []string{"1", "x.1", "1.", "1.1.1.1", "4294967296.1", "-1.1"} {
		if _, err := q.List(Filter{}, Page{Order: NextAttempt, Cursor: cursor}); err == nil {
			t.Errorf("%s is taken for a cursor", cursor)
		}
	}
}
