package sink

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Stats is a server's sums since it was made.
type Stats struct {
	Connections int64 // all, those greeted by 421 included
	Crowded     int64 // greeted by 421: one too many
	Open        int   // now
	Peak        int   // most open at a time

	Messages   int64 // accepted transactions
	Recipients int64 // in them
	Octets     int64 // of their content

	Greylisted int64            // RCPTs told to wait
	Replies    map[string]int64 // negative ones by phase, code and enhanced code: "RCPT 550 5.1.1"
	Dropped    map[Phase]int64  // connections cut by chance or by the hook
	Strays     int64            // replies that nobody asked for
	Swallowed  int64            // replies that were not sent
	TLSFailed  int64            // handshakes

	// Faults is what clients did that they should not: parameters that were not offered, and,
	// with Config.Inspect, lines, line ends and pipelining against the RFCs.
	Faults map[string]int64
}

// ConnectionStats is what became of one connection.
type ConnectionStats struct {
	Number         uint64 // 1 for the server's first
	Client         netip.AddrPort
	Helo           string
	TLS, Resumed   bool
	Opened, Closed time.Time
	Commands       int
	Flight         int // most commands that came together
	Transactions   int // MAIL commands
	Messages       int // accepted
	Recipients     int // in them
	End            string
}

// maxConnectionStats bounds how many ended connections are remembered: the last ones.
const maxConnectionStats = 10_000

type counters struct {
	connections, crowded                     atomic.Int64
	messages, recipients, octets             atomic.Int64
	greylisted, strays, swallowed, tlsFailed atomic.Int64
	dropped                                  [phases]atomic.Int64

	mu struct { // guards what follows
		sync.Mutex
		replies map[string]int64
		faults  map[string]int64
		ended   []ConnectionStats // a ring once it is full
		next    int               // the ring's oldest
	}
}

func (c *counters) accepted(x *session) {
	c.messages.Add(1)
	c.recipients.Add(int64(len(x.tx.recipients)))
	c.octets.Add(x.content.size)
}

// reply counts a refusal under its phase and codes.
func (c *counters) reply(p Phase, text string) {
	if text[0] == '2' || text[0] == '3' {
		return
	}
	code, rest, _ := strings.Cut(text, " ")
	if enhanced, _, _ := strings.Cut(rest, " "); strings.Count(enhanced, ".") == 2 && enhanced[0] == code[0] {
		code += " " + enhanced
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.replies == nil {
		c.mu.replies = make(map[string]int64)
	}
	c.mu.replies[p.String()+" "+code]++
}

func (c *counters) fault(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.faults == nil {
		c.mu.faults = make(map[string]int64)
	}
	c.mu.faults[what]++
}

func (c *counters) connection(x *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.ended) < maxConnectionStats {
		c.mu.ended = append(c.mu.ended, x.about)
		return
	}
	c.mu.ended[c.mu.next] = x.about
	c.mu.next = (c.mu.next + 1) % maxConnectionStats
}

// Stats gives the sums so far.
func (s *Server) Stats() Stats {
	c := &s.stats
	st := Stats{
		Connections: c.connections.Load(),
		Crowded:     c.crowded.Load(),
		Messages:    c.messages.Load(),
		Recipients:  c.recipients.Load(),
		Octets:      c.octets.Load(),
		Greylisted:  c.greylisted.Load(),
		Strays:      c.strays.Load(),
		Swallowed:   c.swallowed.Load(),
		TLSFailed:   c.tlsFailed.Load(),
		Dropped:     make(map[Phase]int64),
	}
	for p := range phases {
		if n := c.dropped[p].Load(); n > 0 {
			st.Dropped[p] = n
		}
	}
	s.mu.Lock()
	st.Open, st.Peak = s.mu.open, s.mu.peak
	s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	st.Replies, st.Faults = maps.Clone(c.mu.replies), maps.Clone(c.mu.faults)
	return st
}

// Connections lists the last connections that ended, in the order of their end.
func (s *Server) Connections() []ConnectionStats {
	c := &s.stats
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.mu.ended[c.mu.next:], c.mu.ended[:c.mu.next])
}
