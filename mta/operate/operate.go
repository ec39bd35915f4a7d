// Package operate answers operators: it puts what the parts of a relay know into the words of the
// control API and of the metrics. It asks the parts and carries out what an operator asks of them;
// it decides nothing about mail by itself. It has no goroutine but the caller's.
package operate

import (
	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/mta/tally"
	"example.org/mta/queue"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
	"example.org/mta/suppression"
)

// Parts are the parts of a relay that operators ask about.
type Parts struct {
	Config     func() *config.Config // in force
	Queue      *queue.Queue
	Delivery   *delivery.Scheduler
	Router     *router.Router
	Resolver   *resolver.Resolver
	STS        *sts.Policies
	TLSReports *tlsrpt.Reporter // nil when none are sent
	Suppressed *suppression.List
	Tally      *tally.Tallies
	Missing    func(source string) bool // whether this machine lacks the source's address
}

// States counts the recipients in the queue by state. Queue and delivery are asked one after the other.
func (p *Parts) States(s *queue.Stats) map[string]int64 {
	active := min(int64(p.Delivery.Counts().Carried), s.Leased)
	return map[string]int64{
		string(control.StateDue): s.Due, string(control.StateWaiting): s.Parked + s.Leased - active, string(control.StateActive): active,
		string(control.StateDeferred): s.Deferred, string(control.StateHeld): s.Held, string(control.StateEnding): s.Ending,
		string(control.StateUnreadable): s.Unreadable,
	}
}
