package intake

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

func FuzzHeader(f *testing.F) {
	for _, s := range []string{"", "\r\n", "A: b\r\n\r\nc", "Date: x\r\nReceived: y\r\n z\r\n", " a\r\n", "hello\r\n", "MT-Priority: 3 (x)\r\n\r\n", ": x\r\n", "A\xff: x\r\n", "X-Hold-For: 1\r\n 2\r\nA: b\r\nX-Hold-Until:\r\n\tx\n\nbody"} {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 100)
	}
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if size < 1 || len(text) > 1<<16 {
			return
		}
		var h header
		var body []byte
		for rest := bytes.Clone(text); len(rest) > 0; {
			n := min(size, len(rest))
			if h.done {
				body = append(body, rest[:n]...)
			} else if more := h.add(rest[:n]); h.done {
				body = append(append(body, h.body...), more...)
			}
			rest = rest[n:]
		}
		if !h.done {
			h.end()
			body = append(body, h.body...)
		}
		if (h.own != ownFields{}) { // fields are taken out; which, must not hang on how the octets come
			var whole header
			rest := whole.add(bytes.Clone(text))
			whole.end()
			if string(h.text) != string(whole.text) || string(body) != string(whole.body)+string(rest) || h.own != whole.own || len(h.text) >= len(text) {
				t.Fatalf("%q became %q and %q in pieces of %d, %q and %q whole", text, h.text, body, size, whole.text, whole.body)
			}
			h.own.plan(time.Unix(0, 0), time.Hour)
			return
		}
		if got := string(h.text) + string(body); got != string(text) {
			t.Fatalf("%q became %q", text, got)
		}
		if strings.ContainsAny(string(text), "\r\x00") || !bytes.Equal(bytes.ToValidUTF8(text, nil), text) {
			h.asksPriority()
			return
		}
		if n, _ := headerEnd(string(text)); n != len(h.text) {
			t.Errorf("%q: header section of %d octets, want %d", text, len(h.text), n)
		}
		if h.fields.has(FieldDate) != hasField(string(text), "Date") || h.fields.has(FieldMessageID) != hasField(string(text), "Message-ID") ||
			h.fields.has(FieldListUnsubscribe) != hasField(string(text), "List-Unsubscribe") {
			t.Errorf("%q: %+v", text, h)
		}
		if p, ok := h.asksPriority(); ok && tierOf(p) > 5 {
			t.Errorf("tier %d", tierOf(p))
		}
	})
}

// headerEnd finds where the header section of s ends, and whether a blank line ends it.
func headerEnd(s string) (n int, blank bool) {
	for line := range strings.Lines(s) {
		switch {
		case strings.TrimRight(line, "\r\n") == "":
			return n + len(line), true
		case n > 0 && (line[0] == ' ' || line[0] == '\t'), fieldLine.MatchString(line):
			n += len(line)
		default:
			return n, false
		}
	}
	return n, n > 0
}

func hasField(s, name string) bool {
	n, _ := headerEnd(s)
	for line := range strings.Lines(s[:n]) {
		if field, _, ok := strings.Cut(line, ":"); ok && strings.EqualFold(strings.TrimRight(field, " \t"), name) {
			return true
		}
	}
	return false
}

var fieldLine = regexp.MustCompile(`^[!-9;-~]+[ \t]*:`)
