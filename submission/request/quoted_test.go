package request

import (
	"bytes"
	"io"
	"mime/quotedprintable"
	"strings"
	"testing"
)

// FuzzQuoted: what is written is what the library's encoder writes.
func FuzzQuoted(f *testing.F) {
	for _, s := range []string{
		"", "a", "a\n", "a\r\nb", "a\rb\r", "\r\n\r\n", "a \nb\t\n c", "=\nx\n=", "é\nx\né", strings.Repeat("x", 76) + "\n" + strings.Repeat("y", 77) + "\nz",
		"x\n" + strings.Repeat("é", 50) + "\nx", "a\x00\nb", ".\n..\nFrom x\n", "a\n\n\rb", "x ", "x\n ", "\r\x9a\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got, want bytes.Buffer
		if err := writeQuoted(&got, text); err != nil {
			t.Fatal(err)
		}
		qp := quotedprintable.NewWriter(&want)
		io.WriteString(qp, canonical(text))
		qp.Close()
		if got.String() != want.String() {
			t.Fatalf("%q became\n%q, want\n%q", text, got.String(), want.String())
		}
	})
}

func BenchmarkQuoted(b *testing.B) {
	text := strings.Repeat("A line of words that is about as long as lines are.\n", 40)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := writeQuoted(io.Discard, text); err != nil {
			b.Fatal(err)
		}
	}
}
