package request

import (
	"io"
	"strings"
	"testing"
)

// BenchmarkLetter builds a message of 2 KB of text, and one of 7 KB of text and HTML.
func BenchmarkLetter(b *testing.B) {
	small := plain()
	small.Text = strings.Repeat("A line of text, as mail from a shop has it.\n", 45)
	large := plain()
	large.Text = strings.Repeat("A line of text, as mail from a shop has it.\n", 45)
	large.HTML = strings.Repeat("<p style=\"color: #333\">A line of HTML – with markup.</p>\n", 88)
	file := plain()
	file.Attachments = full().Attachments[:1]
	file.Attachments[0].Content = make([]byte, 1<<20)
	for name, l := range map[string]*Letter{"2KB": small, "7KB": large, "1MB": file} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n, err := l.WriteTo(io.Discard)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(n)
			}
		})
	}
}
