// Package answer answers operators: it puts what the parts of a relay know into the words of the
// control API and of the metrics. It asks the parts and carries out what an operator asks of them;
// it decides nothing about mail by itself. It has no goroutine but the caller's.
package answer

import (
	"log/slog"
	"sync"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/bounce/inbox"
	"example.org/mta/delivery"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/mta/tally"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
	"example.org/mta/submission/idempotency"
	"example.org/mta/submission/keys"
	"example.org/mta/suppression"
	"example.org/mta/suppression/feed"
)

// Relay is a relay as operators see it: its parts, and what package mta answers for the others.
type Relay struct {
	Policy     func() *wiring.Policy // in force
	Now        func() time.Time
	Log        *slog.Logger
	Queue      *queue.Queue
	Delivery   *delivery.Scheduler
	Router     *router.Router
	Dispatcher Dispatcher
	Pauses     *pauses.Pauses
	Resolver   *resolver.Resolver
	TLSA       tlspolicy.Records
	STS        *sts.Policies
	TLSReports *tlsrpt.Reporter // nil when none are sent
	Inbound    *inbox.Inbox
	// InboundFolder has what Inbound keeps.
	InboundFolder *inbox.Folder
	Suppressed    *suppression.List
	Feeder        *feed.Feeder    // of that list
	Unknown       *bounce.Unknown // replies
	Started       time.Time
	Streams       *events.Streams // nil without an accounting log
	Tally         *tally.Tallies
	Meter         *tally.Meter
	Rates         *Rates
	Entrances     func() []Entrance // by which clients submit
	Warmups       WarmupController
	// Diverted gives what became of the mail for the pools of a warm-up since a time, to the hour.
	Diverted func(key string, since time.Time) Diverted
	// Sites gives the providers of what waits; false when it is not known whether it has one.
	Sites interface {
		Provider(parking.Key) (string, bool)
		ProviderOf(key parking.Key, domain string) (string, bool)
	}
	Missing func(source string) bool // whether this machine lacks the source's address
	UseOf   func(*config.Tenant) *api.TenantUse
	Keys    func() *keys.Book // in force; nil without a keys file
	Repeats *idempotency.Book // of requests that have a key

	// Receptions hears of messages that are imported.
	Receptions Receptions
	Version    string // of this program

	simulations simulations
	importing   sync.Mutex // held by the import that is under way
}

// Dispatcher is what operators need to know of mail between queue and delivery, and the one thing that they do there.
type Dispatcher interface {
	// LookingUp reports whether a recipient waits for the route of its domain, in memory.
	LookingUp(id envelope.ID, domain string, recipient int) bool
	// Signing reports whether a message is being signed.
	Signing(envelope.ID) bool
	// Cancel takes back what waits within delivery.
	Cancel(envelope.ID)
}

// API gives what answers the control API, all but the relay's own state, the log and traces.
func (r *Relay) API() api.Config {
	return api.Config{
		Queue: messages{r}, Moves: messages{r}, Destinations: destinations{r}, Blocks: blocks{r}, OpenConnections: connections{r}, Pauses: pauseAnswers{r}, Warmups: warmups{r},
		APIKeys: apiKeys{r}, Suppressions: suppressions{r}, Bounces: bounces{r}, TLSReports: tlsReports{r}, Inbound: inbound{r}, TLSPolicies: tlsPolicies{r}, Streams: streamAnswers{r}, Events: r.Log,
	}
}

// States counts the recipients in the queue by state. Queue and delivery are asked one after the other.
func (r *Relay) States(s *queue.Stats) map[string]int64 {
	active := min(int64(r.Delivery.Counts().Carried), s.Leased)
	return map[string]int64{
		string(api.StateDue): s.Due, string(api.StateWaiting): s.Parked + s.Leased - active, string(api.StateActive): active,
		string(api.StateDeferred): s.Deferred, string(api.StateHeld): s.Held, string(api.StateEnding): s.Ending,
		string(api.StateUnreadable): s.Unreadable,
	}
}
