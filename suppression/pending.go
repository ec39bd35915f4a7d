package suppression

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"example.org/mta/internal/envelope"
)

// maxPending bounds the entries that are set aside. What is beyond is forgotten: the next refusal brings it again.
const maxPending = 100_000

// pending are the entries that were set aside, and the hashes of their addresses: each delivery asks for its own.
type pending struct {
	list *List
	seed maphash.Seed
	used atomic.Int64 // len(marks), for those who don't want the lock
	lost atomic.Int64 // entries for which there was no space

	mu    sync.RWMutex // guards marks
	marks map[uint64]struct{}

	moving sync.Mutex // held while entries go from the list to those set aside, or back
}

func openPending(ctx context.Context, list *List) (*pending, error) {
	p := &pending{list: list, seed: maphash.MakeSeed(), marks: make(map[uint64]struct{})}
	return p, p.markAll(ctx)
}

// markAll marks all addresses that are set aside.
func (p *pending) markAll(ctx context.Context) error {
	return p.list.Each(ctx, Query{}, func(some []Entry) error {
		p.mark(some...)
		return nil
	})
}

// hash is that of an address, whatever mail it was.
func (p *pending) hash(address string) uint64 { return maphash.String(p.seed, address) }

// mark notes the addresses of entries that are set aside.
func (p *pending) mark(entries ...Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range entries {
		p.marks[p.hash(entries[i].Address)] = struct{}{}
	}
	p.used.Store(int64(len(p.marks)))
}

// unmark forgets the addresses of entries.
func (p *pending) unmark(entries []Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range entries {
		delete(p.marks, p.hash(entries[i].Address))
	}
	p.used.Store(int64(len(p.marks)))
}

// has reports whether an address is set aside for some tenant's mail.
func (p *pending) has(a envelope.Address) bool {
	if p.used.Load() == 0 {
		return false
	}
	h := p.hash(KeyOf("", a).Address)
	p.mu.RLock()
	defer p.mu.RUnlock()
	_, yes := p.marks[h]
	return yes
}

// room is for how many more entries there is room.
func (p *pending) room() int { return max(0, maxPending-int(p.used.Load())) }

// add sets an entry aside. It doesn't wait for the disk.
func (p *pending) add(e Entry) {
	if p.room() == 0 {
		p.lost.Add(1)
		return
	}
	p.list.Feed(e)
	p.mark(e)
}

// move sets entries aside that are on the list, and says how many.
func (p *pending) move(ctx context.Context, from *List, q Query) (int, error) {
	p.moving.Lock()
	defer p.moving.Unlock()
	return from.Take(ctx, q, nil, func(ctx context.Context, some []Entry) error {
		if n := p.room(); n < len(some) {
			p.lost.Add(int64(len(some) - n))
			some = some[:n]
		}
		p.mark(some...)
		_, err := p.list.Merge(ctx, some)
		return err
	})
}

// take takes entries from those set aside: to the list, or nil: away. It says how many; agree is as for List.Take.
func (p *pending) take(ctx context.Context, to *List, q Query, agree func(n int) error) (int, error) {
	p.moving.Lock()
	defer p.moving.Unlock()
	n, err := p.list.Take(ctx, q, agree, func(ctx context.Context, some []Entry) error {
		if to != nil {
			if _, err := to.Merge(ctx, some); err != nil {
				return err
			}
		}
		p.unmark(some)
		return nil
	})
	if n > 0 && err == nil {
		err = p.markAll(ctx) // another tenant's entry of the same address
	}
	return n, err
}

// clear takes the entries of addresses away, for all mail, and says how many.
func (p *pending) clear(ctx context.Context, addresses []string) (int, error) {
	tenants, err := p.list.Tenants(ctx)
	if err != nil {
		return 0, err
	}
	entries := make([]Entry, 0, len(addresses)*len(tenants))
	keys := make([]Key, 0, cap(entries))
	for _, tenant := range tenants {
		for _, a := range addresses {
			k := Key{Tenant: tenant, Address: a}
			keys, entries = append(keys, k), append(entries, Entry{Key: k})
		}
	}
	n, err := p.list.Remove(ctx, keys)
	if err == nil {
		p.unmark(entries)
	}
	return n, err
}
