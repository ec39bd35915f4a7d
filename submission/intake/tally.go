package intake

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"example.org/mta/internal/network"
	"example.org/mta/internal/reply"
)

// Refusals that repeat are counted and not written down one by one: each costs a kilobyte on disk,
// and a client makes thousands a second.
const (
	tallyEvery = time.Minute
	// How many of a kind are told one by one in that time. Who may relay wants to know which of
	// its recipients were refused.
	toldOfStrangers = 1
	toldOfClients   = 1000
	// maxTallies bounds the networks that are counted apart; the others are counted together.
	maxTallies = 1000
)

// tally passes the first refusals of a kind on, and then one with their number each tallyEvery.
//
// Goroutines: a timer's while there is something to count; close stops it.
type tally struct {
	report func(Rejection)

	mu    sync.Mutex
	kinds map[refusalKind]*refusalCount
	timer *time.Timer // nil when nothing is counted
}

// refusalKind is what refusals have in common that are counted together.
type refusalKind struct {
	network  netip.Prefix // zero: all others
	command  string
	code     int
	enhanced reply.Enhanced
}

type refusalCount struct {
	told int       // one by one
	more int64     // since
	last Rejection // one of those
}

// add takes a refusal of a client in network, of which the first few are told one by one.
func (t *tally) add(network netip.Prefix, e Rejection, first int) {
	if t.count(network, &e, first) {
		t.report(e)
	}
}

func (t *tally) count(network netip.Prefix, e *Rejection, first int) (report bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds == nil {
		t.kinds = make(map[refusalKind]*refusalCount)
	}
	kind := refusalKind{network, e.Reply.Command, e.Reply.Code, e.Reply.Enhanced}
	n := t.kinds[kind]
	if n == nil && len(t.kinds) >= maxTallies {
		kind.network = netip.Prefix{}
		n = t.kinds[kind]
	}
	if n == nil {
		n = new(refusalCount)
		t.kinds[kind] = n
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(tallyEvery, t.turn)
	}
	if n.told < first {
		n.told++
		return true
	}
	n.more++
	n.last = *e
	return false
}

// turn reports what was counted. A kind that goes on is not reported one by one again.
func (t *tally) turn() {
	counted := t.take(true)
	for i := range counted {
		t.report(counted[i])
	}
}

// take gives what was counted. Kinds that had nothing to count are forgotten.
func (t *tally) take(goOn bool) []Rejection {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	var counted []Rejection
	for kind, n := range t.kinds {
		if n.more == 0 {
			delete(t.kinds, kind)
			continue
		}
		e := n.last
		e.Count = n.more
		e.Recipients = nil
		if kind.network == (netip.Prefix{}) {
			e.Peer, e.HeloName = netip.AddrPort{}, ""
		}
		counted = append(counted, e)
		n.more, n.last = 0, Rejection{}
	}
	if goOn && len(t.kinds) > 0 {
		t.timer = time.AfterFunc(tallyEvery, t.turn)
	}
	return counted
}

// close reports what was counted last.
func (t *tally) close() {
	for _, e := range t.take(false) {
		t.report(e)
	}
}

// Report notes a refusal for the accounting log and ours. e has the reply, with the command that it answers, and
// what the refused message has; what is known of the client is filled in.
func (d *Desk) Report(c *Client, e Rejection) {
	e.Time, e.Session, e.Peer, e.HeloName = d.cfg.Now(), c.Session, c.Peer, c.Helo
	e.User, e.Tenant = c.User, c.OnBehalfOf()
	first := toldOfStrangers
	if c.MayRelay {
		first = toldOfClients
	}
	d.refusals.add(c.Network, e, first)
}

// recordRefusal writes a refusal, or a number of them, into the accounting log and ours.
func (d *Desk) recordRefusal(e Rejection) {
	d.cfg.Events.Rejected(e)
	attrs := []slog.Attr{
		slog.String("session", e.Session), slog.Any("peer", e.Peer), slog.String("helo", e.HeloName),
		slog.String("sender", string(e.Sender)), slog.String("recipient", string(e.Recipient)),
		slog.String("reply", e.Reply.Error()),
	}
	if e.Count > 1 {
		attrs = append(attrs, slog.Int64("count", e.Count), slog.Any("network", network.Of(e.Peer.Addr())))
	}
	d.cfg.Log.LogAttrs(context.Background(), slog.LevelInfo, "refused", attrs...)
}

// Close writes down the refusals that were only counted so far. It is for the end of the listener, when no message
// comes in any more.
func (d *Desk) Close() { d.refusals.close() }

// A line in the relay's log for each client that is refused for what attackers do, so that fail2ban and similar
// programs can block them. The form of the line is stable: contrib/fail2ban reads it.

// Intrusion is the kind of refusal.
type Intrusion string

// The reasons.
const (
	IntrusionRelay       Intrusion = "relay"       // mail for elsewhere, from a client that may not send it
	IntrusionLogin       Intrusion = "login"       // a wrong password, user or API key, or too many of those
	IntrusionProtocol    Intrusion = "protocol"    // not the protocol, or so many errors that the session ended
	IntrusionConnections Intrusion = "connections" // more connections than one client may have
)

const (
	// lineEvery is the shortest time between two lines about a client.
	lineEvery = time.Second
	// maxIntruders bounds the clients that are remembered, and so the lines in that time.
	maxIntruders = 1000
)

// Intruders writes the lines. It is safe for use by many goroutines.
type Intruders struct {
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex               // guards the rest
	last  map[netip.Addr]time.Time // when a client had its last line
	swept time.Time                // when old ones were last removed from it
}

// NewIntruders makes a log that writes to log; now is the clock.
func NewIntruders(log *slog.Logger, now func() time.Time) *Intruders {
	return &Intruders{log: log, now: now, last: make(map[netip.Addr]time.Time)}
}

// Listener returns the function that a listener reports its refusals to.
func (l *Intruders) Listener(name string) func(netip.Addr, Intrusion) {
	return func(client netip.Addr, why Intrusion) { l.refused(client, why, name) }
}

func (l *Intruders) refused(client netip.Addr, why Intrusion, listener string) {
	if !client.IsValid() || !l.due(client) {
		return
	}
	l.log.LogAttrs(context.Background(), slog.LevelWarn, "refused client",
		slog.String("address", client.String()), slog.String("reason", string(why)), slog.String("listener", listener))
}

// due reports whether a client gets a line now.
func (l *Intruders) due(client netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if last, ok := l.last[client]; ok && now.Sub(last) < lineEvery {
		return false
	}
	if len(l.last) >= maxIntruders && now.Sub(l.swept) >= lineEvery {
		l.swept = now
		maps.DeleteFunc(l.last, func(_ netip.Addr, last time.Time) bool { return now.Sub(last) >= lineEvery })
	}
	if _, known := l.last[client]; !known && len(l.last) >= maxIntruders {
		return false
	}
	l.last[client] = now
	return true
}
