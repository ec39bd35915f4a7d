package sts

import (
	"container/list"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// entry is what is known of a domain.
type entry struct {
	domain   string
	policy   *Policy // nil: none could be found
	id       string  // that the policy was published under
	fetched  time.Time
	next     time.Time // when the domain is looked at again, if there is mail for it
	used     time.Time // when mail last asked for it
	failure  *Failure  // of the last attempt; nil after a good one
	failures int       // in a row
}

// none stands for the policy of a domain without one.
var none = &Policy{}

// demand is the entry's policy, or the one that demands nothing.
func (e *entry) demand() *Policy {
	if e.policy == nil {
		return none
	}
	return e.policy
}

func (e *entry) lifetime() time.Duration { return max(e.policy.MaxAge, minLifetime) }
func (e *entry) expires() time.Time      { return e.fetched.Add(e.lifetime()) }

// holds reports whether the entry has a policy that has not expired.
func (e *entry) holds(now time.Time) bool { return e.policy != nil && now.Before(e.expires()) }

// counts reports whether mail may go by the entry.
func (e *entry) counts(now time.Time) bool {
	if e.policy == nil {
		return now.Sub(e.failure.At) < absentFor
	}
	return e.holds(now)
}

// fresh reports whether the policy does not have to be fetched again while its id is the same.
func (e *entry) fresh(now time.Time) bool {
	return e.holds(now) && now.Sub(e.fetched) < min(renewAfter, e.lifetime()/2)
}

// fail notes that the domain could not be looked at, and when to try again.
func (e *entry) fail(f *Failure) {
	e.failure = f
	e.failures++
	wait := checkAfter
	if f.Kind != Absent {
		wait = min(retryAfter<<min(e.failures-1, 10), checkAfter)
	}
	e.next = f.At.Add(wait)
}

// cost is about how much memory the entry takes, in octets.
func (e *entry) cost() int {
	n := 400 + 2*len(e.domain) + len(e.id)
	if e.policy != nil {
		for _, mx := range e.policy.MX {
			n += 16 + len(mx)
		}
	}
	return n
}

// record is a policy as it is kept over restarts.
type record struct {
	ID      string    `json:"id"`
	Mode    string    `json:"mode"`
	MX      []string  `json:"mx,omitempty"`
	MaxAge  int64     `json:"max_age"` // in seconds
	Fetched time.Time `json:"fetched"`
	Used    time.Time `json:"used"`
}

func (e *entry) encode() ([]byte, error) {
	p := e.policy
	return json.Marshal(record{e.id, p.Mode.String(), p.MX, int64(p.MaxAge / time.Second), e.fetched, e.used})
}

// decode reads a record. Times that lie ahead were written while the clock was wrong, and become now.
func decode(domain string, value []byte, now time.Time) (*entry, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, err
	}
	p := draft{Policy: Policy{MaxAge: lifetime(r.MaxAge)}}
	if err := p.setMode(r.Mode); err != nil {
		return nil, err
	}
	for _, mx := range r.MX {
		if err := p.addMX(mx); err != nil {
			return nil, err
		}
	}
	if !isDomain(domain) {
		return nil, fmt.Errorf("not a domain: %q", domain)
	}
	for _, t := range []*time.Time{&r.Fetched, &r.Used} {
		if t.After(now) {
			*t = now
		}
	}
	return &entry{domain: domain, policy: &p.Policy, id: r.ID, fetched: r.Fetched, used: r.Used, next: now}, nil
}

// shelf holds entries up to a budget in octets: those that were used longest ago go first.
type shelf struct {
	budget, size int
	entries      map[string]*list.Element
	recent       *list.List // of *entry, the latest used in front
}

func newShelf(budget int) *shelf {
	return &shelf{budget: budget, entries: make(map[string]*list.Element), recent: list.New()}
}

// get gives the entry of a domain, nil when there is none, and counts as its use.
func (s *shelf) get(domain string) *entry {
	el := s.entries[domain]
	if el == nil {
		return nil
	}
	s.recent.MoveToFront(el)
	return el.Value.(*entry)
}

// put adds an entry, in place of the domain's former one, and returns those for which there is no space any more.
func (s *shelf) put(e *entry) (gone []*entry) {
	s.drop(e.domain)
	s.entries[e.domain] = s.recent.PushFront(e)
	s.size += e.cost()
	for s.size > s.budget && s.recent.Len() > 1 {
		last := s.recent.Back().Value.(*entry)
		s.drop(last.domain)
		gone = append(gone, last)
	}
	return gone
}

func (s *shelf) drop(domain string) {
	if el := s.entries[domain]; el != nil {
		delete(s.entries, domain)
		s.size -= s.recent.Remove(el).(*entry).cost()
	}
}

func (s *shelf) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for el := s.recent.Front(); el != nil; {
			next := el.Next() // el may be dropped meanwhile
			if !yield(el.Value.(*entry)) {
				return
			}
			el = next
		}
	}
}

func (s *shelf) len() int { return s.recent.Len() }
