package queue

import (
	"math"
	"strings"

	"example.org/mta/internal/envelope"
)

// picked are the numbers of names that a filter can mean: only recipients with one of them are looked at further. nil
// is all numbers.
type picked []uint64

func (p picked) has(n uint16) bool { return p == nil || p[n>>6]&(1<<(n&63)) != 0 }

func (p *picked) add(n uint16) {
	if *p == nil {
		*p = make(picked, (math.MaxUint16+1)/64)
	}
	(*p)[n>>6] |= 1 << (n & 63)
}

// picker finds the numbers that a filter can mean. Names get and lose numbers while a walk goes on, so it looks again
// when they have, and keeps what it found before.
type picker struct {
	domains, origins         picked
	domainsSeen, originsSeen uint64 // versions of the names, one more each
	anyDomain                bool   // the domain has recipients under numbers that it has lost
}

// pick brings the picker up to date. The caller has q.mu.
func (p *picker) pick(q *Queue, f *Filter) {
	if domain, ok := f.oneDomain(); ok && !p.anyDomain && p.domainsSeen != q.domains.Version+1 {
		p.domainsSeen = q.domains.Version + 1
		p.pickDomain(q, domain)
	}
	if (f.Tenant != "" || f.Campaign != "" || f.Sender != "") && p.originsSeen != q.origins.Version+1 {
		p.originsSeen = q.origins.Version + 1
		p.pickOrigins(q, f)
	}
}

func (p *picker) pickDomain(q *Queue, domain string) {
	if q.domains.Scattered(domain) {
		p.anyDomain, p.domains = true, nil
		return
	}
	p.domains.add(0)
	if n, ok := q.domains.Find(domain); ok {
		p.domains.add(n)
	}
}

// pickOrigins picks the origins that a filter can mean. Those of a tenant that have lost numbers are all picked: what
// is counted under one may belong to another.
func (p *picker) pickOrigins(q *Queue, f *Filter) {
	sender, oneSender := domainOf(f.Sender)
	p.origins.add(0)
	for tenant, of := range q.origins.Families {
		if f.Tenant != "" && tenant != f.Tenant {
			continue
		}
		for _, n := range of.Numbers {
			o := &q.origins.All[n].Name
			if of.Lossy || o.Folded || (f.Campaign == "" || o.Campaign == f.Campaign) && (!oneSender || o.Sender == sender) {
				p.origins.add(n)
			}
		}
	}
}

// oneDomain gives the only domain whose recipients a filter selects; false when there may be several.
func (f *Filter) oneDomain() (string, bool) {
	if f.Domain != "" && !strings.HasPrefix(f.Domain, "*") && isASCII(f.Domain) {
		return strings.ToLower(f.Domain), true
	}
	return domainOf(f.Recipient)
}

// domainOf gives the domain of the addresses that a filter's word selects; false for "" and for what is not ASCII, of
// which there are several spellings.
func domainOf(word string) (string, bool) {
	switch {
	case word == "" || !isASCII(word):
		return "", false
	case word == "<>":
		return "", true
	case word[0] == '@':
		return strings.ToLower(word[1:]), true
	}
	return envelope.Address(word).Domain(), true
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0
}
