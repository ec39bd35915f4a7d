// Package waits says which class of reason keeps queued mail, and counts the mail by it.
//
// No count is kept for that: the queue counts recipients by line and state anyway, and a line has the reason of the
// last reply. What all mail of a site waits for, such as the end of a suspension, is asked of delivery once for each.
// So whatever becomes of a site changes no recipient, and a look costs time for each line, not for each recipient.
package waits

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/destdb"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// Waits says what queued mail waits for.
type Waits struct {
	Queue     Queue
	Delivery  Delivery
	Providers Providers
	Now       func() time.Time

	mu       sync.Mutex // held while mail is counted
	last     Picture
	tenants  map[string][]api.WaitsFor
	tenantAt time.Time // when that was counted
}

// Queue has the recipients by line.
type Queue interface {
	EachLine(func(parking.Line, *queue.LineCount))
	EachTenantLine(time.Duration, func(queue.TenantLine, int)) bool
}

// Delivery knows what keeps the mail of a site.
type Delivery interface {
	Site(name string) (delivery.SiteInfo, bool)
}

// Providers names the provider of what waits; false when it is not known whether it has one.
type Providers interface {
	Provider(parking.Key) (string, bool)
}

// Cause is why recipients wait.
type Cause struct {
	Reason   parking.Reason
	Key      parking.Key // that they wait under
	Place    string      // what they wait for: a site, a limit, a pool, what is paused; "" without any
	Provider string      // of the site; "" without one
	Since    time.Time   // since when nothing leaves to the site; zero: not known
}

// Picture is recipients by what they wait for, at a time. What is on a connection is left out.
type Picture struct {
	at     time.Time
	counts map[Cause]int
	ByKey  map[parking.Key][]api.WaitsFor // by reason, most first, as all that follow; not to be changed
	// ByProvider has "" for the sites without one, BySource what waits for one source alone, and ByPool for its
	// warm-ups and the end of its pauses.
	ByProvider, BySource, ByPool map[string][]api.WaitsFor
	// ByHost has the mail of a site at each host that takes mail for it, since nobody knows which will get it.
	ByHost map[destdb.HostKey][]api.WaitsFor
}

// fresh is for how long a count is shown again.
const fresh = 5 * time.Second

// Picture counts what waits, or returns a count of the last seconds.
func (w *Waits) Picture() Picture {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.Now(); w.last.counts == nil || now.Before(w.last.at) || now.Sub(w.last.at) >= fresh {
		w.last = w.count(now)
	}
	return w.last
}

func (w *Waits) count(now time.Time) Picture {
	p, l := Picture{at: now, counts: make(map[Cause]int)}, w.Look()
	sources := make(map[named[string]]int)
	add := func(line parking.Line, state queue.State, n int) {
		c := l.Cause(line, state)
		if p.counts[c] += n; line.Source != "" {
			sources[named[string]{line.Source, c}] += n
		}
	}
	out := make(map[parking.Line]int) // recipients that the queue has handed out, by site and source
	w.Queue.EachLine(func(line parking.Line, c *queue.LineCount) {
		for s, n := range c.States {
			switch state := queue.State(s); {
			case n == 0:
			case state == queue.StateLeased:
				out[parking.Line{Key: line.Key, Source: line.Source}] += int(n)
			default:
				add(line, state, int(n))
			}
		}
	})
	for line, n := range out {
		if n -= l.carried(line, func(lane *delivery.LaneInfo) int { return lane.Carried }); n > 0 {
			add(line, queue.StateLeased, n)
		}
	}
	by := func(name func(*Cause) (string, bool)) map[string][]api.WaitsFor {
		return grouped(func(yield func(named[string], int) bool) {
			for c, n := range p.counts {
				if of, ok := name(&c); ok {
					yield(named[string]{of, c}, n)
				}
			}
		})
	}
	p.ByKey = grouped(func(yield func(named[parking.Key], int) bool) {
		for c, n := range p.counts {
			yield(named[parking.Key]{c.Key, c}, n)
		}
	})
	p.BySource = grouped(maps.All(sources))
	p.ByHost = grouped(func(yield func(named[destdb.HostKey], int) bool) {
		for c, n := range p.counts {
			if c.Key.Site() == "" {
				continue
			}
			for _, h := range l.site(c.Key.Name).hosts() {
				yield(named[destdb.HostKey]{h, c}, n)
			}
		}
	})
	p.ByProvider = by(func(c *Cause) (string, bool) { return c.Provider, c.Provider != "" || c.Key.Site() != "" })
	p.ByPool = by(func(c *Cause) (string, bool) {
		name, pool := strings.CutPrefix(c.Key.Name, "pool ")
		return name, c.Key.Kind == parking.Tokens || pool && c.Key.Kind == parking.Pause
	})
	return p
}

