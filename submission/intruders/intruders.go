// Package intruders writes a line into the relay's log for clients that are refused for what attackers do, so
// that fail2ban and similar programs can block them. The form of the line is stable: contrib/fail2ban reads
// it. It starts no goroutines.
package intruders

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// Reason is the kind of refusal.
type Reason string

// The reasons.
const (
	Relay       Reason = "relay"       // mail for elsewhere, from a client that may not send it
	Login       Reason = "login"       // a wrong password, user or API key, or too many of those
	Protocol    Reason = "protocol"    // not the protocol, or so many errors that the session ended
	Connections Reason = "connections" // more connections than one client may have
)

const (
	// every is the shortest time between two lines about a client.
	every = time.Second
	// maxClients bounds the clients that are remembered, and so the lines in that time.
	maxClients = 1000
)

// Log writes the lines. It is safe for use by many goroutines.
type Log struct {
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex               // guards the rest
	last  map[netip.Addr]time.Time // when a client had its last line
	swept time.Time                // when old ones were last removed from it
}

// New makes a log that writes to log; now is the clock.
func New(log *slog.Logger, now func() time.Time) *Log {
	return &Log{log: log, now: now, last: make(map[netip.Addr]time.Time)}
}

// Listener returns the function that a listener reports its refusals to.
func (l *Log) Listener(name string) func(netip.Addr, Reason) {
	return func(client netip.Addr, why Reason) { l.refused(client, why, name) }
}

func (l *Log) refused(client netip.Addr, why Reason, listener string) {
	if !client.IsValid() || !l.due(client) {
		return
	}
	l.log.LogAttrs(context.Background(), slog.LevelWarn, "refused client",
		slog.String("address", client.String()), slog.String("reason", string(why)), slog.String("listener", listener))
}

// due reports whether a client gets a line now.
func (l *Log) due(client netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if last, ok := l.last[client]; ok && now.Sub(last) < every {
		return false
	}
	if len(l.last) >= maxClients && now.Sub(l.swept) >= every {
		l.swept = now
		for c, last := range l.last {
			if now.Sub(last) >= every {
				delete(l.last, c)
			}
		}
	}
	if _, known := l.last[client]; !known && len(l.last) >= maxClients {
		return false
	}
	l.last[client] = now
	return true
}
