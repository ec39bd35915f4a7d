package intake

import (
	"testing"
)

// The fields are found and taken out however the header comes in, and nothing else is.
func TestHoldFieldsInPieces(t *testing.T) {
	const in = "X-Hold-For:\r\n\t60\r\nSubject: a\r\n b\r\nX-Hold-Spread: 9\r\n  \r\nX-Hold-Forever: 1\r\n\r\nbody"
	const want = "Subject: a\r\n b\r\nX-Hold-Forever: 1\r\n\r\n"
	for size := 1; size <= len(in); size++ {
		var h header
		for rest := in; rest != ""; {
			n := min(size, len(rest))
			h.add([]byte(rest[:n]))
			rest = rest[n:]
		}
		h.end()
		if string(h.text) != want || h.own != (ownFields{ownHoldFor: {"60", 1}, ownHoldSpread: {"9", 1}}) || !h.done {
			t.Fatalf("in pieces of %d: header %q, fields %v", size, h.text, h.own)
		}
	}
}
