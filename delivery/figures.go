package delivery

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"syscall"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/destdb"
)

// Failure is why a connection could not be made.
type Failure uint8

// The failures.
const (
	FailedBySource Failure = iota // this machine could not use the source
	FailedInTime                  // no answer, or no end of the handshake, in time
	FailedByPeer                  // the host refused the connection
	FailedOnTheWay                // there was no way to the host
	FailedTLS                     // the handshake of TLS failed, or its result was not what was demanded
	FailedByReply                 // the host refused in its greeting, or a command before the first mail
	FailedOtherwise
	Failures int = iota
)

var failureNames = [Failures]string{"source", "timeout", "refused", "unreachable", "tls", "reply", "other"}

func (f Failure) String() string { return failureNames[f] }

// failureOf classifies what ended an attempt to connect.
func failureOf(err error) Failure {
	var (
		dial    *dialError
		client  *smtpclient.Error
		terms   *termsError
		timeout net.Error
	)
	switch {
	case errors.As(err, &dial) && dial.ours():
		return FailedBySource
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return FailedInTime
	case errors.Is(err, syscall.ECONNREFUSED):
		return FailedByPeer
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return FailedOnTheWay
	case errors.As(err, &terms), errors.As(err, &client) && (client.TLS || client.NoTLS):
		return FailedTLS
	case client != nil && !client.Reply.Local:
		return FailedByReply
	}
	return FailedOtherwise
}

// SourceCounts are what happened to the connections of a source since the start.
type SourceCounts struct {
	Connected uint64 // that were made
	Failed    [Failures]uint64
	Suspended uint64 // automatic suspensions of its mail to a site
}

// BySource returns the counts of each source that had any. Suspensions for all sources of a site are under "".
func (s *Scheduler) BySource() map[string]SourceCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.bySource)
}

// countSource changes the counts of a source.
func (s *Scheduler) countSource(name string, change func(*SourceCounts)) {
	c := s.bySource[name]
	change(&c)
	s.bySource[name] = c
}

// countConnect counts an attempt to connect that ended, by its error.
func (s *Scheduler) countConnect(c *connection, err error) {
	s.countSource(c.source.Name, func(n *SourceCounts) {
		switch {
		case err == nil:
			n.Connected++
		case c.hurried > 0:
			n.Failed[FailedInTime]++
		default:
			n.Failed[failureOf(err)]++
		}
	})
}

// countAction counts the automatic actions that are shown by source.
func (s *Scheduler) countAction(a destdb.Action) {
	if a.What == suspended {
		s.countSource(a.Source, func(n *SourceCounts) { n.Suspended++ })
	}
}

// Usage is what is under way, by source and by provider.
type Usage struct {
	Sources, Providers map[string]Load
}

// Load is what is under way in a scope.
type Load struct {
	Connections int // those that are being opened included
	Waiting     int // transactions that no connection has
	Running     int // transactions on connections
}

// Usage counts what is under way. Deliveries wait for it, some nanoseconds for each lane and limit.
func (s *Scheduler) Usage() Usage {
	u := Usage{Sources: make(map[string]Load), Providers: make(map[string]Load)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, b := range s.budgets {
		switch key.kind {
		case scopeSource:
			u.Sources[key.source] = Load{Connections: b.live}
		case scopeProvider:
			u.Providers[key.name] = Load{Connections: b.live}
		}
	}
	for key, l := range s.lanes {
		u.Sources[key.source] = u.Sources[key.source].with(l)
		if p := l.route.Provider; p != "" {
			u.Providers[p] = u.Providers[p].with(l)
		}
	}
	return u
}

func (u Load) with(l *lane) Load {
	u.Waiting += l.waiting.n
	u.Running += l.running
	return u
}

// Party is a kind of name that connections are counted for.
type Party scopeKind

// Parties.
const (
	PartySource   = Party(scopeSource)
	PartyProvider = Party(scopeProvider)
	PartySite     = Party(scopeSite)
)

// LiveOf counts the connections of some names of a kind, those that are being opened included. Unlike Usage it
// looks at nothing else.
func (s *Scheduler) LiveOf(of Party, names []string) []int {
	counts := make([]int, len(names))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range names {
		key := budgetKey{kind: scopeKind(of), name: name}
		if of == PartySource {
			key = budgetKey{kind: scopeSource, source: name}
		}
		if b := s.budgets[key]; b != nil {
			counts[i] = b.live
		}
	}
	return counts
}
