package api

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/reply"
)

// State is what a recipient in the queue is doing.
type State = envelope.State

// The states of a recipient in the queue; internal/envelope has their meanings.
const (
	StateDue        = envelope.Due
	StateWaiting    = envelope.Waiting
	StateActive     = envelope.Active
	StateDeferred   = envelope.Deferred
	StateHeld       = envelope.Held
	StateEnding     = envelope.Ending
	StateUnreadable = envelope.Unreadable
)

// States are all of them.
var States = states()

func states() (all []State) {
	for _, s := range envelope.States {
		all = append(all, s.State)
	}
	return all
}

// Reply is what a remote host answered last, or what the relay says in place of an answer.
type Reply struct {
	Code     int    `json:"code"`               // SMTP reply code; 0: no reply at all
	Enhanced string `json:"enhanced,omitempty"` // enhanced status code, as 4.2.1
	Text     string `json:"text,omitempty"`     // lines are parted by \n
	Command  string `json:"command,omitempty"`  // what it answers: connect, MAIL, RCPT, content, route...
	Local    bool   `json:"local,omitempty"`    // made by this relay
}

// String gives the reply on one line, with what it answers: "RCPT: 450 4.2.0 mailbox busy".
func (r *Reply) String() string {
	text := strings.ReplaceAll(r.Text, "\n", " / ")
	if r.Enhanced != "" {
		text = r.Enhanced + " " + text
	}
	if r.Code != 0 {
		text = fmt.Sprintf("%d %s", r.Code, text)
	}
	if r.Command != "" {
		text = r.Command + ": " + text
	}
	return text
}

// RecipientStatus is one recipient of a message and what becomes of it.
type RecipientStatus struct {
	Address   string    `json:"address"` // without angle brackets
	State     State     `json:"state"`
	Site      string    `json:"site,omitempty"`      // what it waits for, or was tried at last
	WaitsFor  Reason    `json:"waits_for,omitempty"` // the class of reason; absent: it is on a connection
	Attempts  int       `json:"attempts"`            // so far
	Next      time.Time `json:"next,omitzero"`       // the time of the next attempt; absent: as soon as possible
	Expires   time.Time `json:"expires,omitzero"`    // when it is given up; absent: not known
	Reply     *Reply    `json:"reply,omitempty"`     // the last one; nil before the first attempt has ended
	Warned    bool      `json:"warned,omitempty"`    // the sender has had a delay report
	Scheduled bool      `json:"scheduled,omitempty"` // not tried yet: submitted to be released at next
	// Rerouted is the way that an operator has chosen for it; nil: its own.
	Rerouted *Rerouted `json:"rerouted,omitempty"`
	// what an operator has asked for while it is on a connection: done when the attempt ends, unless that has
	// delivered or bounced it
	Asked Action `json:"asked,omitempty" words:"hold,bounce,remove,retry"`
	// what an active one is about, for people: the look-up of its route, waiting for a connection, or the transfer.
	// Of a waiting one, what keeps it, or the warm-up that it waits for. Absent from long pages
	Doing string `json:"doing,omitempty"`
}

// Why is the reason for a recipient's state on one line: what is going on, or the last reply; "" when there is
// none. zone is that of the times in it.
func (r *RecipientStatus) Why(zone *time.Location) string {
	why := r.ownWhy(zone)
	switch {
	case r.Rerouted == nil:
		return why
	case why == "":
		return "rerouted " + r.Rerouted.String()
	}
	return "rerouted " + r.Rerouted.String() + "; " + why
}

// ownWhy is Why without regard to a reroute.
func (r *RecipientStatus) ownWhy(zone *time.Location) string {
	switch {
	case r.Doing != "":
		return r.Doing
	case r.Reply != nil:
		return r.Reply.String()
	case r.Scheduled:
		return "scheduled for " + r.Next.In(zone).Format(time.DateTime)
	case r.State == StateWaiting:
		return "waits for " + r.Site
	}
	return ""
}

// Rerouted is the way that an operator has chosen for a recipient.
type Rerouted struct {
	Reroutes
	Note string `json:"note,omitempty"` // why a part of it doesn't apply; left out when all does
}

// String gives it in words: "by pool backup, by the route of smarthost.example".
func (r *Rerouted) String() string {
	var parts []string
	if r.Pool != "" {
		parts = append(parts, "by pool "+r.Pool)
	}
	if r.Route != "" {
		parts = append(parts, "by the route of "+r.Route)
	}
	text := strings.Join(parts, ", ")
	if r.Note != "" {
		text += " (" + r.Note + ")"
	}
	return text
}

