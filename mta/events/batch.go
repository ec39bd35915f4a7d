package events

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/gzip"
)

// Batch is what a sink sends in one request. Its events are in the order of the log.
type Batch struct {
	ID     string // the same in each attempt to send it; letters, digits, - and _
	Stream string
	Events []Event

	body *body // shared by streams that have equal batches
}

// body is a batch as it is sent.
type body struct {
	sync.Mutex
	format Format
	plain  []byte
	gzip   []byte
	err    error
}

// Body returns the batch in a format. Streams that have equal batches in one format share the result,
// which is not to be changed. It can be empty: the format has no word for any of the events.
func (b *Batch) Body(f Format) ([]byte, error) {
	if b.body == nil {
		return f.Encode(nil, b)
	}
	b.body.Lock()
	defer b.body.Unlock()
	return b.body.encode(b, f)
}

// Gzip returns the batch in a format, compressed. It is shared as that of Body.
func (b *Batch) Gzip(f Format) ([]byte, error) {
	if b.body == nil {
		plain, err := f.Encode(nil, b)
		return compress(plain), err
	}
	b.body.Lock()
	defer b.body.Unlock()
	plain, err := b.body.encode(b, f)
	if err == nil && b.body.gzip == nil {
		b.body.gzip = compress(plain)
	}
	return b.body.gzip, err
}

// encode needs the lock.
func (s *body) encode(b *Batch, f Format) ([]byte, error) {
	if s.format == nil {
		s.format = f
		s.plain, s.err = f.Encode(nil, b)
	}
	if s.format != f {
		return f.Encode(nil, b)
	}
	return s.plain, s.err
}

var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

func compress(plain []byte) []byte {
	var out bytes.Buffer
	out.Grow(len(plain) / 6)
	w := compressors.Get().(*gzip.Writer)
	w.Reset(&out)
	_, _ = w.Write(plain) // a buffer takes everything
	_ = w.Close()
	compressors.Put(w)
	return out.Bytes()
}

// AppendString appends s as a JSON string; what is not UTF-8 in it becomes U+FFFD.
func AppendString(to []byte, s string) []byte {
	to, _ = jsontext.AppendQuote(to, s) // its error only reports that there was such
	return to
}
