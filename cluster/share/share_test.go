package share

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/cluster/term"
)

var (
	terms = term.Term{Length: 3 * time.Minute, Drift: 200e-6}
	ten   = Limit{Name: "ten", Connections: 10}
	rate  = Limit{Name: "rate", Rate: 10, Burst: 10}
	slow  = Limit{Name: "slow", Rate: .1, Burst: 1}
	turn  = time.Minute

	lasting = Limit{Name: "lasting", Connections: 10, Lasting: true}
)

// order is the newest ask of a process.
func order(seq uint64) term.Order { return term.Order{Incarnation: 1, Process: 1, Seq: seq} }

// ask has nodes ask at a moment, and returns what the round grants them of a limit.
func (b *Book) ask(t *testing.T, now time.Duration, seq uint64, items map[uint16]Item) map[uint16]int64 {
	t.Helper()
	for node, i := range items {
		if err := b.Hear(now, node, order(seq), []Item{i}); err != nil {
			t.Fatal(err)
		}
	}
	units := make(map[uint16]int64)
	for node, grants := range b.Round(now) {
		for _, g := range grants {
			units[node] = g.Units
		}
	}
	return units
}

func want(l Limit, held, units int64) Item { return Item{l, held, units, 0, 0} }

func book() *Book { return NewBook(0, terms, turn) }

func TestMaxMinByWant(t *testing.T) {
	got := book().ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 2), 2: want(ten, 0, 9), 3: want(ten, 0, 9)})
	if got[1] != 2 || got[2] != 4 || got[3] != 4 {
		t.Errorf("granted %v", got)
	}
}

func TestALoweredShareIsFreeWhenItsHolderReportsLess(t *testing.T) {
	b := book()
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 10)})
	for seq := range uint64(3) {
		got := b.ask(t, 0, seq+2, map[uint16]Item{1: want(ten, 10, 10), 2: want(ten, 0, 10)})
		if got[1] != 5 || got[2] != 0 {
			t.Fatalf("granted %v while node 1 has ten connections", got)
		}
	}
	if got := b.ask(t, 0, 5, map[uint16]Item{1: want(ten, 7, 10)}); got[1] != 5 {
		t.Errorf("granted %v", got)
	}
	if got := b.ask(t, 0, 6, map[uint16]Item{2: want(ten, 0, 10)}); got[2] != 3 {
		t.Errorf("granted %v when node 1 has seven", got)
	}
}

func TestWhatIsAnsweredCountsUntilTheNextAsk(t *testing.T) {
	b := book()
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 8)})
	// Node 1 is silent: the answer may have arrived or not.
	if got := b.ask(t, terms.Waits()-1, 2, map[uint16]Item{2: want(ten, 0, 10)}); got[2] != 2 {
		t.Errorf("granted %v before a term", got)
	}
	if got := b.ask(t, terms.Waits(), 3, map[uint16]Item{2: want(ten, 2, 10)}); got[2] != 10 {
		t.Errorf("granted %v after a term", got)
	}
}

func TestAnOlderAskChangesNothing(t *testing.T) {
	b := book()
	b.ask(t, 0, 2, map[uint16]Item{1: want(ten, 0, 10)})
	for _, late := range []uint64{1, 2} {
		if b.ask(t, 0, late, map[uint16]Item{1: want(ten, 0, 0)}); b.limits[0].free(b) != 0 {
			t.Errorf("ask %d after 2 makes %d free", late, b.limits[0].free(b))
		}
	}
	next := term.Order{Incarnation: 1, Process: 2, Seq: 1}
	if err := b.Hear(0, 1, next, nil); err != nil || b.limits[0].free(b) != 10 {
		t.Errorf("the next process has nothing: %d free, %v", b.limits[0].free(b), err)
	}
	if err := b.Hear(0, 1, order(9), []Item{want(ten, 0, 10)}); err != nil || b.askers[1].newest != next {
		t.Error("an ask of an earlier process counts")
	}
}

// What somebody has edited in the book keeps no node away for longer than what it was granted counts.
func TestALineOfTheBookIsNoBarForGood(t *testing.T) {
	b := book()
	if err := b.Load(0, "ten", 1, 4, term.Order{Incarnation: 1, Process: 1 << 62}, false); err != nil {
		t.Fatal(err)
	}
	if got := b.ask(t, terms.Waits()-1, 5, map[uint16]Item{1: want(ten, 4, 10)}); len(got) > 0 {
		t.Errorf("granted %v for an older ask than the book has", got)
	}
	if got := b.ask(t, terms.Waits(), 6, map[uint16]Item{1: want(ten, 0, 10)}); got[1] != 10 {
		t.Errorf("granted %v after a term", got)
	}
	if b.ask(t, terms.Waits(), 5, map[uint16]Item{1: want(ten, 0, 0)}); b.limits[0].free(b) != 0 {
		t.Error("an older ask than one that was heard counts")
	}
}

