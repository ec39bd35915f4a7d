package view

import (
	"slices"
	"time"

	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
)

// AgeOn counts recipients by their age of now.
func (v *View) AgeOn() {
	for more := true; more; {
		more = v.ageSome()
	}
}

func (v *View) ageSome() (more bool) {
	v.lock.Lock()
	defer v.lock.Unlock()
	now := v.now()
	var ends [schedule.AgeClasses - 1]uint64
	for i, limit := range AgeLimits {
		ends[i] = min(v.s.Arrivals.After(now.Add(-limit)), v.s.Newest+1)
	}
	return v.s.Age(ends, atOnce)
}

// addKept adds a count of the schedule to c.
func (c *Count) addKept(o *schedule.Count) {
	c.Total += int(o.Total)
	for i, n := range o.States {
		c.States[i] += int(n)
	}
	for i, n := range o.Ages {
		c.Ages[i] += int(n)
	}
}

// Counts is all recipients by name, from counters.
type Counts struct {
	Rows []Row // most first
	// Unnamed counts recipients whose name is not known: that of an envelope that can't be read, or one of
	// more names than are remembered over a restart.
	Unnamed Count
}

// counting adds up rows.
type counting struct {
	rows  map[string]*Row
	total Counts
}

func (c *counting) of(name string) *Row {
	r := c.rows[name]
	if r == nil {
		r = &Row{Name: name}
		c.rows[name] = r
	}
	return r
}

func (c *counting) counts() Counts {
	for _, r := range c.rows {
		c.total.Rows = append(c.total.Rows, *r)
	}
	slices.SortFunc(c.total.Rows, Row.Compare)
	return c.total
}

// CountLines counts the recipients in the queue by a name of the line that they wait, or last waited, in.
func (v *View) CountLines(name func(parking.Line) string) Counts {
	c := counting{rows: map[string]*Row{}}
	v.EachLine(func(line parking.Line, n *schedule.Count) { c.of(name(line)).addKept(n) })
	return c.counts()
}

// CountKeys counts the recipients in the queue by what they wait, or last waited, for.
func (v *View) CountKeys() map[parking.Key]*Count {
	by := map[parking.Key]*Count{}
	v.EachLine(func(line parking.Line, n *schedule.Count) {
		if by[line.Key] == nil {
			by[line.Key] = &Count{}
		}
		by[line.Key].addKept(n)
	})
	return by
}

// EachLine calls each, without a lock, with every line that has recipients, and how many. It costs some 50 ns for each
// line that there was of late.
func (v *View) EachLine(each func(parking.Line, *schedule.Count)) {
	v.AgeOn()
	eachNumber(v, v.s.Keys.Len, func(n int) (parking.Line, *schedule.Count) {
		return v.s.Keys.Line(uint32(n)), v.s.CountOfKey(uint32(n))
	}, func(_ int, line parking.Line, n *schedule.Count) { each(line, n) })
}

// eachNumber copies the counters below a number, some at a time, and calls each without the lock with those that have
// recipients.
func eachNumber[K any](v *View, end func() int, of func(n int) (K, *schedule.Count),
	each func(n int, name K, count *schedule.Count)) {
	type counter struct {
		number int
		name   K
		n      schedule.Count
	}
	var some []counter
	for from, done := 0, false; !done; {
		some = some[:0]
		v.lock.Lock()
		to := min(from+atOnce, end())
		for n := from; n < to; n++ {
			if name, count := of(n); count.Total > 0 {
				some = append(some, counter{n, name, *count})
			}
		}
		from, done = to, to >= end()
		v.lock.Unlock()
		for i := range some {
			each(some[i].number, some[i].name, &some[i].n)
		}
	}
}

// TenantLine is what recipients of a tenant have in common.
type TenantLine struct {
	Tenant string // "": none
	Line   parking.Line
	State  State
}

// EachTenantLine counts what is in the queue by tenant, line and state: it looks through the queue, at some 50 ns for
// each recipient. It reports false when a time was over before the end, and calls each with nothing then.
func (v *View) EachTenantLine(most time.Duration, each func(TenantLine, int)) bool {
	w := v.Walk(Filter{}, false, 0)
	w.endAfter(most)
	counts, tenants := map[TenantLine]int{}, map[uint16]string{}
	type place struct {
		origin uint16
		line   int
		state  State
	}
	in := map[place]int{}
	for w.more() {
		clear(in)
		for i := range w.copy.Entries {
			e := &w.copy.Entries[i]
			in[place{w.copy.Names[i].Origin, w.copy.LineOf(e), e.State()}]++
		}
		v.lock.Lock()
		for p := range in {
			if _, known := tenants[p.origin]; !known {
				tenants[p.origin] = v.s.Origins.All[p.origin].Name.Tenant
			}
		}
		v.lock.Unlock()
		for p, n := range in {
			counts[TenantLine{tenants[p.origin], w.copy.Line(p.line), p.state}] += n
		}
	}
	if w.cut {
		return false
	}
	for k, n := range counts {
		each(k, n)
	}
	return true
}

