package submission

import (
	"net/netip"
	"sync"
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// Refusals that repeat are counted and not written down one by one: each costs a kilobyte on disk,
// and a client makes thousands a second.
const (
	tallyEvery = time.Minute
	// How many of a kind are told one by one in that time. Who may relay wants to know which of
	// its recipients were refused.
	toldOfStrangers = 1
	toldOfClients   = 1000
	// maxTallies bounds the networks that are counted apart; the others are counted together.
	maxTallies = 1000
)

// tally passes the first refusals of a kind on, and then one with their number each tallyEvery.
//
// Goroutines: a timer's while there is something to count; close stops it.
type tally struct {
	tell func(intake.Rejection)

	mu    sync.Mutex
	kinds map[refusalKind]*refusalCount
	timer *time.Timer // nil when nothing is counted
}

// refusalKind is what refusals have in common that are counted together.
type refusalKind struct {
	network  netip.Prefix // zero: all others
	command  string
	code     int
	enhanced reply.Enhanced
}

type refusalCount struct {
	told int              // one by one
	more int64            // since
	last intake.Rejection // one of those
}

// add takes a refusal of a client in network, of which the first few are told one by one.
func (t *tally) add(network netip.Prefix, e intake.Rejection, first int) {
	if t.count(network, &e, first) {
		t.tell(e)
	}
}

func (t *tally) count(network netip.Prefix, e *intake.Rejection, first int) (tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds == nil {
		t.kinds = make(map[refusalKind]*refusalCount)
	}
	kind := refusalKind{network, e.Reply.Command, e.Reply.Code, e.Reply.Enhanced}
	n := t.kinds[kind]
	if n == nil && len(t.kinds) >= maxTallies {
		kind.network = netip.Prefix{}
		n = t.kinds[kind]
	}
	if n == nil {
		n = new(refusalCount)
		t.kinds[kind] = n
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(tallyEvery, t.turn)
	}
	if n.told < first {
		n.told++
		return true
	}
	n.more++
	n.last = *e
	return false
}

// turn tells of what was counted. A kind that goes on is not told one by one again.
func (t *tally) turn() {
	counted := t.take(true)
	for i := range counted {
		t.tell(counted[i])
	}
}

// take gives what was counted. Kinds that had nothing to count are forgotten.
func (t *tally) take(goOn bool) []intake.Rejection {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	var counted []intake.Rejection
	for kind, n := range t.kinds {
		if n.more == 0 {
			delete(t.kinds, kind)
			continue
		}
		e := n.last
		e.Count = n.more
		e.Recipients = nil
		if kind.network == (netip.Prefix{}) {
			e.Peer, e.HeloName = netip.AddrPort{}, ""
		}
		counted = append(counted, e)
		n.more, n.last = 0, intake.Rejection{}
	}
	if goOn && len(t.kinds) > 0 {
		t.timer = time.AfterFunc(tallyEvery, t.turn)
	}
	return counted
}

// close tells of what was counted last.
func (t *tally) close() {
	for _, e := range t.take(false) {
		t.tell(e)
	}
}
