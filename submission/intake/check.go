package intake

import (
	"bytes"
	"encoding/binary"
	"slices"

	"example.org/mta/internal/reply"
)

// checker looks at content as it streams by and remembers what is wrong with it. The chunks that
// it gets must not end in CR, the last one apart, so that it never has to wait for an LF.
type checker struct {
	newlines Newlines
	maxLine  int // octets without CRLF

	line     int  // octets so far in a line that goes on in the next chunk
	endsCRLF bool // the last chunk ended in CRLF; true at the start

	bare, nul, long, eightBit bool

	scratch []byte // for normalised content
}

// pass checks b and gives what is to be stored in its place: b itself, unless bare newlines in it
// have to be normalised. The result is valid until the next call.
func (k *checker) pass(b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	k.nul = k.nul || bytes.IndexByte(b, 0) >= 0
	k.eightBit = k.eightBit || hasEightBit(b)
	lines, pairs := k.lines(b)
	bare := lines != pairs || bytes.Count(b, []byte{'\r'}) != pairs
	if bare && k.newlines == NormaliseBareNewlines {
		b = k.normalise(b)
	} else {
		k.bare = k.bare || bare
	}
	k.endsCRLF = bytes.HasSuffix(b, crlf)
	return b
}

// lines counts the LFs in b, and those of them that follow a CR, and measures the lines.
func (k *checker) lines(b []byte) (lines, pairs int) {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			k.measure(len(b))
			return lines, pairs
		}
		lines++
		if i > 0 && b[i-1] == '\r' {
			pairs++
			k.measure(i - 1)
		} else {
			k.measure(i)
		}
		k.line = 0
		b = b[i+1:]
	}
}

func (k *checker) measure(n int) {
	k.line += n
	k.long = k.long || k.line > k.maxLine
}

// normalise makes a CRLF of each CR and LF that stands alone.
func (k *checker) normalise(b []byte) []byte {
	out := k.scratch[:0]
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '\r' && i+1 < len(b) && b[i+1] == '\n':
			out = append(out, '\r', '\n')
			i++
		case c == '\r', c == '\n':
			out = append(out, '\r', '\n')
		default:
			out = append(out, c)
		}
	}
	k.scratch = out
	return out
}

// verdict gives the reply that refuses the content, nil when there is nothing wrong with it so far.
func (k *checker) verdict() *reply.Reply {
	switch {
	case k.bare:
		return bareNewline.Refusal()
	case k.nul:
		return nulInContent.Refusal()
	case k.long:
		return longLine.Refusal(k.maxLine)
	}
	return nil
}

// hasEightBit reports whether b has an octet above 127.
func hasEightBit(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b)&0x8080808080808080 != 0 {
			return true
		}
		b = b[8:]
	}
	return slices.ContainsFunc(b, func(c byte) bool { return c >= 0x80 })
}
