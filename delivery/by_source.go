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
