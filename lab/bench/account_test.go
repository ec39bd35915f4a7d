package bench

import (
	"fmt"
	"net"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// told is a ground whose only host is told what to take, beside any server: message, recipient.
func told(t *testing.T, cfg sink.Config, mail ...[2]string) *Ground {
	t.Helper()
	g, err := OpenGround(GroundOptions{}, &Domain{Name: "site0.example", Hosts: []*Host{{Sink: cfg}}}, &Domain{Name: "dead.example", Hosts: []*Host{{Death: Refusing}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	for _, m := range mail {
		var n int
		if _, err := fmt.Sscan(m[0], &n); err != nil {
			t.Fatal(err)
		}
		l := &Load{Messages: n + 1, Connections: 1, To: func(int) []string { return []string{m[1]} }}
		l.next.Store(int64(n)) // that message alone
		if err := l.Run(t.Context(), net.JoinHostPort(g.Hosts[0].Address, g.Port)); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// accepted is a load of n messages to a and b at the site, and one at the dead one, all of them accepted.
func accepted(n int) *Load {
	l := &Load{Messages: n, Began: time.Now(), To: func(int) []string {
		return []string{"a@site0.example", "b@site0.example", "c@dead.example"}
	}}
	for i := range n {
		l.Sent, l.Heard, l.IDs = append(l.Sent, 1), append(l.Heard, 2), append(l.IDs, fmt.Sprint("id", i))
	}
	return l
}

func TestAccountTellsLostFromDuplicatedFromAmbiguous(t *testing.T) {
	const a, b = "a@site0.example", "b@site0.example"
	type mail = [][2]string
	for _, tc := range []struct {
		name   string
		mail   mail
		doubts map[string]int
		want   Account
	}{
		{"all once", mail{{"0", a}, {"0", b}}, map[string]int{}, Account{}},
		{"one missing", mail{{"0", b}}, map[string]int{}, Account{Lost: 1}},
		{"twice", mail{{"0", a}, {"0", a}, {"0", b}}, map[string]int{}, Account{Duplicated: 1}},
		{"twice, of which the server knew", mail{{"0", a}, {"0", a}, {"0", b}}, map[string]int{"id0": 1}, Account{Ambiguous: 1}},
		{"three times, of which the server knew two", mail{{"0", a}, {"0", a}, {"0", a}, {"0", b}}, map[string]int{"id0": 1}, Account{Duplicated: 1, Ambiguous: 1}},
		{"another message's doubt is no excuse", mail{{"0", a}, {"0", a}, {"0", b}}, map[string]int{"id1": 1}, Account{Duplicated: 1}},
		{"nobody knows of doubts, and the site has answered", mail{{"0", a}, {"0", a}, {"0", b}}, nil, Account{Duplicated: 1}},
		{"another recipient", mail{{"0", a}, {"0", b}, {"0", "x@site0.example"}}, map[string]int{}, Account{Strange: 1}},
		{"another message", mail{{"0", a}, {"0", b}, {"7", a}}, map[string]int{}, Account{Strange: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Settle(accepted(1), told(t, sink.Config{}, tc.mail...), tc.doubts)
			got.firsts = nil
			if fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", tc.want) {
				t.Errorf("the account is %+v, want %+v", *got, tc.want)
			}
			if right := tc.want.Lost+tc.want.Duplicated+tc.want.Strange == 0; got.Right() != right {
				t.Errorf("Right says %v: %v", got.Right(), got)
			}
		})
	}
}

func TestAccountWithoutLogExcusesWhatWasNeverAnswered(t *testing.T) {
	g := told(t, sink.Config{Drop: map[sink.Phase]float64{sink.Kept: 1}})
	var l *Load
	for range 2 { // twice, as a server does that got no reply
		l = &Load{Messages: 1, Connections: 1, To: func(int) []string { return []string{"a@site0.example"} }}
		if err := l.Run(t.Context(), net.JoinHostPort(g.Hosts[0].Address, g.Port)); err != nil {
			t.Fatal(err)
		}
		if l.unsureRecipients() != 1 || l.Accepted() != 0 {
			t.Errorf("%d in doubt and %d accepted, want 1 and none", l.unsureRecipients(), l.Accepted())
		}
	}
	l.Heard[0] = l.Sent[0] + 1 // as if it had been another server that took it
	if got := Settle(l, g, nil); got.Ambiguous != 1 || got.Duplicated != 0 || got.Lost != 0 {
		t.Errorf("the account is %+v, want one excused copy", got)
	}
}

func TestUnsureMessagesAreNotLost(t *testing.T) {
	l := accepted(1)
	l.Heard[0] = 0
	got := Settle(l, told(t, sink.Config{}), nil)
	if got.Lost != 0 || got.Unsure != 3 || !got.Right() {
		t.Errorf("the account is %+v, want three in doubt and none lost", got)
	}
}
