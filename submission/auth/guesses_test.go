package auth

import (
	"testing"
)

// A right password forgives neither its network's failures nor those of others as the same user.
func TestRightPasswordForgivesNoFailures(t *testing.T) {
	s := New(Config{File: file(t, "ann:"+cheap(t, "secret"))})
	defer s.Close()
	g, p := &s.guesses, place{"ann", from("198.51.100.7").Network}
	for _, failed := range []bool{true, true, false} {
		turn, err := g.take(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		turn.done(failed)
	}
	if network, user := g.networks.Failures(p.network), g.users.Failures(p.user); network != 2 || user != 2 {
		t.Errorf("%d failures of the network and %d of the user are left, want 2 and 2", network, user)
	}
}
