package queue

import (
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
)

func (q *Queue) newDomains() *schedule.Numbering[string] {
	table := q.table
	return schedule.NewNumbering(func(string) string { return "" }, strings.Clone, table.CountOfDomain, table.NewDomain)
}

func (q *Queue) newOrigins() *schedule.Numbering[schedule.Origin] {
	table := q.table
	return schedule.NewNumbering(func(o schedule.Origin) string { return o.Tenant }, schedule.Origin.Clone, table.CountOfOrigin, table.NewOrigin)
}

// originOf gives the number of the origin of a message that is about to enter the schedule.
func (q *Queue) originOf(m *envelope.Message) uint16 {
	return q.origins.Number(schedule.Origin{Tenant: m.Tenant, Campaign: m.Campaign, Sender: m.Sender.Domain()}, len(m.Recipients))
}

// ageOn counts recipients by their age of now.
func (q *Queue) ageOn() {
	for more := true; more; {
		more = q.ageSome()
	}
}

func (q *Queue) ageSome() (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	var ends [schedule.AgeClasses - 1]uint64
	for i, limit := range AgeLimits {
		ends[i] = min(q.arrivals.After(now.Add(-limit)), q.newest+1)
	}
	return q.table.Age(ends, 8*atOnce)
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
func (q *Queue) CountLines(name func(parking.Line) string) Counts {
	c := counting{rows: map[string]*Row{}}
	q.EachLine(func(line parking.Line, n *schedule.Count) { c.of(name(line)).addKept(n) })
	return c.counts()
}

// CountKeys counts the recipients in the queue by what they wait, or last waited, for.
func (q *Queue) CountKeys() map[parking.Key]*Count {
	by := map[parking.Key]*Count{}
	q.EachLine(func(line parking.Line, n *schedule.Count) {
		if by[line.Key] == nil {
			by[line.Key] = &Count{}
		}
		by[line.Key].addKept(n)
	})
	return by
}

// EachLine calls each, without a lock, with every line that has recipients, and how many. It costs some 50 ns for each
// line that there was of late.
func (q *Queue) EachLine(each func(parking.Line, *schedule.Count)) {
	type lineCount struct {
		line parking.Line
		n    schedule.Count
	}
	q.ageOn()
	var some []lineCount
	for from, done := uint32(0), false; !done; {
		some = some[:0]
		q.mu.Lock()
		end := min(from+4*atOnce, uint32(q.keys.Len()))
		for n := from; n < end; n++ {
			if count := q.table.CountOfKey(n); count.Total > 0 {
				some = append(some, lineCount{q.keys.Line(n), *count})
			}
		}
		from, done = end, int(end) == q.keys.Len()
		q.mu.Unlock()
		for i := range some {
			each(some[i].line, &some[i].n)
		}
	}
}

// CountDomains counts the recipients in the queue by their domain.
func (q *Queue) CountDomains() Counts {
	q.ageOn()
	c := q.copyDomains()
	slices.SortFunc(c.Rows, Row.Compare)
	return c
}

// copyDomains gives the counters of domains in no order.
func (q *Queue) copyDomains() (c Counts) {
	q.mu.Lock()
	defer q.mu.Unlock()
	unnamed := q.table.CountOfDomain(0)
	c.Unnamed.addKept(unnamed)
	leftover := q.domains.Leftover(q.domains.FamilyOf(""))
	for n := 1; n < len(q.domains.All); n++ {
		count := q.table.CountOfDomain(uint16(n))
		if count.Total == 0 {
			continue
		}
		r := Row{Name: q.domains.All[n].Name}
		r.addKept(count)
		r.Error = int(q.domains.Inherited(uint16(n)))
		if leftover > 0 {
			r.Error = max(r.Error, int(min(*q.domains.LostOf(r.Name), leftover)))
		}
		r.Error += int(unnamed.Total)
		c.Rows = append(c.Rows, r)
	}
	return c
}

// CountTenants counts the recipients in the queue by tenant. No row has an error.
func (q *Queue) CountTenants() Counts {
	return q.countOrigins("", func(o *schedule.Origin) (string, bool) { return o.Tenant, true }, func(*schedule.Family) int { return 0 })
}

// CountCampaigns counts the recipients in the queue, those of a tenant or with "" all, by campaign.
func (q *Queue) CountCampaigns(tenant string) Counts {
	return q.countOrigins(tenant, func(o *schedule.Origin) (string, bool) { return o.Campaign, !o.Folded }, q.leftoverOrigins)
}

// CountSenders counts the recipients in the queue, those of a tenant or with "" all, by the sender's domain.
func (q *Queue) CountSenders(tenant string) Counts {
	return q.countOrigins(tenant, func(o *schedule.Origin) (string, bool) { return o.Sender, !o.Folded }, q.leftoverOrigins)
}

// leftoverOrigins is how many recipients of a tenant may be counted for another origin of the tenant.
func (q *Queue) leftoverOrigins(f *schedule.Family) int { return int(q.origins.Leftover(f)) }

// countOrigins counts by a name of the origin. What may be counted for another origin of the same tenant is the error of
// all rows that have mail of the tenant.
func (q *Queue) countOrigins(tenant string, name func(*schedule.Origin) (string, bool), leftover func(*schedule.Family) int) Counts {
	q.ageOn()
	q.mu.Lock()
	defer q.mu.Unlock()
	c := counting{rows: map[string]*Row{}}
	if tenant == "" {
		c.total.Unnamed.addKept(q.table.CountOfOrigin(0))
	}
	for of, f := range q.origins.Families {
		if tenant != "" && of != tenant {
			continue
		}
		inError := map[string]bool{}
		for _, n := range f.Numbers {
			count := q.table.CountOfOrigin(n)
			if count.Total == 0 {
				continue
			}
			name, known := name(&q.origins.All[n].Name)
			if !known {
				c.total.Unnamed.addKept(count)
				continue
			}
			c.of(name).addKept(count)
			inError[name] = true
		}
		if off := leftover(f); off > 0 {
			for name := range inError {
				c.of(name).Error += off
			}
		}
	}
	return c.counts()
}

// CountStates counts the recipients in the queue by state.
func (q *Queue) CountStates() (by [schedule.States]Count) {
	q.ageOn()
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range by {
		by[s].Total = q.table.Count(State(s))
		by[s].States[s] = by[s].Total
		for i, n := range q.table.CountByAge(State(s)) {
			by[s].Ages[i] = int(n)
		}
	}
	return by
}

// Usage returns what a tenant has in the queue at this instant; of mail without a tenant nothing is known.
func (q *Queue) Usage(tenant string) schedule.Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tenants.Usage(tenant)
}

// Usages returns what each tenant has in the queue; those with nothing are left out.
func (q *Queue) Usages() map[string]schedule.Usage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tenants.Usages()
}
