package api

import (
	"context"
	"time"
)

// Stream is a receiver of events, and how far it is.
type Stream struct {
	Name string `json:"name"` // as in the configuration
	To   string `json:"to"`   // the address of the receiver
	// following the head of the log, behind it, failing, or paused
	State      string  `json:"state" words:"following,behind,failing,paused"`
	At         string  `json:"at"`          // the position in the log before which everything was answered
	LagEvents  int64   `json:"lag_events"`  // about how many events wait
	LagBytes   int64   `json:"lag_bytes"`   // octets of the log that are yet to be read
	LagSeconds float64 `json:"lag_seconds"` // since the oldest event that waits happened; 0: none waits
	Rate       float64 `json:"rate"`        // events a second, in the last minute
	Delivered  int64   `json:"delivered"`   // events since the start of the relay
	Requests   int64   `json:"requests"`    // batches that were taken since then
	Failures   int64   `json:"failures"`    // requests that failed since then
	Refused    int64   `json:"refused"`     // events that were set aside since then
	Gaps       int64   `json:"gaps"`        // gaps since then
	// those of them with an unknown number of events: accounting files were deleted or damaged
	Uncounted int64     `json:"uncounted_gaps"`
	Lost      int64     `json:"lost"`                 // events in those gaps, as far as they could be counted
	LastError string    `json:"last_error,omitempty"` // of the last request that failed
	ErrorAt   time.Time `json:"error_at,omitzero"`    // when that was
	NextTry   time.Time `json:"next_try,omitzero"`    // of the batch that failed
	// events that the receiver has refused, the last 100; of one stream alone
	SetAside []SetAside `json:"set_aside,omitempty"`
}

// SetAside is an event that a receiver has refused.
type SetAside struct {
	EventID string    `json:"event_id"`     // of the record
	Type    string    `json:"type"`         // of the record
	ID      string    `json:"id,omitempty"` // of the message
	Reason  string    `json:"reason"`       // the receiver's answer
	At      time.Time `json:"at"`           // when it was set aside
}

// StreamList is all streams.
type StreamList struct {
	Streams []Stream `json:"streams"` // by name
}

// StreamChanged is a stream that was paused or resumed.
type StreamChanged struct {
	Effect
	Stream
}

// MoveStream moves a stream to the record of an event, or to the first since a time.
type MoveStream struct {
	Intent
	Event string    `json:"event,omitempty"` // at the record with this event_id
	Since time.Time `json:"since,omitzero"`  // at the first record since then
}

// MovedStream is where a stream was, and where it goes on.
type MovedStream struct {
	Effect
	From string `json:"from"` // the position that it was at
	To   string `json:"to"`   // the position where it goes on
}

// TestedStream is the answer to an event for a test.
type TestedStream struct {
	Effect
	EventID string `json:"event_id"`        // of the event
	Error   string `json:"error,omitempty"` // what went wrong; absent: the receiver has taken it
}

// Streams is what the server asks of the relay about streams.
type Streams interface {
	Streams(context.Context) (StreamList, error)
	Stream(ctx context.Context, name string) (Stream, error)
	PauseStream(ctx context.Context, name string, in Intent) (StreamChanged, error)
	ResumeStream(ctx context.Context, name string, in Intent) (StreamChanged, error)
	// SkipStream and ReplayStream find the place in a dry run, too, and stay. A skip counts the events that it leaves
	// out. A replay counts the stream alone: the events of the log that it will send again have not been read.
	SkipStream(ctx context.Context, name string, in Intent) (MovedStream, error)
	ReplayStream(ctx context.Context, name string, m MoveStream) (MovedStream, error)
	TestStream(ctx context.Context, name string, in Intent) (TestedStream, error)
}

// Check refuses two places, and none.
func (m *MoveStream) Check() error {
	if (m.Event == "") == m.Since.IsZero() {
		return Invalid("", "want event or since, and not both")
	}
	return nil
}
