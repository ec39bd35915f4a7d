package owner

import (
	"fmt"
	"math/rand/v2"
	"time"

	"example.org/mta/cluster/term"
)

// Config is a node's.
type Config struct {
	Node        uint16
	Incarnation uint64
	Boot        uint64
	Process     uint64 // larger than that of all earlier processes of the incarnation
	Reserve     bool   // after a loss of the engine this node goes on, by a fixed part of each limit
	Term        term.Term
	Rand        *rand.Rand
	Memory      Memory // what an earlier process has left on the disk
}

// Memory is what a node keeps on its disk.
type Memory struct {
	Origin Origin
	Reset  uint64       // the newest that this node has followed
	Marks  [Shards]Mark // the newest that it wrote or was granted under
}

// Keeper holds a node's shards. Its caller makes a call each second.
type Keeper struct {
	cfg     Config
	memory  Memory
	held    [Shards]*holding
	count   int
	heads   [Shards]Head
	since   [Shards]time.Duration // from when on a head is known to be the same
	read    time.Duration
	hasRead bool
	number  uint64
	open    *opened
	leaving bool
	lost    error
	res     reserves
	vain    int           // calls that took shards, one after the other, without a result
	tried   time.Duration // when the last one was sent
}

// holding is a shard of this node: the beat that was sent last and the last one acknowledged.
type holding struct {
	head        Head
	sent, acked uint64
}

// opened is a call on its way.
type opened struct {
	call  Call
	sent  time.Duration
	marks [Shards]Mark // as they were when it was sent
}

// Events is what follows from a result.
type Events struct {
	Acked []int          // shards of which all that the call carried is durable
	Taken []Taken        // new ones
	Gone  []int          // shards that others own now, or nobody
	Heads *[Shards]Head  // as read, nil without a reading
	Held  [Shards]uint64 // the epoch under which this node holds a shard, 0: it does not
	Hold  bool           // what was decided with the call may not leave
	Used  bool           // this node may have used its reserve until now
}

// Taken is a shard that this node owns from now on.
type Taken struct {
	Shard  int
	Book   []Entry
	Silent bool // all that the previous owners granted for a term has ended
}

// New makes the keeper of a process that holds nothing.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg, memory: cfg.Memory} }

// Lost is why no calls are made any more: the engine has lost writes. An operator's reset ends that.
func (k *Keeper) Lost() error { return k.lost }

// Lose notes that the engine has lost writes.
func (k *Keeper) Lose(err error) {
	k.lost, k.open, k.held, k.count = err, nil, [Shards]*holding{}, 0
}

// Reset follows a reset of the engine: this node knows nothing of it any more, and holds nothing. What it has granted
// and was granted ends by itself, before anybody takes a shard.
func (k *Keeper) Reset(number uint64) {
	*k = Keeper{cfg: k.cfg, memory: Memory{Reset: number}, number: k.number, leaving: k.leaving,
		res: reserves{known: k.res.known}}
}

// Memory is what must be on the disk before the caller acts on the newest result.
func (k *Keeper) Memory() *Memory { return &k.memory }

// Leave gives all shards back with the next call.
func (k *Keeper) Leave() { k.leaving = true }

// Granted notes that an owner gave something under a mark.
func (k *Keeper) Granted(shard int, m Mark) {
	if k.memory.Marks[shard].Before(m) {
		k.memory.Marks[shard] = m
	}
}

// Mark is the newest of a shard that this node knows to be durable.
func (k *Keeper) Mark(shard int) Mark { return k.memory.Marks[shard] }

// Epoch is the one under which this node holds a shard, 0 when it does not.
func (k *Keeper) Epoch(shard int) uint64 {
	if h := k.held[shard]; h != nil {
		return h.head.Epoch
	}
	return 0
}

// Acked is the newest beat of a shard of this node that is durable.
func (k *Keeper) Acked(shard int) uint64 { return k.held[shard].acked }

// Owner is who decided about a shard at the last reading, 0: nobody known.
func (k *Keeper) Owner(shard int) uint16 { return k.heads[shard].Decides() }

// Silence is that of a shard's owner.
type Silence struct {
	Shard int
	Head  Head
	For   time.Duration // the row has been the same, as far as this node knows
	Left  time.Duration // until another node may take the shard
}

// Silent is the silence of the owner of a shard at the last reading, 0 for one that needs none to be taken.
func (k *Keeper) Silent(now time.Duration, shard int) (s Silence) {
	h, still := k.heads[shard], now-k.since[shard]
	if k.lost == nil && k.held[shard] == nil && h.Node != 0 && !k.mine(h) {
		s = Silence{shard, h, still, max(0, k.cfg.Term.Waits()-still)}
	}
	return s
}

// Call makes the next call, unless one is on its way. changes returns what the book of a shard has that the engine may
// not have; it stays changed until Acked names the shard.
func (k *Keeper) Call(now time.Duration, changes func(shard int) []Entry) (Call, bool) {
	if k.lost != nil || k.open != nil && now-k.open.sent < Patience {
		return Call{}, false
	}
	k.number++
	c := Call{Number: k.number, Reserves: k.res.known, Wish: k.wish(now)}
	for s, h := range k.held {
		if h == nil {
			continue
		}
		h.sent++
		p := Part{Shard: s, Was: h.head, To: h.head, Changes: changes(s)}
		p.Was.Beat, p.To.Beat = h.acked, h.sent
		if k.leaving {
			p.To.Node, p.To.Incarnation, p.To.Boot = 0, 0, 0
		}
		c.Parts = append(c.Parts, p)
	}
	if takes := k.takes(now); len(takes) > 0 {
		c.Parts = append(c.Parts, takes...)
		k.vain, k.tried = k.vain+1, now
	}
	k.open = &opened{c, now, k.memory.Marks}
	return c, true
}

