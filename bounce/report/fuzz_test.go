package report

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzSplit: whatever comes, the parts are within the limits, their bodies are pieces of the message in its
// order, and their texts are UTF-8.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("Content-Type: multipart/mixed; boundary=\"x\"\n\npre\n--x\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n--x\nContent-Type: multipart/a; boundary=y\n\n--y\n\nz\n--x--\nend"))
	f.Add([]byte("From a@b\nSubject: =?koi8-r?q?=F2?=\n folded\nno field\nX: y\n\nbody\r\n"))
	f.Add([]byte("\xff\xfeA\x00:\x00b\x00\n\x00\n\x00h\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		parts := Split(content)
		if len(parts) == 0 || len(parts) > MaxParts {
			t.Fatalf("%d parts", len(parts))
		}
		size := 0
		for i := range parts {
			p := &parts[i]
			size += len(p.Body)
			if !utf8.ValidString(p.Text()) || strings.ContainsAny(p.Text(), "\x00\r") {
				t.Errorf("text %q", p.Text())
			}
			if len(p.Header) > MaxFields || len(p.Content()) > len(p.Body)+3 {
				t.Errorf("%d fields, %d of %d octets", len(p.Header), len(p.Content()), len(p.Body))
			}
			for _, field := range p.Header {
				if !utf8.ValidString(Words(field.Value)) || strings.ContainsAny(field.Value, "\n") {
					t.Errorf("field %q", field)
				}
			}
		}
		if !bytes.Contains(content, []byte{0}) && size > 2*len(content)+4 {
			t.Errorf("%d octets of bodies in a message of %d", size, len(content))
		}
	})
}
