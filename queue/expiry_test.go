package queue

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs/vfstest"
)

// until makes a message for n recipients that is given up after a while.
func until(n int, after time.Duration) *envelope.Message {
	m := message(n, "example.net")
	m.Expires = time.Now().Add(after)
	return m
}

// What its sender has given a time for is handed out as expired then, whatever it waits for, and nothing else
// is; a restart and compaction change nothing.
func TestExpiresAtItsTimeInEveryState(t *testing.T) {
	for _, s := range waitingStates {
		for _, restarts := range []bool{false, true} {
			if restarts && (s == StateDue || s == StateParked) {
				continue // both are due after a restart
			}
			t.Run(s.String(), func(t *testing.T) {
				inTime(t, func(t *testing.T) {
					cfg := small(t, vfstest.Memory())
					q := open(t, cfg)
					m := accept(t, q, until(2, 3*time.Hour), "x")
					inStateOf(t, q, m.ID, s)
					if restarts {
						churn(t, q)
						for range 2 {
							shut(t, q)
							q = open(t, cfg)
						}
					}
					defer func() { shut(t, q) }()
					if s == StateDue { // else it would be handed out at once
						q.Change(Selector{IDs: []envelope.ID{m.ID}}, Hold, false)
						time.Sleep(time.Until(m.Expires.Add(-10 * time.Minute)))
						q.Change(Selector{IDs: []envelope.ID{m.ID}}, Unhold, false)
						time.Sleep(time.Until(m.Expires.Add(2 * time.Second)))
					}
					l := next(t, q)
					if late := time.Since(m.Expires); l.Why != Expired || l.Message.ID != m.ID || len(l.Recipients) != 2 || late < 0 || late > 3*time.Second {
						t.Fatalf("%v lease of %s for %d recipients, %v after its time", l.Why, l.Message.ID, len(l.Recipients), late)
					}
					q.Settle(m.ID, indexes(l), Expired)
					if s := balanced(t, q); s.Expired != 2 || s.Queued != 0 {
						t.Fatalf("%+v", s)
					}
					if n := len(q.few.expiries.All) - q.few.expiries.Gone; n != 0 {
						t.Errorf("%d times are remembered of messages that are gone", n)
					}
				})
			})
		}
	}
}

// inStateOf brings the recipients of the only message that is due into a state.
func inStateOf(t *testing.T, q *Queue, id envelope.ID, s State) {
	t.Helper()
	switch s {
	case StateHeld:
		q.Change(Selector{IDs: []envelope.ID{id}}, Hold, false)
	case StateDeferred:
		l := next(t, q)
		q.Defer(id, indexes(l), time.Now().Add(100*time.Hour), Attempt{Reply: greylisted}, site("site"))
	case StateParked:
		l := next(t, q)
		q.Park(id, indexes(l), siteLine("site"), time.Time{})
	}
}

// churn lets so much mail come and go that compaction moves what stays.
func churn(t *testing.T, q *Queue) {
	t.Helper()
	for range 200 {
		m := accept(t, q, message(1, "example.org"), string(body2K[:500]))
		l := next(t, q)
		if l.Message.ID != m.ID {
			t.Fatalf("%s came out, want %s", l.Message.ID, m.ID)
		}
		q.Settle(m.ID, indexes(l), Delivered)
	}
	time.Sleep(time.Minute)
	if q.Stats().Moved == 0 {
		t.Fatal("compaction moved nothing")
	}
}

// A recipient that is leased when its time comes is given up when it comes back.
func TestExpiresWhileLeased(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		m := accept(t, q, until(2, time.Hour), "x")
		other := accept(t, q, until(1, 5*time.Hour), "x")
		if l := next(t, q); l.Message.ID != m.ID {
			t.Fatalf("%s came out first", l.Message.ID)
		}
		inStateOf(t, q, other.ID, StateDeferred)
		time.Sleep(2 * time.Hour)
		nothing(t, q)
		q.Settle(m.ID, []int{0}, Delivered)
		q.Defer(m.ID, []int{1}, time.Now().Add(10*time.Hour), Attempt{Reply: greylisted}, site("site"))
		l := next(t, q)
		if l.Why != Expired || l.Message.ID != m.ID || l.Recipients[0].Index != 1 {
			t.Fatalf("%v of %s", l.Why, l.Message.ID)
		}
		if l = next(t, q); l.Why != Expired || l.Message.ID != other.ID || time.Since(other.Expires) > 2*time.Second {
			t.Fatalf("%v of %s, %v after its time", l.Why, l.Message.ID, time.Since(other.Expires))
		}
	})
}

// Thousands that expire at once are handed out, all of them and once.
func TestManyExpireAtOnce(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.SegmentSize = 1 << 20
		q := open(t, cfg)
		defer shut(t, q)
		const n = 3*atOnce + 5
		for range n {
			m := until(1, 2*time.Hour)
			m.Release = time.Now().Add(5 * time.Hour) // a fault of the sender
			accept(t, q, m, "x")
		}
		time.Sleep(2*time.Hour + 2*time.Second)
		if s := balanced(t, q); s.Ending != n {
			t.Fatalf("%d of %d are about to be given up", s.Ending, n)
		}
	})
}

// A message without any of the newer fields takes not an octet more than it took in version 6, except that
// the version is another.
func TestAPlainEnvelopeIsAsShortAsBefore(t *testing.T) {
	m := &envelope.Message{
		Sender: "a@example.com", Recipients: []envelope.Recipient{{Address: "b@example.net", Notify: envelope.NotifyDelay}}, Tenant: "t", User: "ann",
		Tier: 3, HeloName: "helo", Session: "s", Protocol: "ESMTPS", Received: time.Unix(1e9, 5).UTC(),
	}
	before, _ := hex.DecodeString(envelopeOfVersion6)
	got := store.AppendEnvelope(nil, store.CodecVersion, m)
	if len(got) != len(before) || !bytes.Equal(got[1:], before[1:]) {
		t.Errorf("the envelope is\n%x\nand was\n%x", got, before)
	}
	if read, err := store.DecodeEnvelope(before); err != nil || read.User != "ann" || len(read.Recipients) != 1 || !read.Expires.IsZero() {
		t.Errorf("read back: %+v %v", read, err)
	}
	buf := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { store.AppendEnvelope(buf, store.CodecVersion, m) }); n > 1 {
		t.Errorf("it takes %v allocations, and took 1", n)
	}
}

// envelopeOfVersion6 is the envelope of TestAPlainEnvelopeIsAsShortAsBefore as version 6 wrote it.
const envelopeOfVersion6 = "06240000038a80a0f6f4acdbe01b0d61406578616d706c652e636f6d000174000200000468656c6f01730645534d545053010d62406578616d706c652e6e6574040003616e6e"
