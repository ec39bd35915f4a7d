package envelope

// State is what a recipient in the queue is doing. The API, the metrics, the command line and the
// manual have these words and no others.
type State string

// The states of a recipient in the queue.
const (
	Due        State = "due"
	Waiting    State = "waiting"
	Active     State = "active"
	Deferred   State = "deferred"
	Held       State = "held"
	Ending     State = "ending"
	Unreadable State = "unreadable"
)

// States are all of them, with what the manual says of each.
var States = []struct {
	State   State
	Meaning string
}{
	{Due, "next in line for an attempt"},
	{Waiting, "due, but blocked by the condition in the reason"},
	{Active, "on a connection"},
	{Deferred, "to be retried at a set time; or scheduled, with no attempts so far"},
	{Held, "not tried until an operator releases it"},
	{Ending, "final: the report to its sender is being written"},
	{Unreadable, "its record on disk is damaged"},
}
