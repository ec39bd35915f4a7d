package delivery

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"example.org/mta/destdb"
)

// A connection has a place in each scope that it counts in: its site, its source, the relay and so on.
// A lane that meets the limit of a scope lines up for a place there, and two rules make sure that one
// comes free:
//
//   - An idle connection yields at once. While fewer connections of the scope are on their way out than
//     lanes wait in line, the one that has been idle longest is closed (makeSpace).
//   - A busy connection gives way after the job in hand when its party has more places than the one in
//     line, or as many and has had its turn (giveWay).

// What giving way may cost. A new connection takes some round trips, and as much processor time as some
// messages: neither may become the larger part of the work.
const (
	turnMessages = 32 // messages in a scope for each busy connection that is closed there
	turnsSaved   = 8  // such closings that may come in a row
	turnSetups   = 20 // a connection's turn lasts at least so many times as long as its opening
)

// quitPatience is how long a connection whose place is wanted may take for its QUIT.
const quitPatience = 2 * time.Second

// party is those lanes that take turns as one in a scope: a source within a site; a tenant among
// connections that are not ready for mail, so that one who writes to many silent hosts keeps no other
// waiting; a site within everything else.
type party struct {
	name  string
	live  int     // its connections
	lanes []*lane // that wait for a place: by turn, then the one that has waited longest first
	at    int     // in the scope's line, -1 when no lane waits
	turn  int     // of the lane that was served last, see lane.turn
	odd   bool    // it took an odd number of places
}

// next is the lane whose turn it is: the one that has waited longest. Among strangers every second place goes
// to the lane that came last of those with the same turn, so that a good host does not wait for all the silent
// ones ahead of it.
func (p *party) next(k scopeKind) *lane {
	first := p.lanes[0]
	if k == scopeStrangers && p.odd {
		return p.lanes[sort.Search(len(p.lanes), func(i int) bool { return p.lanes[i].turn > first.turn })-1]
	}
	return first
}

// before returns whose turn comes first: of the party that has the fewest places, of the one that has
// waited longest among equals.
func (p *party) before(o *party) bool {
	if p.live != o.live {
		return p.live < o.live
	}
	return p.lanes[0].queued.Before(o.lanes[0].queued)
}

// party gives the party of a lane that has a place for a tenant's mail, or waits for one, making it if
// need be.
func (b *budget) party(l *lane, tenant string) *party {
	name := l.laneKey.site
	switch b.kind {
	case scopeSite:
		name = l.laneKey.source
	case scopePath:
		name = ""
	case scopeOnTheirWay, scopeStrangers, scopeSuspects:
		name = tenant
	}
	p := b.parties[name]
	if p == nil {
		p = &party{name: name, at: -1}
		b.parties[name] = p
	}
	return p
}

// changed puts p in its place in line, and forgets it when it has nothing.
func (b *budget) changed(p *party) {
	switch {
	case p.at >= 0 && len(p.lanes) == 0:
		b.line.Remove(p.at)
	case p.at >= 0:
		b.line.Fix(p.at)
	case len(p.lanes) > 0:
		b.line.Push(p)
	}
	if p.live == 0 && len(p.lanes) == 0 {
		delete(b.parties, p.name)
	}
}

// wait puts l in line for the sake of a tenant's message, behind those of its party that have waited longer.
// Among strangers each further lane of a message has a later turn: the messages of a party go round.
func (b *budget) wait(l *lane, g *group, now time.Time) {
	if l.waitsOn == b {
		return
	}
	l.stopWaiting()
	b.waiting++
	l.waitsOn, l.waitsFor = b, g.tenant.name
	p := b.party(l, l.waitsFor)
	if l.queued.IsZero() {
		l.queued, l.turn = now, 0
	}
	if b.kind == scopeStrangers && l.turn == 0 {
		l.turn = max(p.turn, g.message.turn+1)
		g.message.turn = l.turn
	}
	at, _ := slices.BinarySearchFunc(p.lanes, l, func(o, l *lane) int {
		return cmp.Or(cmp.Compare(o.turn, l.turn), o.queued.Compare(l.queued), -1)
	})
	p.lanes = slices.Insert(p.lanes, at, l)
	b.changed(p)
	b.division.wantConnections(b)
}

// stopWaiting takes the lane out of its line. When it comes back soon it has its old place: see
// lane.queued.
func (l *lane) stopWaiting() {
	b := l.waitsOn
	if b == nil {
		return
	}
	l.waitsOn = nil
	b.waiting--
	p := b.party(l, l.waitsFor)
	at := slices.Index(p.lanes, l)
	p.lanes = slices.Delete(p.lanes, at, at+1)
	b.changed(p)
}

// places are a connection's in its scopes, and what it does with them.
type places struct {
	budgets []*budget  // that it counts in; some are nil. The last is the suspects'
	own     [9]*budget // room for them, unless there are shared ones
	idle    bool       // it is in the list of idle connections
	leaving bool       // it is about to end
	over    bool       // it has ended, and has no places any more
	yields  bool       // for the sake of others: what it gives back has lost nothing

	idleBefore, idleAfter *connection // see idleList
}

// takePlaces counts c in its scopes.
func (c *connection) takePlaces() {
	for _, b := range c.budgets {
		if b != nil {
			b.enter(c)
		}
	}
}

