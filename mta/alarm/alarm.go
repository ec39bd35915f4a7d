// Package alarm looks at the relay once a minute, at its disk each second, and keeps which alarms are on.
package alarm

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/faultlog"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/router/resolver"
)

// The alarms, each a log line when it begins and when it ends, and the metric mta_alarm and a line of 'mta status'
// meanwhile.
const (
	Age      = "queue_age"       // the first of what is due has waited too long
	Growing  = "queue_growing"   // what is due grows and grows
	Stuck    = "queue_stuck"     // much waits, and little leaves
	Silent   = "low_traffic"     // much less is delivered than at this hour a week ago
	DKIM     = "dkim"            // mail waits for a signature that can't be made
	Unsigned = "dkim_unsigned"   // mail leaves without the signature of its domain, since no block may sign it
	Storage  = "storage"         // the queue's disk is full, or can't be written
	Sources  = "sources"         // a source can't send: this machine lacks its address, or sites block it
	Records  = "accounting"      // accounting records can't be written
	Audit    = "audit"           // operators' actions can't be put on record, so nothing can be changed
	DNS      = "dns"             // name servers answer nothing
	Damage   = "damage"          // octets of a file are not what was written
	Warmup   = "warmup"          // the ledger of a warm-up is no help: its source gets no tokens
	Health   = "warmup_health"   // the mail of a warming source is badly received
	Maildrop = "maildrop"        // mail that sendmail left can't be picked up
	Paused   = "paused"          // an operator lets nothing be sent at all
	Clock    = "clock"           // the machine's clock jumped ahead, or was set back
	Certs    = "certificates"    // a certificate has expired, or will soon
	Checks   = "dns_checks"      // receivers will refuse or distrust mail: its DNS is not right
	Flood    = "flood"           // a provider calls recipients unknown that it knew: entries are set aside
	Overload = "overload"        // mail is refused, since more comes than can be kept
	Streams  = "streams"         // events have waited for long
	Refused  = "stream_refused"  // a receiver refuses events
	Gap      = "stream_gap"      // a stream has lost events
	Defers   = "provider_defers" // a provider defers more than it takes
	Blocks   = "provider_blocks" // a provider takes mail for spam
	Slow     = "delivery_slow"   // one delivery in ten to a provider is half an hour late
	Bounces  = "bounces"         // much of a tenant's mail bounces
	Connects = "source_connects" // a source can hardly connect
	Filling  = "disk_filling"    // the queue's disk will be full within a day
	Milters  = "milters"         // a milter fails: mail is refused, or passes unchecked
	Logins   = "logins"          // somebody guesses passwords or API keys, or the file of users or keys can't be read

	Part     = "cluster"             // the relay takes no part in its cluster, or has no answer of another node
	Database = "cluster_database"    // the cluster's database does not answer
	Standby  = "cluster_standby"     // the cluster's database has no synchronous standby
	Node     = "cluster_certificate" // the certificate of this node ends soon

	tooOldDue     = 5 * time.Minute
	growsFor      = 5    // minutes in a row
	muchWaits     = 1000 // recipients
	stuckFor      = 10   // minutes that are looked at
	stuckPace     = 48   // times those: what waits would take longer than that to leave
	hoursInWeek   = 7 * 24
	silentShare   = 0.3
	unanswered    = 10 // look-ups in a row within quietTime; fewer may be those of broken domains
	quietTime     = 30 * time.Minute
	worthCounting = 100 // deliveries in an hour below which traffic is too little to compare

	// damageShown is how long the alarm is on after the last damage was found.
	damageShown = 24 * time.Hour

	// storageLook is how often the queue is asked whether it takes mail, which costs microseconds.
	storageLook = time.Second
)

var names = []string{Age, Growing, Stuck, Silent, Storage, Sources, Records, Audit, DNS, Damage, Warmup, Health,
	Maildrop, Milters,
	Paused, Clock, Logins, Certs, Checks, Flood, Overload, Streams, Refused, Gap, DKIM, Unsigned, Defers, Blocks, Slow,
	Bounces, Connects, Filling, Part, Database, Standby, Node}

// often are those that are judged each second.
var often = []string{Storage, Paused, Overload, Part, Database, Standby, Node}

// watch is what the alarms of queue, traffic and sources are judged by; it is fed once a minute.
type watch struct {
	due       int64
	grown     int // minutes in a row that due has grown
	hour      int // hours since the watch began
	delivered int64
	perHour   [hoursInWeek]int64 // delivered, by hour; as they were a week ago until overwritten
	begun     time.Time

	answered uint64    // look-ups, when there was an answer last
	failed   uint64    // the failures until then
	heard    time.Time // when that was seen, or the count begun anew

	disk filling

	left []int64 // recipients that had left the queue, minute by minute

	queue, records finds // damage
}

