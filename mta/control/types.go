package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
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
	Code     int    `json:"code"`               // 0: no reply at all
	Enhanced string `json:"enhanced,omitempty"` // as 4.2.1
	Text     string `json:"text,omitempty"`     // lines are parted by "\n"
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
	Address  string    `json:"address"`
	State    State     `json:"state"`
	Site     string    `json:"site,omitempty"` // what it waits for, or the site that it was tried at last
	Attempts int       `json:"attempts"`
	Next     time.Time `json:"next,omitzero"`    // when it may be tried next, as far as is known; zero: not known, or under way
	Expires  time.Time `json:"expires,omitzero"` // when it is given up; zero: not known
	Reply    *Reply    `json:"reply,omitempty"`  // the last one; nil before the first attempt has ended
	Warned   bool      `json:"warned,omitempty"` // the sender was told of the delay
	// Scheduled says that it was not tried yet since it was submitted to be released at Next.
	Scheduled bool `json:"scheduled,omitempty"`
	// Asked is what an operator has asked for while it is on a connection: that is done when the attempt
	// ends, unless it has delivered or bounced the recipient.
	Asked Action `json:"asked,omitempty"`
	// Doing is what an active one is about, and what keeps a waiting one: the look-up of its route, a
	// limit or a suspension of its site, the warm-up that it waits for. "" when nothing is known, or
	// for a recipient whose last reply says it all.
	Doing string `json:"doing,omitempty"`
}