// enter counts c in the scope. It must be neither idle nor leaving there.
func (b *budget) enter(c *connection) {
	p := b.party(c.lane, c.tenant)
	if p.live == 0 {
		b.holders++
	}
	b.live++
	b.division.count(b.live)
	p.live++
	p.odd = !p.odd
	b.changed(p)
}

// leavePlaces ends that.
func (c *connection) leavePlaces() {
	c.over = true
	c.recount()
	for _, b := range c.budgets {
		if b != nil {
			b.leave(c)
		}
	}
}

// leave takes c out of the scope. It must be neither idle nor leaving there.
func (b *budget) leave(c *connection) {
	p := b.party(c.lane, c.tenant)
	b.live--
	b.division.count(b.live)
	if p.live--; p.live == 0 {
		b.holders--
	}
	b.changed(p)
}

func (c *connection) countsIn(b *budget) bool { return slices.Contains(c.budgets, b) }

// recount brings the books of c's scopes up to date with what it does. It follows each change of its
// phase and backlog.
func (c *connection) recount() {
	idle := !c.over && c.rec.Phase == destdb.Open && c.rec.Backlog == 0
	leaving := !c.over && c.rec.Phase == destdb.Closing && (c.rec.Backlog == 0 || c.yields)
	if idle != c.idle {
		c.idle = idle
		if idle {
			c.s.idle.push(c)
		} else {
			c.s.idle.remove(c)
		}
		c.count(func(b *budget) *int { return &b.idle }, idle)
	}
	if leaving != c.leaving {
		c.leaving = leaving
		c.count(func(b *budget) *int { return &b.leaving }, leaving)
	}
}

func (c *connection) count(of func(*budget) *int, more bool) {
	for _, b := range c.budgets {
		switch {
		case b == nil:
		case more:
			*of(b)++
		default:
			*of(b)--
		}
	}
}

// idleList is the idle connections of all scopes, the one that has been idle longest first.
type idleList struct{ first, last *connection }

func (x *idleList) push(c *connection) {
	if c.idleBefore = x.last; x.last == nil {
		x.first = c
	} else {
		x.last.idleAfter = c
	}
	x.last = c
}

func (x *idleList) remove(c *connection) {
	if c.idleBefore == nil {
		x.first = c.idleAfter
	} else {
		c.idleBefore.idleAfter = c.idleAfter
	}
	if c.idleAfter == nil {
		x.last = c.idleBefore
	} else {
		c.idleAfter.idleBefore = c.idleBefore
	}
	c.idleBefore, c.idleAfter = nil, nil
}

// makeSpace closes idle connections of a scope until one is on its way out for each lane in line.
func (s *Scheduler) makeSpace(b *budget) {
	for b.waiting > b.leaving && b.idle > 0 {
		s.retireIdle(b)
	}
}

// retireIdle closes the connection of a scope that has been idle longest; there is one.
func (s *Scheduler) retireIdle(b *budget) {
	c := s.idle.first
	for !c.countsIn(b) {
		c = c.idleAfter
	}
	c.retire()
}

// offerPlaces looks who waits for c's places, now that it has settled a job or has come to stand.
func (s *Scheduler) offerPlaces(c *connection, now time.Time) {
	for _, b := range c.budgets {
		if b == nil || b.waiting == 0 {
			continue
		}
		s.makeSpace(b)
		if c.rec.Phase == destdb.Open && b.leaving == 0 && b.turns >= 1 && b.owes(c, now) {
			b.turns--
			s.giveWay(c, now)
		}
	}
}

// owes reports whether c's place is due to the lane that is first in line: by turns among parties, and
// within a party among its lanes.
func (b *budget) owes(c *connection, now time.Time) bool {
	turnOver := now.Sub(c.stood) >= turnSetups*c.stood.Sub(c.rec.Made)
	mine, first := b.party(c.lane, c.tenant), b.line.Top()
	switch {
	case mine == first:
		l := first.lanes[0]
		return l != c.lane && l.running+l.opening == 0 && turnOver
	case first.live > 0 || mine.live > 1:
		return mine.live > first.live+1
	}
	return b.holders == b.live && turnOver // nobody has two
}

// earnTurns notes that c has settled a job.
func (c *connection) earnTurns() {
	for _, b := range c.budgets {
		if b != nil {
			b.turns = min(b.turns+1./turnMessages, turnsSaved)
		}
	}
}

// giveWay has a busy connection end after the job in hand. What it has not begun goes back to its lane.
func (s *Scheduler) giveWay(c *connection, now time.Time) {
	c.rec.Phase, c.rec.Since, c.yields = destdb.Closing, now, true
	c.recount()
	// Recall calls done, which needs the lock. Close waits for it.
	s.opened.Go(c.recallAndFinish)
}

// missed reports whether somebody waits for a place of c.
func (c *connection) missed() bool {
	return slices.ContainsFunc(c.budgets, func(b *budget) bool { return b != nil && b.waiting > 0 })
}

// runWaiters runs the lanes that are first in line, until one meets the same limit again. Each of the
// others leaves the line, and so costs no more than it did to join.
func (s *Scheduler) runWaiters(b *budget, now time.Time) {
	for b.line.Len() > 0 {
		p := b.line.Top()
		l := p.next(b.kind)
		p.turn = max(p.turn, l.turn)
		l.stopWaiting()
		if l.run(now); l.waitsOn == b {
			break
		}
	}
	s.makeSpace(b)
}
