package destdb

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// HostInfo is a host for a listing, a copy of what the picture said at one instant.
type HostInfo struct {
	Addr   netip.AddrPort
	Name   string
	Broken Broken
	Facts  Facts
	Used   time.Time
	// Suspensions, those that are over included.
	Suspensions []Action
	Paths       []PathInfo
}

// PathInfo is a path for a listing.
type PathInfo struct {
	Source      string
	State       State
	Broken      Broken
	Made        time.Time
	Connections int
	Backlog     int // jobs that those have
}

// SiteInfo is a site for a listing.
type SiteInfo struct {
	Site
	Live int
}

// HostKey is the place of a host in listings: by name, then by address.
type HostKey struct {
	Name string
	Addr netip.AddrPort
}

// Compare puts hosts in the order of listings.
func (a HostKey) Compare(b HostKey) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
}

func (h *Host) place() HostKey { return HostKey{h.Name, h.Addr} }

// Key is the host's place in listings.
func (i *HostInfo) Key() HostKey { return HostKey{i.Name, i.Addr} }

// Hosts lists the first n hosts behind a place, the zero one for the beginning. Those with one name
// are behind the name without an address.
func (db *DB) Hosts(after HostKey, n int) []HostInfo {
	hosts := db.hostsInOrder.after(after, n)
	list := make([]HostInfo, len(hosts))
	for i, h := range hosts {
		list[i] = h.info()
	}
	return list
}

// HostsAt lists the hosts at an IP address, one for each port.
func (db *DB) HostsAt(ip netip.Addr) []HostInfo {
	list := make([]HostInfo, 0, len(db.hosts[ip]))
	for _, h := range db.hosts[ip] {
		list = append(list, h.info())
	}
	return list
}

func (h *Host) info() HostInfo {
	i := HostInfo{Addr: h.Addr, Name: h.Name, Broken: h.Broken, Facts: h.Facts, Used: h.used}
	i.Facts.Extensions = slices.Clone(h.Facts.Extensions)
	i.Suspensions = slices.Clone(h.Suspensions)
	for _, p := range h.paths {
		i.Paths = append(i.Paths, p.info())
	}
	slices.SortFunc(i.Paths, func(a, b PathInfo) int { return strings.Compare(a.Source, b.Source) })
	return i
}

func (p *Path) info() PathInfo {
	i := PathInfo{Source: p.Source, State: p.State(), Broken: p.Broken, Made: p.Made, Connections: len(p.conns)}
	for _, c := range p.conns {
		i.Backlog += c.Backlog
	}
	return i
}

// Sites lists the first n sites by name, those behind a name; "" is before all.
func (db *DB) Sites(after string, n int) []SiteInfo {
	sites := db.sitesInOrder.after(after, n)
	list := make([]SiteInfo, len(sites))
	for i, s := range sites {
		list[i] = s.info()
	}
	return list
}

// SiteNamed gives the site of that name, and says whether there is one in the picture.
func (db *DB) SiteNamed(name string) (SiteInfo, bool) {
	s := db.sites[name]
	if s == nil {
		return SiteInfo{}, false
	}
	return s.info(), true
}

func (s *Site) info() SiteInfo {
	i := SiteInfo{Site: *s, Live: s.live}
	i.Actions = slices.Clone(s.Actions)
	return i
}

// Suspension is an action at a site, or at one of its hosts when it has an address.
type Suspension struct {
	Site string
	Host netip.AddrPort
	Name string // of the host
	Action
}

// SiteActions lists the actions, those that are over included, of the first n sites behind a name; "" is before all. It
// returns the last of these names, "" when there are no more sites.
func (db *DB) SiteActions(after string, n int) (list []Suspension, last string) {
	sites := db.sitesInOrder.after(after, n)
	for _, s := range sites {
		for _, a := range s.Actions {
			list = append(list, Suspension{Site: s.Name, Action: a})
		}
	}
	if len(sites) == n {
		last = sites[n-1].Name
	}
	return list, last
}

// HostActions is SiteActions for hosts; the zero key is before all.
func (db *DB) HostActions(after HostKey, n int) (list []Suspension, last HostKey) {
	hosts := db.hostsInOrder.after(after, n)
	for _, h := range hosts {
		for _, a := range h.Suspensions {
			list = append(list, Suspension{Host: h.Addr, Name: h.Name, Action: a})
		}
	}
	if len(hosts) == n {
		last = hosts[n-1].place()
	}
	return list, last
}
