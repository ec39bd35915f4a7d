package ledger

import (
	"testing"
	"time"

	"example.org/mta/cluster/term"
)

var (
	terms = term.Term{Length: 3 * time.Minute, Drift: 200e-6}
	plan  = &Plan{Hour: time.Hour, Caps: func(_, provider string) (int64, int64) {
		if provider == "" {
			return 100, 1000
		}
		return 80, 1000
	}}
	key = Key{"10.0.0.1", "gmail"}
)

// hour is a moment of the engine's clock.
func hour(h int64, d time.Duration) int64 { return h*int64(time.Hour) + int64(d) }

func order(seq uint64) term.Order { return term.Order{Incarnation: 1, Process: 1, Seq: seq} }

// give asks once for tokens, and returns how many there are.
func (b *Book) give(t *testing.T, seq uint64, i Item) int64 {
	t.Helper()
	grants, err := b.Give(1, order(seq), []Item{i})
	if err != nil || len(grants) > 1 {
		t.Fatal(grants, err)
	}
	if len(grants) == 0 {
		return 0
	}
	return grants[0].Tokens
}

// all asks until there is no more, and returns how many there were.
func (b *Book) all(t *testing.T, seq uint64) (sum int64) {
	t.Helper()
	for {
		n := b.give(t, seq, Item{Key: key, Want: 50})
		if n == 0 {
			return sum
		}
		sum, seq = sum+n, seq+1
	}
}

// saved is what the engine has of a book.
func (b *Book) saved() map[Key]Count {
	m := make(map[Key]Count)
	b.Changes(func(k Key, c Count) { m[k] = c })
	return m
}

func TestABlockIsInTheBookBeforeItIsGiven(t *testing.T) {
	b := NewBook(plan, 1, hour(5, time.Minute))
	n := b.give(t, 1, Item{Key: key, Want: 7})
	if got := b.saved(); n != 7 || got[key] != (Count{5, 7, 7}) || got[Key{key.Address, ""}] != (Count{5, 7, 7}) {
		t.Fatalf("gave %d with %v", n, got)
	}
	b.give(t, 2, Item{Key: key, Want: 5})
	b.Written() // of the changes before
	if got := b.saved(); got[key].Sent != 12 {
		t.Errorf("what was given after a call is not in the next: %v", got)
	}
	b.Written()
	if got := b.saved(); len(got) != 0 {
		t.Errorf("changes after they were written: %v", got)
	}
}

func TestASuccessorTakesAnOpenBlockForSent(t *testing.T) {
	first := NewBook(plan, 1, hour(5, time.Minute))
	first.give(t, 1, Item{Key: key, Want: 10})
	b := NewBook(plan, 2, hour(5, 2*time.Minute))
	for k, c := range first.saved() {
		if err := b.Load(k, c); err != nil {
			t.Fatal(err)
		}
	}
	// What an earlier owner gave stays charged.
	if n := b.give(t, 2, Item{Key: key, Back: 10, Hour: 5, Epoch: 1}); n != 0 {
		t.Fatal(n)
	}
	if n := b.all(t, 3); n != 70 {
		t.Errorf("%d more of 80, of which ten are out", n)
	}
}

func TestCapsOfAllProvidersAndTheDay(t *testing.T) {
	b := NewBook(plan, 1, hour(24, time.Minute))
	if n := b.all(t, 1); n != 80 {
		t.Errorf("%d of 80 for a provider", n)
	}
	if n := b.give(t, 1000, Item{Key: Key{key.Address, "other"}, Want: 50}); n != 2 {
		t.Errorf("%d at once, of 20 for all providers", n)
	}
	sum := int64(82)
	for h := int64(25); h < 48; h++ {
		b.Clock(hour(h, time.Minute))
		sum += b.all(t, uint64(h)*1000)
	}
	if sum != 1000 {
		t.Errorf("%d of 1000 in the day", sum)
	}
	b.Clock(hour(48, time.Minute))
	if n := b.all(t, 100000); n != 80 {
		t.Errorf("%d on the next day", n)
	}
}

func TestABlockIsGivenBackOnce(t *testing.T) {
	b := NewBook(plan, 1, hour(5, time.Minute))
	b.all(t, 1)
	back := Item{Key: key, Back: 8, Hour: 5, Epoch: 1}
	b.give(t, 1000, back)
	b.give(t, 1000, back)
	b.give(t, 999, back)
	if n := b.all(t, 1001); n != 8 {
		t.Errorf("%d after 8 were given back", n)
	}
	b.give(t, 2000, Item{Key: key, Back: 500, Hour: 5, Epoch: 1})
	if n := b.all(t, 2001); n != 80 {
		t.Errorf("%d after more than all was given back", n)
	}
	b.Clock(hour(6, time.Minute))
	b.give(t, 3000, back)
	if n := b.all(t, 3001); n != 80 {
		t.Errorf("%d in an hour in which 8 of the last were given back", n)
	}
}

func TestTheHourIsTheLaterOfTheBooksAndTheClocks(t *testing.T) {
	b := NewBook(plan, 2, hour(5, 59*time.Minute)) // a standby whose clock is behind
	if err := b.Load(key, Count{6, 80, 80}); err != nil {
		t.Fatal(err)
	}
	if n := b.all(t, 1); n != 0 {
		t.Errorf("%d in an hour that is used up", n)
	}
	b.Clock(hour(6, time.Minute))
	b.Clock(hour(5, time.Minute))
	if n := b.all(t, 1); n != 0 {
		t.Errorf("%d after the clock went back", n)
	}
}