// saved is what the engine has of a book.
func saved(b *Book) (lines []func(*Book, bool) error) {
	b.Changes(func(limit string, node uint16, units int64, o term.Order) {
		lines = append(lines, func(next *Book, ended bool) error { return next.Load(0, limit, node, units, o, ended) })
	})
	return lines
}

func next(t *testing.T, lines []func(*Book, bool) error, ended bool) *Book {
	b := book()
	for _, l := range lines {
		if err := l(b, ended); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestASuccessorCountsWhatTheBookHas(t *testing.T) {
	first := book()
	first.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 7)})
	lines := saved(first)
	b := next(t, lines, false)
	if got := b.ask(t, terms.Waits()-1, 1, map[uint16]Item{2: want(ten, 0, 10)}); got[2] != 3 {
		t.Errorf("granted %v beside seven in the book", got)
	}
	b = next(t, lines, false)
	b.ask(t, 1, 2, map[uint16]Item{1: want(ten, 4, 4)})
	if got := b.ask(t, 1, 1, map[uint16]Item{2: want(ten, 0, 10)}); got[2] != 6 {
		t.Errorf("granted %v when node 1 has reported four", got)
	}
	if got := next(t, lines, true).ask(t, 0, 1, map[uint16]Item{2: want(ten, 0, 10)}); got[2] != 10 {
		t.Errorf("granted %v after a term of silence", got)
	}
}

// An ask that the first owner has answered arrives at the second once more. Its holder has nothing by it, and seven by
// the answer.
func TestASuccessorKnowsWhichAskWasAnswered(t *testing.T) {
	first := book()
	first.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 7)})
	b := next(t, saved(first), false)
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 7)})
	if got := b.ask(t, 0, 1, map[uint16]Item{2: want(ten, 0, 10)}); got[2] != 3 {
		t.Errorf("granted %v beside seven in the book", got)
	}
	// The same, when units were given up and given again in one round.
	first.Written()
	first.ask(t, 0, 2, map[uint16]Item{1: want(ten, 5, 7)})
	b = next(t, saved(first), false)
	b.ask(t, 0, 2, map[uint16]Item{1: want(ten, 5, 7)})
	if got := b.ask(t, 0, 1, map[uint16]Item{2: want(ten, 0, 10)}); got[2] != 3 {
		t.Errorf("granted %v beside seven of the second answer", got)
	}
}

func TestChangesGoAgainUntilTheyAreWritten(t *testing.T) {
	b := book()
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 7)})
	for range 2 {
		if n := len(saved(b)); n != 1 {
			t.Fatalf("%d changes", n)
		}
	}
	b.Written()
	if n := len(saved(b)); n != 0 {
		t.Errorf("%d changes after they were written", n)
	}
	b.ask(t, 0, 2, map[uint16]Item{1: want(ten, 6, 6)})
	saved(b)
	if err := b.Hear(0, 1, order(3), []Item{want(ten, 2, 2)}); err != nil {
		t.Fatal(err)
	}
	b.Written() // of six
	if n := len(saved(b)); n != 1 {
		t.Errorf("%d changes when two are left of six that were written", n)
	}
}

func TestTurnsLongestWaitFirst(t *testing.T) {
	b := book()
	has, since, seq := uint16(0), time.Duration(0), uint64(0)
	var turns []uint16
	for now := time.Duration(0); now < 10*time.Minute; now += time.Second {
		seq++
		items := make(map[uint16]Item)
		for node := uint16(1); node <= 3; node++ {
			items[node] = want(slow, 0, whole)
			if node == has && b.limits[0].holders[node-1].target > 0 {
				items[node] = want(slow, whole, whole)
			}
		}
		got := b.ask(t, now, seq, items)
		for node, units := range got {
			if units == 0 || node == has {
				continue
			}
			if units != whole || has != 0 && now-since < turn {
				t.Fatalf("node %d gets %d units at %v; node %d has had them since %v", node, units, now, has, since)
			}
			has, since = node, now
			turns = append(turns, node)
		}
	}
	for i, node := range turns[3:] {
		if node != turns[i] {
			t.Fatalf("turns %v", turns)
		}
	}
	if len(turns) < 9 {
		t.Errorf("turns %v in ten minutes", turns)
	}
}