// Item is a message in the queue.
type Item struct {
	ID       string    `json:"id"`                 // 13 characters; ids sort by the time of acceptance
	Sender   string    `json:"sender"`             // "" is the null sender
	Size     int64     `json:"size"`               // octets of the content
	Received time.Time `json:"received"`           // when it was accepted, here or where it was moved from
	Tenant   string    `json:"tenant,omitempty"`   // on whose behalf
	Campaign string    `json:"campaign,omitempty"` // a finer label below the tenant
	Tags     []string  `json:"tags,omitempty"`     // the sender's labels
	Tier     int       `json:"tier"`               // 0 matters most, 5 least

	Peer string `json:"peer,omitempty"` // ip:port of who submitted it
	User string `json:"user,omitempty"` // who had logged in there; only in the answer for one message
	// what the peer called itself; only in the answer for one message
	HeloName string `json:"helo_name,omitempty"`
	Protocol string `json:"protocol,omitempty"` // as ESMTP; only in the answer for one message
	Session  string `json:"session,omitempty"`  // of the submission; only in the answer for one message
	// the sender's own id of the envelope (RFC 3461); only in the answer for one message
	EnvID string `json:"envid,omitempty"`
	// when it is given up at the latest, as its sender has asked; only in the answer for one message
	Expires time.Time       `json:"expires,omitzero"`
	Meta    json.RawMessage `json:"meta,omitempty"` // the sender's data; only in the answer for one message
	// the pool of sources that its sender named; only in the answer for one message
	Pool string `json:"pool,omitempty"`
	// the name of the API key that submitted it; only in the answer for one message
	Key string `json:"key,omitempty"`
	// the relay that accepted it, and its id there, as node/id; only in the answer for one message
	MovedFrom string `json:"moved_from,omitempty"`

	Recipients []RecipientStatus `json:"recipients"` // those in the queue that fit the filter, up to a limit
	Matching   int               `json:"matching"`   // recipients that fit the filter, those left out included
	Total      int               `json:"total"`      // recipients that the message was accepted for
	// the record on disk is damaged: all but the id and the states is unknown
	Unreadable bool `json:"unreadable,omitempty"`
}

// Reason is the word of a class of what mail waits for.
type Reason string

// Filter says which recipients are meant. All that is set must fit; the zero Filter fits all.
// Domains, sites and addresses are compared without regard to case.
type Filter struct {
	IDs       []string `json:"ids,omitempty" q:"id" arg:"ID" help:"any of these messages"`
	Domain    string   `json:"domain,omitempty" q:"domain" help:"recipients at this <domain>"`
	Site      string   `json:"site,omitempty" q:"site" help:"recipients that wait for this <site>, or were tried there"`
	Tenant    string   `json:"tenant,omitempty" q:"tenant" help:"messages of this <tenant>"`
	Campaign  string   `json:"campaign,omitempty" q:"campaign" help:"messages of this <campaign>"`
	Tag       string   `json:"tag,omitempty" q:"tag" help:"messages with this <tag>"`
	Sender    string   `json:"sender,omitempty" q:"sender" help:"messages from this <address>; <> is the null sender"`
	Recipient string   `json:"recipient,omitempty" q:"recipient" help:"this recipient's <address>"`
	State     State    `json:"state,omitempty" q:"state" help:"recipients in this <state>: due, waiting, active, deferred, held, ending, unreadable"`
	WaitsFor  Reason   `json:"waits_for,omitempty" q:"waits_for" label:"Waits for" help:"recipients that wait for this <class> of reason, such as dns, unreachable, rate, limit"`
	Reply     string   `json:"reply,omitempty" q:"reply" help:"recipients whose last reply has this <text>, in any case of letters"`
	Provider  string   `json:"provider,omitempty" q:"provider" help:"recipients that wait for a site of this <provider>, or were tried there"`
	Source    string   `json:"source,omitempty" q:"source" help:"recipients that wait for this <source>, or were tried from it"`
	Older     Age      `json:"older,omitempty" q:"older" label:"Older than" hint:"2h" help:"received at least this long ago, such as 90s, 15m, 2h30m, 3d"`
	Newer     Age      `json:"newer,omitempty" q:"newer" label:"Newer than" hint:"15m" help:"received less than this long ago"`
}

