package submission

import "sync/atomic"

// Memory is a budget for the content of messages that are coming in, of all servers that share it.
type Memory struct {
	limit int64
	used  atomic.Int64
}

// NewMemory makes a budget of so many octets.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// take reports whether n octets could be had. A nil Memory has no limit.
func (m *Memory) take(n int64) bool {
	if m == nil {
		return true
	}
	if m.used.Add(n) <= m.limit {
		return true
	}
	m.used.Add(-n)
	return false
}

func (m *Memory) give(n int64) {
	if m != nil {
		m.used.Add(-n)
	}
}

// short reports whether a message of the least size would find no room.
func (m *Memory) short() bool { return m != nil && m.used.Load()+leastMessage > m.limit }

// What a message takes of the budget: the connection's buffer and a first bit of content, and more
// in steps.
const (
	memoryStep   = 32 << 10
	leastMessage = largeBuffer + memoryStep
)

// memory is what the message holds by now: the buffer of its connection, its header section until
// the end, and of its content what the store has in memory.
func (in *intake) memory() int64 {
	n := int64(largeBuffer + cap(in.header.text))
	if buffered := in.c.srv.cfg.Buffered; buffered == 0 || in.size <= buffered {
		n += in.size
	} else {
		n += memoryStep // its file's buffer
	}
	return (n + memoryStep - 1) / memoryStep * memoryStep
}

// account holds the message against the budget, and refuses it when that is used up.
func (in *intake) account() {
	memory := in.c.srv.cfg.Memory
	switch need := in.memory(); {
	case need < in.held:
		memory.give(in.held - need)
		in.held = need
	case need == in.held:
	case memory.take(need - in.held):
		in.held = need
	default:
		in.reject(memoryFull.reply())
	}
}