func TestBadAsksAreRefused(t *testing.T) {
	b := book()
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 4)})
	for _, items := range [][]Item{
		{want(ten, 5, 5)}, {want(ten, -1, 5)}, {want(ten, 0, -5)}, {{rate, 0, 1, mostOf + 1, 0}}, {{rate, 0, 1, -1, 0}},
		{{rate, 0, 1, math.NaN(), 0}}, {{ten, 0, 1, 0, 1}}, {{lasting, 0, 1, 0, -1}}, {{lasting, 0, 1, 0, mostOf + 1}},
		{{Limit{"a", 0, 1, 1, true}, 0, 1, 0, 0}}, {want(slow, 0, 1), want(rate, 0, 1)}, {want(ten, 0, 1), want(ten, 0, 1)},
		make([]Item, 1e6), {want(Limit{}, 0, 1)}, {want(Limit{Name: "a"}, 0, 1)},
		{want(Limit{strings.Repeat("x", mostName+1), 1, 0, 0, false}, 0, 1)}, {want(Limit{"a", mostOf + 1, 0, 0, false}, 0, 1)},
		{want(Limit{"a", -1, 0, 0, false}, 0, 1)}, {want(Limit{"a", 1, 1, 1, false}, 0, 1)}, {want(Limit{"a", 1, math.NaN(), 0, false}, 0, 1)},
		{want(Limit{"a", 0, 1, 0, false}, 0, 1)}, {want(Limit{"a", 0, 1, mostOf + 1, false}, 0, 1)},
		{want(Limit{"a", 0, mostOf + 1, 1, false}, 0, 1)}, {want(Limit{"a", 0, math.NaN(), 1, false}, 0, 1)},
		{want(Limit{"a", 0, math.Inf(1), 1, false}, 0, 1)}, {want(Limit{"a", 0, -1, 1, false}, 0, 1)},
	} {
		err := b.Hear(0, 1, order(2), items)
		if err == nil || !strings.Contains(err.Error(), "node 1 asks") {
			t.Errorf("%.60v: %v", items, err)
		}
	}
	if got := b.ask(t, 0, 2, map[uint16]Item{1: want(ten, 4, 1e9)}); got[1] != 10 {
		t.Errorf("granted %v of ten", got)
	}
	for _, units := range []int64{-1, whole + 1} {
		if err := b.Load(0, "ten", 3, units, term.Order{}, false); err == nil {
			t.Errorf("a line of the book with %d units is taken", units)
		}
		if n := b.counted(3, "ten"); n != whole {
			t.Errorf("%d units of such a line count: nobody knows how many node 3 has", n)
		}
	}
	if n := len(b.limits); n != 1 {
		t.Errorf("%d accounts", n)
	}
}

// want has a holder want units of a limit at the begin of time.
func (h *Holder) want(t *testing.T, l Limit, units int64) {
	t.Helper()
	if err := h.Want(l, units, func() time.Duration { return 0 }); err != nil {
		t.Fatal(err)
	}
}

// asked is a holder with the answer to its first ask, sent at 0 and answered at a moment.
func asked(t *testing.T, l Limit, units int64, at time.Duration) *Holder {
	h := NewHolder(terms, term.Order{Incarnation: 1, Process: 1})
	h.want(t, l, units)
	o, _ := h.Ask(0)
	h.Answer(at, o, []Grant{{l, units, 0}})
	return h
}

func TestAGrantEndsATermAfterItsAskWasSent(t *testing.T) {
	h := asked(t, rate, whole, 2*time.Minute)
	if n := h.Spend(terms.Holds()-1, "rate", 100); n == 0 {
		t.Error("nothing goes before the end")
	}
	if n := h.Spend(terms.Holds(), "rate", 100); n != 0 {
		t.Errorf("%d events after the end", n)
	}
	h = asked(t, ten, 5, 2*time.Minute)
	if n := h.Open(terms.Holds()-closing-1, "ten", 9); n != 5 {
		t.Errorf("%d connections of five", n)
	}
	if over, ended := h.Over(terms.Holds()-closing, "ten"); over != 5 || !ended || h.Open(terms.Holds(), "ten", 1) != 0 {
		t.Errorf("%d connections must end: %v", over, ended)
	}
	if h = asked(t, ten, 5, terms.Holds()); h.Open(terms.Holds(), "ten", 1) != 0 {
		t.Error("an answer counts that comes after its end")
	}
}

func TestOnlyTheAnswerToTheNewestAskCounts(t *testing.T) {
	h := NewHolder(terms, term.Order{Incarnation: 1, Process: 1})
	h.want(t, ten, 5)
	first, _ := h.Ask(0)
	second, _ := h.Ask(4 * time.Second)
	if h.Answer(5*time.Second, first, []Grant{{ten, 5, 0}}) || h.Open(5*time.Second, "ten", 1) != 0 {
		t.Error("the answer to an older ask counts")
	}
	if !h.Answer(5*time.Second, second, []Grant{{ten, 5, 0}}) || h.Answer(5*time.Second, second, []Grant{{ten, 9, 0}}) {
		t.Error("an answer does not count once")
	}
}

func TestConnectionsAreReportedUntilTheyEnd(t *testing.T) {
	h := asked(t, ten, 5, 0)
	h.Open(0, "ten", 4)
	o, _ := h.Ask(time.Second)
	h.Answer(time.Second, o, []Grant{{ten, 1, 0}})
	if n := h.Open(time.Second, "ten", 5); n != 0 {
		t.Errorf("%d connections more", n)
	}
	h.Close("ten", 1)
	if _, items := h.Ask(2 * time.Second); len(items) != 1 || items[0].Held != 3 {
		t.Errorf("reported %+v with three open", items)
	}
}