// Empty reports whether f fits everything.
func (f *Filter) Empty() bool {
	whole := *f
	whole.IDs = nil
	return len(f.IDs) == 0 && reflect.ValueOf(whole).IsZero()
}

// String gives what is set, for logs.
func (f Filter) String() string {
	if f.Empty() {
		return "everything"
	}
	var parts []string
	for _, p := range Params(&f) {
		if text, set := p.Text(); set {
			parts = append(parts, p.Name+"="+text)
		}
	}
	return strings.Join(parts, " ")
}

// Order is the order of a listing.
type Order string

// What a listing begins with.
const (
	OldestFirst Order = "oldest"
	NewestFirst Order = "newest"
	NextAttempt Order = "next"      // what is tried first; what waits for no time comes last
	Following   Order = "following" // what comes behind a place
)

// Orders are all of them.
var Orders = []Order{OldestFirst, NewestFirst, NextAttempt}

// Limits of a page.
const (
	DefaultLimit      = 50
	MaxLimit          = 1000
	DefaultRecipients = 10
)

// Page is which part of a listing is wanted.
type Page struct {
	Order      Order  `q:"order" default:"oldest" options:"oldest first,newest first,next attempt" help:"sort by <oldest, newest>, or next (next attempt) first"`
	After      string `q:"after" help:"continue after the previous page (<cursor>)"` // List.Next
	Limit      int    `q:"limit" default:"50" min:"1" max:"1000" help:"messages on the page"`
	Recipients int    `q:"recipients" default:"10" help:"recipients shown of each message; 0: all"`
}

// ListQuery asks for a page of the messages that fit.
type ListQuery struct {
	Filter
	Page
}

// List is a page of messages. The relay looks for them for 150 ms: a page can have fewer than were
// asked for, even none, and a next page.
type List struct {
	Messages []Item `json:"messages"`       // in the order that was asked for
	Next     string `json:"next,omitempty"` // after of the next page; absent: this is the last
	Looked   int    `json:"looked"`         // recipients that were examined for this page
	Complete bool   `json:"complete"`       // the page is full, or the last; if not, the 150 ms for a page were over
	// of ids that were asked for: under which others messages have come here that had them at another relay
	Moved map[string][]string `json:"moved,omitempty"`
}

// Action is what an operator does to messages.
type Action string

const (
	Hold    Action = "hold"    // try no more until Release
	Release Action = "release" // undo Hold
	Retry   Action = "retry"   // try now, whatever was the time of the next attempt
	Bounce  Action = "bounce"  // give up, with a report to the sender
	Remove  Action = "remove"  // give up, without a report
	Reroute Action = "reroute" // send it by another pool, or by the route of another domain
)

// Actions are all of them.
var Actions = []Action{Hold, Release, Retry, Bounce, Remove, Reroute}

// Change is an action on what a filter fits.
type Change struct {
	// hold: make no attempts; release: undo a hold; retry: try now; bounce: give up and send a report to the
	// sender; remove: give up without a report; reroute: send by another pool, or by the route of another domain
	Action Action `json:"action"`
	Filter Filter `json:"filter"`
	All    bool   `json:"all,omitempty" q:"all" help:"everything in the queue"` // must be true when the filter is empty
	Intent

	// of retry: release scheduled mail before its time, too
	Scheduled bool `json:"scheduled,omitempty" q:"scheduled" help:"also release scheduled mail before its time"`
	// of retry: end all obstacles that can be ended: holds, suspensions of sites and hosts, retry times of hosts
	Now bool `json:"now,omitempty" q:"now" help:"remove obstacles: holds, suspensions of sites and hosts, retry times of hosts"`

	// Of a reroute: the way that the mail takes from now on. What waits is due at once by it, held and scheduled mail
	// apart. Own ends an earlier reroute; Pool and Route are left out then.
	Reroutes
	// of a reroute: end an earlier one, so that the mail takes its own way again
	Own bool `json:"own,omitempty" q:"own" help:"end a reroute"`
}

// Reroutes is the way that an operator has chosen for mail, in place of its own.
type Reroutes struct {
	// of a reroute: the pool from whose sources the mail leaves
	Pool string `json:"pool,omitempty" q:"pool" help:"leave from the sources of this <pool>"`
	// of a reroute: a domain with a route in the configuration, which the mail takes
	Route string `json:"route,omitempty" q:"route" help:"take the route that the configuration has for this <domain>"`
}