// takes are the shards to take over now. So that nodes that start together share, each leaves a shard to the others for
// longer the more it has, and takes few at once unless it is alone.
func (k *Keeper) takes(now time.Duration) (parts []Part) {
	const each, most, few, mostVain = time.Second / 8, 16, 8, 5
	if !k.hasRead || now-k.read > Gap || k.leaving {
		return nil
	}
	if k.vain >= mostVain && now-k.tried < 2*k.cfg.Term.Waits() {
		return nil // it may own what it can't read: others take that after a term
	}
	alone := k.alone()
	for _, s := range k.cfg.Rand.Perm(Shards) {
		h := k.heads[s]
		wait := time.Duration(min(k.count+len(parts), most))*each + k.jitter()
		switch {
		case k.held[s] != nil:
			continue
		case k.mine(h):
			wait = 0
		case len(parts) >= few && !alone:
			continue
		case h.Node != 0:
			wait += k.cfg.Term.Waits()
		}
		if now-k.since[s] < wait {
			continue
		}
		to := Head{k.cfg.Node, k.cfg.Incarnation, k.cfg.Boot, h.Epoch + 1, h.Beat + 1, 0}
		parts = append(parts, Part{Shard: s, Take: true, Was: h, To: to})
	}
	return parts
}

// alone reports whether no other node has a shard.
func (k *Keeper) alone() bool {
	for _, h := range k.heads {
		if by := h.Decides(); by != 0 && by != k.cfg.Node {
			return false
		}
	}
	return true
}

// mine reports whether a row is of an earlier process of this boot: it has ended, as the lock on the data directory
// shows, so that nobody waits for it. A new boot of the same node waits like all others.
func (k *Keeper) mine(h Head) bool {
	return h.Node == k.cfg.Node && h.Incarnation == k.cfg.Incarnation && h.Boot == k.cfg.Boot
}

func (k *Keeper) jitter() time.Duration { return time.Duration(k.cfg.Rand.Int64N(int64(time.Second))) }

// Result takes in the result of the newest call. Those of earlier ones are too late: what they carried went again.
func (k *Keeper) Result(now time.Duration, r Result) (e Events) {
	if k.open == nil || r.Number != k.open.call.Number || k.lost != nil {
		return e
	}
	o := k.open
	k.open = nil
	if k.lost = k.check(o, &r); k.lost != nil {
		for s := range k.held {
			e.Gone = append(e.Gone, k.drop(s)...)
		}
		return e
	}
	k.memory.Origin = r.Origin
	for i := range o.call.Parts {
		k.carried(&o.call.Parts[i], &r, i, &e)
	}
	k.learn(now, o, &r, &e)
	k.look(now, o.sent, r.Heads)
	e.Heads = r.Heads
	return e
}

// carried takes in what became of a part.
func (k *Keeper) carried(p *Part, r *Result, i int, e *Events) {
	s := p.Shard
	if p.Take {
		k.vain = 0
	}
	switch {
	case !r.Done[i]:
		e.Gone = append(e.Gone, k.drop(s)...)
	case p.Take:
		head := r.Heads[s]
		k.held[s] = &holding{head, head.Beat, head.Beat}
		k.count++
		k.Granted(s, Mark{head.Epoch, head.Beat})
		silent := p.Was.Node != 0 && !k.mine(p.Was)
		e.Taken = append(e.Taken, Taken{s, r.Books[s], silent})
	case p.To.Node == 0:
		e.Acked = append(e.Acked, s)
		e.Gone = append(e.Gone, k.drop(s)...)
	default:
		k.held[s].acked = p.To.Beat
		k.Granted(s, Mark{p.To.Epoch, p.To.Beat})
		e.Acked = append(e.Acked, s)
	}
}

func (k *Keeper) drop(s int) []int {
	if k.held[s] == nil {
		return nil
	}
	k.held[s] = nil
	k.count--
	return []int{s}
}

// look notes since when each row is the same. Beats that nobody has acknowledged yet may be seen and vanish again; both
// only begin the wait anew.
func (k *Keeper) look(now, sent time.Duration, heads *[Shards]Head) {
	anew := !k.hasRead || sent-k.read > Gap
	for s, h := range heads {
		if anew || h != k.heads[s] {
			k.heads[s], k.since[s] = h, now
		}
	}
	k.read, k.hasRead = now, true
}

// check finds out whether the engine is the one that this node has written to, with all of that.
func (k *Keeper) check(o *opened, r *Result) error {
	if was := k.memory.Origin; was.System != 0 && was.System != r.Origin.System {
		return fmt.Errorf("the database is another one: its system identifier is %d, not %d", r.Origin.System,
			was.System)
	} else if r.Origin.Timeline < was.Timeline {
		return fmt.Errorf("the database went back from timeline %d to %d", was.Timeline, r.Origin.Timeline)
	}
	first, older := 0, 0
	for s, m := range o.marks {
		if h := r.Heads[s]; (Mark{h.Epoch, h.Beat}).Before(m) {
			if older++; older == 1 {
				first = s
			}
		}
	}
	if older > 0 {
		h, m := r.Heads[first], o.marks[first]
		return fmt.Errorf("the database has lost writes: %d of %d shards are older than this node knows them; shard "+
			"%d is at epoch %d, beat %d, and was at %d, %d", older, Shards, first, h.Epoch, h.Beat, m.Epoch, m.Beat)
	}
	return nil
}