func TestAnswersThatNoOwnerGivesAreIgnored(t *testing.T) {
	h := NewHolder(terms, order(0))
	h.want(t, ten, 10)
	h.want(t, rate, whole)
	o, _ := h.Ask(0)
	h.Answer(0, o, []Grant{{ten, 11, 0}, {Limit{"ten", 0, 1, 1, false}, 1, 0}, {rate, whole, 11}, {rate, -1, 0},
		{rate, whole + 1, 0}, {Limit{"rate", 0, math.Inf(1), 9, false}, whole, 0}, {Limit{"none", 5, 0, 0, false}, 1, 0}})
	if h.Open(0, "ten", 11) != 0 || h.Spend(time.Minute, "rate", 1) != 0 || h.Open(0, "none", 1) != 0 {
		t.Error("a garbled answer counts")
	}
}

// Units that travel among three nodes all the time let no more events pass than one bucket does, and not much less; and
// so while each node has its limit now one way and now another.
func TestABucketTravelsWithItsUnits(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	three := Limit{"three", 0, 3, 4, false}
	for _, kinds := range [][]Limit{{rate}, {slow}, {three}, {rate, {"rate", 0, 20, 20, false}},
		{three, {"three", 0, 30, 4, false}}, {three, {"three", 0, 3, 40, false}}, {{"rate", 0, 20, 5, false}, {"rate", 0, 5, 20, false}}} {
		l := kinds[0]
		has, since := make([]Limit, 3), make([]time.Duration, 3) // each node's definition, and from when
		b := NewBook(0, terms, 10*time.Second)
		holders := make([]*Holder, 3)
		for i := range holders {
			holders[i] = NewHolder(terms, term.Order{Incarnation: 1, Process: 1})
		}
		for i := range has {
			has[i] = l
		}
		room, at, sent := 0., time.Duration(0), int64(0)
		const length = time.Hour
		for now := time.Duration(0); now < length; now += 100 * time.Millisecond {
			var most Limit
			for _, l := range kinds {
				for i := range has {
					if l == has[i] || now-since[i] < 10*time.Second { // or it was until then
						most = Limit{l.Name, 0, max(most.Rate, l.Rate), max(most.Burst, l.Burst), false}
					}
				}
			}
			room = min(room+most.Rate*(now-at).Seconds(), float64(most.Burst))
			at = now
			for i, h := range holders {
				if random.IntN(500) == 0 {
					if next := kinds[random.IntN(len(kinds))]; next != has[i] {
						has[i], since[i] = next, now
						room += float64(max(0, next.Burst-most.Burst))
					}
				}
				if random.IntN(20) == 0 {
					units := random.Int64N(2) * (l.Least() + random.Int64N(l.Units()))
					if err := h.Want(has[i], units, func() time.Duration { return now }); err != nil {
						t.Fatal(err)
					}
				}
				if n := h.Spend(now, l.Name, random.Int64N(30)); n > 0 {
					room -= float64(n)
					sent += n
					if room < -1e-5 {
						t.Fatalf("%+v at %v: node %d is over the burst by %g events", kinds, now, i, -room)
					}
				}
				if h.Due(now) {
					o, items := h.Ask(now)
					if err := b.Hear(now, uint16(i), o, items); err != nil {
						t.Fatal(err)
					}
				}
			}
			if now%(500*time.Millisecond) == 0 {
				for node, grants := range b.Round(now) {
					holders[node].Answer(now, holders[node].order, grants)
				}
				for _, node := range b.Nudges(now) {
					holders[node].Nudge()
				}
			}
		}
		if part := float64(sent) / (l.Rate * length.Seconds()); part < .5 && len(kinds) == 1 {
			t.Errorf("%+v: %.2f of the rate", l, part)
		}
	}
}

// five is ten in the settings of another node.
var five = Limit{Name: "ten", Connections: 5}

func TestTheSmallestDefinitionCounts(t *testing.T) {
	b := book()
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 10)})
	if got := b.ask(t, 0, 2, map[uint16]Item{2: want(five, 0, 5)}); got[2] != 0 || b.limits[0].free(b) != -5 {
		t.Errorf("granted %v, %d free, of five while node 1 has ten", got, b.limits[0].free(b))
	}
	if got := b.ask(t, 0, 3, map[uint16]Item{1: want(ten, 10, 10)}); got[1] > 3 {
		t.Errorf("granted %v: more than its part of five", got)
	}
	if got := b.ask(t, 0, 4, map[uint16]Item{1: want(ten, 3, 10), 2: want(ten, 0, 10)}); got[1]+got[2] != 10 {
		t.Errorf("granted %v of ten, of which both have heard", got)
	}
	if b.ask(t, 0, 5, map[uint16]Item{1: want(five, 3, 5)}); b.limits[0].Connections != 5 {
		t.Errorf("%d connections, of which node 1 has five", b.limits[0].Connections)
	}
	b.ask(t, 0, 6, map[uint16]Item{1: want(five, 0, 0)})
	if b.Round(0); b.limits[0].Connections != 10 {
		t.Errorf("%d connections when nobody has or wants any of the five", b.limits[0].Connections)
	}
	b.ask(t, 0, 7, map[uint16]Item{1: want(five, 0, 5)})
	if b.ask(t, terms.Waits(), 8, map[uint16]Item{2: want(ten, 0, 1)}); b.limits[0].Connections != 10 {
		t.Errorf("%d connections by a node that was silent for a term", b.limits[0].Connections)
	}
}

