package intake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

// table is that of a cluster whose relays sit at it.
type table struct {
	mu     sync.Mutex
	rows   map[string]*row
	asked  int
	fails  error
	silent string // a relay that does not answer
}

type row struct {
	note, by string
	settled  bool
	keep     time.Duration
}

// seat is a relay's at a table.
type seat struct {
	*table
	name string
}

func (s seat) Claim(_ context.Context, key, note string) (Claimed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.fails != nil {
		return Claimed{}, s.fails
	}
	r, fresh := s.rows[key], false
	if fresh = r == nil; fresh {
		r = &row{note: note, by: s.name}
		s.rows[key] = r
	}
	c := Claimed{Note: r.note, Settled: r.settled, By: r.by, Away: r.by == s.silent}
	if fresh || r.by == s.name && r.settled {
		c.End = func(note string, keep time.Duration, taken bool) {
			if r.note, r.settled, r.keep = note, true, keep; !taken {
				delete(s.rows, key)
			}
		}
	}
	return c, nil
}

// colleague is a relay with its book and store.
type colleague struct {
	*testing.T
	*Repeats
	store *memoryStore
}

var today = time.Unix(1e9, 0)

// colleagues are two relays of a cluster, with different secrets.
func colleagues(t *testing.T) (one, two colleague, both *table) {
	both = &table{rows: make(map[string]*row)}
	sit := func(name string) colleague {
		s := &memoryStore{known: map[RequestKey]StoredRequest{}}
		b := NewRepeats([]byte(name), s)
		b.Join(seat{both, name}, func() time.Time { return today })
		return colleague{t, b, s}
	}
	return sit("one"), sit("two"), both
}

// begin has a relay begin a request, whose outcome is as wanted.
func (c colleague) begin(body string, want Outcome) *Claim {
	c.Helper()
	claim, got, err := c.Begin(c.Context(), "acme", "k", c.sum(body))
	if err != nil || got != want {
		c.Fatalf("the outcome is %s, %v; want %s", got, err, want)
	}
	return claim
}

// elsewhere has a relay begin a request that it can't take.
func (c colleague) elsewhere(words string, begun bool) {
	c.Helper()
	var e *Elsewhere
	claim, _, err := c.Begin(c.Context(), "acme", "k", c.sum("body"))
	if !errors.As(err, &e) || claim != nil || e.Begun != begun || !strings.Contains(err.Error(), words) {
		c.Errorf("the error is %v of %#v, want %q", err, e, words)
	}
}

var bothIDs = map[int]envelope.ID{0: 7, 1: 8}

func TestOneRelayTakesARequest(t *testing.T) {
	one, two, all := colleagues(t)
	claim := one.begin("body", Fresh)
	two.begin("body", UnderWay)
	two.begin("other", Other)
	all.silent = "one"
	two.elsewhere("one, which has the request, does not answer", false)
	two.begin("other", Other)
	all.silent = ""
	one.store.put(claim, true, bothIDs)
	claim.Drop()
	again := two.begin("body", Replay)
	if string(again.Stored.Answer) != "answer" || again.Accepted(1) != 8 || !again.Stored.Whole {
		t.Errorf("the answer is %+v", again.Stored)
	}
	again.Drop()
	two.begin("other", Other)
	asked := all.asked
	one.begin("body", Replay).Drop()
	if all.asked != asked {
		t.Error("the relay that has it asks")
	}
	for _, r := range all.rows {
		if r.keep != kept || strings.Contains(r.note, "acme") {
			t.Errorf("the row is %+v", r)
		}
	}
	if _, got, err := two.Begin(t.Context(), "other", "k", two.sum("body")); got != Fresh || err != nil {
		t.Errorf("another tenant: %s, %v", got, err)
	}
}

func TestARequestOfWhichNothingIsTaken(t *testing.T) {
	one, two, all := colleagues(t)
	one.begin("body", Fresh).Drop()
	if len(all.rows) > 0 {
		t.Error("its claim is there")
	}
	two.begin("other", Fresh).Drop()
}

// TestTheRestIsTakenWhereItBegan, whatever the other relays are asked.
func TestTheRestIsTakenWhereItBegan(t *testing.T) {
	one, two, all := colleagues(t)
	claim := one.begin("body", Fresh)
	one.store.put(claim, false, map[int]envelope.ID{0: 7})
	claim.Drop()
	two.elsewhere("one has accepted some messages of the request: send it there again", true)
	two.begin("other", Other)
	all.silent = "one"
	two.elsewhere("does not answer", false)
	all.silent = ""
	claim = one.begin("body", Continue)
	if claim.Accepted(0) != 7 {
		t.Error("it begins anew")
	}
	two.elsewhere("send it there again", true)
	one.store.put(claim, true, map[int]envelope.ID{1: 8}) // as if the first had been moved here
	claim.Drop()
	if again := two.begin("body", Replay); again.Accepted(0) != 7 || again.Accepted(1) != 8 {
		t.Errorf("the answer is %+v", again.Stored)
	}
}

