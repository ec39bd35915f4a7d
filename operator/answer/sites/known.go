package sites

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/operator/api"
)

// someAtOnce is how many sites or hosts are asked of delivery at once: whatever it decides waits
// until they are copied.
const someAtOnce = 250

// knownSites gives the sites behind a name that some patterns mean (see [api.Names]), by name. A
// site that is named in full is looked up; all others are come by in passing.
func knownSites(s Delivery, patterns []string, after string) iter.Seq[delivery.SiteInfo] {
	return func(yield func(delivery.SiteInfo) bool) {
		if inFull(patterns) {
			for _, name := range slices.Compact(slices.Sorted(slices.Values(lower(patterns)))) {
				if site, ok := s.Site(name); ok && name > after && !yield(site) {
					return
				}
			}
			return
		}
		for some := s.Sites(after, someAtOnce); len(some) > 0; some = s.Sites(after, someAtOnce) {
			for _, site := range some {
				if after = site.Name; api.Names(patterns, site.Name) && !yield(site) {
					return
				}
			}
		}
	}
}

// withQueued adds to the known sites those that only the queue has mail for; both come by name.
func withQueued(known iter.Seq[delivery.SiteInfo], keys []string) iter.Seq[delivery.SiteInfo] {
	return func(yield func(delivery.SiteInfo) bool) {
		// upTo gives those before a name.
		upTo := func(name string) bool {
			for len(keys) > 0 && keys[0] < name {
				var s delivery.SiteInfo
				s.Name, keys = keys[0], keys[1:]
				if !yield(s) {
					return false
				}
			}
			return true
		}
		for s := range known {
			if !upTo(s.Name) {
				return
			}
			if len(keys) > 0 && keys[0] == s.Name {
				keys = keys[1:]
			}
			if !yield(s) {
				return
			}
		}
		upTo("\xff") // no name has this octet
	}
}

// knownHosts gives the hosts behind a place that some patterns mean, by name and address. A name, an
// address, or an address with a port means them.
func knownHosts(s Delivery, patterns []string, after destdb.HostKey) iter.Seq[destdb.HostInfo] {
	return func(yield func(destdb.HostInfo) bool) {
		if inFull(patterns) {
			for _, h := range hostsInFull(s, lower(patterns)) {
				if after.Compare(h.Key()) < 0 && !yield(h) {
					return
				}
			}
			return
		}
		for h := range hostsBehind(s, after, someAtOnce) {
			if namesHost(patterns, h.Key()) && !yield(h) {
				return
			}
		}
	}
}

// namesHost reports whether a host is meant by patterns.
func namesHost(patterns []string, h destdb.HostKey) bool {
	return api.Names(patterns, h.Name, h.Addr.Addr().String(), h.Addr.String())
}

// hostsBehind gives the hosts behind a place by name and address, and asks for so many at once.
func hostsBehind(s Delivery, after destdb.HostKey, atOnce int) iter.Seq[destdb.HostInfo] {
	return func(yield func(destdb.HostInfo) bool) {
		for some := s.Hosts(after, atOnce); len(some) > 0; some = s.Hosts(after, atOnce) {
			for _, h := range some {
				if after = h.Key(); !yield(h) {
					return
				}
			}
		}
	}
}

// inFull reports whether there are patterns, each for one name.
func inFull(patterns []string) bool {
	return len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p string) bool { return strings.HasPrefix(p, ".") })
}

// lower puts names as they are kept.
func lower(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.ToLower(n)
	}
	return out
}

func hostsInFull(s Delivery, names []string) (list []destdb.HostInfo) {
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			list = append(list, s.HostsAt(ip)...)
		}
		if addr, err := netip.ParseAddrPort(name); err == nil {
			list = append(list, slices.DeleteFunc(s.HostsAt(addr.Addr()), func(h destdb.HostInfo) bool {
				return h.Addr != addr
			})...)
		}
		for h := range hostsBehind(s, destdb.HostKey{Name: name}, 16) { // a name has few addresses as a rule
			if h.Name != name {
				break
			}
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b destdb.HostInfo) int { return a.Key().Compare(b.Key()) })
	return slices.CompactFunc(list, func(a, b destdb.HostInfo) bool { return a.Key() == b.Key() })
}

// cursorOf is a host's place as a word of the control API; hostCursor reads it.
func cursorOf(h destdb.HostKey) string { return h.Name + " " + h.Addr.String() }

func hostCursor(cursor string) destdb.HostKey {
	name, addr, _ := strings.Cut(cursor, " ")
	at, _ := netip.ParseAddrPort(addr) // what is not a cursor of ours begins with the hosts of that name
	return destdb.HostKey{Name: name, Addr: at}
}