// Several definitions show once they have been there for long, and as long as they are.
func TestDefinitionsThatDiffer(t *testing.T) {
	b, slow := book(), Limit{"ten", 0, 0.5, 3, false}
	shown := func(now time.Duration) (all []string) {
		for _, d := range b.Differences(now, time.Minute) {
			all = append(all, d.String())
		}
		return all
	}
	rate := Limit{"ten", 0, 20, 20, false}
	b.ask(t, 0, 1, map[uint16]Item{1: want(rate, 0, whole), 3: want(rate, 0, whole)})
	b.ask(t, time.Second, 2, map[uint16]Item{2: want(slow, 0, whole)})
	if got := shown(60 * time.Second); got != nil {
		t.Errorf("%q before a minute is over", got)
	}
	words := []string{"ten: 20 a second and a burst of 20 at node 1, 0.5 a second and a burst of 3 at node 2, " +
		"20 a second and a burst of 20 at node 3"}
	if got := shown(61 * time.Second); !slices.Equal(got, words) {
		t.Errorf("%q after a minute, want %q", got, words)
	}
	b.ask(t, 62*time.Second, 3, map[uint16]Item{2: {Limit: slow}}) // it wants none any more
	if got := shown(time.Hour); got != nil {
		t.Errorf("%q when one definition is left", got)
	}
}

// Shares come in steps, so that they don't change with each want, and the smallest is an event deep.
func TestThreeShareABurstOfThree(t *testing.T) {
	l := Limit{"three", 0, 1, 3, false}
	got := book().ask(t, 0, 1, map[uint16]Item{1: want(l, 0, whole), 2: want(l, 0, whole), 3: want(l, 0, whole)})
	h := asked(t, l, got[2], 0)
	if got[1] != l.Least() || got[2] != got[1] || got[3] != got[1] || h.Spend(time.Minute, "three", 9) != 1 {
		t.Errorf("granted %v, want %d to each", got, l.Least())
	}
	if got = book().ask(t, 0, 1, map[uint16]Item{1: want(rate, 0, whole-5), 2: want(rate, 0, whole-3),
		3: want(rate, 0, 9*rate.step()-7)}); got[1] != 35*rate.step() || got[2] != 36*rate.step() || got[3] != 9*rate.step() {
		t.Errorf("granted %v, of 80 times %d", got, rate.step())
	}
}

func TestAnAskKeepsWholeSteps(t *testing.T) {
	for units, held := range map[int64]int64{1: rate.Least(), 3*rate.Least() - 5: 3 * rate.Least()} {
		h := asked(t, rate, whole, 0)
		h.want(t, rate, units)
		if _, items := h.Ask(0); items[0].Held != held {
			t.Errorf("%d are wanted and %d kept, not %d", units, items[0].Held, held)
		}
	}
}

// A want is of so many events a second, and takes more of a smaller rate.
func TestAWantIsAsMuchByASmallerRate(t *testing.T) {
	half := Limit{"rate", 0, 5, 10, false}
	got := book().ask(t, 0, 1, map[uint16]Item{1: want(rate, 0, whole/4), 2: want(half, 0, whole/4)})
	if got[1] < whole/2-10 || got[1] > whole/2+rate.step() || got[2] > whole/4+rate.step() {
		t.Errorf("granted %v of %d", got, int64(whole))
	}
}

func TestAHolderUsesTheSmallerDefinition(t *testing.T) {
	h := asked(t, ten, 8, 0)
	h.Open(0, "ten", 6)
	if h.want(t, five, 5); h.Allowed(0, "ten") != 5 || h.Open(0, "ten", 1) != 0 {
		t.Errorf("%d connections of five", h.Allowed(0, "ten"))
	}
	if over, ended := h.Over(0, "ten"); over != 1 || ended {
		t.Errorf("%d of six must end, %v", over, ended)
	}
	h.Close("ten", 6)
	o, items := h.Ask(time.Second)
	if items[0].Limit != five || items[0].Held != 5 {
		t.Errorf("asked %+v", items)
	}
	h.Answer(time.Second, o, []Grant{{Limit{"ten", 3, 0, 0, false}, 3, 0}})
	if h.want(t, ten, 10); h.Allowed(0, "ten") != 3 {
		t.Errorf("%d connections of three", h.Allowed(0, "ten"))
	}

	h = asked(t, rate, whole, 0)
	now := 10 * time.Second
	clock := func() time.Duration { return now }
	if err := h.Want(Limit{"rate", 0, .5, 20, false}, whole, clock); err != nil {
		t.Fatal(err)
	}
	if n := h.Spend(now, "rate", 100); n != 10 {
		t.Errorf("%d events of a burst of ten", n)
	}
	if wait, depth := h.Next(now, "rate"); depth != 10 || wait < 2*time.Second {
		t.Errorf("the next event in %v, of %g", wait, depth)
	}
	h.Spend(now+time.Second, "rate", 1)
	now += 11 * time.Second
	if n := h.Spend(now, "rate", 100); n != 5 {
		t.Errorf("%d events in ten seconds of half an event", n)
	}
	now += 10 * time.Second
	if err := h.Want(rate, whole, clock); err != nil {
		t.Fatal(err)
	}
	if n := h.Spend(now, "rate", 100); n > 5 {
		t.Errorf("%d events: the larger rate counts for the time before", n)
	}
}

