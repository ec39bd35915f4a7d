// Package events sends the accounting log to other programs, as streams of events.
//
// The log is the stream: a stream is a cursor into its files and keeps nothing else. One reader
// serves all streams that are at the head of the log; a stream that is behind reads the files by
// itself until it is at the head again. Events are delivered at least once, and those of a message in
// their order.
//
// Receivers get them as they want them: as records, as CloudEvents 1.0 or as SendGrid's event webhook has them, and
// requests to web hooks are signed (Standard Webhooks, or SendGrid's way).
package events

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"example.org/mta/mta/accounting"
)

// Event is a record of the accounting log.
type Event struct {
	ID      string // node, file and offset: the same however often the event is sent
	Line    []byte // the record: one object of JSON, without a line end. Not to be changed
	Type    string // as Delivery
	Message string // the message's id; "" in a record of no message
	Tenant  string // "" for none
	Class   string // the bounce classification; "" for none
	Time    time.Time
}

// Sink is where a stream leads.
type Sink interface {
	// Send returns nil when the receiver has taken the whole batch for good. A *Rejected error has the
	// batch halved, down to the event at fault, which is set aside; a *Later error has it sent again, not
	// before the time given; after any other error it is sent again, too. Several goroutines may call it.
	Send(ctx context.Context, b *Batch) error
	// Close ends connections; no Send is under way.
	Close() error
}

// Dial connects to a broker. Nil: as net.Dialer does, by the system's resolver.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Context connects.
func (d Dial) Context(ctx context.Context, network, address string) (net.Conn, error) {
	if d == nil {
		d = new(net.Dialer).DialContext
	}
	return d(ctx, network, address)
}

// Rejected is the error of a receiver that refuses a batch because of its content: it would refuse
// it again.
type Rejected struct{ Reason string }

func (e *Rejected) Error() string { return e.Reason }

// Later is the error of a receiver that says when to come back.
type Later struct {
	After  time.Duration // from now
	Reason string
}

func (e *Later) Error() string { return fmt.Sprintf("%s (again in %s)", e.Reason, e.After) }

// Format encodes events for a receiver. It is safe for use by several goroutines.
type Format interface {
	// Encode appends the body of a request to to.
	Encode(to []byte, b *Batch) ([]byte, error)
	// ContentType is the media type of the body.
	ContentType() string
}

// Single is a Format for brokers, which get a message for each event.
type Single interface {
	// EncodeOne appends the message of an event to to.
	EncodeOne(to []byte, e *Event) ([]byte, error)
	// ContentTypeOne is the media type of a message.
	ContentTypeOne() string
}

// Signer adds to a request what proves who sent it.
type Signer interface {
	// Sign sets fields of h, for each attempt. id is the batch's; body is the content before compression.
	Sign(h http.Header, id string, at time.Time, body []byte) error
}

// Position is a place between two records of a log.
type Position = accounting.Position

// Log is what streams read: the accounting log of a relay (accounting.Writer).
type Log interface {
	// Synced is the end of the records that are on stable storage; zero while there is none.
	Synced() Position
	// Watch returns a channel that gets a value after Synced has moved, and what ends that.
	Watch() (changed <-chan struct{}, stop func())
	// ReadFrom calls each with the records from one position to another: their position, that of the next record, and
	// the line, which is valid until each returns. It returns where to go on, and the error of each, if there is one.
	// The error is a *accounting.MissingError if the file of from was deleted.
	ReadFrom(ctx context.Context, from, to Position, each func(at, next Position, line []byte) error) (Position, error)
	// Since is a position before all records since a time. Of the zero time it is the first that can be read.
	Since(time.Time) (Position, error)
	// Octets is about how many octets are between two positions.
	Octets(from, to Position) int64
}

// Records writes a JSON array of records for web hooks, and the record alone for brokers.
type Records struct{}

// ContentType is that of a batch.
func (Records) ContentType() string { return "application/json" }

// Encode appends a batch.
func (Records) Encode(to []byte, b *Batch) ([]byte, error) {
	size := 2
	for i := range b.Events {
		size += len(b.Events[i].Line) + 1
	}
	if cap(to)-len(to) < size {
		to = append(make([]byte, 0, len(to)+size), to...)
	}
	to = append(to, '[')
	for i := range b.Events {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(to, b.Events[i].Line...)
	}
	return append(to, ']'), nil
}

// ContentTypeOne is that of one event.
func (Records) ContentTypeOne() string { return "application/json" }

// EncodeOne appends one event.
func (Records) EncodeOne(to []byte, e *Event) ([]byte, error) {
	return append(to, e.Line...), nil
}

// CloudEvents writes events of one relay as CloudEvents 1.0 in JSON: batched for web hooks, one by one for brokers. A
// record is the data of its event as it stands in the log, and isn't parsed.
type CloudEvents struct {
	source string // the attribute, quoted
}

// NewCloudEvents returns the format of the events of a node.
func NewCloudEvents(node string) *CloudEvents {
	source := (&url.URL{Path: "/mta/" + node}).EscapedPath() // a URI reference that is not empty
	return &CloudEvents{string(AppendString(nil, source))}
}

// ContentType is that of a batch (CloudEvents JSON format 1.0.2, 4.2).
func (*CloudEvents) ContentType() string { return "application/cloudevents-batch+json" }

// Encode appends a batch.
func (f *CloudEvents) Encode(to []byte, b *Batch) ([]byte, error) {
	to = append(to, '[')
	for i := range b.Events {
		if i > 0 {
			to = append(to, ',')
		}
		to = f.append(to, &b.Events[i])
	}
	return append(to, ']'), nil
}

// ContentTypeOne is that of one event in structured mode.
func (*CloudEvents) ContentTypeOne() string { return "application/cloudevents+json" }

// EncodeOne appends one event.
func (f *CloudEvents) EncodeOne(to []byte, e *Event) ([]byte, error) {
	return f.append(to, e), nil
}

// append writes one event. Its id and source together are unique, as the specification demands, since the id is.
// The extension partitionkey is the message's id: who spreads events over partitions by it keeps the order of each
// message.
func (f *CloudEvents) append(to []byte, e *Event) []byte {
	to = append(to, `{"specversion":"1.0","id":`...)
	to = AppendString(to, e.ID)
	to = append(to, `,"source":`...)
	to = append(to, f.source...)
	to = append(to, `,"type":`...)
	to = AppendString(to, "mta."+e.Type)
	if e.Message != "" {
		to = append(to, `,"subject":`...)
		to = AppendString(to, e.Message)
		to = append(to, `,"partitionkey":`...)
		to = AppendString(to, e.Message)
	}
	if !e.Time.IsZero() {
		to = append(to, `,"time":"`...)
		to = e.Time.UTC().AppendFormat(to, time.RFC3339Nano)
		to = append(to, '"')
	}
	if e.Tenant != "" {
		to = append(to, `,"tenant":`...)
		to = AppendString(to, e.Tenant)
	}
	to = append(to, `,"datacontenttype":"application/json","data":`...)
	to = append(to, bytes.TrimSpace(e.Line)...)
	return append(to, '}')
}
