package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Usage is what a tenant has in the queue.
type Usage struct {
	Messages int64
	Octets   int64 // of their contents
}

// Tenants counts messages by tenant. It has 16 octets for each message of a tenant, and none for mail that
// has none.
type Tenants struct {
	all    []tenant // by number; 0 is nobody
	byName map[string]uint32
	free   []uint32
	pages  []ownedPage // by id, none of them empty
}

type tenant struct {
	name string
	Usage
}

// owned is a message of a tenant.
type owned struct {
	id     uint64
	tenant uint32 // 0: not in the queue any more
	octets uint32 // of the content; math.MaxUint32 stands for all that are larger
}

// ownedPage is messages in order of id.
type ownedPage struct {
	last   uint64 // id of the last of all
	living int
	all    []owned
}

const (
	pageLen = 4096
	// pageLeast is the length up to which a page keeps what is gone: to save less is not worth a copy.
	pageLeast = 64
)

// NewTenants makes an empty count.
func NewTenants() Tenants { return Tenants{all: make([]tenant, 1), byName: map[string]uint32{}} }

// Add counts a message. Ids grow from call to call.
func (t *Tenants) Add(id uint64, name string, octets int64) {
	if name == "" {
		return
	}
	o := owned{id, t.number(name), uint32(min(octets, math.MaxUint32))}
	last := len(t.pages) - 1
	if last < 0 || len(t.pages[last].all) >= pageLen {
		t.pages = append(t.pages, ownedPage{})
		last++
	}
	p := &t.pages[last]
	p.all, p.last = append(p.all, o), id
	p.living++
	t.all[o.tenant].Messages++
	t.all[o.tenant].Octets += int64(o.octets)
}

// Remove ends the count of a message; one without a tenant is not counted.
func (t *Tenants) Remove(id uint64) {
	at, _ := slices.BinarySearchFunc(t.pages, id, func(p ownedPage, id uint64) int { return cmp.Compare(p.last, id) })
	if at == len(t.pages) {
		return
	}
	p := &t.pages[at]
	i, ok := slices.BinarySearchFunc(p.all, id, func(o owned, id uint64) int { return cmp.Compare(o.id, id) })
	if !ok || p.all[i].tenant == 0 {
		return
	}
	t.forget(p.all[i])
	p.all[i].tenant = 0
	switch p.living--; {
	case p.living == 0:
		t.pages = slices.Delete(t.pages, at, at+1)
	case len(p.all) > pageLeast && p.living*2 < len(p.all):
		p.all = slices.Clone(slices.DeleteFunc(p.all, func(o owned) bool { return o.tenant == 0 }))
	}
}

// forget takes a message off its tenant's count, and the tenant's name when it was the last.
func (t *Tenants) forget(o owned) {
	of := &t.all[o.tenant]
	of.Messages--
	of.Octets -= int64(o.octets)
	if of.Messages == 0 {
		delete(t.byName, of.name)
		*of = tenant{}
		t.free = append(t.free, o.tenant)
	}
}

// number returns the number of a tenant, a new one when it has nothing in the queue.
func (t *Tenants) number(name string) uint32 {
	if n, ok := t.byName[name]; ok {
		return n
	}
	n := uint32(len(t.all))
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
	} else {
		t.all = append(t.all, tenant{})
	}
	t.all[n].name = name
	t.byName[name] = n
	return n
}

// Usage is what a tenant has.
func (t *Tenants) Usage(name string) Usage { return t.all[t.byName[name]].Usage }

// Usages is what each tenant has; those with nothing are left out.
func (t *Tenants) Usages() map[string]Usage {
	all := make(map[string]Usage, len(t.byName))
	for name, n := range t.byName {
		all[name] = t.all[n].Usage
	}
	return all
}