// checkReroute refuses a way that is not valid, and one for another action.
func (c *Change) checkReroute() error {
	switch ways := c.Reroutes != (Reroutes{}); {
	case c.Action != Reroute && (ways || c.Own):
		return Invalid("", "pool, route and own are for the action %s", Reroute)
	case c.Action == Reroute && ways == c.Own:
		return Invalid("name a pool, or a domain whose route it takes; or own, for its own way",
			"%s: want a way for the mail", Reroute)
	}
	return nil
}

// Changed is what a change did, or with DryRun would do.
type Changed struct {
	Effect
	Recipients int `json:"recipients"` // for how many it made a difference
	// those of recipients that are on a connection: the action is done when the attempt ends, unless it has
	// delivered or bounced them
	Later int `json:"later,omitempty"`

	// of retry: recipients that go on waiting for the time that their senders asked for
	Scheduled int `json:"scheduled,omitempty"`
	// of retry: what keeps mail from leaving all the same, the largest first, 100 at most
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// of retry with now: holds, suspensions and retry times that were ended
	Ended int `json:"ended,omitempty"`
}

// Obstacle is what keeps mail that is due from leaving.
type Obstacle struct {
	Site       string    `json:"site,omitempty"` // empty: whatever the site
	Recipients int       `json:"recipients"`     // how many of those that are meant it keeps
	Why        string    `json:"why"`            // one sentence
	Until      time.Time `json:"until,omitzero"` // left out: until something happens
	// the command that ends it; left out: a retry with now, unless it stays
	Remedy string `json:"remedy,omitempty"`
	Stays  bool   `json:"stays,omitempty"` // a retry doesn't end it, as the pace of a warm-up
}

// SummaryBy is what a summary has a row for.
type SummaryBy string

// The properties that a summary can count by.
const (
	BySite         SummaryBy = "site"     // what the mail waits for, or was tried at last
	ByProvider     SummaryBy = "provider" // of the site; "" means none, or not known yet
	BySource       SummaryBy = "source"   // the only one that the mail may leave from; "" is any, or not known yet
	ByDomain       SummaryBy = "domain"   // the recipient's
	ByTenant       SummaryBy = "tenant"
	ByCampaign     SummaryBy = "campaign"
	BySenderDomain SummaryBy = "sender_domain" // "" is that of the null sender
	ByState        SummaryBy = "state"
	ByWaitsFor     SummaryBy = "waits_for" // the class of reason; "" is on a connection
)

// SummaryBys are all of them.
var SummaryBys = []SummaryBy{BySite, ByProvider, BySource, ByDomain, ByTenant, ByCampaign, BySenderDomain, ByState,
	ByWaitsFor}

// Summary counts queued recipients by a property and by their age, as Postfix's qshape. Without a filter it
// comes from counters, whatever is queued. With one, the relay looks through the queue for 150 ms: then a
// summary can be a part of the whole, and AddSummaries joins the parts.
type Summary struct {
	By SummaryBy `json:"by"` // what the rows are
	// upper bounds of the columns of age; there is one more column for what is older
	Bounds []Age        `json:"bounds"`
	Rows   []SummaryRow `json:"rows"` // most recipients first
	// Other counts the recipients that no row counts: of rows that a limit left out, and of names that the
	// relay has no counter for. nil when there are none.
	Other *SummaryRow `json:"other,omitempty"`
	// Total is over all recipients.
	Total SummaryRow `json:"total"`
	More  int        `json:"more,omitempty"` // rows that the limit left out
	// no row has an error, and each name with mail has a row or is among more
	Exact    bool   `json:"exact"`
	Looked   int    `json:"looked"`         // recipients that were examined; 0: the summary comes from counters
	Complete bool   `json:"complete"`       // this is the whole, or the last part of it
	Next     string `json:"next,omitempty"` // after of the next part; absent: this is the last
}

// SummaryRow is the queued recipients of one site, domain...
type SummaryRow struct {
	Key    string `json:"key"`    // the site, the domain...; empty: none, or not known; and of total and other
	Total  int    `json:"total"`  // recipients
	Counts []int  `json:"counts"` // recipients by age
	// recipients by state; active includes what waits within delivery for a connection
	States map[State]int `json:"states,omitempty"`
	Error  int           `json:"error,omitempty"` // by how much the row can be off, in recipients
}

