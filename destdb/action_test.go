package destdb

import (
	"testing"
	"time"
)

// TestActionsDontPileUp: an action takes the place of those that it outlasts, of its kind and source only.
func TestActionsDontPileUp(t *testing.T) {
	at := func(minutes int) time.Time { return time.Unix(int64(60*minutes), 0) }
	var all []Action
	for _, a := range []Action{
		{What: "suspended", Reason: "first", End: at(10)},
		{What: "suspended", Source: "a", Reason: "of a source", End: at(5)},
		{What: "slowed", Reason: "another kind", End: at(5)},
		{What: "suspended", Reason: "again", End: at(10)},
		{What: "suspended", Reason: "longer", End: at(30)},
		{What: "suspended", Reason: "shorter", End: at(20)},
	} {
		all = a.AddTo(all)
	}
	got := make(map[string]bool)
	for _, a := range all {
		got[a.Reason] = true
	}
	if len(all) != 4 || !got["of a source"] || !got["another kind"] || !got["longer"] || !got["shorter"] {
		t.Errorf("%+v", all)
	}
}
