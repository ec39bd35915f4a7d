package intake

import (
	"bytes"
	"strings"
	"testing"
)

func TestCheckerInEveryPiece(t *testing.T) {
	alphabet := []string{"\r", "\n", "x", "\r\n", "\x00", "\x80"}
	for n := range 6 * 6 * 6 * 6 * 6 {
		s := ""
		for k, v := 0, n; k < 5; k, v = k+1, v/6 {
			s += alphabet[v%6]
		}
		for size := 1; size <= len(s); size++ {
			k := checker{maxLine: 2, endsCRLF: true}
			for rest := s; rest != ""; {
				piece := rest[:min(size, len(rest))]
				for len(piece) < len(rest) && strings.HasSuffix(piece, "\r") {
					piece = rest[:len(piece)+1]
				}
				k.pass([]byte(piece))
				rest = rest[len(piece):]
			}
			want := checker{
				bare: hasBareNewline(s), nul: strings.Contains(s, "\x00"), eightBit: strings.Contains(s, "\x80"), endsCRLF: strings.HasSuffix(s, "\r\n"),
			}
			if k.bare != want.bare || k.nul != want.nul || k.eightBit != want.eightBit || k.endsCRLF != want.endsCRLF {
				t.Fatalf("%q in pieces of %d: %+v", s, size, k)
			}
			if !k.bare && k.long != (longest(s) > 2) {
				t.Fatalf("%q in pieces of %d: long %v", s, size, k.long)
			}
		}
	}
}

func longest(s string) int {
	n := 0
	for line := range strings.SplitSeq(s, "\r\n") {
		n = max(n, len(line))
	}
	return n
}

func TestNormaliseInEveryPiece(t *testing.T) {
	s := "a\rb\nc\r\nd\r\r\n\n\re\r\n"
	want := "a\r\nb\r\nc\r\nd\r\n\r\n\r\n\r\ne\r\n"
	for size := 1; size <= len(s); size++ {
		k := checker{newlines: NormaliseBareNewlines, maxLine: 10}
		var out bytes.Buffer
		for rest := s; rest != ""; {
			piece := rest[:min(size, len(rest))]
			for len(piece) < len(rest) && strings.HasSuffix(piece, "\r") {
				piece = rest[:len(piece)+1]
			}
			out.Write(k.pass([]byte(piece)))
			rest = rest[len(piece):]
		}
		if out.String() != want || k.bare {
			t.Errorf("in pieces of %d: %q", size, out.String())
		}
	}
}

func hasBareNewline(s string) bool {
	s = strings.ReplaceAll(s, "\r\n", "")
	return strings.ContainsAny(s, "\r\n")
}
