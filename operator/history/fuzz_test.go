package history

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

const header = `{"format":"mta history","version":1,"step":1000}`

// zipped is a file of some lines.
func zipped(lines ...string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, strings.Join(lines, "\n"))
	z.Close()
	return b.Bytes()
}

// FuzzFile: whatever lines a file has, they are refused, or a history can be written that is read back the same.
func FuzzFile(f *testing.F) {
	f.Add(header + "\n" + `{"subjects":0}`)
	f.Add(header + "\n" + `{"kind":"site","name":"a","busy":-1e300,"figures":{}}` + "\n" + `{"subjects":1}`)
	f.Add(`{"format":"mta history","version":1,"step":-1}`)
	f.Add(header + "\n" + `{"kind":"relay","name":"","figures":{"queued":"` + strings.Repeat("AD//", 2*Days.Values()/3) + `"}}` + "\n" + `{"subjects":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		w := newWorld("")
		w.reset()
		if w.decode(strings.NewReader(text)) == nil {
			t.Error("what isn't compressed was read")
		}
		w.reset()
		if err := w.decode(bytes.NewReader(zipped(text))); err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := w.encode(&first); err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		again := newWorld("")
		if err := again.decode(bytes.NewReader(first.Bytes())); err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		if err := again.encode(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("what was written differs from what was read: %v", err)
		}
	})
}
