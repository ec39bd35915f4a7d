// Package audit keeps the record of what operators did: who, when, what and why, a line of JSON each, in files that
// are synced before the operator has the answer.
//
// An action has two lines: one before it is carried out, so that no kill and no power cut leaves a change without a
// trace, and one with its outcome. Readers are given the second. A start ends what a kill has left open, with the
// outcome "unknown".
package audit

import (
	"encoding/json"
	"fmt"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/internal/linelog"
)

// Actor is who sends a request.
type Actor struct {
	// how it came: socket (a process on the control socket), console (a user of it), api (a caller of another
	// interface), command (one that changed a file while no relay ran), signal (SIGHUP), relay (the relay itself)
	Kind    string  `json:"kind" words:"socket,console,api,command,signal,relay"`
	User    string  `json:"user,omitempty"`    // the system's user, or of the console
	Address string  `json:"address,omitempty"` // IP address of a user of the console
	UID     *uint32 `json:"uid,omitempty"`     // user id of the process on the socket
	PID     int     `json:"pid,omitempty"`     // process id of the same
}

// Kinds of actors that are on no connection; package api has the others.
const (
	ByCommand = "command" // a command that changed a file while no relay ran
	BySignal  = "signal"  // the sender of a SIGHUP
	ByRelay   = "relay"   // the relay itself
)

// Name is the user, or as much as is known.
func (a Actor) Name() string {
	switch {
	case a.User != "":
		return a.User
	case a.UID != nil:
		return fmt.Sprintf("user id %d", *a.UID)
	case a.Kind == BySignal:
		return "a signal" // the system does not give its sender
	case a.Kind == ByRelay:
		return "the relay"
	}
	return ""
}

// Outcome is how an action ended.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused" // nothing was changed
	Failed  Outcome = "failed"  // something may have been changed
	Unknown Outcome = "unknown" // the relay was killed meanwhile
	begun   Outcome = "begun"   // of the first of two lines
)

// Outcomes are those that a reader can meet.
var Outcomes = []Outcome{Done, Refused, Failed, Unknown}

// Line is an action of an operator.
type Line struct {
	Time time.Time `json:"time"` // when it ended; of outcome unknown, when it began
	Actor
	Action  string `json:"action"`            // as the command is called, such as queue hold
	Subject string `json:"subject,omitempty"` // what it was about: name=value
	Count   int    `json:"count"`             // what was changed
	Reason  string `json:"reason,omitempty"`  // as the operator gave it
	// refused: nothing was changed; failed: something may have been; unknown: the relay was killed meanwhile
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"` // why it was refused or has failed

	Number int64 `json:"number"` // of the action
}

// The largest lengths of texts in a line, in octets; what is longer is cut.
const (
	maxName    = 256
	maxSubject = 2000
	maxText    = 1000
	// maxLine is far above any line, whatever JSON makes of its characters.
	maxLine = 64 << 10
)

// encode returns the line with its line end, and with room for its sum and position.
func (l Line) encode() []byte {
	for _, f := range []struct {
		text *string
		most int
	}{{&l.User, maxName}, {&l.Address, maxName}, {&l.Action, maxName}, {&l.Subject, maxSubject}, {&l.Reason, maxText},
		{&l.Error, maxText}} {
		*f.text = legible.Escaped(*f.text, f.most)
	}
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // of these types there is none
	}
	return linelog.AppendSeal(b[:len(b)-1], `"audit"`)
}

// parse reads what encode has made, without its line end.
func parse(text []byte) (l Line, ok bool) {
	if len(text) == 0 || text[0] != '{' || json.Unmarshal(text, &l) != nil {
		return Line{}, false
	}
	return l, l.Outcome != "" && l.Action != "" && !l.Time.IsZero()
}
