package events

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
