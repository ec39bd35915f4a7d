package queue

import "example.org/mta/internal/fair"

// lines are the messages that wait to be written, a line for each tenant, which take turns: a tenant that
// submits by a thousand connections delays its own mail and not that of others. Whoever owns them guards them.
type lines struct {
	ring     fair.Ring[*line]
	byTenant map[string]*line
	waiting  int
	idle     *line // to use again
}

type line struct {
	fair.Member[*line]
	tenant string
	drafts []*Draft
	next   int // of drafts
}

// push adds a message at the end of its tenant's line. It reports whether it is the only one.
func (l *lines) push(d *Draft) (first bool) {
	of := l.byTenant[d.msg.Tenant]
	if of == nil {
		of = l.begin(d.msg.Tenant)
	}
	of.makeRoom()
	of.drafts = append(of.drafts, d)
	l.waiting++
	return l.waiting == 1
}

// makeRoom uses again what lies before next. The line of a tenant that always has mail waiting is never
// empty, and must not grow with all that has ever been in it.
func (of *line) makeRoom() {
	if n := len(of.drafts); n == cap(of.drafts) && of.next > n/2 {
		left := copy(of.drafts, of.drafts[of.next:])
		clear(of.drafts[left:])
		of.drafts, of.next = of.drafts[:left], 0
	}
}

func (l *lines) begin(tenant string) *line {
	of := l.idle
	if l.idle = nil; of == nil {
		of = new(line)
		of.Value = of
	}
	of.tenant = tenant
	if l.byTenant == nil {
		l.byTenant = make(map[string]*line)
	}
	l.byTenant[tenant] = of
	l.ring.Join(&of.Member)
	return of
}

// front is the message whose turn it is, nil when none waits.
func (l *lines) front() *Draft {
	if m := l.ring.Pick(anyLine); m != nil {
		return m.Value.drafts[m.Value.next]
	}
	return nil
}

func anyLine(*line) bool { return true }

// pop takes the message that front has given out of its line.
func (l *lines) pop() {
	m := l.ring.Pick(anyLine)
	of := m.Value
	of.drafts[of.next] = nil
	of.next++
	l.waiting--
	l.ring.Took(m)
	if of.next < len(of.drafts) {
		return
	}
	l.ring.Leave(m)
	delete(l.byTenant, of.tenant)
	of.tenant, of.drafts, of.next = "", of.drafts[:0], 0
	if cap(of.drafts) <= 4096 {
		l.idle = of
	}
}

// shared reports whether mail of several tenants waits.
func (l *lines) shared() bool { return len(l.byTenant) > 1 }