// One node's settings make a rate of what is connections for others. The rest of its ask counts.
func TestALimitIsOfOneKind(t *testing.T) {
	b, fast := book(), Limit{"ten", 0, 1, 1, false}
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 4)})
	err := b.Hear(0, 2, order(1), []Item{want(rate, 0, whole), want(fast, 0, whole)})
	if err == nil || !strings.Contains(err.Error(), `node 2 asks for limit "ten"`) {
		t.Error(err)
	}
	if g := b.Round(0)[2]; len(g) != 1 || g[0].Name != "rate" || g[0].Units == 0 {
		t.Errorf("granted %+v", g)
	}
	if b.Hear(0, 1, order(2), []Item{want(fast, 0, whole)}) == nil || b.limits[1].free(b) != 10 {
		t.Errorf("%d connections are free after node 1 has none of its four", b.limits[1].free(b))
	}
	h := asked(t, ten, 5, 0)
	h.Open(0, "ten", 1)
	if err := h.Want(fast, whole, nil); err == nil || !strings.Contains(err.Error(), `"ten"`) {
		t.Error(err)
	}
	o, items := h.Ask(0)
	if h.Answer(0, o, []Grant{{ten, 1, 0}}); items[0].Held != 1 || items[0].Want != 0 {
		t.Errorf("asked %+v", items)
	}
	h.Close("ten", 1)
	h.Ask(0)
	if h.want(t, fast, whole); h.Open(0, "ten", 1) != 0 {
		t.Error("a connection of a rate")
	}
}

// full asks for all of a rate, of which nobody has anything, and returns how many events there are at once.
func (b *Book) full(t *testing.T, now time.Duration, seq uint64, l Limit) (events float64) {
	t.Helper()
	if err := b.Hear(now, 1, order(seq), []Item{want(l, 0, whole)}); err != nil {
		t.Fatal(err)
	}
	g := b.Round(now)[1]
	if len(g) != 1 || g[0].Units < whole-100 {
		t.Fatalf("granted %+v", g)
	}
	return g[0].Content
}

func TestAnAccountIsKeptUntilItsBucketIsFull(t *testing.T) {
	b, now := book(), time.Minute
	if n := b.full(t, now, 1, slow); n < .99 {
		t.Errorf("%g events of a slow rate a minute after the book began", n)
	}
	if err := b.Hear(now, 1, order(2), []Item{{slow, 0, 0, 0, 0}}); err != nil {
		t.Fatal(err)
	}
	b.Round(now)
	b.Written()
	for now += 4 * time.Second; now < 70*time.Second; now += time.Second {
		saved(b)
		b.Written()
		if b.Round(now); len(b.limits) != 1 || b.askers[1].made != 1 {
			t.Fatalf("forgotten at %v with %d of 10 seconds' flow", now, (now-time.Minute)/time.Second)
		}
	}
	if n := b.full(t, now-time.Second, 3, slow); n < .85 || n > .95 {
		t.Errorf("%g events nine seconds after one of ten", n)
	}
	b.ask(t, now, 4, map[uint16]Item{1: {slow, 0, 0, 0, 0}})
	for range 3 {
		if n := len(saved(b)); n > 0 && len(b.limits) != 1 {
			t.Error("forgotten with a line that is not written")
		}
		b.Written()
		now += 10 * time.Second
		b.Round(now)
	}
	if len(b.limits) != 0 || b.askers[1].made != 0 {
		t.Errorf("%d accounts, %d in the name of node 1", len(b.limits), b.askers[1].made)
	}
	if n := b.full(t, now, 5, slow); n < .99 {
		t.Errorf("%g events of a rate that was idle", n)
	}
	if n := NewBook(now, terms, turn).full(t, now, 1, slow); n != 0 {
		t.Errorf("%g events of a book that has just begun", n)
	}
}

// What a book has of another process may have been used until it ended.
func TestALineWithoutADefinitionLeavesAnEmptyBucket(t *testing.T) {
	b, long := book(), Limit{"long", 0, .01, 10, false}
	if err := b.Load(0, "long", 1, whole, order(1), false); err != nil {
		t.Fatal(err)
	}
	now := terms.Waits()
	for range 2 {
		b.Round(now)
		saved(b)
		b.Written()
	}
	if len(b.limits) != 0 {
		t.Fatalf("%+v", b.limits[0])
	}
	if n := b.full(t, now+time.Minute, 2, long); n > .6 {
		t.Errorf("%g events a minute after the end of what another process had given", n)
	}
}