// named is a cause of something that has a name.
type named[K comparable] struct {
	name K
	Cause
}

// grouped counts by name and reason, most first. Each of the causes has its place.
func grouped[K comparable](counts iter.Seq2[named[K], int]) map[K][]api.WaitsFor {
	by := make(map[K][]api.WaitsFor)
	for c, n := range counts {
		list := by[c.name]
		i := slices.IndexFunc(list, func(x api.WaitsFor) bool { return x.Reason == c.Reason })
		if i < 0 {
			i, list = len(list), append(list, api.WaitsFor{Reason: c.Reason})
			by[c.name] = list
		}
		x := &list[i]
		x.Recipients += n
		x.Places++
		if n > x.AtPlace || n == x.AtPlace && c.Place < x.Place {
			x.Place, x.AtPlace, x.Since = c.Place, n, c.Since
		}
	}
	for _, list := range by {
		slices.SortFunc(list, mostFirst)
	}
	return by
}

// timeToLook bounds a look through the queue.
const timeToLook = 150 * time.Millisecond

// Merged adds up what waits for several things, by reason, most first. Each of the causes has its place.
func Merged(lists ...[]api.WaitsFor) (sum []api.WaitsFor) {
	for _, x := range slices.Concat(lists...) {
		i := slices.IndexFunc(sum, func(s api.WaitsFor) bool { return s.Reason == x.Reason })
		if i < 0 {
			sum = append(sum, x)
			continue
		}
		s := &sum[i]
		if s.Recipients, s.Places = s.Recipients+x.Recipients, s.Places+x.Places; x.AtPlace > s.AtPlace {
			s.Place, s.AtPlace, s.Since = x.Place, x.AtPlace, x.Since
		}
	}
	slices.SortFunc(sum, mostFirst)
	return sum
}

// ByTenant is what waits of each tenant, by reason, most first; what is on connections is left out. It looks through
// the queue, every five seconds at most, and returns nil if that takes more than 150 ms.
func (w *Waits) ByTenant() map[string][]api.WaitsFor {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.Now()
	if !w.tenantAt.IsZero() && !now.Before(w.tenantAt) && now.Sub(w.tenantAt) < fresh {
		return w.tenants
	}
	l, counts, out := w.Look(), make(map[named[string]]int), make(map[parking.Line]int)
	whole := w.Queue.EachTenantLine(timeToLook, func(of queue.TenantLine, n int) {
		if of.State == queue.StateLeased {
			out[parking.Line{Key: of.Line.Key, Source: of.Line.Source, Tenant: of.Tenant}] += n
			return
		}
		counts[named[string]{of.Tenant, l.Cause(of.Line, of.State)}] += n
	})
	for line, n := range out {
		if n -= l.carried(line, func(lane *delivery.LaneInfo) int { return lane.CarriedOf[line.Tenant] }); n > 0 {
			counts[named[string]{line.Tenant, l.Cause(line, queue.StateLeased)}] += n
		}
	}
	if w.tenants, w.tenantAt = nil, now; whole {
		w.tenants = grouped(maps.All(counts))
	}
	return w.tenants
}

// Look is what is known of sites at a time. It is for one goroutine.
type Look struct {
	w     *Waits
	sites map[string]*site
}

// site is what is known of a site.
type site struct {
	provider  string
	suspended []destdb.Action // in force
	lanes     []delivery.LaneInfo
	since     time.Time // since when all of its mail, or that of a lane, can't leave
}

// Look begins a look: each site is asked for once.
func (w *Waits) Look() *Look { return &Look{w, make(map[string]*site)} }

func (l *Look) site(name string) *site {
	s := l.sites[name]
	if s != nil {
		return s
	}
	s = new(site)
	l.sites[name] = s
	s.provider, _ = l.w.Providers.Provider(parking.Key{Name: name})
	info, _ := l.w.Delivery.Site(name)
	now := l.w.Now()
	for _, a := range info.Actions {
		if a.What == api.SiteSuspended && now.Before(a.End) {
			s.suspended = append(s.suspended, a)
			s.since = earlier(s.since, a.Begin)
		}
	}
	for _, lane := range info.Lanes {
		s.since = earlier(s.since, lane.Down)
	}
	s.lanes = info.Lanes
	return s
}

// carried is how many of a line's recipients are on connections, of each of its lanes as of says.
func (l *Look) carried(line parking.Line, of func(*delivery.LaneInfo) int) (n int) {
	if line.Site() == "" {
		return 0
	}
	lanes := l.site(line.Name).lanes
	for i := range lanes {
		if lanes[i].Source == line.Source {
			n += of(&lanes[i])
		}
	}
	return n
}

