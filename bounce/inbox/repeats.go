package inbox

import (
	"sync"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
)

// repeat is what a report says. One that comes again, since the host got no answer to the first or somebody replays it,
// is not a second failure.
type repeat struct {
	kind      RecordKind
	message   envelope.ID
	recipient envelope.Address
	class     bounce.Class
	follows   bool
	unknown   bool // the message is not known: such reports are never repeats
}

// repeatsKept is how many are remembered at least, and half of how many at most.
const repeatsKept = 32 << 10

// repeats remembers what the last reports said, in two generations.
type repeats struct {
	mu         sync.Mutex // guards the rest
	young, old map[repeat]struct{}
}

func (r *repeats) known(k repeat) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, young := r.young[k]
	_, old := r.old[k]
	return (young || old) && !k.unknown
}

func (r *repeats) note(k repeat) {
	if k.unknown {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.young == nil || len(r.young) >= repeatsKept {
		r.young, r.old = make(map[repeat]struct{}), r.young
	}
	r.young[k] = struct{}{}
}
