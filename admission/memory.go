package admission

import (
	"crypto/sha256"
	"sync"
	"time"
)

// Memory remembers first attempts where the protocol carries no token, as SMTP. It is a help and no
// promise: it is bounded, and lost with the process.
type Memory struct {
	most int
	mu   struct {
		sync.Mutex
		young, old map[[16]byte]time.Time // young becomes old when it is half of what may be kept
	}
}

// NewMemory returns a memory of so many first attempts; 100,000 take some 10 MB.
func NewMemory(most int) *Memory {
	m := &Memory{most: most}
	m.mu.young = make(map[[16]byte]time.Time)
	return m
}

// First returns the time of the first attempt of the submission that these parts identify: client,
// sender, recipient. Without one it is now, and remembered.
func (m *Memory) First(now time.Time, parts ...string) time.Time {
	k := keyOf(parts)
	m.mu.Lock()
	defer m.mu.Unlock()
	at, known := m.mu.young[k]
	if !known {
		at, known = m.mu.old[k]
	}
	if !known || at.After(now) || now.Sub(at) > 2*MaxAge {
		at = now
	}
	if len(m.mu.young) >= max(m.most/2, 1) {
		m.mu.young, m.mu.old = make(map[[16]byte]time.Time), m.mu.young
	}
	m.mu.young[k] = at
	if oldest := now.Add(-MaxAge); at.Before(oldest) {
		return oldest
	}
	return at
}

// Forget ends the memory of a submission that has been taken.
func (m *Memory) Forget(parts ...string) {
	k := keyOf(parts)
	m.mu.Lock()
	delete(m.mu.young, k)
	delete(m.mu.old, k)
	m.mu.Unlock()
}

// Len returns how many first attempts are remembered.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.young) + len(m.mu.old)
}

func keyOf(parts []string) (k [16]byte) {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	copy(k[:], h.Sum(nil))
	return k
}
