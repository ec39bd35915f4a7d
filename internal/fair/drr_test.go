package fair

import (
	"strings"
	"testing"
)

func all(string) bool { return true }

// turns gives who gets the next n turns.
func turns(r *Ring[string], n int, may func(string) bool) string {
	var out strings.Builder
	for range n {
		m := r.Pick(may)
		if m == nil {
			out.WriteByte('-')
			continue
		}
		out.WriteString(m.Value)
		r.Took(m)
	}
	return out.String()
}

func TestTurnsFollowWeights(t *testing.T) {
	var r Ring[string]
	if got := turns(&r, 1, all); got != "-" || !r.Empty() {
		t.Errorf("an empty ring gives %q", got)
	}
	a, b, c := &Member[string]{Value: "a"}, &Member[string]{Value: "b", Weight: 3}, &Member[string]{Value: "c", Weight: 1}
	for _, m := range []*Member[string]{a, b, c} {
		r.Join(m)
	}
	if got := turns(&r, 10, all); got != "abbbcabbbc" {
		t.Errorf("turns %q", got)
	}
	if got := turns(&r, 6, func(s string) bool { return s != "b" }); got != "acacac" {
		t.Errorf("with b held: %q", got)
	}
	if got := turns(&r, 2, func(string) bool { return false }); got != "--" {
		t.Errorf("with all held: %q", got)
	}
}

func TestJoinAndLeave(t *testing.T) {
	var r Ring[string]
	a, b, c := &Member[string]{Value: "a"}, &Member[string]{Value: "b", Weight: 2}, &Member[string]{Value: "c"}
	r.Join(a)
	r.Join(b)
	if got := turns(&r, 2, all); got != "ab" { // b has one left
		t.Fatalf("turns %q", got)
	}
	r.Join(c) // last: just before b, whose turn it is
	if got := turns(&r, 4, all); got != "bacb" {
		t.Errorf("turns %q", got)
	}
	r.Leave(b) // in the middle of its turns
	if got := turns(&r, 4, all); strings.Contains(got, "b") || strings.Count(got, "a") != 2 {
		t.Errorf("after b left: %q", got)
	}
	r.Leave(a)
	r.Leave(c)
	if !r.Empty() {
		t.Error("somebody is left")
	}
	r.Join(b)
	if got := turns(&r, 3, all); got != "bbb" {
		t.Errorf("b alone: %q", got)
	}
}

// What was taken out of turn is on the member's account, and the round goes on.
func TestOutOfTurn(t *testing.T) {
	var r Ring[string]
	a, b := &Member[string]{Value: "a", Weight: 2}, &Member[string]{Value: "b", Weight: 2}
	r.Join(a)
	r.Join(b)
	r.Pick(all)
	r.Took(b)
	if got := turns(&r, 6, all); got != "aabbaa" {
		t.Errorf("turns %q", got)
	}
}
