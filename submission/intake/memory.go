package intake

import "example.org/mta/internal/fair"

// Owner is for whom a message counts while it comes in.
type Owner = fair.Party

// Memory is a budget for the content of messages that are coming in, of all servers that share it. Tenants and clients
// share it, too.
type Memory = fair.Pool[Owner]

// NewMemory makes a budget of so many octets.
func NewMemory(limit int64) *Memory { return fair.NewPool[Owner](limit) }

// ownerOf returns for whom a client's messages count: the tenant that is known at MAIL, else the client.
func (d *Desk) ownerOf(c *Client) Owner {
	if d.MayNameTenant(c) {
		return Owner{Network: c.Network}
	}
	return fair.PartyOf(c.account.tenant, c.Network)
}

// usual is an owner's part of a pool.
func usual(o Owner) fair.Part[Owner] { return fair.Part[Owner]{Key: o, Times: fair.Usual} }

// BufferSize is the size of the pieces in which content comes at its best, in octets. Each message is reckoned
// to have a buffer of that size on its way.
const BufferSize = 32 << 10

// What a message takes of the budget: that buffer and a first bit of content, and more in steps.
const (
	memoryStep   = 32 << 10
	leastMessage = BufferSize + memoryStep
)

// memory is what the message holds by now: the buffer that it comes by, its header section until
// the end, and of its content what the store has in memory.
func (m *Message) memory() int64 {
	n := int64(BufferSize + cap(m.content.header.text) + cap(m.content.whole))
	if buffered := m.desk.cfg.Buffered; buffered == 0 || m.size <= buffered {
		n += m.size
	} else {
		n += memoryStep // its file's buffer
	}
	return (n + memoryStep - 1) / memoryStep * memoryStep
}

// holdMemory holds the message against the budget, and refuses it when that is used up.
func (m *Message) holdMemory() {
	memory, x, part := m.desk.cfg.Memory, m.content, usual(m.content.owner)
	switch need := m.memory(); {
	case need < x.held:
		memory.Give(x.held-need, part)
		x.held = need
	case need == x.held:
	case memory.Take(need-x.held, part):
		x.held = need
	default:
		m.reject(MemoryFull.Refusal())
	}
}
