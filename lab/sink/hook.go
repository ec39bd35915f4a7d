package sink

import (
	"net/netip"
	"time"
)

// Command is what a Config.Hook is asked about, before any other rule answers.
type Command struct {
	Phase      Phase
	Line       string         // as received, without CRLF; "" where the phase is no command
	Client     netip.AddrPort // zero when not over TCP
	Connection uint64         // 1 for the server's first
	Message    int            // transactions begun on this connection, this one included
	Sender     string         // as between < and >, from Mail on
	Recipients []string       // accepted so far; not to be kept or changed
	ID         string         // of the message, at End
	Content    []byte         // at End, when the Recorder captures it; not to be kept or changed
}

// Answer is what a hook wants done. The zero Answer leaves a command to the other rules.
// A hook runs in the session's own goroutine: while it blocks, the session stands still.
type Answer struct {
	Reply string        // code and text instead of any other; lines are parted by "\n"; a 421 closes
	Close bool          // the connection, after the reply
	Drop  bool          // the connection, without a reply
	Mute  bool          // the reply is not sent
	Delay time.Duration // of the reply, and of all after it
}
