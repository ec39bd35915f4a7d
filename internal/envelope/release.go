package envelope

import "time"

// MaxSpread is the longest Message.Spread.
const MaxSpread = 24 * time.Hour

// ReleaseOf is when a recipient is released, in whole seconds: Release, and of Spread a part that
// is the recipient's own and stays the same. It is the zero time when the message is not scheduled.
func (m *Message) ReleaseOf(recipient int) time.Time {
	if m.Release.IsZero() {
		return time.Time{}
	}
	return m.Release.Add(time.Duration(m.ID.Jitter(recipient, uint32(m.Spread/time.Second))) * time.Second)
}

// Start is when the message's age begins to count: when it was received or, if it was scheduled
// (RFC 4865), when all of its recipients have been released.
func (m *Message) Start() time.Time {
	switch {
	case !m.Release.IsZero():
		return m.Release.Add(m.Spread)
	case m.Received.IsZero():
		return m.ID.Time()
	}
	return m.Received
}

// Jitter gives a recipient of the message its place in a window of so many seconds: 0 to one below
// the window, evenly over recipients and messages, and the same each time it is asked.
func (id ID) Jitter(recipient int, window uint32) uint32 {
	if window == 0 {
		return 0
	}
	// The finaliser of SplitMix64 over its sequence: neighbours differ in all bits.
	x := uint64(id) + uint64(recipient+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return uint32(x >> 32 * uint64(window) >> 32)
}
