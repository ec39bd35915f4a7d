package queue

import "example.org/mta/internal/envelope"

// cache is the messages in memory: all that are leased, and of those that are due as many as there is room for.
type cache struct {
	hot    map[uint64]*hot
	limit  int64
	octets int64
}

// hot is what is in memory of a message that is due or leased.
type hot struct {
	msg     *envelope.Message
	body    []byte // nil: on disk only
	charged int64  // octets of the cache's budget
	leases  int    // leased recipients
	living  int    // recipients without a final outcome
}

// charge keeps a content in memory if there is room for it.
func (c *cache) charge(h *hot, body []byte) {
	if cost := cacheCost(h.msg, body); c.octets+cost <= c.limit {
		h.body, h.charged = body, cost
		c.octets += cost
	}
}

// cacheCost is about what a message takes in memory, in octets.
func cacheCost(m *envelope.Message, body []byte) int64 {
	return int64(cap(body)) + 512 + 80*int64(len(m.Recipients))
}

// admit keeps a message that was just accepted in memory, if there is room: it is due at once.
func (c *cache) admit(m *envelope.Message, body []byte, living int) {
	if cost := cacheCost(m, body); c.octets+cost <= c.limit {
		c.octets += cost
		c.hot[uint64(m.ID)] = &hot{msg: m, body: body, charged: cost, living: living}
	}
}

// evict drops a message from memory unless some of it is leased.
func (c *cache) evict(id uint64) {
	h := c.hot[id]
	if h == nil || h.leases > 0 {
		return
	}
	c.octets -= h.charged
	delete(c.hot, id)
}

// endLease counts n recipients as back. Unless they are due again at once, the message leaves memory with the last of
// them.
func (c *cache) endLease(id uint64, n int, due bool) {
	h := c.hot[id]
	if h == nil {
		return
	}
	h.leases -= n
	if !due {
		c.evict(id)
	}
}
