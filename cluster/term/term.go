// Package term measures how long a right lasts, by clocks that nobody compares: its holder counts from the moment it
// asked, everybody else from a later one, and each allows for a clock that runs fast or slow.
//
// Moments are durations of a machine's own clock, which goes on while a process is stopped (CLOCK_BOOTTIME).
package term

import "time"

// Term is the length of all rights in a cluster.
type Term struct {
	Length time.Duration
	Drift  float64 // by which part a clock may be fast or slow at most: 200e-6
}

// Holds is how long a holder may use a right after it sent the request for it.
func (t Term) Holds() time.Duration { return t.Length - t.slack() }

// Waits is how long others wait, from any moment after that request was sent, until the right has ended.
func (t Term) Waits() time.Duration { return t.Length + t.slack() }

func (t Term) slack() time.Duration { return time.Duration(t.Drift * float64(t.Length)) }

// Less is d by the clock of a machine, so short that no other clock has measured more.
func (t Term) Less(d time.Duration) time.Duration {
	return d - time.Duration(2*t.Drift*float64(d))
}

// Order tells requests of one node apart: the newest counts, and no request of an earlier process comes after one of a
// later process.
type Order struct {
	Incarnation uint64 // raised when the node is forgotten or loses its disk
	Process     uint64 // counted on the node's disk
	Seq         uint64
}

// After reports whether o is newer than p.
func (o Order) After(p Order) bool {
	if o.Incarnation != p.Incarnation {
		return o.Incarnation > p.Incarnation
	}
	if o.Process != p.Process {
		return o.Process > p.Process
	}
	return o.Seq > p.Seq
}
