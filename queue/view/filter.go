package view

import (
	"math"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// State is what a recipient is doing, as far as the queue knows. Operators see the states of
// internal/envelope, where a leased recipient is waiting, active or ending.
type State = schedule.State

// The states of a recipient.
const (
	StateDue        = schedule.Due        // is handed out as soon as Next is called
	StateDeferred   = schedule.Deferred   // waits for its next attempt
	StateParked     = schedule.Parked     // waits under its key until it is taken
	StateHeld       = schedule.Held       // an operator stopped it
	StateLeased     = schedule.Leased     // handed out
	StateEnding     = schedule.Ending     // is about to be bounced
	StateUnreadable = schedule.Unreadable // its record is damaged
)

// Filter selects recipients. All conditions that are set must hold; the zero Filter selects all.
type Filter struct {
	States    []State
	Key       parking.Key // what it waits, or last waited, for; zero for any
	Domain    string      // of the recipient, A-label form; "*.example.com" is all below it
	Recipient string      // address, in any case; "@example.com" is all of a domain
	Sender    string      // the same; "<>" is the null sender
	Tenant    string
	Campaign  string
	Tag       string        // one of the message's
	OlderThan time.Duration // accepted at least so long ago
	NewerThan time.Duration // accepted at most so long ago
	// Leased selects among those that are handed out, where States has StateLeased: only their holder
	// knows what they are doing. ending is as in ItemRecipient. It is called without any lock; nil
	// selects all.
	Leased func(id envelope.ID, recipient int, ending bool) bool
	// Waits selects by the line that a recipient waits, or last waited, in, and its state; nil selects all. It is
	// called without any lock.
	Waits func(parking.Line, State) bool
	// Last selects by the last attempt, which is read from the disk: the zero Attempt where there was none. Nil
	// selects all.
	Last func(parking.Line, *store.Attempt) bool
}

// needsEnvelope reports whether the envelope must be read to know.
func (f *Filter) needsEnvelope() bool {
	return f.Domain != "" || f.Recipient != "" || f.Sender != "" || f.Tenant != "" || f.Campaign != "" || f.Tag != ""
}

// SelectsMessage reports whether the message of an envelope is selected.
func (f *Filter) SelectsMessage(m *envelope.Message) bool {
	return matchAddress(f.Sender, m.Sender) &&
		(f.Tenant == "" || f.Tenant == m.Tenant) && (f.Campaign == "" || f.Campaign == m.Campaign) &&
		(f.Tag == "" || slices.Contains(m.Tags, f.Tag))
}

// SelectsRecipient reports whether a recipient of a selected message is.
func (f *Filter) SelectsRecipient(r *envelope.Recipient) bool {
	return matchAddress(f.Recipient, r.Address) && matchDomain(f.Domain, r.Address)
}

func matchAddress(want string, a envelope.Address) bool {
	switch {
	case want == "":
		return true
	case want == "<>":
		return a.Null()
	case want[0] == '@':
		return strings.EqualFold(want[1:], a.Domain())
	}
	return strings.EqualFold(want, string(a))
}

func matchDomain(want string, a envelope.Address) bool {
	if want == "" {
		return true
	}
	domain := a.Domain()
	if below, wide := strings.CutPrefix(want, "*"); wide && strings.HasPrefix(below, ".") {
		return len(domain) > len(below) && strings.EqualFold(domain[len(domain)-len(below):], below)
	}
	return strings.EqualFold(want, domain)
}

// IsZero reports whether all is selected.
func (f *Filter) IsZero() bool {
	return len(f.States) == 0 && f.Key == (parking.Key{}) && f.OlderThan == 0 && f.NewerThan == 0 &&
		!f.needsEnvelope() && f.Waits == nil && f.Last == nil
}

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

// pick brings the picker up to date. The caller has the lock of the schedule.
func (p *picker) pick(s *schedule.Schedule, f *Filter) {
	if domain, ok := f.oneDomain(); ok && !p.anyDomain && p.domainsSeen != s.Domains.Version+1 {
		p.domainsSeen = s.Domains.Version + 1
		p.pickDomain(s, domain)
	}
	if (f.Tenant != "" || f.Campaign != "" || f.Sender != "") && p.originsSeen != s.Origins.Version+1 {
		p.originsSeen = s.Origins.Version + 1
		p.pickOrigins(s, f)
	}
}

func (p *picker) pickDomain(s *schedule.Schedule, domain string) {
	if s.Domains.Scattered(domain) {
		p.anyDomain, p.domains = true, nil
		return
	}
	p.domains.add(0)
	if n, ok := s.Domains.Find(domain); ok {
		p.domains.add(n)
	}
}

// pickOrigins picks the origins that a filter can mean. Those of a tenant that have lost numbers are all picked: what
// is counted under one may belong to another.
func (p *picker) pickOrigins(s *schedule.Schedule, f *Filter) {
	sender, oneSender := domainOf(f.Sender)
	p.origins.add(0)
	for tenant, of := range s.Origins.Families {
		if f.Tenant != "" && tenant != f.Tenant {
			continue
		}
		for _, n := range of.Numbers {
			o := &s.Origins.All[n].Name
			if of.Lossy || o.Folded || (f.Campaign == "" || o.Campaign == f.Campaign) &&
				(!oneSender || o.Sender == sender) {
				p.origins.add(n)
			}
		}
	}
}

// oneDomain gives the only domain whose recipients a filter selects; false when there may be several.
func (f *Filter) oneDomain() (string, bool) {
	if f.Domain != "" && !strings.HasPrefix(f.Domain, "*") && envelope.Address(f.Domain).ASCII() {
		return strings.ToLower(f.Domain), true
	}
	return domainOf(f.Recipient)
}

// domainOf gives the domain of the addresses that a filter's word selects; false for "" and for what is not ASCII, of
// which there are several spellings.
func domainOf(word string) (string, bool) {
	switch {
	case word == "" || !envelope.Address(word).ASCII():
		return "", false
	case word == "<>":
		return "", true
	case word[0] == '@':
		return strings.ToLower(word[1:]), true
	}
	return envelope.Address(word).Domain(), true
}