// finds follows a count of damage.
type finds struct {
	n  int64
	at time.Time // when the last was found
}

// step takes the count, and reports whether damage was found lately.
func (f *finds) step(now time.Time, n int64) bool {
	if n > f.n {
		f.n, f.at = n, now
	}
	return f.n > 0 && now.Sub(f.at) < damageShown
}

// step judges by the state of the queue now, and by the sources that are missing. It gives the alarms
// that are on, each with its reason.
func (w *watch) step(now time.Time, s *queue.Stats, missing []string) map[string]string {
	on := make(map[string]string)
	if s.OldestDue > tooOldDue {
		on[Age] = fmt.Sprintf("the oldest due mail has waited for %s: delivery does not keep up", api.Age(s.OldestDue))
	}
	if w.grown++; s.Due <= w.due {
		w.grown = 0
	}
	if w.due = s.Due; w.grown >= growsFor {
		on[Growing] = fmt.Sprintf("%d recipients are due, and the number has grown for %d minutes", s.Due, w.grown)
	}
	if reason := w.traffic(now, s.Delivered); reason != "" {
		on[Silent] = reason
	}
	if w.queue.step(now, s.DamagedRecords) {
		on[Damage] = fmt.Sprintf(
			"%d places in the queue's files are corrupt: the disk, or its memory, is failing; the log has DAMAGE "+
				"with file and message, 'mta queue fsck' checks all", w.queue.n)
	}
	if s.Clock != "" {
		on[Clock] = s.Clock
	}
	if reason := w.disk.step(now, s.FreeBytes); reason != "" {
		on[Filling] = reason
	}
	if len(missing) > 0 {
		on[Sources] = fmt.Sprintf(
			"this machine does not have the address of %s: their mail leaves from other sources of the pool, or waits",
			strings.Join(missing, ", "))
	}
	return on
}

// lines judges by the damaged records of the accounting log.
func (w *watch) lines(now time.Time, s accounting.Stats) (reason string) {
	if !w.records.step(now, s.Damaged) {
		return ""
	}
	return fmt.Sprintf("records of the accounting log are damaged and left out, or missing, at %d places, the last "+
		"found at %s: the disk, or its memory, is failing", s.Damaged, s.LastDamage)
}

// stuck judges by what waits for anything but its time or an operator, in words, and by all that has left so far.
func (w *watch) stuck(waits int, why string, left int64) (reason string) {
	if w.left = append(w.left, left); len(w.left) <= stuckFor {
		return ""
	}
	n := left - w.left[0]
	w.left = append(w.left[:0], w.left[1:]...)
	if waits < muchWaits || int64(waits) <= n*stuckPace {
		return ""
	}
	return fmt.Sprintf("only %d recipients have left the queue in %d minutes: %s", n, stuckFor, why)
}

// traffic compares the last whole hour with the same one a week before.
func (w *watch) traffic(now time.Time, delivered int64) (reason string) {
	if w.begun.IsZero() {
		w.begun, w.delivered = now, delivered
	}
	for hour := int(now.Sub(w.begun) / time.Hour); w.hour < hour; w.hour++ {
		slot := &w.perHour[w.hour%hoursInWeek]
		before, this := *slot, delivered-w.delivered
		*slot, w.delivered = this, delivered
		if reason = ""; w.hour >= hoursInWeek && before >= worthCounting &&
			float64(this) < silentShare*float64(before) {
			reason = fmt.Sprintf("%d recipients were delivered in the last hour, %d in the same hour a week ago", this,
				before)
		}
	}
	return reason
}

// names judges the name servers by what became of look-ups so far.
func (w *watch) names(now time.Time, s *resolver.Stats) (reason string) {
	n := s.Failed - w.failed
	switch {
	case s.Answered == w.answered && n >= unanswered:
		return fmt.Sprintf(
			"name servers have answered none of the last %d look-ups, for %s: mail to domains without a cached route "+
				"waits", n, api.Age(now.Sub(w.heard).Round(time.Minute)))
	case s.Answered != w.answered || now.Sub(w.heard) >= quietTime:
		w.answered, w.failed, w.heard = s.Answered, s.Failed, now
	}
	return ""
}

// New keeps alarms, all of them off.
func New(log *slog.Logger) *Alarms { return &Alarms{log: log, on: make(map[string]api.Alarm)} }

// Alarms keeps which are on.
type Alarms struct {
	log *slog.Logger

	mu sync.Mutex // guards on
	on map[string]api.Alarm
}

// Set brings an alarm on, for a reason, or off ("").
func (a *Alarms) Set(now time.Time, name, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, was := a.on[name]
	switch {
	case reason != "" && was:
		a.on[name] = api.Alarm{Name: name, Reason: reason, Since: old.Since}
	case reason != "":
		a.on[name] = api.Alarm{Name: name, Reason: reason, Since: now}
		a.log.Error("alarm begins", "alarm", name, "reason", reason)
	case was:
		delete(a.on, name)
		a.log.Info("alarm ends", "alarm", name)
	}
}