// TestAPartThatIsForgotten: the store has dropped the key of a request that was cut off, and the row has its ids.
func TestAPartThatIsForgotten(t *testing.T) {
	one, two, _ := colleagues(t)
	claim := one.begin("body", Fresh)
	one.store.put(claim, false, map[int]envelope.ID{0: 7})
	claim.Drop()
	for range 2 { // the first time nothing more is taken
		clear(one.store.known)
		if claim = one.begin("body", Continue); claim.Accepted(0) != 7 {
			t.Error("it begins anew")
		}
		claim.Drop()
	}
	claim = one.begin("body", Continue)
	one.store.put(claim, true, map[int]envelope.ID{1: 8})
	claim.Drop()
	if again := two.begin("body", Replay); again.Accepted(0) != 7 || again.Accepted(1) != 8 {
		t.Errorf("the answer is %+v", again.Stored)
	}
}

// TestAStoreThatFailsAtTheEnd leaves the request to its relay.
func TestAStoreThatFailsAtTheEnd(t *testing.T) {
	one, two, all := colleagues(t)
	claim := one.begin("body", Fresh)
	one.store.err = errors.New("disk")
	claim.Drop()
	two.elsewhere("send it there again", true)
	one.store.err = nil
	one.begin("body", Fresh).Drop()
	if len(all.rows) > 0 {
		t.Error("nothing of it is taken, and its row is there")
	}
}

// TestRelaysThatCantAgree answer what they have.
func TestRelaysThatCantAgree(t *testing.T) {
	one, two, all := colleagues(t)
	claim := one.begin("body", Fresh)
	one.store.put(claim, true, bothIDs)
	claim.Drop()
	all.fails = errors.New("the database is away")
	two.elsewhere("can't find out which of them takes the request (the database is away)", false)
	one.begin("body", Replay).Drop()
	all.fails = nil
	two.begin("body", Replay).Drop()
	for _, r := range all.rows {
		r.note = "edited"
	}
	if _, _, err := two.Begin(t.Context(), "acme", "k", two.sum("body")); !strings.Contains(fmt.Sprint(err), "of one: invalid") {
		t.Errorf("an edited row: %v", err)
	}
}

// TestKeysOfBefore are those that a relay had when it joined.
func TestKeysOfBefore(t *testing.T) {
	one, two, all := colleagues(t)
	joined := one.peers
	one.peers = nil
	claim := one.begin("body", Fresh)
	one.store.put(claim, false, map[int]envelope.ID{0: 7})
	claim.Drop()
	one.peers = joined
	claim = one.begin("body", Continue)
	two.begin("body", UnderWay)
	one.store.put(claim, true, bothIDs)
	claim.Drop()
	two.begin("body", Replay).Drop()
	clear(all.rows)
	one.begin("body", Replay).Drop()
}

// TestAnEndThatACrashPrevented is found by the note of its claim.
func TestAnEndThatACrashPrevented(t *testing.T) {
	one, _, _ := colleagues(t)
	claim := one.begin("body", Fresh)
	note := claim.note.encode()
	if end, _, taken := one.Settled(note); !taken || end != note {
		t.Errorf("while it runs again: %q, %v", end, taken)
	}
	one.underWay = map[RequestKey][16]byte{}
	if _, _, taken := one.Settled(note); taken {
		t.Error("nothing is there")
	}
	one.store.put(claim, true, bothIDs)
	s := one.store.known[claim.Key]
	s.Until = today.Add(72 * time.Hour)
	one.store.known[claim.Key] = s
	end, keep, taken := one.Settled(note)
	if !taken || keep != 72*time.Hour || !strings.Contains(end, `"ids":{"0":7,"1":8},"whole":true`) {
		t.Errorf("it is %q for %v, %v", end, keep, taken)
	}
	one.store.err = errors.New("disk")
	if end, keep, taken := one.Settled(note); !taken || end != note || keep != kept {
		t.Errorf("with a bad disk it is %q for %v, %v", end, keep, taken)
	}
	if end, _, taken := one.Settled("edited"); !taken || end != "edited" {
		t.Errorf("edited: %q, %v", end, taken)
	}
}
