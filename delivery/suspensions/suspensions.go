// Package suspensions has the nodes of a cluster share operators' suspensions of sites and hosts. They are a kind of
// changes, kept in each node's picture of destinations. Suspensions that a relay makes by itself are its own.
package suspensions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
)

// Shared is a scheduler whose suspensions are shared. It implements changes.Kind, and is safe for concurrent use.
type Shared struct {
	*delivery.Scheduler
	// Note is called with keys before they change, and what it returns after that. Nil: nobody shares them.
	Note func(keys []string) (done func(), err error)

	mu sync.Mutex // one change at a time
}

// key is what is suspended: a site or a host.
type key struct {
	Site   string         `json:"site,omitempty"`
	Host   netip.AddrPort `json:"host,omitzero"`
	Source string         `json:"source,omitempty"` // from which; "": from any
}

func (k key) String() string {
	text, _ := json.Marshal(k) // strings are always valid JSON
	return string(text)
}

func parseKey(text string) (k key, err error) {
	err = json.Unmarshal([]byte(text), &k)
	if err == nil && (k.String() != text || (k.Site == "") != k.Host.IsValid()) {
		err = errors.New("not a valid key of a suspension (want a site or a host)")
	}
	return k, err
}

// value is a suspension.
type value struct {
	Name   string    `json:"name,omitempty"` // the host's
	Reason string    `json:"reason"`
	Begin  time.Time `json:"begin"`
	Until  time.Time `json:"until"`
}

func parse(name string, text []byte) (k key, v value, err error) {
	if k, err = parseKey(name); err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err == nil && (v.Reason == "" || v.Begin.IsZero() || !v.Until.After(v.Begin) || v.Until.Sub(v.Begin) > longest) {
		err = errors.New("not a valid suspension (want a reason, and an end within 31 days)")
	}
	return k, v, err
}

// longest is the longest suspension: operators can't ask for more.
const longest = 31 * 24 * time.Hour

// noted has others hear of what happens to some keys. It is durable then.
func (s *Shared) noted(change func(), keys ...key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Note == nil || len(keys) == 0 {
		change()
		return nil
	}
	var names []string
	for _, k := range keys {
		names = append(names, k.String())
	}
	done, err := s.Note(names)
	if err != nil {
		return err
	}
	defer done()
	change()
	return s.Flush()
}

// Suspend sends nothing to a site for a while: see delivery.
func (s *Shared) Suspend(site, source, reason string, until time.Time) error {
	return s.noted(func() { s.Scheduler.Suspend(site, source, reason, until) }, key{Site: site, Source: source})
}

// Resume ends all suspensions of a site: see delivery.
func (s *Shared) Resume(site string) (ended int, err error) {
	keys := []key{{Site: site}}
	for _, a := range s.Suspensions() {
		if a.Site == site {
			keys = append(keys, key{Site: site, Source: a.Source})
		}
	}
	err = s.noted(func() { ended = s.Scheduler.Resume(site) }, keys...)
	return ended, err
}

// SuspendHosts sends nothing to hosts for a while: see delivery.
func (s *Shared) SuspendHosts(hosts []netip.AddrPort, source, reason string, until time.Time) (n int, err error) {
	var keys []key
	for _, h := range hosts {
		keys = append(keys, key{Host: h, Source: source})
	}
	err = s.noted(func() { n = s.Scheduler.SuspendHosts(hosts, source, reason, until) }, keys...)
	return n, err
}

// ResumeHosts ends all suspensions of hosts: see delivery.
func (s *Shared) ResumeHosts(hosts []netip.AddrPort) (n, ended int, err error) {
	var keys []key
	for _, h := range hosts {
		keys = append(keys, key{Host: h})
	}
	for _, a := range s.Suspensions() {
		if slices.Contains(hosts, a.Host) {
			keys = append(keys, key{Host: a.Host, Source: a.Source})
		}
	}
	err = s.noted(func() { n, ended = s.Scheduler.ResumeHosts(hosts) }, keys...)
	return n, ended, err
}

// byOperators are the suspensions of operators that are in force.
func (s *Shared) byOperators() []destdb.Suspension {
	return slices.DeleteFunc(s.Suspensions(), func(a destdb.Suspension) bool { return a.Waits != parking.Unclassed })
}

// all are those by key; of several the one that ends last.
func (s *Shared) all() (map[string][]byte, error) {
	last, all := make(map[string]time.Time), make(map[string][]byte)
	for _, a := range s.byOperators() {
		k := key{Site: a.Site, Host: a.Host, Source: a.Source}
		name := k.String()
		if !a.End.After(last[name]) {
			continue
		}
		text, err := json.Marshal(value{Name: a.Name, Reason: a.Reason, Begin: a.Begin, Until: a.End})
		if err != nil {
			return nil, err
		}
		last[name], all[name] = a.End, text
	}
	return all, nil
}

// All implements changes.Kind.
func (s *Shared) All(_ context.Context, each func(keys []string) error) error {
	all, err := s.all()
	if err != nil {
		return err
	}
	return each(slices.Sorted(maps.Keys(all)))
}

// Get implements changes.Kind.
func (s *Shared) Get(context.Context, []string) (map[string][]byte, error) { return s.all() }

// Look implements changes.Kind.
func (s *Shared) Look(name string, text []byte) (rank int, until time.Time, err error) {
	_, v, err := parse(name, text)
	return 1, v.Until, err
}

// Apply implements changes.Kind. A removal ends what operators have suspended, and what the relay has by itself.
func (s *Shared) Apply(_ context.Context, values map[string][]byte, stays func(key string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var orders []delivery.Order
	for _, name := range slices.Sorted(maps.Keys(values)) {
		k, err := parseKey(name)
		o := delivery.Order{Site: k.Site, Host: route.Host{Addr: k.Host}, Source: k.Source, End: true}
		if text := values[name]; text != nil {
			var v value
			if k, v, err = parse(name, text); err != nil {
				return fmt.Errorf("a suspension: %w", err)
			}
			o.Host.Name, o.Reason, o.Begin, o.Until = v.Name, v.Reason, v.Begin, v.Until
			o.End = false
		}
		if err == nil && !stays(name) {
			orders = append(orders, o)
		}
	}
	s.Order(orders)
	return s.Flush()
}