// damageTrailer is the field after the records in which the relay reports damage.
const damageTrailer = "Mta-Log-Damage"

// maxDamage bounds it, in octets.
const maxDamage = 500

// LogDamaged is the error of a log whose sound records were all given.
type LogDamaged struct{ Text string }

func (e *LogDamaged) Error() string { return e.Text }

// SummaryPage is which part of a summary is wanted.
type SummaryPage struct {
	// Limit is how many rows there are at most, the largest; 0: all, but 1,000 from counters of names
	// that the configuration does not have.
	Limit int    `q:"limit" help:"rows at most, the largest; 0: all"`
	After string `q:"after" help:"continue after the previous part (<cursor>)"` // Summary.Next
}

// SummaryQuery asks for a summary, or the next part of it.
type SummaryQuery struct {
	Filter `without:"id"`
	By     SummaryBy `q:"by" default:"site" help:"what each row counts: <site>, provider, source, domain, tenant, campaign, sender_domain, state or waits_for"`
	SummaryPage
}

// MostRows bounds the rows of a summary from counters, by anything but a tenant, provider, source or state.
const MostRows = 1000

// LogQuery says which accounting records are wanted. All that is set must fit.
type LogQuery struct {
	Types     []string  `q:"type" hint:"Delivery, Bounce" help:"records of these <types>: Reception, Delivery, TransientFailure, Bounce, Expiration, AdminBounce, Cancellation, Transfer, Rejection, Damage, OOB, Feedback, Unsubscribe, Warmup, Lost"`
	ID        string    `q:"id" label:"Message" help:"records of this <message>"`
	Sender    string    `q:"sender" help:"messages from this <address>, or from @domain; <> is the null sender"`
	Recipient string    `q:"recipient" help:"this recipient's <address>, or those at @domain"`
	Domain    string    `q:"domain" help:"recipients at this <domain>"`
	Site      string    `q:"site" help:"attempts at this <site>"`
	Tenant    string    `q:"tenant" help:"messages of this <tenant>"`
	Provider  string    `q:"provider" help:"attempts at sites of this <provider>"`
	Source    string    `q:"source" help:"attempts from this <source>"`
	Campaign  string    `q:"campaign" help:"messages of this <campaign>"`
	Classes   []string  `q:"class" help:"refusals of these <classes>, such as InvalidRecipient: see docs/bounces.md"`
	Since     time.Time `q:"since" help:"not before this <time>"`
	Until     time.Time `q:"until" help:"before this <time>"`
	Last      int       `q:"last" short:"n" help:"only this many of the newest; 0: all"`
	Follow    bool      `q:"follow" short:"f" help:"then wait for new records, until interrupted"`
}

// Check refuses an id that no message can have.
func (q *LogQuery) Check() error {
	if q.ID == "" {
		return nil
	}
	if _, err := envelope.ParseID(q.ID); err != nil {
		return Invalid("", "%v", err)
	}
	return nil
}

// BounceTypes are the types of records of mail that failed for good without an operator.
var BounceTypes = []string{"Bounce", "Expiration", "OOB"}

// LogBy is what accounting records are counted by.
type LogBy string

// LogBys are the properties that records can be counted by.
var LogBys = []LogBy{"class", "reply", "site", "provider", "domain", "tenant", "campaign", "source", "pool", "type"}

// LogCountQuery asks how many accounting records have each value of a property.
type LogCountQuery struct {
	LogQuery `without:"last follow"`
	By       LogBy `q:"by" default:"class" help:"count by <property>: class, reply, site, provider, domain, tenant, campaign, source, pool or type"`
	Limit    int   `q:"limit" default:"20" min:"1" max:"1000" help:"how many values, the most frequent"`
}

// LogCounts is how many accounting records have each value of a property. Records that stand for several refusals count
// as these.
type LogCounts struct {
	By      LogBy      `json:"by"`      // the property
	Records int64      `json:"records"` // that fit
	Groups  []LogCount `json:"groups"`  // most records first
	Others  int64      `json:"others"`  // records of the groups that are left out
	Left    int        `json:"left"`    // how many groups are left out
	// no count is too low; false: there were more groups than the relay keeps, and the rest is in others
	Exact   bool   `json:"exact"`
	Looked  int64  `json:"looked"`            // octets of the log
	Damaged string `json:"damaged,omitempty"` // which records are missing, since they can't be read
}