// storage follows why mail is refused. The alarm stays for some seconds at least: a disk that is nearly
// full has room by turns, and must not be filled with lines about that.
func (a *Alarms) storage(now time.Time, refusing string) {
	a.mu.Lock()
	on, is := a.on[Storage]
	a.mu.Unlock()
	if refusing == "" && is && now.Sub(on.Since) < faultlog.Quiet {
		return
	}
	a.Set(now, Storage, refusing)
}

// On reports whether an alarm is on.
func (a *Alarms) On(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, on := a.on[name]
	return on
}

// States gives for each alarm whether it is on.
func (a *Alarms) States() map[string]bool {
	all := make(map[string]bool, len(names))
	for _, name := range names {
		all[name] = a.On(name)
	}
	return all
}

// List gives those that are on.
func (a *Alarms) List() (on []api.Alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		if alarm, is := a.on[name]; is {
			on = append(on, alarm)
		}
	}
	return on
}

// Sight is where the alarms look. A function that returns a reason returns "" for none.
type Sight struct {
	Queue        func() queue.Stats
	Refusing     func() string   // why mail is refused; "": it is not
	Sources      func() []string // sources that this machine does not have
	Blocked      func() string   // which sources receivers block; "": none
	Records      func() string   // why accounting records are not written; "": they are
	Audit        func() string   // why operators' actions can't be put on record; "": they can
	DNS          func() resolver.Stats
	Warmups      func() string // why warm-ups send nothing, though nobody wants that; "": they do
	Health       func() string // which warm-ups are badly received; "": none
	Maildrop     func() string // why what sendmail left is not picked up; "": it is
	Paused       func() string // that everything is paused; "": it is not
	Milters      func() string // which milters fail; "": none
	Logins       func() string // who guesses passwords; "": nobody
	Certificates func() string // which certificates expire; "": none
	Overload     func() string // which share of mail is refused; "": none
	Checks       func() string // what receivers will object to; "": nothing
	Flood        func() string // which providers call far too many recipients unknown; "": none
	Damaged      func() string // which damaged files were set aside; "": none
	Log          func() accounting.Stats
	Streams      func() (behind, refused, gap string)
	Cluster      func() (part, database, standby, certificate string)
	Signing      func() (waits, withheld string)
	Subjects     func() Subjects
	// Waits returns how many recipients wait for anything but their time or an operator, and why all of them do.
	Waits func() (n int, why string)
}

// Run looks once a minute, and after the disk each second, until ctx ends.
func (a *Alarms) Run(ctx context.Context, look Sight) {
	w, shared := watch{heard: time.Now()}, make([]follower, len(shares))
	for i := range shares {
		shared[i].share = &shares[i]
	}
	minute, storage := time.NewTicker(time.Minute), time.NewTicker(storageLook)
	defer minute.Stop()
	defer storage.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-storage.C:
			a.storage(now, look.Refusing())
			a.Set(now, Paused, look.Paused())
			a.Set(now, Overload, look.Overload())
			part, database, standby, certificate := look.Cluster()
			a.Set(now, Part, part)
			a.Set(now, Database, database)
			a.Set(now, Standby, standby)
			a.Set(now, Node, certificate)
		case now := <-minute.C:
			s := look.Queue()
			on := w.step(now, &s, look.Sources())
			dns := look.DNS()
			waits, why := look.Waits()
			on[Stuck] = w.stuck(waits, why, s.Delivered+s.Bounced+s.Expired+s.Removed+s.Transferred)
			on[Sources] = strings.Trim(on[Sources]+"; "+look.Blocked(), "; ")
			on[Records], on[Audit], on[DNS] = look.Records(), look.Audit(), w.names(now, &dns)
			on[Logins], on[Certs], on[Milters] = look.Logins(), look.Certificates(), look.Milters()
			on[Checks], on[Flood] = look.Checks(), look.Flood()
			on[Streams], on[Refused], on[Gap] = look.Streams()
			on[Warmup], on[Health], on[Maildrop] = look.Warmups(), look.Health(), look.Maildrop()
			for _, reason := range []string{w.lines(now, look.Log()), look.Damaged()} {
				on[Damage] = strings.Trim(on[Damage]+"; "+reason, "; ")
			}
			on[DKIM], on[Unsigned] = look.Signing()
			subjects := look.Subjects()
			for i := range shared {
				f := &shared[i]
				on[f.name] = f.step(now, subjects[f.of])
			}
			for _, name := range names {
				if !slices.Contains(often, name) {
					a.Set(now, name, on[name])
				}
			}
		}
	}
}
