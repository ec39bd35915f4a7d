package sink

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"time"
)

// maxGreyed bounds the memory of the greylist; beyond it, some triple is forgotten and will be
// told to wait once more.
const maxGreyed = 1 << 20

// greylisted returns how long the triple still has to wait, 0 when it may pass.
func (s *Server) greylisted(client netip.Addr, sender, recipient string) time.Duration {
	if s.cfg.Greylist <= 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(s.hash)
	maphash.WriteComparable(&h, client)
	h.WriteString(sender)
	h.WriteByte(0)
	h.WriteString(recipient)
	triple := h.Sum64()

	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	first, ok := s.mu.greyed[triple]
	if !ok {
		if len(s.mu.greyed) >= maxGreyed {
			for t := range s.mu.greyed {
				delete(s.mu.greyed, t)
				break
			}
		}
		first = now
		s.mu.greyed[triple] = now
	}
	return max(0, s.cfg.Greylist-now.Sub(first))
}

func greylistReply(recipient string, wait time.Duration) string {
	seconds := int64((wait + time.Second - 1) / time.Second)
	return fmt.Sprintf("450 4.7.1 <%s>: Recipient address rejected: Greylisted, please try again in %d seconds",
		recipient, seconds)
}