// hosts are those of its lanes.
func (s *site) hosts() (list []destdb.HostKey) {
	for _, lane := range s.lanes {
		for _, h := range lane.Hosts {
			if !slices.Contains(list, h) {
				list = append(list, h)
			}
		}
	}
	return list
}

// earlier is the first of two times of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// byState has the reasons of states in which it matters not for what mail waited before.
var byState = map[queue.State]parking.Reason{
	queue.StateDue: parking.Turn, queue.StateHeld: parking.Held, queue.StateEnding: parking.Report,
	queue.StateUnreadable: parking.Unreadable,
}

// byKind has the reasons of keys that say all.
var byKind = map[parking.Kind]parking.Reason{parking.Pause: parking.Paused, parking.Hours: parking.Closed,
	parking.Pace: parking.Paced}

// Cause is why recipients of a line that are in a state wait. Those that are handed out must not be on a connection.
func (l *Look) Cause(line parking.Line, state queue.State) Cause {
	c := Cause{Key: line.Key, Place: line.Name}
	var s *site
	if line.Kind == parking.Site && line.Name != "" {
		s = l.site(line.Name)
		c.Provider = s.provider
	}
	reason, decided := byState[state]
	switch {
	case decided:
		c.Reason = reason
	case line.Kind == parking.Tokens:
		c.Reason, c.Provider = parking.Warmup, line.Provider
	case line.Kind != parking.Site:
		c.Reason = byKind[line.Kind]
	case s == nil && state == queue.StateDeferred:
		c.Reason = parking.Scheduled
	case s == nil:
		c.Reason = parking.Turn
	case line.Route:
		c.Reason = parking.DNS
	default:
		c.Reason, c.Since = line.Reason, s.since
		s.keeps(&c, line.Source, state)
	}
	return c
}

// keeps says what keeps mail from going to the site from a source, "" where none is chosen. Deferred mail waits for its
// retry time, and for what keeps all mail from all sources.
func (s *site) keeps(c *Cause, source string, state queue.State) {
	deferred := state == queue.StateDeferred
	for _, a := range s.suspended {
		if a.Source == "" || !deferred && a.Source == source {
			c.Reason = cmp.Or(a.Waits, parking.Suspended)
			return
		}
	}
	if deferred {
		return
	}
	c.Reason = parking.Turn
	var oldest time.Time
	for _, lane := range s.lanes {
		if lane.Waits == parking.Unclassed || source != "" && lane.Source != source {
			continue
		}
		first := lane.Waiting > 0 && (oldest.IsZero() || lane.Oldest.Before(oldest))
		if c.Reason != parking.Turn && !first {
			continue
		}
		if first {
			oldest = lane.Oldest
		}
		if c.Reason = lane.Waits; c.Reason == parking.Limit {
			c.Place = lane.Why
		}
	}
}

// Total is how many recipients wait.
func (p Picture) Total() (n int) {
	for _, of := range p.counts {
		n += of
	}
	return n
}

// Each calls each with every cause and how many recipients wait for it.
func (p Picture) Each(each func(Cause, int)) {
	for c, n := range p.counts {
		each(c, n)
	}
}

// EachReason calls each with reasons, providers and how many recipients wait: several times for the same, maybe.
func (w *Waits) EachReason(each func(r parking.Reason, provider string, recipients int)) {
	w.Picture().Each(func(c Cause, n int) { each(c.Reason, c.Provider, n) })
}

func mostFirst(a, b api.WaitsFor) int {
	return cmp.Or(cmp.Compare(b.Recipients, a.Recipients), cmp.Compare(a.Reason, b.Reason))
}

// ByReason counts by reason, most first.
func (p Picture) ByReason() []api.WaitsFor { return ByReason(p.Each) }

// ByReason counts causes by reason, most first. Of a place that is a site its provider counts, where it has one.
func ByReason(each func(func(Cause, int))) []api.WaitsFor {
	type place struct {
		name  string
		n     int
		since time.Time
	}
	places := make(map[parking.Reason]map[string]*place)
	each(func(c Cause, n int) {
		name := cmp.Or(c.Provider, c.Place)
		if c.Reason == parking.Limit {
			name = c.Place
		}
		of := places[c.Reason]
		if of == nil {
			of = make(map[string]*place)
			places[c.Reason] = of
		}
		if of[name] == nil {
			of[name] = &place{name: name}
		}
		of[name].n += n
		of[name].since = earlier(of[name].since, c.Since)
	})
	list := []api.WaitsFor{}
	for reason, of := range places {
		x := api.WaitsFor{Reason: reason, Places: len(of)}
		for _, at := range of {
			if x.Recipients += at.n; at.n > x.AtPlace || at.n == x.AtPlace && at.name < x.Place {
				x.Place, x.AtPlace, x.Since = at.name, at.n, at.since
			}
		}
		list = append(list, x)
	}
	slices.SortFunc(list, mostFirst)
	return list
}
