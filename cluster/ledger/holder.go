package ledger

import (
	"cmp"
	"slices"
	"time"

	"example.org/mta/cluster/term"
)

// Holder is what one node has of the tokens of one shard.
type Holder struct {
	plan  *Plan
	term  term.Term
	purse map[Key]*purse
	lacks bool
}

// purse is a node's tokens of one key.
type purse struct {
	tokens int64
	want   int64
	hour   int64
	epoch  uint64
	until  time.Duration
}

// NewHolder makes the holder of a process that has nothing.
func NewHolder(p *Plan, t term.Term) *Holder {
	return &Holder{plan: p, term: t, purse: make(map[Key]*purse)}
}

// Want sets how many tokens a node could use soon.
func (h *Holder) Want(k Key, n int64) {
	p := h.purse[k]
	if p == nil {
		p = &purse{}
		h.purse[k] = p
	}
	p.want = n
	h.note(p)
}

// Leave wants nothing any more, and reports whether there is something that an ask would give back.
func (h *Holder) Leave() bool {
	for _, p := range h.purse {
		p.want = 0
		h.note(p)
	}
	return h.lacks
}

// note has the next ask carry a key with fewer tokens than half of what is wanted, or more than twice as many.
func (h *Holder) note(p *purse) { h.lacks = h.lacks || p.tokens < (p.want+1)/2 || p.tokens > 2*p.want }

// Spend takes up to n tokens for mail that leaves now, and returns how many.
func (h *Holder) Spend(now time.Duration, k Key, n int64) int64 {
	p := h.purse[k]
	if p == nil {
		return 0
	}
	if now >= p.until {
		p.tokens = 0
	}
	n = max(0, min(n, p.tokens))
	p.tokens -= n
	h.note(p)
	return n
}

// Ask gives what the next ask carries: wants, and tokens given back that nobody wants here.
func (h *Holder) Ask(now time.Duration) (items []Item) {
	h.lacks = false
	for k, p := range h.purse {
		if now >= p.until {
			p.tokens = 0
		}
		i := Item{Key: k, Want: max(0, p.want-p.tokens), Back: max(0, p.tokens-p.want), Hour: p.hour, Epoch: p.epoch}
		p.tokens -= i.Back
		if i.Want > 0 || i.Back > 0 {
			items = append(items, i)
		}
		if p.want == 0 && p.tokens == 0 {
			delete(h.purse, k)
		}
	}
	slices.SortFunc(items, func(x, y Item) int {
		return cmp.Or(cmp.Compare(x.Address, y.Address), cmp.Compare(x.Provider, y.Provider))
	})
	return items
}

// Lacks reports whether tokens are a reason to ask.
func (h *Holder) Lacks() bool { return h.lacks }

// Take takes in the blocks of the answer to an ask that was sent at a moment of this machine's clock. clock is the
// engine's when the blocks were written.
func (h *Holder) Take(sent time.Duration, clock int64, grants []Grant) {
	for _, g := range grants {
		p := h.purse[g.Key]
		if p == nil || g.Tokens < 0 || g.Hour < p.hour {
			continue
		}
		if hourly, _ := h.plan.Caps(g.Address, g.Provider); g.Tokens > hourly || g.Hour > h.plan.hour(clock)+1 {
			continue // no owner gives that
		}
		until := sent + h.term.Less(h.plan.left(g.Hour, clock))
		if g.Hour > p.hour || g.Epoch != p.epoch {
			// Tokens of an earlier owner stay charged: they are used, but not given back.
			if g.Hour > p.hour {
				p.tokens = 0
			}
			p.hour, p.epoch = g.Hour, g.Epoch
			p.until = until
		}
		p.tokens += g.Tokens
		p.until = min(p.until, until)
	}
}
