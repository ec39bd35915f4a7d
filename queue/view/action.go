package view

import "example.org/mta/queue/schedule"

// Action is what an operator does to recipients. It acts in every state; on a leased one when it
// comes back, unless it is settled then.
type Action uint8

const (
	Hold               Action = 1 + iota // make no attempts until it is unheld; it expires all the same
	Unhold                               // go on as before
	RetryNow                             // attempt it now, or try again to read it; scheduled mail keeps its time
	Bounce                               // report it as undeliverable to its sender, and settle it
	Remove                               // settle it without a report
	RetryScheduled                       // as RetryNow, and release what was scheduled before its time
	RetryHeld                            // as RetryNow, and release what is held
	RetryHeldScheduled                   // as RetryScheduled, and release what is held
	Cancel                               // as Remove, for its sender
	Transfer                             // as Remove: another relay has it
)

var actions = []string{
	Hold: "hold", Unhold: "release", RetryNow: "retry", Bounce: "bounce", Remove: "remove", RetryScheduled: "retry",
	RetryHeld: "retry", RetryHeldScheduled: "retry", Cancel: "cancel", Transfer: "transfer",
}

// String gives the operator's word.
func (a Action) String() string { return schedule.Word(actions, uint8(a)) }