// LogCount is the accounting records with one value of a property.
type LogCount struct {
	Name  string  `json:"name"`  // the value; empty: the records have none; of replies, their class
	Count int64   `json:"count"` // records
	Share float64 `json:"share"` // of all that fit, from 0 to 1
	// of replies: one of those that differ in numbers and addresses only
	Reply *Reply `json:"reply,omitempty"`
}

// Line gives what the groups don't show.
func (c LogCounts) Line() string {
	text := number(int(c.Records)) + " " + legible.Plural(int(c.Records), "record")
	if c.Left > 0 {
		text += fmt.Sprintf(", of which %s in %s that are not shown", number(int(c.Others)),
			legible.Count(c.Left, "other group"))
	}
	if !c.Exact {
		text += "; there are more groups than are kept, so counts can be too low"
	}
	return text
}

// logQuery is also the request for a page of the newest records, or of those that come behind a place.
type logQuery struct {
	LogQuery
	Order Order  `q:"order" default:"oldest" words:"oldest,newest,following" help:"oldest: records as lines; newest: a page of the newest records; following: a page of those behind after, oldest first"`
	After string `q:"after" help:"of newest and following: next of the page before; following without it: the place where records will come"`
	Limit int    `q:"limit" min:"1" max:"1000" help:"of newest and following: records on a page"`
}

func (q *logQuery) isPage() bool { return q.Order == NewestFirst || q.Order == Following }

func (q *logQuery) paged() error {
	if q.isPage() {
		return nil
	}
	return Invalid("add order=newest, or ask at that node", "the log, oldest first, is read at the node itself alone")
}

// Check refuses mixtures of both.
func (q *logQuery) Check() error {
	err := q.LogQuery.Check()
	switch {
	case err != nil:
	case q.isPage() && (q.Last != 0 || q.Follow):
		err = Invalid("leave out order, or use limit and after", "last and follow give the oldest first")
	case !q.isPage() && (q.After != "" || q.Limit != 0):
		err = Invalid("add order=newest", "after and limit are for pages of the newest records")
	}
	return err
}

// LogPage is accounting records, newest first, or oldest first of those behind a place. It can have fewer than were
// asked for, even none, and a next page: then there was much to look through.
type LogPage struct {
	Records []json.RawMessage `json:"records"` // docs/accounting.md has their fields
	// after of the next page; left out when this is the last of the newest
	Next     string `json:"next,omitempty"`
	Looked   int64  `json:"looked"`            // octets of the log that were looked at
	Complete bool   `json:"complete"`          // there are no more now
	Damaged  string `json:"damaged,omitempty"` // which records are missing, as their files are damaged
}

// The states of the relay: Status.State.
const (
	Starting = "starting" // the listeners don't accept mail yet
	Running  = "running"
	Refusing = "refusing" // mail, with 4xx
	Draining = "draining" // new mail, for an operator, or since it is about to stop
)

// Status is how the relay is.
type Status struct {
	Version  string `json:"version"`  // of the program
	Hostname string `json:"hostname"` // how it calls itself
	NodeID   string `json:"nodeid"`   // identifies its accounting records
	PID      int    `json:"pid"`      // process id
	// starting: the listeners don't accept mail yet; refusing: mail is answered 4xx for the reason given, and what
	// is queued is delivered if it can be; draining: new mail is refused likewise, by an operator's order, or since the
	// relay is about to stop
	State   string    `json:"state" words:"starting,running,refusing,draining"`
	Reason  string    `json:"reason,omitempty"` // why mail is refused
	Alarms  []Alarm   `json:"alarms"`           // the alarms that are on
	Rules   []Rule    `json:"rules"`            // for mail, the strictest first; suspend: nothing is sent of it
	Started time.Time `json:"started"`          // when
	Config  string    `json:"config"`           // the file in force; "" without one
	// what the file has that is not in force, and what changes that; left out: nothing
	Pending string   `json:"pending,omitempty"`
	SMTP    []string `json:"smtp"` // ip:port where mail is taken
	HTTP    []string `json:"http"` // ip:port where mail is taken by HTTP
	// the address of /metrics and /healthz; left out: there is none
	Metrics     string           `json:"metrics,omitempty"`
	Queue       QueueStats       `json:"queue"`
	States      map[string]int64 `json:"states"` // recipients in the queue by state
	Waiting     Waiting          `json:"waiting"`
	Rates       Rates            `json:"rates"`
	Connections Connections      `json:"connections"`
	Memory      Memory           `json:"memory"`
	Disk        Disk             `json:"disk"`
}

