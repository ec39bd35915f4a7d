// Package report reads what comes back for mail that was sent: bounces, complaints, automatic replies and
// the like. It returns the kind of a message and, for each recipient that it names, what became of the mail,
// with the class of package bounce. It trusts nothing: whatever the content is, Read returns.
//
// There are no goroutines here, and no input or output.
package report

import (
	"bytes"
	"encoding/json"

	"example.org/mta/bounce"
	"example.org/mta/internal/reply"
)

// Kind is what a message is.
type Kind uint8

const (
	Other       Kind = iota // none of the others, or not understood
	Bounce                  // at least one recipient failed
	Delay                   // delivery is still being tried
	Delivered               // delivery succeeded, or the message was relayed or expanded
	Complaint               // a recipient calls the message spam
	AutoReply               // vacation and the like (RFC 3834)
	Challenge               // the host wants the sender to prove that it is a person
	Disposition             // what a reader did with the message (RFC 8098)
	Unsubscribe             // a recipient wants no more mail
)

var kindNames = [...]string{"other", "bounce", "delay", "delivered", "complaint", "auto-reply", "challenge",
	"disposition", "unsubscribe"}

// String returns the name that JSON and tables use.
func (k Kind) String() string { return kindNames[k] }

// MarshalText returns the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Action is what became of a recipient (RFC 3464, 2.3.3). It is "" in complaints,
// replies and the like.
type Action string

const (
	ActionFailed    Action = "failed"
	ActionDelayed   Action = "delayed"
	ActionDelivered Action = "delivered"
	ActionRelayed   Action = "relayed"  // to a host that sends no notifications
	ActionExpanded  Action = "expanded" // to several addresses, as lists do
)

// success reports whether the mail has arrived, or has gone on.
func (a Action) success() bool {
	return a == ActionDelivered || a == ActionRelayed || a == ActionExpanded
}

// Report is what a message reports of one recipient.
type Report struct {
	// Recipient is the address as the sender wrote it, where the report returns that, or else as the
	// last host knew it.
	Recipient string
	// Final is the address that the last host knew, when it is another one.
	Final  string
	Action Action
	// Status is the enhanced code, zero when the report has none.
	Status reply.Enhanced
	// Reply is the answer of the last host: its Code is 0 when the report quotes none.
	Reply reply.Reply
	Class bounce.Class
	// Hard is set of failures that will not pass.
	Hard bool
	// Diagnostic is the text of the report, on one line and printable.
	Diagnostic string
}

type jsonReport struct {
	Recipient  string `json:"recipient"`
	Action     Action `json:"action"`
	Status     string `json:"status"`
	Code       int    `json:"code"`
	Class      string `json:"class"`
	Hard       bool   `json:"hard"`
	Diagnostic string `json:"diagnostic"`
}

// MarshalJSON returns the fields that 'mta bounce classify --json' prints. The class is "" where nothing was
// refused or delivered.
func (r Report) MarshalJSON() ([]byte, error) {
	j := jsonReport{
		Recipient: r.Recipient, Action: r.Action, Status: r.Status.String(), Code: r.Reply.Code,
		Hard: r.Hard, Diagnostic: r.Diagnostic,
	}
	if r.Action != "" || r.Class != bounce.Uncategorized {
		j.Class = r.Class.String()
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // it is up to who encodes the whole
	err := e.Encode(j)
	return b.Bytes(), err
}

// Original is what a report returns of the message that it is about. Fields are "" or nil when it returns
// less.
type Original struct {
	MessageID string // with its angle brackets
	From      string // the address
	To        []string
	Subject   string
}

// Feedback is what a complaint says of itself (RFC 5965, RFC 6591). It has the fields by their names in
// lower case; those that may be repeated have several values.
type Feedback map[string][]string

// Result is all that a message says.
type Result struct {
	Kind    Kind
	Reports []Report
	// Unnamed is what a bounce says of a recipient that it does not name: only a token can. Then there are
	// no Reports.
	Unnamed *Report
	// Host is the one that wrote the report, as it calls itself; "" when it does not say so.
	Host     string
	Original Original
	// Tokens are words that have the form of a return path's token, without "b-", in the order in which
	// they were found: first what is returned of the original, then the rest. Nobody has checked them.
	Tokens []string
	// Feedback is set of complaints by feedback report only.
	Feedback Feedback
}

// Purpose is what the address is for that a message came to.
type Purpose uint8

const (
	AnyReport      Purpose = iota
	Complaints             // a complaint, if it is no other report: some only return the original
	Unsubscription         // a request to unsubscribe, whatever it says
)

// Options are what is known beside the content.
type Options struct {
	Purpose Purpose
	// Classify returns the class of a reply for a recipient at domain; bounce.Of when nil.
	Classify func(r *reply.Reply, domain string) bounce.Class
}