// CountDomains counts the recipients in the queue by their domain.
func (v *View) CountDomains() (c Counts) {
	v.AgeOn()
	domains := v.s.Domains
	type domain struct {
		name            string
		inherited, lost uint32
	}
	v.lock.Lock()
	unnamed := *v.s.CountOfDomain(0)
	leftover := domains.Leftover(domains.FamilyOf(""))
	v.lock.Unlock()
	c.Unnamed.addKept(&unnamed)
	eachNumber(v, func() int { return len(domains.All) }, func(n int) (domain, *schedule.Count) {
		d := domain{name: domains.All[n].Name, inherited: domains.Inherited(uint16(n))}
		if leftover > 0 {
			d.lost = min(*domains.LostOf(d.name), leftover)
		}
		return d, v.s.CountOfDomain(uint16(n))
	}, func(n int, d domain, count *schedule.Count) {
		if n == 0 {
			return
		}
		r := Row{Name: d.name, Error: int(max(d.inherited, d.lost)) + int(unnamed.Total)}
		r.addKept(count)
		c.Rows = append(c.Rows, r)
	})
	slices.SortFunc(c.Rows, Row.Compare)
	return c
}

// CountTenants counts the recipients in the queue by tenant. No row has an error.
func (v *View) CountTenants() Counts {
	return v.countOrigins("", false, func(o *schedule.Origin) (string, bool) { return o.Tenant, true })
}

// CountCampaigns counts the recipients in the queue, those of a tenant or with "" all, by campaign.
func (v *View) CountCampaigns(tenant string) Counts {
	return v.countOrigins(tenant, true, func(o *schedule.Origin) (string, bool) { return o.Campaign, !o.Folded })
}

// CountSenders counts the recipients in the queue, those of a tenant or with "" all, by the sender's domain.
func (v *View) CountSenders(tenant string) Counts {
	return v.countOrigins(tenant, true, func(o *schedule.Origin) (string, bool) { return o.Sender, !o.Folded })
}

// countOrigins counts by a name of the origin. What may be counted for another origin of the same tenant is, if inexact
// says so, the error of all rows that have mail of the tenant.
func (v *View) countOrigins(tenant string, inexact bool, name func(*schedule.Origin) (string, bool)) Counts {
	v.AgeOn()
	c := counting{rows: map[string]*Row{}}
	origins := v.s.Origins
	named := map[string]map[string]bool{} // the names of each tenant's rows
	eachNumber(v, func() int { return len(origins.All) }, func(n int) (schedule.Origin, *schedule.Count) {
		return origins.All[n].Name, v.s.CountOfOrigin(uint16(n))
	}, func(n int, o schedule.Origin, count *schedule.Count) {
		if tenant != "" && (n == 0 || o.Tenant != tenant) {
			return
		}
		name, known := name(&o)
		if n == 0 || !known {
			c.total.Unnamed.addKept(count)
			return
		}
		c.of(name).addKept(count)
		if named[o.Tenant] == nil {
			named[o.Tenant] = map[string]bool{}
		}
		named[o.Tenant][name] = true
	})
	if inexact {
		for of, names := range named {
			v.lock.Lock()
			off := int(origins.Leftover(origins.FamilyOf(schedule.Origin{Tenant: of})))
			v.lock.Unlock()
			for name := range names {
				c.of(name).Error += off
			}
		}
	}
	return c.counts()
}

// CountStates counts the recipients in the queue by state.
func (v *View) CountStates() (by [schedule.States]Count) {
	v.AgeOn()
	v.lock.Lock()
	defer v.lock.Unlock()
	for s := range by {
		by[s].Total = v.s.Count(State(s))
		by[s].States[s] = by[s].Total
		for i, n := range v.s.CountByAge(State(s)) {
			by[s].Ages[i] = int(n)
		}
	}
	return by
}

// Usage returns what a tenant has in the queue at this instant; of mail without a tenant nothing is known.
func (v *View) Usage(tenant string) schedule.Usage {
	v.lock.Lock()
	defer v.lock.Unlock()
	return v.s.Tenants.Usage(tenant)
}

// Usages returns what each tenant has in the queue; those with nothing are left out.
func (v *View) Usages() map[string]schedule.Usage {
	v.lock.Lock()
	defer v.lock.Unlock()
	return v.s.Tenants.Usages()
}
