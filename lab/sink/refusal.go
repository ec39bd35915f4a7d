package sink

import (
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"
)

// Refusal is an answer other than the good one, given to some commands of a phase.
type Refusal struct {
	Phase Phase
	// Prefix limits it to addresses that start so: of the recipient at Rcpt, of the sender at Mail
	// and later.
	Prefix string
	// Share of the commands, from 0 to 1; 0 is all of them. Those that are refused are chosen at
	// random each time, or, when Sticky is set, once for each address.
	Share  float64
	Sticky bool
	// Reply is code and text. {address} becomes the address, lines are parted by "\n". After a
	// 421 the connection closes.
	Reply string
}

// UnknownUsers refuses recipients whose address starts with prefix, as mailboxes that don't
// exist.
func UnknownUsers(prefix string) Refusal {
	return Refusal{Phase: Rcpt, Prefix: prefix,
		Reply: "550 5.1.1 <{address}>: Recipient address rejected: User unknown in virtual mailbox table"}
}

// UnknownShare refuses a share of all recipients, the same ones each time.
func UnknownShare(share float64) Refusal {
	return Refusal{Phase: Rcpt, Share: share, Sticky: true,
		Reply: "550 5.1.1 <{address}>: Recipient address rejected: User unknown in virtual mailbox table"}
}

// TemporaryFailures refuses that share of messages after their content, for a while.
func TemporaryFailures(share float64) Refusal {
	return Refusal{Phase: End, Share: share, Reply: "451 4.3.0 Error: queue file write error, try again later"}
}

// fits reports whether r answers a command of phase p with this address.
func (r *Refusal) fits(p Phase, address string, seed uint64, rng *rand.Rand) bool {
	if r.Phase != p || !strings.HasPrefix(address, r.Prefix) {
		return false
	}
	switch {
	case r.Share == 0:
		return true
	case r.Sticky:
		return fraction(address, seed) < r.Share
	}
	return rng.Float64() < r.Share
}

func (r *Refusal) reply(address string) string {
	return strings.ReplaceAll(r.Reply, "{address}", address)
}

// fraction maps an address to [0, 1), the same each time for the same seed.
func fraction(address string, seed uint64) float64 {
	h := fnv.New64a()
	h.Write([]byte(address))
	return rand.New(rand.NewPCG(h.Sum64(), seed)).Float64()
}

// faults is what goes wrong, laid out so that a phase without trouble costs a compare.
type faults struct {
	drop, stray, swallow chances
	mute                 float64 // of the final reply of a message that was kept
	refusals             [phases][]Refusal
	work                 [phases]time.Duration
	delayed              bool // replies may have to wait
}

func newFaults(cfg *Config) faults {
	f := faults{
		drop:    chancesOf(cfg.Drop),
		stray:   chancesOf(cfg.Stray),
		swallow: chancesOf(cfg.Swallow),
		delayed: cfg.Latency > 0 || cfg.Jitter > 0 || cfg.Hook != nil,
	}
	// Only the recorder's entry shows that a final reply was swallowed, so the draw comes before it.
	f.mute = f.swallow[Kept]
	f.swallow[Kept] = 0
	for p, d := range cfg.Work {
		f.work[p] = d
		f.delayed = f.delayed || d > 0
	}
	for _, r := range cfg.Refusals {
		f.refusals[r.Phase] = append(f.refusals[r.Phase], r)
	}
	return f
}

// refused gives the configured answer to a command, "" when there is none.
func (f *faults) refused(p Phase, address string, seed uint64, rng *rand.Rand) string {
	for i := range f.refusals[p] {
		if r := &f.refusals[p][i]; r.fits(p, address, seed, rng) {
			return r.reply(address)
		}
	}
	return ""
}

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

// Phase is a step of a session that can be made to go wrong. The words are those of
// reply.Reply.Command where both have one.
type Phase uint8

const (
	Connect  Phase = iota // the connection was made, the banner not sent
	Greeting              // the banner was sent; a drop or a stray reply comes right after it
	Hello                 // EHLO or HELO
	StartTLS
	Auth
	Mail
	Rcpt
	Data    // DATA, before its 354
	Content // within the content: after a part of it was read
	End     // the whole content was read: a drop loses the message, a refusal is heard
	Kept    // the message was recorded: a drop or a swallowed reply leaves the client in doubt
	Reset
	Noop
	Quit
	phases // their number
)

var phaseNames = [phases]string{"connect", "greeting", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA",
	"content", "end", "kept", "RSET", "NOOP", "QUIT"}

// String gives the command's name, or a word for what is none.
func (p Phase) String() string {
	if p < phases {
		return phaseNames[p]
	}
	return "unknown"
}

// chances is a chance for each phase.
type chances [phases]float64

func chancesOf(m map[Phase]float64) chances {
	var c chances
	for p, v := range m {
		c[p] = v
	}
	return c
}
