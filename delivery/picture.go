package delivery

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/parking"
)

// Hosts lists what is known of the first n hosts behind a place, see [destdb.DB.Hosts]. Deliveries
// wait for it, some microseconds for each host: whoever wants all takes a few hundred at a time.
func (s *Scheduler) Hosts(after destdb.HostKey, n int) []destdb.HostInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.Hosts(after, n)
}

// HostsAt lists the hosts at an IP address, one for each port.
func (s *Scheduler) HostsAt(ip netip.Addr) []destdb.HostInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.HostsAt(ip)
}

// SiteInfo is what is known of a site, and its lanes.
type SiteInfo struct {
	destdb.SiteInfo
	Lanes []LaneInfo // by source
}

// Sites lists the first n sites by name, those behind a name. As with Hosts, deliveries wait for it.
func (s *Scheduler) Sites(after string, n int) []SiteInfo {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	sites := s.db.Sites(after, n)
	list := make([]SiteInfo, len(sites))
	for i := range sites {
		list[i] = SiteInfo{sites[i], s.lanesOf(sites[i].Name, now)}
	}
	return list
}

// Site gives the site of that name, and says whether one is known.
func (s *Scheduler) Site(name string) (SiteInfo, bool) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	site, ok := s.db.SiteNamed(name)
	return SiteInfo{site, s.lanesOf(name, now)}, ok
}

// Forget makes hosts unknown again; it returns how many were known.
func (s *Scheduler) Forget(hosts []netip.AddrPort) int {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.db.Forget(hosts)
	for _, l := range s.lanes {
		l.run(now)
	}
	return n
}

// LaneInfo is a lane for 'mta explain': the mail from one source to one site.
type LaneInfo struct {
	Site, Source string
	Waiting      int            // parts that no connection has
	Running      int            // parts on connections
	Carried      int            // recipients of those
	CarriedOf    map[string]int // of these, by tenant; without those that have none
	Opening      int            // connections on their way
	Hosts        []destdb.HostKey
	// Why is what the first of those that wait waits for, or why nothing is taken that could wait; ""
	// when neither is so. Until is when that changes, where it is known. Tenant is the one whose rate it is,
	// and only that one's mail waits; "" when it holds for all.
	Why       string
	Until     time.Time
	Tenant    string
	Waits     parking.Reason // the class of that; Unclassed without a Why
	Down      time.Time      // since when no host is known to work; zero: one is
	Oldest    time.Time      // when the oldest that waits was submitted
	Limits    Limits
	SlowStart int       // connections that the site has earned
	Draining  *Draining // a backlog after an outage; nil when there is none
}

// lanesOf lists a site's lanes by source.
func (s *Scheduler) lanesOf(site string, now time.Time) []LaneInfo {
	var list []LaneInfo
	for _, l := range s.bySite[site] {
		list = append(list, l.info(now))
	}
	slices.SortStableFunc(list, func(a, b LaneInfo) int { return strings.Compare(a.Source, b.Source) })
	return list
}

func (l *lane) info(now time.Time) LaneInfo {
	i := LaneInfo{Site: l.laneKey.site, Source: l.laneKey.source, Waiting: l.waiting.n, Running: l.running,
		Carried: l.carried, Opening: l.opening,
		Limits: l.limits, SlowStart: l.slowStart()}
	for name, a := range l.waiting.accounts {
		if a.carried > 0 {
			if i.CarriedOf == nil {
				i.CarriedOf = make(map[string]int)
			}
			i.CarriedOf[name] = a.carried
		}
	}
	for _, paths := range l.tiers {
		for _, p := range paths {
			i.Hosts = append(i.Hosts, destdb.HostKey{Name: p.Host.Name, Addr: p.Host.Addr})
		}
	}
	if l.waiting.n > 0 {
		why := l.reason(now)
		i.Why, i.Until, i.Tenant, i.Oldest = why.What, why.Until, why.Tenant, l.waiting.oldest.work.since
		i.Waits = cmp.Or(why.Waits, parking.Turn)
	}
	if l.prospects(now) != laneWorks {
		r, host, until := l.outOfService(now)
		i.Waits = l.s.cfg.Classes.Of(&r, l.route.Provider).Waits(&r)
		if p, _ := firstToRetry(l.tiers, now); p != nil && p.Suspension(now) != nil {
			i.Waits = parking.Suspended
		}
		i.Down = l.downSince(now)
		if l.waiting.n == 0 {
			i.Why, i.Until = answer(r, host), until
		}
	}
	if l.drain.active() {
		i.Draining = l.drain.picture(now)
	}
	return i
}

// actionsAtOnce is how many sites or hosts are looked at while deliveries wait: some microseconds.
const actionsAtOnce = 500

// Suspensions lists what is suspended now: sites, and single hosts by their address.
func (s *Scheduler) Suspensions() (list []destdb.Suspension) {
	now := s.cfg.Now()
	add := func(some []destdb.Suspension) {
		for _, a := range some {
			if a.What == suspended && now.Before(a.End) {
				list = append(list, a)
			}
		}
	}
	for site, more := "", true; more; more = site != "" {
		s.mu.Lock()
		some, last := s.db.SiteActions(site, actionsAtOnce)
		s.mu.Unlock()
		add(some)
		site = last
	}
	for host, more := (destdb.HostKey{}), true; more; more = host != (destdb.HostKey{}) {
		s.mu.Lock()
		some, last := s.db.HostActions(host, actionsAtOnce)
		s.mu.Unlock()
		add(some)
		host = last
	}
	return list
}
