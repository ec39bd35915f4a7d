package fair

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// grab takes single units until there are no more to be had.
func grab(p *Pool[string], who string) (n int64) {
	for p.Take(1, Part[string]{who, Usual}) {
		n++
	}
	return n
}

// One that is alone has three quarters, whatever the size, and something is left for each that comes after it.
func TestSomethingIsLeftForTheNextOne(t *testing.T) {
	for size := int64(1); size < 300; size++ {
		p := NewPool[string](size)
		if n := grab(p, "first"); n < size*3/4 || n > (size*3+3)/4 {
			t.Fatalf("alone, of %d: %d", size, n)
		}
		before := p.size - p.used
		for i := 2; before > 0; i++ {
			n := grab(p, fmt.Sprint(i))
			if left := p.size - p.used; n == 0 || left == 0 && before > 2 {
				t.Fatalf("of %d, the %d. gets %d of %d", size, i, n, before)
			}
			before = p.size - p.used
		}
	}
}

// All that come and go take as much as they can: their shares become equal.
func TestSharesBecomeEqual(t *testing.T) {
	p, random := NewPool[string](1000), rand.New(rand.NewPCG(1, 2))
	whos := []string{"a", "b", "c", "d"}
	for range 100_000 {
		who := whos[random.IntN(len(whos))]
		part := Part[string]{who, Usual}
		if p.Of(who) > 0 && random.IntN(4) == 0 {
			p.Give(1, part)
		}
		grab(p, who)
	}
	for _, who := range whos { // 3/13 each
		if n := p.Of(who); n < 220 || n > 240 {
			t.Errorf("%s has %d of 1000", who, n)
		}
	}
	for _, who := range whos {
		p.Give(p.Of(who), Part[string]{who, Usual})
	}
	if p.Used() != 0 || len(p.by) != 0 {
		t.Errorf("%d are used, by %v", p.Used(), p.by)
	}
}

// A claim counts for all of its parts or for none.
func TestPartsWithinParts(t *testing.T) {
	p := NewPool[string](100)
	claim := func(who string) []Part[string] { return []Part[string]{{who, 2}, {"near", 2.5}, {"all", Usual}} }
	n := 0
	for p.Take(1, claim("a")...) {
		n++
	}
	if n != 66 || p.Of("all") != 66 {
		t.Errorf("one of many has %d, all %d", n, p.Of("all"))
	}
	for i := 0; p.Take(1, claim(fmt.Sprint(i))...); i++ { // each with a name of its own
	}
	if near := p.Of("near"); near != 71 {
		t.Errorf("neighbours have %d", near)
	}
	if !p.Take(1, Part[string]{"all", Usual}) || p.Of("all") != 72 {
		t.Errorf("others have none")
	}
	p.Pass(1, claim("a"), []Part[string]{{"b", 1}})
	if p.Of("a") != 65 || p.Of("all") != 71 || p.Of("b") != 1 || p.Used() != 72 {
		t.Errorf("after one has passed: %v of %d", p.by, p.Used())
	}
}

// What is asked for at once is had as a whole, or not at all; a pool that became smaller gives nothing until it has
// room again.
func TestManyAtOnce(t *testing.T) {
	p := NewPool[string](100)
	a, b := Part[string]{"a", Usual}, Part[string]{"b", Usual}
	for i, c := range []struct {
		n    int64
		who  Part[string]
		want bool
	}{{76, a, false}, {75, a, true}, {1, a, false}, {26, b, false}, {18, b, true}, {7, b, false}} {
		if got := p.Take(c.n, c.who); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	p.Resize(50)
	if p.Take(1, Part[string]{"c", Usual}) {
		t.Error("there is more than there is")
	}
	p.Give(75, a)
	if !p.Take(1, Part[string]{"c", Usual}) {
		t.Error("there is nothing where there is room")
	}
}
