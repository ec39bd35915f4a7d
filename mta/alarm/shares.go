package alarm

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/legible"
	"example.org/mta/mta/tally"
	"example.org/mta/operator/api"
)

// Count is what happened to the mail of a provider, tenant or source since the start of the relay.
type Count uint8

// The counts. Recipients but for the last two, which are connections.
const (
	Delivered Count = iota
	Deferred
	Bounced
	Expired
	Blocked // attempts that were refused as spam
	Late    // of the deliveries, those after tally.LateAfter
	Connected
	NotConnected
	numCounts
)

// Counts are all counts of a subject.
type Counts [numCounts]int64

// Subjects have counts, by what they are ("provider", "tenant" or "source") and by name.
type Subjects map[string]map[string]Counts

// share is an alarm for subjects of which one count is too large a share of some. The rule of Prometheus in contrib
// has the same definition: a test compares it with [share.expr].
type share struct {
	name   string
	of     string // what the subjects are; it is the label of their metrics
	part   Count
	whole  []Count
	above  float64       // the share
	least  int64         // of part, in the window
	window time.Duration // the longest time that is looked back
	hold   time.Duration // how long it must be so
	reason string        // with the subject's name and the percentage
	rule   string        // of Prometheus
	// metrics are those of part, and of whole without part where that has one more. A quantile is that of a histogram.
	metrics  [2]string
	quantile string
}

var shares = []share{
	{Defers, "provider", Deferred, []Count{Delivered, Deferred}, .5, 50, 15 * time.Minute, 30 * time.Minute,
		"%s has deferred %s of the recipients tried: 'mta sites --provider' has the replies", "MTAProviderDefers",
		[2]string{`mta_provider_recipients_total{provider!="", result="deferred"}`,
			`mta_provider_recipients_total{provider!="", result="delivered"}`}, ""},
	{Blocks, "provider", Blocked, []Count{Delivered, Deferred, Bounced, Expired}, .05, 20, 30 * time.Minute,
		15 * time.Minute, "%s has refused %s of the recipients tried as spam", "MTAProviderBlocks",
		[2]string{`mta_attempts_refused_total{class="SpamBlock"}`, `mta_provider_recipients_total`}, ""},
	{Slow, "provider", Late, []Count{Delivered}, .1, 0, 30 * time.Minute, 30 * time.Minute,
		"at %s, %s of the deliveries were half an hour late or later", "MTADeliverySlow", [2]string{},
		"mta_provider_delivery_delay_seconds"},
	{Bounces, "tenant", Bounced, []Count{Delivered, Bounced}, .1, 50, time.Hour, 15 * time.Minute,
		"of %s, %s of the recipients bounced: providers hold that against the source", "MTABounces",
		[2]string{`mta_tenant_recipients_total{result="bounced"}`,
			`mta_tenant_recipients_total{result="delivered"}`}, ""},
	{Connects, "source", NotConnected, []Count{Connected, NotConnected}, .5, 20, 15 * time.Minute, 10 * time.Minute,
		"from %s, %s of the connections could not be made", "MTASourceCannotConnect",
		[2]string{"mta_source_connect_failures_total", "mta_source_connects_total"}, ""},
}

// Mail returns the counts of providers, tenants and sources.
func Mail(t *tally.Tallies, connects map[string]delivery.SourceCounts) Subjects {
	all := Subjects{"provider": {}, "tenant": {}, "source": {}}
	for of, scope := range map[string]tally.Scope{"provider": tally.Provider, "tenant": tally.Tenant} {
		for name, c := range t.Counts(scope) {
			all[of][name] = Counts{c.Delivered, c.Deferred, c.Bounced, c.Expired, c.Blocked, c.Late}
		}
	}
	for name, c := range connects {
		n := Counts{Connected: int64(c.Connected)}
		for _, failed := range c.Failed {
			n[NotConnected] += int64(failed)
		}
		all["source"][name] = n
	}
	return all
}

// follower follows a share over time, by the counts at the begin of the window and half of it later: what it judges
// is between half a window and a whole one.
type follower struct {
	*share
	first, half map[string]Counts
	turned      time.Time
	since       map[string]time.Time // when the share of a subject became too large
}

// step judges by the counts now, and returns the reason of the alarm; "": it is off.
func (f *follower) step(now time.Time, counts map[string]Counts) string {
	if f.turned.IsZero() {
		f.turned, f.since = now, make(map[string]time.Time)
	}
	if now.Sub(f.turned) >= f.window/2 {
		f.first, f.half, f.turned = f.half, counts, now
	}
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		n, before := counts[name], f.first[name]
		part, whole := n[f.part]-before[f.part], int64(0)
		for _, c := range f.whole {
			whole += n[c] - before[c]
		}
		if part <= f.least || float64(part) <= f.above*float64(whole) {
			delete(f.since, name)
			continue
		}
		if f.since[name].IsZero() {
			f.since[name] = now
		}
		if now.Sub(f.since[name]) >= f.hold {
			percent := fmt.Sprintf("%.0f %%", math.Floor(100*float64(part)/float64(whole)))
			reasons = append(reasons, fmt.Sprintf(f.reason, cmp.Or(name, "mail without a "+f.of), percent))
		}
	}
	return strings.Join(reasons, "; ")
}

// filling follows the free octets of the queue's disk over six hours.
type filling struct {
	first, half int64
	turned      time.Time
}

const (
	fillingWindow = 6 * time.Hour
	fillingAhead  = 24 * time.Hour
)

// step returns the reason of the alarm: at the present rate, the disk is full within a day.
func (f *filling) step(now time.Time, free int64) string {
	if f.turned.IsZero() {
		f.half, f.turned = free, now
	}
	if now.Sub(f.turned) >= fillingWindow/2 {
		f.first, f.half, f.turned = f.half, free, now
	}
	lost, took := f.first-free, now.Sub(f.turned)+fillingWindow/2
	if f.first == 0 || lost*10 < f.first || float64(free) > float64(lost)*fillingAhead.Seconds()/took.Seconds() {
		return ""
	}
	return fmt.Sprintf("the queue's disk will be full within a day: %s are free, and %s were used in %s",
		legible.Size(free), legible.Size(lost), api.Age(took.Round(time.Minute)))
}
