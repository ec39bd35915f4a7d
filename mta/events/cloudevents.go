package events

import (
	"bytes"
	"net/url"
	"time"
)

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
