package submission

import (
	"net"
	"net/netip"
	"time"

	"example.org/mta/internal/fair"
	"example.org/mta/internal/network"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// A listener's connections are slots, a pool that tenants and clients share. When three in four are taken, who has
// not had a recipient accepted must hurry. Who finds no slot and has fewer than others gets one of theirs.
const (
	crowdedPart   = 4                // slots are scarce when no more than one in so many is left
	crowdedIdle   = 10 * time.Second // how long a client may be idle before it has shown that it sends mail
	crowdedWhole  = time.Minute      // how long it may be connected until then
	uncrowdedPart = 8                // one in so many slots must have become free for the hurry to end
	// inTransit is how many connections there may be beyond the slots: those that wait for a proxy's header, and
	// those that have lost their slot and are about to end.
	inTransit = 32
	// looked is how many connections are looked at for one whose slot another needs more.
	looked = 64
)

// holder is who has slots: a tenant, a client that may relay and has none, or strangers, who may not relay, by client,
// neighbourhood, and together (no network).
type holder struct {
	tenant   string
	network  netip.Prefix
	stranger bool
}

// slot is for whom a connection counts, the closest holder first. The zero slot is none.
type slot []fair.Part[holder]

// What strangers may have of what stays free: less than the usual, the closer they are to each other. So neither one
// nor many of them get the slots that clients need who may relay.
const (
	sameClient        = 2
	sameNeighbourhood = 2.5
)

// slotOf is the slot that the connection needs, as its client stands now.
func (c *conn) slotOf() slot {
	cl := c.client
	if !c.mayRelay() {
		return slot{
			{Key: holder{network: cl.Network, stranger: true}, Times: sameClient},
			{Key: holder{network: network.Around(cl.Peer.Addr()), stranger: true}, Times: sameNeighbourhood},
			{Key: holder{stranger: true}, Times: fair.Usual},
		}
	}
	if tenant := c.tenant(); tenant != "" {
		return slot{{Key: holder{tenant: tenant}, Times: fair.Usual}}
	}
	return slot{{Key: holder{network: cl.Network}, Times: fair.Usual}}
}

// tenant is whose connection it is, "" for nobody's, as of clients that name a tenant in each message.
func (c *conn) tenant() string {
	if !c.mayRelay() || c.srv.desk.MayNameTenant(&c.client.Client) {
		return ""
	}
	return c.client.OnBehalfOf()
}

// seat gives the connection the slot that it needs now, in place of the one that it has. It returns why not.
func (c *conn) seat() *reply.Reply {
	s, needs := c.srv, c.slotOf()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.free()
	if !s.slots.Take(1, needs...) && !s.reclaim(needs) {
		if tenant := needs[0].Key.tenant; tenant != "" {
			if q := s.cfg.Intake.Quotas; q != nil {
				q.Crowded(tenant)
			}
			return tooLargeShare.Refusal(reply.Printable(tenant))
		}
		return tooManyConnections.Refusal()
	}
	c.client.slot = needs
	return nil
}

// free gives the slot of the connection back. mu is held.
func (c *conn) free() {
	c.srv.slots.Give(1, c.client.slot...)
	c.client.slot = nil
}

func (c *conn) unseat() {
	c.srv.mu.Lock()
	c.free()
	c.srv.mu.Unlock()
}

func (c *conn) seated() bool {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	return c.client.slot != nil
}

// reclaim takes the slot of a connection that waits for its client, of a holder that has more, and reports whether
// there was one. Without one, such a connection that is busy ends after its message, if its holder has more even
// without those that end so already: who tries again and again must not end all of them. mu is held.
func (s *Server) reclaim(needs slot) bool {
	var from *conn
	var of holder
	var most [2]int64                // how much it waits, what its holder has
	ending := make(map[holder]int64) // of those that are looked at
	n, own := 0, s.slots.Of(needs[0].Key)
	for c := range s.mu.conns { // in an order by chance, so the one that has most of them is among the first
		if n++; n > looked {
			break
		}
		if c.client.slot == nil {
			continue
		}
		holder, weaker := c.client.slot.seenBy(needs)
		if c.client.dismissed.Load() != nil {
			ending[holder]++
			continue
		}
		has := s.slots.Of(holder)
		if waits := c.waiting(); weaker && has >= own+2 &&
			(from == nil || waits > most[0] || waits == most[0] && has > most[1]) {
			from, of, most = c, holder, [2]int64{waits, has}
		}
	}
	if from == nil {
		return false
	}
	if stay := most[1] - ending[of]*int64(len(s.mu.conns))/int64(min(n, looked)); most[0] == 0 && stay < own+2 {
		return false
	}
	if !from.dismiss(reclaimed.Refusal()) {
		return false
	}
	s.slots.Pass(1, from.client.slot, needs)
	from.client.slot = nil
	return true
}

// seenBy is the holder that compares with the one of another slot, and whether it may lose one to that at all.
// Strangers count together for whoever may relay, and take nothing from those.
func (s slot) seenBy(other slot) (holder, bool) {
	switch mine, others := s[0].Key.stranger, other[0].Key.stranger; {
	case mine && !others:
		return holder{stranger: true}, true
	case !mine && others:
		return holder{}, false
	}
	return s[0].Key, true
}

// watchCrowd sees whether slots are scarce. It is called with mu held when the number of connections changes.
func (s *Server) watchCrowd() {
	open, all := len(s.mu.conns), s.cfg.Limits.Connections
	scarce := all - all/crowdedPart
	switch crowded := s.crowded.Load(); {
	case !crowded && open >= scarce && scarce < all:
		s.crowded.Store(true)
		for c := range s.mu.conns {
			c.hurry()
		}
	case crowded && open < scarce-all/uncrowdedPart:
		s.crowded.Store(false)
	}
}

// hurry shortens the wait for a command of a client that holds a slot for nothing. It is called by
// other goroutines.
func (c *conn) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.unproved {
		c.socket.SetReadDeadline(c.shorten(c.mu.deadline))
	}
}

