package wiring

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"example.org/mta/cluster/once"
)

// desk decides as a test has it, and notes what it is given.
type desk struct {
	once.Decision
	err error
	got string
}

func (d *desk) Claim(_ context.Context, key, note string) (once.Decision, error) {
	return d.Decision, d.err
}

func (d *desk) Accepted(of once.Decision, note string, keep time.Duration) {
	d.got = fmt.Sprint(of.Number, " accepted ", note, " ", keep)
}

func (d *desk) Refused(of once.Decision) { d.got = fmt.Sprint(of.Number, " refused") }

// members are number 1, and number 3, which is away.
type members struct{}

func (members) Own(n uint16) bool { return n == 1 }
func (members) Away(n uint16) string {
	if n == 3 {
		return "it has not been seen lately"
	}
	return ""
}

func TestPeersOfACluster(t *testing.T) {
	row := func(node uint16, done bool) once.Row {
		return once.Row{Key: "k", Request: once.Request{Node: node}, Done: done, Note: "n"}
	}
	for name, x := range map[string]struct {
		decision         once.Decision
		err              error
		ends, over, away bool
		fails            bool
	}{
		"fresh":                               {decision: once.Decision{Row: row(1, false)}, ends: true},
		"this relay's, cut off half way":      {decision: once.Decision{Outcome: once.Repeat, Row: row(1, true)}, ends: true, over: true},
		"another's, over":                     {decision: once.Decision{Outcome: once.Repeat, Row: row(2, true)}, over: true},
		"another's, over, whose node is gone": {decision: once.Decision{Outcome: once.Repeat, Row: row(3, true)}, over: true, away: true},
		"another's":                           {decision: once.Decision{Outcome: once.Running, Row: row(2, false)}},
		"another's, whose node is gone":       {decision: once.Decision{Outcome: once.Running, Row: row(3, false)}, away: true},
		"an earlier process's":                {decision: once.Decision{Outcome: once.Running, Row: row(1, false)}},
		"at this desk":                        {decision: once.Decision{Outcome: once.Running}},
		"of a forgotten node":                 {decision: once.Decision{Outcome: once.Refuse}, fails: true},
		"without the database":                {err: errors.New("away"), fails: true},
	} {
		d := &desk{Decision: x.decision, err: x.err}
		d.Number = 7
		c, err := peers{members{}, func() claims { return d }}.Claim(t.Context(), "k", "n")
		if (err != nil) != x.fails || (c.End != nil) != x.ends || c.Settled != x.over || c.Away != x.away || c.Note != x.decision.Row.Note {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if !x.ends {
			continue
		}
		if c.End("end", time.Hour, true); d.got != "7 accepted end 1h0m0s" {
			t.Errorf("%s: %s", name, d.got)
		}
		if c.End("", 0, false); d.got != "7 refused" {
			t.Errorf("%s: %s", name, d.got)
		}
	}
	if _, err := (peers{members{}, func() claims { return nil }}).Claim(t.Context(), "k", "n"); err != errNoPart {
		t.Errorf("a relay that takes no part: %v", err)
	}
}
