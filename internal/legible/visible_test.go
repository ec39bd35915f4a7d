package legible

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestJSONMeansTheSame(t *testing.T) {
	for in, want := range map[string]string{
		"plain":              `"plain"`,
		"grün 邮件 👍":          `"grün 邮件 👍"`,
		"csi \u009b31m":      `"csi \u009b31m"`,
		"nel\u0085":          `"nel\u0085"`,
		"del\x7f":            `"del\u007f"`,
		"bidi \u202egnp.exe": `"bidi \u202egnp.exe"`,
		"isolate \u2066x":    `"isolate \u2066x"`,
		"zero\u200bwidth":    `"zero\u200bwidth"`,
		"tag \U000e0001":     `"tag \udb40\udc01"`,
		"bom\ufeff":          `"bom\ufeff"`,
	} {
		var out bytes.Buffer
		e := json.NewEncoder(Writer(&out))
		e.SetEscapeHTML(false)
		if err := e.Encode(in); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != want+"\n" {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
		var back string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != in {
			t.Errorf("%q comes back as %q, %v", in, back, err)
		}
	}
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"550 no such user", 500, "550 no such user"},
		{"a\x1b[2Jb\r\nc", 500, "a?[2Jb??c"},
		{"right\u202eto left", 500, "right?to left"},
		{"latin\xe9", 500, "latin?"},
		{"grün", 3, "gr"},
		{"grün", 4, "grü"},
		{"\x80\x80\x80", 2, ""},
		{"grün", 0, ""},
	} {
		if got := Line(c.in, c.n); got != c.want {
			t.Errorf("Line(%q, %d) = %q, not %q", c.in, c.n, got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"550 no such user", 16, "550 no such user"},
		{"550 no such user", 15, "550 no such use…"},
		{"450-a\r\n450 b\n", 500, "450-a / 450 b"},
		{"a\tb\rc", 500, `a b\u000dc`},
		{"\x1b]0;owned\x07\u009b2J", 500, `\u001b]0;owned\u0007\u009b2J`},
		{"right\u202eto left", 500, `right\u202eto left`},
		{"tag \U000e0001", 500, `tag \udb40\udc01`},
		{"latin\xe9", 500, "latin\ufffd"},
		{"grün 日本語 e\u0301", 500, "grün 日本語 e\u0301"},
		{"日本語", 4, "日本…"},
	} {
		if got := Escaped(c.in, c.n); got != c.want {
			t.Errorf("Text(%q, %d) = %q, not %q", c.in, c.n, got, c.want)
		}
	}
}
