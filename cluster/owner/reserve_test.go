package owner

import (
	"errors"
	"testing"
	"time"

	"example.org/mta/cluster/term"
)

// going is a keeper of a node that goes on after a loss of the engine.
func going(node uint16) *Keeper {
	k := keeper(node, Memory{})
	k.cfg.Reserve, k.cfg.Process = true, 1
	k.Knows()
	return k
}

// knowing is one that waits, with all shards.
func knowing(t *testing.T, e *table) *Keeper {
	k := keeper(1, Memory{})
	k.Knows()
	for now := time.Duration(0); k.count < Shards; now += time.Second {
		call(t, k, e, now)
	}
	return k
}

// ask makes a call at a moment, and brings the result at another one.
func (k *Keeper) ask(t *testing.T, e *table, sent, got time.Duration) Events {
	t.Helper()
	c, ok := k.Call(sent, none)
	if !ok {
		t.Fatalf("no call at %v", sent)
	}
	return k.Result(got, e.do(c))
}

func TestAReserveIsUsedATermAfterTheNewestResult(t *testing.T) {
	k, e := going(1), one(other)
	if d, _ := k.Reserve(); d != 0 {
		t.Errorf("one in %d before any result", d)
	}
	k.ask(t, e, 10*time.Second, 12*time.Second)
	if d, from := k.Reserve(); d != 1 || from != 12*time.Second+terms.Waits()+fresh+margin {
		t.Errorf("one in %d from %v", d, from)
	}
	if k.Lose(errors.New("lost writes")); k.lost == nil {
		t.Error("nothing is lost")
	}
	if d, _ := k.Reserve(); d != 0 {
		t.Errorf("one in %d after lost writes", d)
	}
}

// An owner gives all of a limit only while what it gives ends before another node uses its reserve, although wishes of
// that node arrive late.
func TestReservesAreSetAsideInTime(t *testing.T) {
	for _, late := range []time.Duration{0, 30 * time.Second, 5 * time.Minute} {
		e := one(Head{})
		k, n := knowing(t, e), going(2)
		var coming []Call
		whole := 0
		for now := 5 * time.Minute; now < 15*time.Minute; now += time.Second {
			if now < 6*time.Minute {
				n.ask(t, e, now, now)
			} else if c, ok := n.Call(now, none); ok {
				coming = append(coming, c)
			}
			if now > 6*time.Minute+late && len(coming) > 0 {
				e.do(coming[0])
				coming = coming[1:]
			}
			call(t, k, e, now)
			rest, ok := k.Rest(now + time.Second)
			_, from := n.Reserve()
			switch {
			case !ok:
			case rest == 1:
				if whole++; now+time.Second+terms.Waits() > from {
					t.Fatalf("late by %v: at %v all is given, and the reserve is used from %v", late, now, from)
				}
			case rest != 0:
				t.Fatalf("late by %v: at %v the rest is %g", late, now, rest)
			}
		}
		if whole < 50 {
			t.Errorf("late by %v: all was given in %d seconds", late, whole)
		}
	}
}

func TestMoments(t *testing.T) {
	for _, x := range []struct {
		m, n  Moment
		after bool
	}{
		{Moment{1, 8}, Moment{1, 7}, true}, {Moment{1, 7}, Moment{1, 7}, false}, {Moment{1, 6}, Moment{1, 7}, false},
		{Moment{1, 9}, Moment{2, 7}, false}, {Moment{2, 6}, Moment{1, 7}, true},
	} {
		if x.m.After(x.n) != x.after {
			t.Errorf("%v after %v: %v", x.m, x.n, !x.after)
		}
	}
}

// The first call after a use of the reserve does not show that the node reaches the engine: connections end yet.
func TestTheEndOfAUseIsShownLater(t *testing.T) {
	k, e := going(2), one(other)
	k.ask(t, e, 0, 0)
	e.beat()
	at := 10 * time.Minute
	k.ask(t, e, at, at)
	was := e.reserves[2].Heard
	e.beat()
	k.ask(t, e, at+closing/2, at+closing/2)
	if is := e.reserves[2].Heard; is != was {
		t.Errorf("it has shown %v, and shows %v", was, is)
	}
	k.ask(t, e, at+closing, at+closing)
	if is := e.reserves[2].Heard; !is.After(was) {
		t.Errorf("then it shows %v", is)
	}
}

