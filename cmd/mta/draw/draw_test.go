package draw

import (
	"strings"
	"testing"
	"unicode/utf8"

	"example.org/mta/internal/legible"
)

func TestWidth(t *testing.T) {
	for _, test := range []struct {
		text string
		want int
	}{
		{"", 0}, {"abc", 3}, {"grüße", 5}, {"日本語", 6}, {"ｆｕｌｌ", 8}, {"e\u0301", 1}, {"a\u200bb", 3},
	} {
		if got := legible.Columns(test.text); got != test.want {
			t.Errorf("%q takes %d columns, want %d", test.text, got, test.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"abcdef", 1, "…"}, {"abcdef", 0, "abcdef"},
		{"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"日本語", 6, "日本語"},
	} {
		got := Cut(test.text, test.n)
		if got != test.want || test.n > 0 && legible.Columns(got) > test.n {
			t.Errorf("%q cut to %d: %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

// TestClean: what a stranger wrote can't drive the terminal.
func TestClean(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"550 no\tsuch user", "550 no such user"},
		{"\x1b[2J\x1b]0;owned\x07", "?[2J?]0;owned?"},
		{"a\u009b31mb", "a?31mb"},             // CSI of C1
		{"user\u202egpj.exe", "user?gpj.exe"}, // turns the direction
		{"non\u00a0breaking\u2028line", "non breaking line"},
		{"日本語 e\u0301 🎉", "日本語 e\u0301 🎉"},
		{"broken \xff", "broken \ufffd"},
		{"two\nlines", "two\nlines"},
		{"\r\n\x00\x7f", " \n??"},
	} {
		if got := Clean(test.text); got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
}

func FuzzTableLine(f *testing.F) {
	f.Add("日本語@例え.example", "\x1b[1m", 20)
	f.Add("", "a\nb", 0)
	f.Fuzz(func(t *testing.T, cell, note string, width int) {
		if width < 0 || width > 500 {
			return
		}
		one := strings.NewReplacer("\n", " / ")
		tab := &Table{Columns: []Column{{Title: "A", Shrink: true}, {Title: "B", Right: true}}, NoteTitle: "N"}
		tab.Add(one.Replace(note), one.Replace(cell), "1")
		var b strings.Builder
		if err := tab.Write(&b, Screen{TTY: true, Width: width}); err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(b.String()) || strings.ContainsAny(b.String(), "\x1b\x00\r\x7f") {
			t.Errorf("the terminal would get %q", b.String())
		}
		for line := range strings.Lines(b.String()) {
			if n := legible.Columns(strings.TrimSuffix(line, "\n")); width > 0 && n > width {
				t.Errorf("line %q has %d columns of %d", line, n, width)
			}
		}
	})
}