// shorten gives the deadline of a client that has to hurry; c.mu is held.
func (c *conn) shorten(t time.Time) time.Time {
	short := earliest(time.Now().Add(crowdedIdle), c.client.began.Add(crowdedWhole))
	if !short.Before(t) {
		return t
	}
	c.mu.hurried, c.mu.deadline = true, short
	return short
}

// wasHurried reports whether the wait that is over had been shortened.
func (c *conn) wasHurried() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.hurried
}

// mustHurry reports whether the client holds a slot for nothing while slots are scarce.
func (c *conn) mustHurry() bool { return !c.client.proved && c.srv.crowded.Load() }

// listener wraps what it accepts, and turns connections away when there are too many.
type listener struct {
	net.Listener
	srv *Server
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := newConn(l.srv, raw)
		r := c.enter()
		if r == nil {
			return c, nil
		}
		c.turnAway(*r)
	}
}

// enter takes the connection in, unless there is no room for it. A client behind a proxy gets its slot when its address
// is known.
func (c *conn) enter() *reply.Reply {
	c.client.Peer = network.Peer(c.socket.RemoteAddr())
	if c.client.direct = !network.Contain(c.srv.cfg.ProxyFrom, c.client.Peer.Addr()); c.client.direct {
		c.settle(true)
		if r := c.seat(); r != nil {
			return r
		}
	}
	if c.srv.add(c) {
		return nil
	}
	c.unseat()
	if c.srv.isClosing() {
		return shuttingDown.Refusal()
	}
	return tooManyConnections.Refusal()
}

// turnAway answers 421 in place of a banner. A few octets to a new connection don't block; the
// deadline is for those that make them.
func (c *conn) turnAway(r reply.Reply) {
	c.client.Network = network.Of(c.client.Peer.Addr())
	c.report("connect", r)
	c.socket.SetDeadline(time.Now().Add(time.Second))
	if !c.srv.cfg.ImplicitTLS {
		c.socket.Write(appendReply(nil, r))
	}
	c.socket.Close()
}

// countTenant counts the connection as the account's tenant's, and gives the reply that refuses it. Of clients
// that name a tenant in each message it is nobody's.
func (c *conn) countTenant() *reply.Reply {
	quotas, tenant := c.srv.cfg.Intake.Quotas, c.tenant()
	if quotas == nil || tenant != "" && tenant == c.client.counted {
		return nil
	}
	c.uncountTenant()
	if tenant == "" {
		return nil
	}
	counted, over := quotas.Connect(tenant)
	if counted {
		c.client.counted = tenant
	}
	if over.Reason == intake.WithinQuota {
		return nil
	}
	return tooManyOfTenant.Refusal(reply.Printable(tenant), over.Limits.Connections)
}

func (c *conn) uncountTenant() {
	if c.client.counted != "" {
		c.srv.cfg.Intake.Quotas.Disconnect(c.client.counted)
		c.client.counted = ""
	}
}