// Drained is the end or the beginning of a drain.
type Drained struct {
	Effect
	Status Status `json:"status"` // of the relay, then
}

// Rates are recipients a second, over the last minute.
type Rates struct {
	Accepted  float64 `json:"accepted"`  // into the queue
	Delivered float64 `json:"delivered"` // taken by a host
	Deferred  float64 `json:"deferred"`  // attempts that failed for now
	Bounced   float64 `json:"bounced"`   // refused for good, or expired
}

// Connections counts those that are open now.
type Connections struct {
	In      int64 `json:"in"`      // of clients
	Out     int   `json:"out"`     // to remote hosts, those that are being opened included
	Waiting int   `json:"waiting"` // jobs in memory
	Running int   `json:"running"` // transactions on connections
	// limits below what is configured, since the process may not have enough files open; left out when there are
	// none
	Lowered []LoweredConnections `json:"lowered,omitempty"`
}

// LoweredConnections is a limit of connections that is lower than configured.
type LoweredConnections struct {
	Name       string `json:"name"`       // listener NAME, api NAME or delivery
	Limit      int    `json:"limit"`      // the connections that it may have at a time
	Configured int    `json:"configured"` // its max_connections
}

// Memory is in octets.
type Memory struct {
	Process  int64 `json:"process"`  // that the system has given to the relay
	Schedule int64 `json:"schedule"` // of the queue: it grows with what is queued
}

// Disk is in octets, of the queue's file system.
type Disk struct {
	Queue int64 `json:"queue"` // that the queue takes
	Live  int64 `json:"live"`  // of those, what is still needed
	Free  int64 `json:"free"`  // on the file system
}

// Alarm is something that an operator should look at. The relay looks once a minute.
type Alarm struct {
	// which, as in the metric mta_alarm
	Name   string    `json:"name" words:"queue_age,queue_growing,low_traffic,storage,sources"`
	Reason string    `json:"reason"` // what is wrong
	Since  time.Time `json:"since"`  // when it was seen first
}

// QueueStats counts recipients since the start of the relay. At every instant
// Recovered + Accepted = Delivered + Bounced + Expired + Removed + Moved + Queued.
type QueueStats struct {
	Recovered int64 `json:"recovered"` // found in the queue at the start
	Accepted  int64 `json:"accepted"`  // since
	Delivered int64 `json:"delivered"` // taken by the remote host
	Bounced   int64 `json:"bounced"`   // refused for good
	Expired   int64 `json:"expired"`   // given up after max_age
	Removed   int64 `json:"removed"`   // by an operator, or cancelled
	Moved     int64 `json:"moved"`     // to another relay
	Queued    int64 `json:"queued"`    // still in the queue
}

// Reload is what a reload of the configuration changed, or would change.
type Reload struct {
	Effect
	Changes []string `json:"changes"`           // in force now
	Restart []string `json:"restart,omitempty"` // take a restart to come into force
}

// Pending returns what the file has that is not in force, and what changes that; "": nothing.
func (r Reload) Pending() string {
	var waiting []string
	for _, change := range r.Restart {
		setting, _, _ := strings.Cut(change, " ")
		if setting = strings.TrimSuffix(setting, ":"); !slices.Contains(waiting, setting) {
			waiting = append(waiting, setting)
		}
	}
	names := strings.Join(waiting, ", ")
	switch {
	case len(r.Changes) == 0 && names == "":
		return ""
	case len(r.Changes) == 0:
		return "these settings wait for a restart: " + names
	case names == "":
		return "the running relay has another configuration than its file: systemctl reload mta"
	}
	return "the running relay has another configuration than its file: systemctl restart mta; a reload leaves out " +
		names
}

// ReplyOf returns a reply in the API's words; nil when there was none.
func ReplyOf(r reply.Reply) *Reply {
	if r == (reply.Reply{}) {
		return nil
	}
	return &Reply{Code: r.Code, Enhanced: r.Enhanced.String(), Text: r.Text, Command: r.Command, Local: r.Local}
}

// AddressOf returns an address as text; "" when there is none.
func AddressOf(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
