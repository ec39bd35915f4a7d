package intake

import "sync/atomic"

// Memory is a budget for the content of messages that are coming in, of all servers that share it.
type Memory struct {
	limit int64
	used  atomic.Int64
}

// NewMemory makes a budget of so many octets.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Used is how many octets are taken.
func (m *Memory) Used() int64 { return m.used.Load() }

// Take reports whether n octets could be had. A nil Memory has no limit.
func (m *Memory) Take(n int64) bool {
	if m == nil {
		return true
	}
	if m.used.Add(n) <= m.limit {
		return true
	}
	m.used.Add(-n)
	return false
}

// Give returns n octets.
func (m *Memory) Give(n int64) {
	if m != nil {
		m.used.Add(-n)
	}
}

// short reports whether a message of the least size would find no room.
func (m *Memory) short() bool { return m != nil && m.used.Load()+leastMessage > m.limit }

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
	n := int64(BufferSize + cap(m.content.header.text))
	if buffered := m.desk.cfg.Buffered; buffered == 0 || m.size <= buffered {
		n += m.size
	} else {
		n += memoryStep // its file's buffer
	}
	return (n + memoryStep - 1) / memoryStep * memoryStep
}

// holdMemory holds the message against the budget, and refuses it when that is used up.
func (m *Message) holdMemory() {
	memory, x := m.desk.cfg.Memory, m.content
	switch need := m.memory(); {
	case need < x.held:
		memory.Give(x.held - need)
		x.held = need
	case need == x.held:
	case memory.Take(need - x.held):
		x.held = need
	default:
		m.reject(MemoryFull.Refusal())
	}
}
