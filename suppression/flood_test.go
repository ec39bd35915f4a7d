package suppression_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	. "example.org/mta/suppression"
)

// mailing is mail to a provider whose mailboxes are known: some of the addresses don't exist.
type mailing struct {
	*bench
	rand *rand.Rand
	dead float64 // their share
	next int
	gone map[envelope.Address]bool // those that don't exist
}

func newMailing(b *bench, dead float64) *mailing {
	return &mailing{bench: b, rand: rand.New(rand.NewPCG(1, 2)), dead: dead, gone: make(map[envelope.Address]bool)}
}

// fresh gives n addresses that got no mail before.
func (m *mailing) fresh(n int) (all []envelope.Address) {
	for range n {
		a := address(m.next)
		m.next++
		all = append(all, a)
		if m.rand.Float64() < m.dead {
			m.gone[a] = true
		}
	}
	return all
}

// send mails addresses within a time, some at once. In a flood the provider doesn't know a share of those that exist.
func (m *mailing) send(to []envelope.Address, within time.Duration, wrong float64) {
	const some = 25
	for i, a := range to {
		if i%some == 0 {
			time.Sleep(within * some / time.Duration(len(to)))
		}
		switch _, kept := m.listed(a); {
		case kept:
		case m.gone[a], m.rand.Float64() < wrong:
			m.refuse(a, bounce.InvalidRecipient)
		default:
			m.deliver(a)
		}
	}
}

// living gives the addresses on the list that exist.
func (m *mailing) living() (all []string) {
	m.t.Helper()
	err := m.list.Each(context.Background(), Query{}, func(some []Entry) error {
		for _, e := range some {
			if !m.gone[envelope.Address(e.Address)] {
				all = append(all, e.Address)
			}
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// missing counts the addresses that got mail and don't exist, and are not on the list.
func (m *mailing) missing() (n int) {
	for a := range m.gone {
		if _, found := m.listed(a); !found {
			n++
		}
	}
	return n
}

// A provider says for six hours that no mailbox exists, as Gmail did on 14 and 15 December 2020, and then knows them
// again, over a restart. No mailbox that exists is on the list afterwards. Those that don't exist are, as soon as they are
// refused again, or as an operator accepts them.
func TestFlood(t *testing.T) {
	for name, wrong := range map[string]float64{"all": 1, "some": .3} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m := newMailing(newBench(t), .02)
				readers := m.fresh(4000)
				m.send(readers, day, 0)
				m.send(m.fresh(4000), day, 0)
				if n := len(m.Doubted()); n != 0 || m.missing() != 0 || len(m.living()) != 0 {
					t.Fatalf("%d providers are doubted before anything happened, %d entries are missing", n, m.missing())
				}
				flood := append(m.fresh(1000), readers[:1000]...)
				began := time.Now()
				m.send(flood[:1000], 3*time.Hour, wrong)
				m.again()
				m.send(flood[1000:], 3*time.Hour, wrong)
				settle()
				d := m.Doubted()
				if len(d) != 1 || d[0].Provider != "google" || !d[0].Until.IsZero() || d[0].Since.Sub(began).Abs() > time.Hour || d[0].Unknown < int64(wrong*1800) {
					t.Fatalf("in the flood: %+v", d)
				}
				if all := m.living(); len(all) > 0 {
					t.Errorf("in the flood %d living mailboxes are on the list: %.3q", len(all), all)
				}
				if n := len(m.waiting()); n < int(wrong*1500) {
					t.Errorf("%d entries are set aside", n)
				}
				before := m.missing()
				m.send(m.fresh(2000), day, 0)
				settle()
				if d := m.Doubted(); len(d) != 1 || d[0].Until.IsZero() || d[0].Until.Sub(began) > 10*time.Hour {
					t.Errorf("after the flood: %+v", d)
				}
				m.send(flood[:1000], day, 0)
				settle()
				if all := m.living(); len(all) > 0 {
					t.Errorf("afterwards %d living mailboxes are on the list: %.3q", len(all), all)
				}
				if m.missing() >= before || before == 0 {
					t.Errorf("%d that don't exist are not on the list, %d before they were refused again", m.missing(), before)
				}
				for a := range m.waiting() {
					if _, found := m.listed(envelope.Address(a)); found {
						t.Errorf("%s is on the list, and set aside", a)
					}
				}
				m.send(flood[1000:], day, 0)
				settle()
				n, err := m.Accept(t.Context(), Query{Provider: "google"}, nil)
				if err != nil || len(m.waiting()) != 0 || m.missing() != 0 || len(m.living()) != 0 {
					t.Errorf("accepted %d, %v: %d still wait, %d are missing", n, err, len(m.waiting()), m.missing())
				}
				if d := m.Doubted(); len(d) != 0 {
					t.Errorf("at the end: %+v", d)
				}
			})
		})
	}
}

// A bad list of addresses looks like a flood. An operator who accepts it has the share taken for usual.
func TestAccept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMailing(newBench(t), .4)
		m.send(m.fresh(1000), time.Hour, 0)
		settle()
		if len(m.Doubted()) != 1 || len(m.waiting()) != len(m.gone) {
			t.Fatalf("doubted %+v, %d of %d wait", m.Doubted(), len(m.waiting()), len(m.gone))
		}
		n, err := m.Accept(t.Context(), Query{Provider: "google"}, nil)
		if err != nil || n != len(m.gone) || m.missing() != 0 {
			t.Errorf("accepted %d of %d, %v, %d are missing", n, len(m.gone), err, m.missing())
		}
		m.send(m.fresh(1000), time.Hour, 0)
		if settle(); len(m.Doubted()) != 0 || m.missing() != 0 {
			t.Errorf("afterwards doubted %+v, %d are missing", m.Doubted(), m.missing())
		}
	})
}

// Dropped entries are forgotten; a filter drops no others.
func TestDrop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMailing(newBench(t), 1)
		m.send(m.fresh(100), time.Hour, 0)
		settle()
		half := time.Now().Add(-30 * time.Minute)
		all := len(m.waiting())
		if n, err := m.Drop(t.Context(), Query{Provider: "other"}, nil); n != 0 || err != nil {
			t.Errorf("dropped %d of another provider, %v", n, err)
		}
		n, err := m.Drop(t.Context(), Query{Provider: "google", Since: half}, nil)
		if err != nil || n == 0 || n == all || len(m.waiting()) != all-n {
			t.Errorf("dropped %d of %d since %v, %v", n, all, half, err)
		}
		if n, err := m.Drop(t.Context(), Query{}, nil); err != nil || n == 0 || len(m.waiting()) != 0 || m.Stats().Pending != 0 || len(m.living()) != 0 {
			t.Errorf("dropped %d, %v: %d wait", n, err, len(m.waiting()))
		}
	})
}
