package top

import (
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestFitAndWrap(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"abcdef", 1, "…"}, {"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"},
		{"a\x1b[2J", 20, `a\u001b[2J`}, {"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
	} {
		if got := fit(c.in, c.width); got != c.want {
			t.Errorf("%q in %d columns is %q, not %q", c.in, c.width, got, c.want)
		}
	}
	if got := strings.Join(wrap("one two three 日本語日本語", 9), "|"); got != "one two|three|日本語日|本語" {
		t.Errorf("wrapped it is %s", got)
	}
}

func TestSpark(t *testing.T) {
	nan := math.NaN()
	for want, values := range map[string][]float64{
		"    ▁▁": {0, 0}, "   ▂█▁": {.001, 100, 0}, "    █ ": {5, nan}, "██████": {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, "      ": nil,
	} {
		if got := spark(values, 6); got != want {
			t.Errorf("%v is drawn as %q, not %q", values, got, want)
		}
	}
}

// FuzzCanvas: whatever text comes, a line has its width, and nothing that a terminal would obey.
func FuzzCanvas(f *testing.F) {
	f.Add("日本語@例え.example", 3, 7)
	f.Add("\x1b]0;owned\x07", 0, 80)
	f.Add("\u0301\u0301e\u0301\u202e👍🏽", 1, 4)
	f.Add("a"+strings.Repeat("\u0301", 100), 0, 2)
	f.Fuzz(func(t *testing.T, text string, x, width int) {
		if x < 0 || width < 0 || x > 100 || width > 300 {
			return
		}
		c := newCanvas(40, 1)
		if end := c.put(x, 0, width, text, plain); end > max(x, min(x+width, 40)) {
			t.Errorf("%q goes to column %d", text, end)
		}
		shown := strings.TrimSuffix(c.text(), "\n")
		if n := columns(shown); n > 40 {
			t.Errorf("%q takes %d columns", shown, n)
		}
		if !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("the terminal would get %q", shown)
		}
		for _, l := range wrap(text, max(1, width)) {
			if n := columns(l); n > max(2, width) {
				t.Errorf("%q takes %d columns of %d", l, n, width)
			}
		}
	})
}
