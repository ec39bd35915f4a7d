package once

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// table is an engine without faults.
type table struct {
	rows        map[string]*Row
	incarnation map[uint16]uint64
	written     int
	failovers   uint64
}

func desk(node uint16, process uint64) *Desk {
	d := New(node, 1, process)
	d.Verified(1)
	return d
}

func newTable() *table {
	return &table{rows: make(map[string]*Row), incarnation: map[uint16]uint64{1: 1, 2: 1}}
}

func (e *table) do(c Call) Result {
	r := Result{Number: c.Number, Forgotten: c.Node.Incarnation != e.incarnation[c.Node.Node]}
	if r.Elsewhere = c.Timeline != 1+e.failovers; r.Elsewhere {
		return r
	}
	for i := range c.Parts {
		if r.Forgotten {
			break
		}
		p := &c.Parts[i]
		row := e.rows[p.Key]
		after, written := p.Apply(row, row != nil && row.Incarnation < e.incarnation[row.Node])
		if written {
			e.written++
		}
		if e.rows[p.Key] = after; after == nil {
			delete(e.rows, p.Key)
		}
		r.Rows = append(r.Rows, after)
	}
	return r
}

// round makes a call and brings its result.
func (d *Desk) round(t *testing.T, e *table) []Decision {
	t.Helper()
	c, ok := d.Call(0)
	if !ok {
		t.Fatal("no call")
	}
	return d.Result(e.do(c))
}

// ask has a desk ask for a key, and returns the decision.
func (d *Desk) ask(t *testing.T, e *table, key string) Decision {
	t.Helper()
	if _, ok := d.Ask(key, "note"); !ok {
		t.Fatal("no number")
	}
	got := d.round(t, e)
	if len(got) != 1 {
		t.Fatalf("decided %v", got)
	}
	return got[0]
}

func TestARepeatGetsTheFirstAnswer(t *testing.T) {
	e, one, two := newTable(), desk(1, 1), desk(2, 1)
	first := one.ask(t, e, "k")
	if first.Outcome != Fresh {
		t.Fatalf("the first is %+v", first)
	}
	if _, ok := one.Ask("k", ""); ok {
		t.Error("two requests of one key at one node")
	}
	if d := two.ask(t, e, "k"); d.Outcome != Running || d.Row.Node != 1 || d.Row.Note != "note" {
		t.Errorf("while it runs: %+v", d)
	}
	one.Accepted(first.Number, "id-1", time.Hour)
	one.round(t, e)
	for _, d := range []*Desk{one, two} {
		if d := d.ask(t, e, "k"); d.Outcome != Repeat || d.Row.Note != "id-1" {
			t.Errorf("the repeat is %+v", d)
		}
	}
}

func TestAnUnknownClaimIsMadeAgain(t *testing.T) {
	e, one := newTable(), desk(1, 1)
	number, _ := one.Ask("k", "")
	lost, _ := one.Call(0)
	result := e.do(lost)
	if _, ok := one.Call(patience - 1); ok {
		t.Error("two calls at a time")
	}
	again, ok := one.Call(patience)
	if !ok || len(again.Parts) != 1 {
		t.Fatalf("made %+v", again)
	}
	if got := one.Result(result); got != nil {
		t.Errorf("the call that was given up decides %v", got)
	}
	e.written = 0
	if got := one.Result(e.do(again)); len(got) != 1 || got[0].Number != number || got[0].Outcome != Fresh {
		t.Errorf("decided %v", got)
	}
	if e.written != 1 {
		t.Error("the repeated claim writes nothing, so that its commit waits for no standby")
	}
}

func TestARefusedRequestReleasesItsClaim(t *testing.T) {
	e, one, two := newTable(), desk(1, 1), desk(2, 1)
	one.Refused(one.ask(t, e, "k").Number)
	if one.round(t, e); two.ask(t, e, "k").Outcome != Fresh {
		t.Error("the key is still claimed")
	}
	// While its claim is on its way, too.
	number, _ := one.Ask("l", "")
	c, _ := one.Call(0)
	one.Refused(number)
	if got := one.Result(e.do(c)); got != nil || e.rows["l"] == nil {
		t.Fatalf("decided %v", got)
	}
	one.round(t, e)
	if e.rows["l"] != nil {
		t.Error("given up, and still claimed")
	}
	if _, ok := one.Call(0); ok {
		t.Error("a call without work")
	}
}

func TestOnlyTheRequestOfARowChangesIt(t *testing.T) {
	e, one := newTable(), desk(1, 1)
	first := one.ask(t, e, "k")
	row := *e.rows["k"]
	for _, r := range []Request{{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}} {
		for _, op := range []Op{Claim, Settle, Release} {
			if _, written := (&Part{Op: op, Row: Row{Key: "k", Request: r, Note: "x"}}).Apply(&row, false); written {
				t.Errorf("%v of %+v changes a row of %+v", op, r, row.Request)
			}
		}
	}
	// A claim that comes late once more leaves the answer.
	one.Accepted(first.Number, "id", time.Hour)
	one.round(t, e)
	if after, _ := (&Part{Op: Claim, Row: Row{Key: "k", Request: row.Request}}).Apply(e.rows["k"], false); after.Note != "id" {
		t.Errorf("%+v", after)
	}
}