// Item is a message in the queue.
type Item struct {
	ID       string    `json:"id"`
	Sender   string    `json:"sender"` // "" is the null sender
	Size     int64     `json:"size"`   // octets of the content
	Received time.Time `json:"received"`
	Tenant   string    `json:"tenant,omitempty"`
	Campaign string    `json:"campaign,omitempty"`
	Tags     []string  `json:"tags,omitempty"`
	Tier     int       `json:"tier"` // 0 matters most, 5 least

	// From here on: only in the answer for one message.
	Peer     string `json:"peer,omitempty"` // "ip:port" of who submitted it
	User     string `json:"user,omitempty"` // who had logged in there
	HeloName string `json:"helo_name,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Session  string `json:"session,omitempty"`
	EnvID    string `json:"envid,omitempty"` // as the sender gave it (RFC 3461, 4.4)
	// Expires is when it is given up at the latest, by its sender's wish; zero: by max_age alone.
	Expires time.Time       `json:"expires,omitzero"`
	Meta    json.RawMessage `json:"meta,omitempty"` // the sender's data
	Pool    string          `json:"pool,omitempty"` // of sources, if the sender named one
	Key     string          `json:"key,omitempty"`  // the name of the API key that submitted it

	// Recipients has those that are in the queue and fit the filter. A listing leaves out what
	// is beyond Page.Recipients of them.
	Recipients []RecipientStatus `json:"recipients"`
	// Matching counts the recipients that fit the filter, the ones left out included.
	Matching int `json:"matching"`
	// Total counts all recipients that the message was accepted for.
	Total int `json:"total"`
	// Unreadable says that the message's record on disk is damaged: all but the id and the
	// states of the recipients is unknown.
	Unreadable bool `json:"unreadable,omitempty"`
}

// Filter says which recipients are meant. All that is set must fit; the zero Filter fits all.
// Domains, sites and addresses are compared without regard to case.
type Filter struct {
	IDs       []string `json:"ids,omitempty"`       // any of these messages
	Domain    string   `json:"domain,omitempty"`    // of the recipient
	Site      string   `json:"site,omitempty"`      // what it waits for, or was tried at last
	Tenant    string   `json:"tenant,omitempty"`    // of the message
	Campaign  string   `json:"campaign,omitempty"`  // of the message
	Tag       string   `json:"tag,omitempty"`       // one of the message's
	Sender    string   `json:"sender,omitempty"`    // an address, or "<>" for the null sender
	Recipient string   `json:"recipient,omitempty"` // an address
	State     State    `json:"state,omitempty"`
	Older     Age      `json:"older,omitempty"` // received at least so long ago
	Newer     Age      `json:"newer,omitempty"` // received less long ago than this
}

// Empty reports whether f fits everything.
func (f *Filter) Empty() bool {
	return len(f.IDs) == 0 && f.Domain == "" && f.Site == "" && f.Tenant == "" && f.Campaign == "" && f.Tag == "" &&
		f.Sender == "" && f.Recipient == "" && f.State == "" && f.Older == 0 && f.Newer == 0
}

// String gives what is set, for logs.
func (f Filter) String() string {
	if f.Empty() {
		return "everything"
	}
	v := f.values()
	var parts []string
	for _, name := range filterParams {
		if v.Has(name) {
			parts = append(parts, name+"="+v.Get(name))
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
	NextAttempt Order = "next" // what is tried first; what waits for no time comes last
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
	Order      Order  // "": OldestFirst
	After      string // List.Next of the page before; "": from the start
	Limit      int    // messages, 1 to MaxLimit
	Recipients int    // shown for each message at most; 0: all
}

// List is a page of messages. It can have fewer than were asked for, even none, and a next page:
// then there was much to look through.
type List struct {
	Messages []Item `json:"messages"`
	Next     string `json:"next,omitempty"` // Page.After of the next page; "" when this is the last
}

// Action is what an operator does to messages.
type Action string

const (
	Hold    Action = "hold"    // try no more until Release
	Release Action = "release" // undo Hold
	Retry   Action = "retry"   // try now, whatever was the time of the next attempt
	Bounce  Action = "bounce"  // give up and tell the sender
	Remove  Action = "remove"  // give up and tell nobody
)

// Actions are all of them.
var Actions = []Action{Hold, Release, Retry, Bounce, Remove}

// Change is an action on what a filter fits.
type Change struct {
	Action Action `json:"action"`
	Filter Filter `json:"filter"`
	All    bool   `json:"all,omitempty"`     // must be set when Filter is empty
	DryRun bool   `json:"dry_run,omitempty"` // only count

	// Of a retry: Scheduled releases scheduled mail before its time, too; Now lifts what stands in the
	// way of the mail: holds, suspensions of its sites and hosts, and the retry times of hosts.
	Scheduled bool `json:"scheduled,omitempty"`
	Now       bool `json:"now,omitempty"`
}

// Changed is what a change did, or with DryRun would do.
type Changed struct {
	Recipients int  `json:"recipients"`
	DryRun     bool `json:"dry_run,omitempty"`
	// Later counts those of Recipients that are on a connection: the action is done when the attempt
	// ends, unless it has delivered or bounced them.
	Later int `json:"later,omitempty"`

	// Of a retry: Scheduled counts recipients that wait for the time that their senders asked for,
	// and go on waiting; Obstacles are what keeps others from leaving, the largest first; Ended
	// counts the holds, suspensions and retry times that were ended for Change.Now.
	Scheduled int        `json:"scheduled,omitempty"`
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	Ended     int        `json:"ended,omitempty"`
}

// Obstacle is what keeps mail that is due from leaving.
type Obstacle struct {
	Site       string    `json:"site,omitempty"` // "": whatever the site
	Recipients int       `json:"recipients"`
	Why        string    `json:"why"`
	Until      time.Time `json:"until,omitzero"`   // zero: until something happens
	Remedy     string    `json:"remedy,omitempty"` // the command that ends it; "": a retry with Now, unless it Stays
	Stays      bool      `json:"stays,omitempty"`  // a retry doesn't end it, as the pace of a warm-up
}

// SummaryBy is what a summary has a row for.
type SummaryBy string

const (
	BySite   SummaryBy = "site"
	ByDomain SummaryBy = "domain"
	ByTenant SummaryBy = "tenant"
	BySender SummaryBy = "sender" // the sender's domain
	ByState  SummaryBy = "state"
)

// SummaryBys are all of them.
var SummaryBys = []SummaryBy{BySite, ByDomain, ByTenant, BySender, ByState}

// Summary counts queued recipients by what they wait for and by their age, as Postfix's qshape.
type Summary struct {
	By SummaryBy `json:"by"`
	// Bounds are the upper bounds of the columns of age, growing; there is one more column, for
	// what is older than the last.
	Bounds []Age `json:"bounds"`
	// Rows have the most recipients first.
	Rows []SummaryRow `json:"rows"`
	// Total is over all rows, those that a limit left out included.
	Total SummaryRow `json:"total"`
	// More counts the rows that a limit left out.
	More int `json:"more,omitempty"`
}

// SummaryRow is the queued recipients of one site, domain...
type SummaryRow struct {
	Key    string `json:"key"`
	Total  int    `json:"total"`
	Counts []int  `json:"counts"` // by age: one more than Summary.Bounds
}

// LogQuery says which accounting records are wanted. All that is set must fit.
type LogQuery struct {
	Types     []string  // any of these, as "Delivery"
	ID        string    // of the message
	Sender    string    // an address, "@domain", or "<>" for the null sender
	Recipient string    // an address or "@domain"
	Domain    string    // of the recipient
	Site      string    // tried
	Tenant    string    // of the message
	Since     time.Time // zero: from the oldest record that is kept
	Until     time.Time // zero: to the newest
	Last      int       // only so many, the newest; 0: all
	Follow    bool      // and then what comes, until the caller ends it
}

// Status is how the relay is.
type Status struct {
	Version  string     `json:"version"`
	Hostname string     `json:"hostname"`
	NodeID   string     `json:"nodeid"`
	PID      int        `json:"pid"`
	State    string     `json:"state"`            // running, refusing (mail, with 4xx), draining
	Reason   string     `json:"reason,omitempty"` // why mail is refused
	Alarms   []Alarm    `json:"alarms"`           // those that are on
	Paused   []Pause    `json:"paused"`           // what an operator lets nothing be sent of
	Started  time.Time  `json:"started"`
	Config   string     `json:"config"` // the file in force; "" without one
	SMTP     []string   `json:"smtp"`   // "ip:port" where mail is taken
	HTTP     []string   `json:"http"`   // likewise, by HTTP
	Queue    QueueStats `json:"queue"`
	// States counts the recipients in the queue by state.
	States      map[string]int64 `json:"states"`
	Rates       Rates            `json:"rates"`
	Connections Connections      `json:"connections"`
	Memory      Memory           `json:"memory"`
	Disk        Disk             `json:"disk"`
}

// Rates are recipients a second, over the last minute.
type Rates struct {
	Accepted  float64 `json:"accepted"`
	Delivered float64 `json:"delivered"`
	Deferred  float64 `json:"deferred"` // attempts that failed for now
	Bounced   float64 `json:"bounced"`  // and expired
}

// Connections counts those that are open now.
type Connections struct {
	In      int64 `json:"in"`      // of clients
	Out     int   `json:"out"`     // to remote hosts, those that are being opened included
	Waiting int   `json:"waiting"` // jobs in memory
	Running int   `json:"running"` // transactions on connections
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
	Name   string    `json:"name"` // as in the metric mta_alarm
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// QueueStats counts recipients since the start of the relay. At every instant
// Recovered + Accepted = Delivered + Bounced + Expired + Removed + Queued.
type QueueStats struct {
	Recovered int64 `json:"recovered"` // found at the start
	Accepted  int64 `json:"accepted"`
	Delivered int64 `json:"delivered"`
	Bounced   int64 `json:"bounced"`
	Expired   int64 `json:"expired"`
	Removed   int64 `json:"removed"`
	Queued    int64 `json:"queued"`
}

// Reload is what a reload of the configuration changed.
type Reload struct {
	Changes []string `json:"changes"`           // in force now
	Restart []string `json:"restart,omitempty"` // take a restart to come into force
}