func TestAnOwnerThatHasNotReadOfLateAnswersNobody(t *testing.T) {
	e := one(Head{})
	k, n := knowing(t, e), going(2)
	now := 5 * time.Minute
	for range 10 {
		n.ask(t, e, now, now)
		call(t, k, e, now)
		now += time.Second
	}
	if rest, ok := k.Rest(now); rest != 1 || !ok {
		t.Fatalf("it gives %g, %v", rest, ok)
	}
	if _, ok := k.Rest(now + Gap); ok {
		t.Error("it answers after a gap")
	}
	now += time.Minute
	for i := range 10 { // both read again; the other node shows it in the second second
		n.ask(t, e, now, now)
		call(t, k, e, now)
		now += time.Second
		rest, ok := k.Rest(now)
		if ok && rest != 1 || i == 0 && ok || i > 3 && !ok {
			t.Errorf("%d s after the gap: %g, %v", i, rest, ok)
		}
	}
	now += time.Minute
	for i := range 10 { // the other node does not
		call(t, k, e, now)
		now += time.Second
		rest, ok := k.Rest(now)
		if ok != (i >= 4) || ok && rest != 0 {
			t.Errorf("%d s after the gap: %g, %v", i, rest, ok)
		}
	}
}

// What was decided without knowing of reserves does not leave, unless none can be used before it ends.
func TestWhatIsDecidedBlindlyIsHeld(t *testing.T) {
	for gap, held := range map[time.Duration]bool{time.Second: false, time.Minute: true} {
		e := one(Head{})
		k := knowing(t, e)
		now := 5 * time.Minute
		call(t, k, e, now)
		call(t, k, e, now+time.Second)
		n := going(2)
		n.ask(t, e, now+time.Second, now+time.Second)
		if rest, ok := k.Rest(now + time.Second + gap); rest != 1 || !ok {
			t.Errorf("it knows: %g, %v", rest, ok)
		}
		if events := k.ask(t, e, now+time.Second+gap, now+2*time.Second+gap); events.Hold != held {
			t.Errorf("after %v: held %v", gap, events.Hold)
		}
	}
}

func TestASmallerPartBindsAtOnce(t *testing.T) {
	k, n, e := going(1), going(2), one(other)
	k.ask(t, e, 0, 0)
	n.ask(t, e, 0, 0)
	if d, _ := n.Reserve(); d != 0 {
		t.Errorf("the second has one in %d", d)
	}
	k.ask(t, e, time.Second, time.Second)
	if d, _ := k.Reserve(); d != 1 {
		t.Errorf("the first has one in %d", d)
	}
	if _, ok := k.Call(2*time.Second, none); !ok {
		t.Fatal("no call")
	}
	if d, _ := k.Reserve(); d != 2 {
		t.Errorf("it has one in %d when it has asked for less", d)
	}
	k.ask(t, e, 6*time.Second, 6*time.Second)
	n.ask(t, e, 6*time.Second, 6*time.Second)
	if d, _ := n.Reserve(); d != 2 {
		t.Errorf("then the second has one in %d", d)
	}
}

func TestAReserveOfAnotherProcess(t *testing.T) {
	e := one(other)
	e.reserves = map[uint16]*Reserve{1: {Node: 1, Order: term.Order{Incarnation: 1, Process: 9, Seq: 5}, Divisor: 1}}
	k := going(1)
	if k.ask(t, e, 0, 0); k.res.own != 0 {
		t.Errorf("a process has one in %d of a later one", k.res.own)
	}
	wait := keeper(1, Memory{}) // the next has other settings
	wait.cfg.Process = 10
	wait.Knows()
	wait.ask(t, e, 0, 0)
	if wait.ask(t, e, time.Second, time.Second); e.reserves[1] != nil {
		t.Errorf("the row is %+v", e.reserves[1])
	}
	k = going(1)
	k.cfg.Process = 11
	k.ask(t, e, 0, 0)
	k.Leave()
	if d, _ := k.Reserve(); d != 0 || e.reserves[1] == nil {
		t.Errorf("it leaves with one in %d", d)
	}
	if k.ask(t, e, time.Second, time.Second); e.reserves[1] != nil {
		t.Errorf("it has left, and the row is %+v", e.reserves[1])
	}
}

func TestANodeThatWaitsAsksForNothing(t *testing.T) {
	e := one(other)
	k := keeper(1, Memory{})
	for i := range 3 {
		c, _ := call(t, k, e, time.Duration(i)*time.Second)
		if c.Wish != nil || c.Reserves != (i > 0) {
			t.Errorf("the call is %+v", c)
		}
		k.Knows()
	}
	k = going(1)
	k.res.known = false
	if c, _ := k.Call(0, none); c.Wish != nil {
		t.Error("a wish for a schema without reserves")
	}
}

// Nobody gets a larger part while a node has a program that knows none.
func TestNoReservesBesideEarlierPrograms(t *testing.T) {
	w := &Wish{Node: 1, Order: term.Order{Seq: 2}, Divisor: 1}
	if r, _ := w.Apply(nil, nil, true); r.Divisor != 0 {
		t.Errorf("one in %d", r.Divisor)
	}
	was := &Reserve{Node: 1, Order: term.Order{Seq: 1}, Divisor: 3}
	if r, _ := w.Apply(was, nil, true); r.Divisor != 3 {
		t.Errorf("one in %d, and it had one in 3", r.Divisor)
	}
}