// What a node says about its bucket counts as far as the units that it gives up can hold.
func TestContentComesWithUnits(t *testing.T) {
	b := book()
	b.ask(t, 0, 1, map[uint16]Item{1: want(rate, 0, whole)})
	if err := b.Hear(0, 1, order(2), []Item{{rate, whole - rate.Least(), whole, 9, 0}}); err != nil {
		t.Fatal(err)
	}
	if n := b.limits[0].spare.content; n < .99 || n > 1.01 {
		t.Errorf("%g events with the units of one", n)
	}
}

// TestACensusEnds when all nodes have asked the book, whatever they want, or after ten seconds; until then nobody is given
// what others may use. What an earlier book has heard does not count.
func TestACensusEnds(t *testing.T) {
	for _, absent := range []bool{false, true} {
		b, nodes := book(), []uint16{1, 2}
		if err := b.Load(0, "lasting", 2, 3, order(1), false); err != nil {
			t.Fatal(err)
		}
		now := time.Duration(0)
		for seq := uint64(2); seq < 6; seq++ {
			b.Census(nodes, nil)
			if got := b.ask(t, now, seq, map[uint16]Item{1: want(lasting, 0, 10)}); got[1] != 0 {
				t.Fatalf("%v: %d units are given before node 2 has asked", now, got[1])
			}
			now += standing
		}
		if b.Census(nil, nil); absent {
			now = census
		} else if err := b.Hear(now, 2, order(2), []Item{{lasting, 3, 4, 0, 4}}); err != nil {
			t.Fatal(err)
		}
		b.Census(nodes, nil)
		want, got := int64(6), b.ask(t, now, 6, map[uint16]Item{1: want(lasting, 0, 10)})
		if absent {
			want = 7 // beside three that another book gave
		}
		if got[1] != want {
			t.Errorf("%d units are given, want %d", got[1], want)
		}
	}
}

// A queue that did not count is back: all that have a part stop to take until so much has left.
func TestNobodyTakesWhileTooManyAreInUse(t *testing.T) {
	b, now := book(), time.Duration(census)
	if got := b.ask(t, now, 1, map[uint16]Item{1: want(lasting, 0, 5)}); got[1] != 5 {
		t.Fatalf("%d units are given, want 5", got[1])
	}
	for seq, x := range []struct{ used, units int64 }{{8, 0}, {6, 0}, {4, 6}} {
		now += prompt + 1
		if err := b.Hear(now, 2, order(uint64(seq)+2), []Item{{lasting, 0, 0, 0, x.used}}); err != nil {
			t.Fatal(err)
		}
		b.Round(now)
		if got := b.Nudges(now); x.units == 0 && !slices.Contains(got, 1) {
			t.Errorf("node 1 is not asked for what it has beside %d, but %v", x.used, got)
		}
		if got := b.ask(t, now, uint64(seq)+2, map[uint16]Item{1: want(lasting, 5, 10)}); got[1] != x.units {
			t.Errorf("node 1 may have %d units beside %d, want %d", got[1], x.used, x.units)
		}
	}
}

func name(i int) string { return fmt.Sprintf("limit %05d", i) }

// A node that asks for other names all the time takes the memory of one ask.
// TestAMachineThatIsOff holds nothing of what its incarnation was granted, also by an owner before. What a later one has
// been granted counts, and so does all if it is not known that the machine is off.
func TestAMachineThatIsOff(t *testing.T) {
	for off, free := range map[uint64]int64{0: 0, 1: 0, 2: 10} {
		b := book()
		b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 8), 2: want(ten, 0, 2)})
		next := book()
		for _, from := range []*Book{b, next} {
			if from == b {
				b.Changes(func(limit string, node uint16, units int64, o term.Order) {
					if err := next.Load(0, limit, node, units, o, false); err != nil {
						t.Fatal(err)
					}
				})
			}
			from.Census(nil, map[uint16]uint64{1: off})
			if got := from.ask(t, time.Second, 2, map[uint16]Item{2: want(ten, 2, 10)})[2]; got != free {
				t.Errorf("when incarnations before %d are off, %d of 10 are free, want %d", off, got, free)
			}
		}
		if off < 2 {
			continue
		}
		if err := b.Hear(time.Second, 1, term.Order{Incarnation: 2, Process: 1, Seq: 1}, []Item{want(ten, 0, 8)}); err != nil {
			t.Fatal(err)
		}
		b.ask(t, 2*time.Second, 3, map[uint16]Item{2: want(ten, 5, 10)})
		b.Census(nil, map[uint16]uint64{1: off})
		_ = b.Hear(3*time.Second, 1, term.Order{Incarnation: 2, Process: 1, Seq: 2}, []Item{want(ten, 0, 8)})
		b.Round(3 * time.Second)
		if got := b.counted(1, "ten"); got != 5 {
			t.Errorf("the next incarnation has %d, want 5", got)
		}
	}
}

