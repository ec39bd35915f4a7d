package sink

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"
)

// Refusal is an answer other than the good one, given to some commands of a phase.
type Refusal struct {
	Phase Phase
	// Prefix limits it to addresses that start so: of the recipient at Rcpt, of the sender at Mail
	// and later.
	Prefix string
	// Share of the commands, from 0 to 1; 0 is all of them. Those that are refused are chosen at
	// random each time, or, when Sticky is set, once for each address.
	Share  float64
	Sticky bool
	// Reply is code and text. {address} becomes the address, lines are parted by "\n". After a
	// 421 the connection closes.
	Reply string
}

// UnknownUsers refuses recipients whose address starts with prefix, as mailboxes that don't
// exist.
func UnknownUsers(prefix string) Refusal {
	return Refusal{Phase: Rcpt, Prefix: prefix,
		Reply: "550 5.1.1 <{address}>: Recipient address rejected: User unknown in virtual mailbox table"}
}

// UnknownShare refuses a share of all recipients, the same ones each time.
func UnknownShare(share float64) Refusal {
	return Refusal{Phase: Rcpt, Share: share, Sticky: true,
		Reply: "550 5.1.1 <{address}>: Recipient address rejected: User unknown in virtual mailbox table"}
}

// TemporaryFailures refuses that share of messages after their content, for a while.
func TemporaryFailures(share float64) Refusal {
	return Refusal{Phase: End, Share: share, Reply: "451 4.3.0 Error: queue file write error, try again later"}
}

// fits reports whether r answers a command of phase p with this address.
func (r *Refusal) fits(p Phase, address string, seed uint64, rng *rand.Rand) bool {
	if r.Phase != p || !strings.HasPrefix(address, r.Prefix) {
		return false
	}
	switch {
	case r.Share == 0:
		return true
	case r.Sticky:
		return fraction(address, seed) < r.Share
	}
	return rng.Float64() < r.Share
}

func (r *Refusal) reply(address string) string {
	return strings.ReplaceAll(r.Reply, "{address}", address)
}

// fraction maps an address to [0, 1), the same each time for the same seed.
func fraction(address string, seed uint64) float64 {
	h := fnv.New64a()
	h.Write([]byte(address))
	return rand.New(rand.NewPCG(h.Sum64(), seed)).Float64()
}

// faults is what goes wrong, laid out so that a phase without trouble costs a compare.
type faults struct {
	drop, stray, swallow chances
	mute                 float64 // of the final reply of a message that was kept
	refusals             [phases][]Refusal
	work                 [phases]time.Duration
	delayed              bool // replies may have to wait
}

func newFaults(cfg *Config) faults {
	f := faults{
		drop:    chancesOf(cfg.Drop),
		stray:   chancesOf(cfg.Stray),
		swallow: chancesOf(cfg.Swallow),
		delayed: cfg.Latency > 0 || cfg.Jitter > 0 || cfg.Hook != nil,
	}
	// Only the recorder's entry shows that a final reply was swallowed, so the draw comes before it.
	f.mute = f.swallow[Kept]
	f.swallow[Kept] = 0
	for p, d := range cfg.Work {
		f.work[p] = d
		f.delayed = f.delayed || d > 0
	}
	for _, r := range cfg.Refusals {
		f.refusals[r.Phase] = append(f.refusals[r.Phase], r)
	}
	return f
}

// refused gives the configured answer to a command, "" when there is none.
func (f *faults) refused(p Phase, address string, seed uint64, rng *rand.Rand) string {
	for i := range f.refusals[p] {
		if r := &f.refusals[p][i]; r.fits(p, address, seed, rng) {
			return r.reply(address)
		}
	}
	return ""
}