func TestNothingIsGivenAtTheEndsOfAnHour(t *testing.T) {
	for _, d := range []time.Duration{0, guard - 1, time.Hour - guard, time.Hour - 1} {
		if n := NewBook(plan, 1, hour(5, d)).all(t, 1); n != 0 {
			t.Errorf("%d at %v", n, d)
		}
	}
}

func TestTokensEndWithTheirHour(t *testing.T) {
	h := NewHolder(plan, terms)
	h.Want(key, 10)
	h.Ask(0)
	// Asked at 0, written ten minutes before the hour ends, answered much later.
	h.Take(0, hour(5, 50*time.Minute), []Grant{{key, 10, 5, 1}})
	end := terms.Less(10*time.Minute - guard)
	if n := h.Spend(end-1, key, 4); n != 4 {
		t.Errorf("%d before the end", n)
	}
	if n := h.Spend(end, key, 4); n != 0 {
		t.Errorf("%d after the end", n)
	}
	if end >= 10*time.Minute-guard {
		t.Error("the drift counts for nothing")
	}
	// A block that was written after its hour is of no use, and a later block doesn't revive an earlier one.
	h = NewHolder(plan, terms)
	h.Want(key, 10)
	h.Take(0, hour(6, time.Minute), []Grant{{key, 10, 5, 1}})
	if n := h.Spend(0, key, 4); n != 0 {
		t.Errorf("%d of a past hour", n)
	}
	h.Take(0, hour(6, time.Minute), []Grant{{key, 3, 6, 1}})
	if n := h.Spend(0, key, 20); n != 3 {
		t.Errorf("%d of 3", n)
	}
}

func TestUnusedTokensGoBack(t *testing.T) {
	h := NewHolder(plan, terms)
	h.Want(key, 10)
	h.Ask(0)
	h.Take(0, hour(5, time.Minute), []Grant{{key, 10, 5, 7}})
	h.Want(key, 3)
	if !h.Lacks() {
		t.Error("no reason to ask")
	}
	items := h.Ask(time.Second)
	if len(items) != 1 || items[0] != (Item{key, 0, 7, 5, 7}) {
		t.Errorf("asked %+v", items)
	}
	if n := h.Spend(time.Second, key, 10); n != 3 {
		t.Errorf("%d of 3", n)
	}
}

func TestBadItemsAreRefused(t *testing.T) {
	b := NewBook(plan, 1, hour(5, time.Minute))
	for _, i := range []Item{{Key: key, Want: -1}, {Key: key, Back: -1}, {Key: Key{"10.0.0.1", ""}, Want: 1}} {
		if _, err := b.Give(1, order(b.newest[1].Seq+1), []Item{i}); err == nil {
			t.Errorf("%+v is taken", i)
		}
	}
	if err := b.Load(key, Count{5, 7, 6}); err == nil {
		t.Error("a day has less than its hour")
	}
	h := NewHolder(plan, terms)
	h.Want(key, 10)
	h.Take(0, hour(5, time.Minute), []Grant{{key, -10, 5, 1}})
	if h.Spend(0, key, 10) != 0 {
		t.Error("a negative block counts")
	}
}

// Tokens of an hour that are not spent are gone when a block of the next one comes.
func TestTokensOfAnEarlierHourAreDropped(t *testing.T) {
	h := NewHolder(plan, terms)
	h.Want(key, 20)
	h.Take(0, hour(5, time.Minute), []Grant{{Key: key, Tokens: 10, Hour: 5, Epoch: 1}})
	h.Take(time.Minute, hour(6, time.Minute), []Grant{{Key: key, Tokens: 3, Hour: 6, Epoch: 1}})
	if n := h.Spend(2*time.Minute, key, 20); n != 3 {
		t.Errorf("%d tokens are spent in hour 6, want its 3", n)
	}
}

// A member that asks for any names, or an owner that gives what nobody has asked for, takes no memory and no cap.
func TestNamesOfOthersTakeNoMemory(t *testing.T) {
	b := NewBook(plan, 1, hour(5, time.Minute))
	for i := range 1000 {
		b.give(t, uint64(i+1), Item{Key: Key{key.Address, string(rune('a' + i))}, Back: 9, Hour: 5, Epoch: 1})
	}
	if len(b.counts)+len(b.dirty)+len(b.out) > 0 {
		t.Errorf("the book has %d counts, %d changes and %d blocks", len(b.counts), len(b.dirty), len(b.out))
	}
	h := NewHolder(plan, terms)
	h.Want(key, 50)
	clock := hour(5, time.Minute)
	h.Take(0, clock, []Grant{{Key{"10.0.0.9", "gmail"}, 1, 5, 1}, {key, 81, 5, 1}, {key, 1, 1 << 50, 1}, {key, -1, 5, 1}})
	if len(h.purse) != 1 || h.Spend(0, key, 100) != 0 {
		t.Errorf("the holder has %+v", h.purse)
	}
	h.Take(0, clock, []Grant{{key, 80, 5, 1}})
	if n := h.Spend(0, key, 100); n != 80 {
		t.Errorf("%d tokens of 80", n)
	}
}