func TestAccountsAreBounded(t *testing.T) {
	b := book()
	items := func(from, n int) (items []Item) {
		for i := range n {
			items = append(items, want(Limit{name(from + i), 0, 1e-3, 1, false}, 0, 1))
		}
		return items
	}
	if err := b.Hear(0, 1, order(1), items(0, most)); err != nil {
		t.Fatal(err)
	}
	b.Round(0)
	err := b.Hear(0, 1, order(2), append(items(5, 1), items(20_000, 9000)...))
	if err == nil || !strings.Contains(err.Error(), `node 1 asks for limit "limit 20000"`) {
		t.Error(err)
	}
	if g := b.Round(0)[1]; len(b.limits) != most || len(g) == 0 {
		t.Errorf("%d accounts, %d grants", len(b.limits), len(g))
	}
	if err := b.Hear(0, 2, order(1), items(30_000, 1)); err != nil || len(b.limits) != most+1 {
		t.Errorf("node 2 gets no account: %v", err)
	}
	if err := b.Hear(0, 2, order(2), items(0, most+1)); err == nil {
		t.Error("an ask for 10,001 limits is taken")
	}
}

func TestStakesAreBounded(t *testing.T) {
	h := NewHolder(terms, order(0))
	for i := range most {
		h.want(t, Limit{name(i), 1, 0, 0, false}, 1)
	}
	err := h.Want(Limit{"one more", 1, 0, 0, false}, 1, nil)
	if err == nil || !strings.Contains(err.Error(), `"one more"`) || len(h.stakes) != most {
		t.Errorf("%d stakes, %v", len(h.stakes), err)
	}
	for i := range most {
		h.want(t, Limit{name(i), 1, 0, 0, false}, 0)
	}
	if _, items := h.Ask(0); len(h.stakes) != 0 || len(items) != 0 {
		t.Errorf("%d stakes and %d items with nothing", len(h.stakes), len(items))
	}
	if h.want(t, ten, 0); len(h.stakes) != 0 {
		t.Error("a stake with nothing")
	}
	h = asked(t, ten, 1, 0)
	h.Open(0, "ten", 1)
	h.want(t, ten, 0)
	if h.Ask(terms.Holds()); len(h.stakes) != 1 {
		t.Error("an open connection is forgotten")
	}
	if err := h.Want(Limit{"ten", mostOf + 1, 0, 0, false}, 1, nil); err == nil {
		t.Error("a limit out of bounds is wanted")
	}
}

// A bucket fills a little slower than its rate, since its clock may be fast.
func TestABucketFillsSlowerByTheDrift(t *testing.T) {
	l := Limit{"fast", 0, 1e5, 1e6, false}
	b := bucket{}
	b.fill(5*time.Second, &l, l.Units(), terms.Drift)
	if most := 5e5 / (1 + terms.Drift); b.content > most || b.content < .999*most {
		t.Errorf("%g events in five seconds of a fast clock, at most %g", b.content, most)
	}
}

// TestNobodyGivesUpLessThanNothing: an event that is all but there is spent, and the ask that follows is not refused.
func TestNobodyGivesUpLessThanNothing(t *testing.T) {
	terms := term.Term{Length: 3 * time.Minute, Drift: 200e-6}
	l := Limit{Name: "rate", Rate: 1, Burst: 10}
	book, now := NewBook(0, terms, time.Minute), time.Minute
	h := NewHolder(terms, term.Order{Incarnation: 1, Process: 1})
	ask := func() {
		t.Helper()
		o, items := h.Ask(now)
		if err := book.Hear(now, 1, o, items); err != nil {
			t.Fatal(err)
		}
		h.Answer(now, o, book.Round(now)[1])
		book.Written()
	}
	if err := h.Want(l, whole, func() time.Duration { return now }); err != nil {
		t.Fatal(err)
	}
	ask()
	h.Spend(now, l.Name, 10)
	now += time.Duration(float64(time.Second)/(1-terms.Drift)) - 100*time.Nanosecond
	if n := h.Spend(now, l.Name, 1); n != 1 {
		t.Fatalf("%d events are spent", n)
	}
	if err := h.Want(l, whole/2, func() time.Duration { return now }); err != nil {
		t.Fatal(err)
	}
	ask()
}

// TestAnAskFromBeforeAPause: an owner that was paused for a term finds the asks of that time, one for each three seconds,
// with what has ended since. They are no fault of their node, and change nothing.
func TestAnAskFromBeforeAPause(t *testing.T) {
	b := book()
	b.ask(t, 0, 1, map[uint16]Item{1: want(ten, 0, 10)})
	late := terms.Waits() + time.Second
	b.Round(late)
	for seq := uint64(2); seq < 60; seq++ {
		if err := b.Hear(late, 1, order(seq), []Item{want(ten, 10, 10)}); err != nil {
			t.Fatal(err)
		}
	}
	if b.Pending(1) {
		t.Error("it is answered")
	}
	if got := b.ask(t, late, 60, map[uint16]Item{1: want(ten, 0, 4), 2: want(ten, 0, 6)}); got[1] != 4 || got[2] != 6 {
		t.Errorf("granted %v", got)
	}
	if err := b.Hear(late, 1, order(61), []Item{want(ten, 5, 5)}); err == nil {
		t.Error("an ask with more than was given is not refused")
	}
}
