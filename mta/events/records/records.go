// Package records writes events as they stand in the accounting log.
package records

import "example.org/mta/mta/events"

// Format writes a JSON array of records for web hooks, and the record alone for brokers.
type Format struct{}

// ContentType is that of a batch.
func (Format) ContentType() string { return "application/json" }

// Encode appends a batch.
func (Format) Encode(to []byte, b *events.Batch) ([]byte, error) {
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
func (Format) ContentTypeOne() string { return "application/json" }

// EncodeOne appends one event.
func (Format) EncodeOne(to []byte, e *events.Event) ([]byte, error) {
	return append(to, e.Line...), nil
}