func TestTheNextProcessSettlesWhatIsLeft(t *testing.T) {
	e, crashed := newTable(), desk(1, 1)
	crashed.ask(t, e, "accepted")
	crashed.ask(t, e, "not")
	open := desk(1, 2)
	first := open.ask(t, e, "open")
	mail := func(r Row) (string, time.Duration, bool) { return "id", time.Hour, r.Key == "accepted" }
	for range 2 {
		for _, key := range []string{"accepted", "not", "open"} {
			open.Resolve(*e.rows[key], mail)
		}
	}
	desk(2, 1).Resolve(*e.rows["not"], mail)
	if c, _ := open.Call(0); len(c.Parts) != 2 {
		t.Fatalf("made %+v", c)
	}
	open.busy = false
	open.round(t, e)
	two := desk(2, 1)
	if d := two.ask(t, e, "accepted"); d.Outcome != Repeat || d.Row.Note != "id" {
		t.Errorf("what was accepted: %+v", d)
	}
	if d := two.ask(t, e, "not"); d.Outcome != Fresh {
		t.Errorf("what was not: %+v", d)
	}
	if d := two.ask(t, e, "open"); d.Outcome != Running || e.rows["open"].Number != first.Number {
		t.Errorf("what is open: %+v", d)
	}
}

func TestAForgottenNodesKeysAreFresh(t *testing.T) {
	e, lost, two := newTable(), desk(1, 1), desk(2, 1)
	first, second := lost.ask(t, e, "k"), lost.ask(t, e, "l")
	lost.Accepted(first.Number, "id", time.Hour)
	lost.round(t, e)
	if d := two.ask(t, e, "l"); d.Outcome != Running {
		t.Errorf("before: %+v", d)
	}
	e.incarnation[1] = 2
	if two.ask(t, e, "k").Outcome != Fresh || two.ask(t, e, "l").Outcome != Fresh {
		t.Error("keys of lost mail are not fresh")
	}
	lost.Accepted(second.Number, "late", time.Hour)
	if lost.round(t, e); e.rows["l"].Node != 2 || e.rows["l"].Done {
		t.Errorf("a forgotten node writes %+v", e.rows["l"])
	}
	if d := lost.ask(t, e, "new"); d.Outcome != Refuse || e.rows["new"] != nil {
		t.Errorf("a forgotten node claims: %+v", d)
	}
}

func TestACallIsBounded(t *testing.T) {
	one := desk(1, 1)
	for i := range 2 * most {
		one.Ask(time.Duration(i).String(), "")
	}
	if c, _ := one.Call(0); len(c.Parts) != most {
		t.Errorf("%d parts", len(c.Parts))
	}
	e, two := newTable(), desk(2, 1)
	for i, size := range []int{octets / 3, octets / 3, octets / 2, octets + 1} {
		two.Ask(fmt.Sprint(i), strings.Repeat("x", size))
	}
	for i, want := range []int{2, 1, 1} {
		c, _ := two.Call(0)
		if len(c.Parts) != want {
			t.Errorf("call %d has %d parts, want %d", i, len(c.Parts), want)
		}
		two.Result(e.do(c))
	}
}

// TestARequestThatGoesOn was cut off half way: its node settles its row anew, whatever process began it.
func TestARequestThatGoesOn(t *testing.T) {
	e, one := newTable(), desk(1, 1)
	first := one.ask(t, e, "k")
	one.Accepted(first.Number, "half", time.Hour)
	one.round(t, e)
	next := desk(1, 2)
	d := next.ask(t, e, "k")
	if d.Outcome != Repeat || d.Row.Request != first.Row.Request {
		t.Fatalf("its repeat is %+v", d)
	}
	d.Row.Note = "whole"
	next.Again(Part{Op: Settle, Row: d.Row, Keep: time.Hour})
	next.round(t, e)
	if d := desk(2, 1).ask(t, e, "k"); d.Outcome != Repeat || d.Row.Note != "whole" {
		t.Errorf("then: %+v", d)
	}
}

func TestNothingIsClaimedOnATimelineThatIsNotVerified(t *testing.T) {
	e, one := newTable(), desk(1, 1)
	one.Ask("k", "")
	e.failovers++
	if got := one.round(t, e); got != nil || len(e.rows) > 0 {
		t.Errorf("decided %v with %v", got, e.rows)
	}
	if _, ok := one.Call(0); ok {
		t.Error("a call before the timeline is verified")
	}
	one.Verified(2)
	if got := one.round(t, e); len(got) != 1 || got[0].Outcome != Fresh {
		t.Errorf("decided %v", got)
	}
}
