package intake

// A line in the relay's log for each client that is refused for what attackers do, so that fail2ban and similar
// programs can block them. The form of the line is stable: contrib/fail2ban reads it.

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

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
		for c, last := range l.last {
			if now.Sub(last) >= lineEvery {
				delete(l.last, c)
			}
		}
	}
	if _, known := l.last[client]; !known && len(l.last) >= maxIntruders {
		return false
	}
	l.last[client] = now
	return true
}
