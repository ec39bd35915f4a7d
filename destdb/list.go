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
	Source string
	State  State
	Broken Broken
	Made   time.Time
	Conns  []ConnInfo // newest first
}

// ConnInfo is a connection for a listing.
type ConnInfo struct {
	Site      string
	Phase     Phase
	Made      time.Time
	Since     time.Time // busy or idle since
	Backlog   int
	Delivered int
}

// SiteInfo is a site for a listing.
type SiteInfo struct {
	Site
	Live int
}

// Hosts lists the hosts by name and address.
func (db *DB) Hosts() []HostInfo {
	infos := make(map[*Host]*HostInfo, len(db.hosts))
	for _, h := range db.hosts {
		i := &HostInfo{Addr: h.Addr, Name: h.Name, Broken: h.Broken, Facts: h.Facts, Used: h.used}
		i.Facts.Extensions = slices.Clone(h.Facts.Extensions)
		i.Suspensions = slices.Clone(h.Suspensions)
		infos[h] = i
	}
	for _, p := range db.paths {
		infos[p.Host].Paths = append(infos[p.Host].Paths, p.info())
	}
	list := make([]HostInfo, 0, len(infos))
	for _, i := range infos {
		slices.SortFunc(i.Paths, func(a, b PathInfo) int { return strings.Compare(a.Source, b.Source) })
		list = append(list, *i)
	}
	slices.SortFunc(list, func(a, b HostInfo) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr))
	})
	return list
}

func (p *Path) info() PathInfo {
	i := PathInfo{Source: p.Source, State: p.State(), Broken: p.Broken, Made: p.Made}
	for _, c := range p.conns {
		i.Conns = append(i.Conns, ConnInfo{c.Site.Name, c.Phase, c.Made, c.Since, c.Backlog, c.Delivered})
	}
	return i
}

// Sites lists the sites by name.
func (db *DB) Sites() []SiteInfo {
	list := make([]SiteInfo, 0, len(db.sites))
	for _, s := range db.sites {
		i := SiteInfo{Site: *s, Live: s.live}
		i.Actions = slices.Clone(s.Actions)
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b SiteInfo) int { return strings.Compare(a.Name, b.Name) })
	return list
}
