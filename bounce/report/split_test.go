package report

import (
	"strings"
	"testing"
)

func types(parts []Part) string {
	var all []string
	for i := range parts {
		all = append(all, parts[i].Type)
	}
	return strings.Join(all, " ")
}

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct{ content, types, text string }{
		"plain":              {"Subject: x\r\n\r\nhello\r\n", "text/plain", "hello\n"},
		"no header":          {"hello\nworld\n", "text/plain", "hello\nworld\n"},
		"mailbox":            {"From a@b Thu Jan  1\nSubject: x\n\nhello", "text/plain", "hello"},
		"bare CR":            {"Subject: x\r\rhello\r", "text/plain", "hello\n"},
		"NUL":                {"Sub\x00ject: x\n\nhel\x00lo", "text/plain", "hello"},
		"broken field":       {"Subject: x\nthis is no field\nX: y\n\nhello", "text/plain", "hello"},
		"UTF-16":             {"\xff\xfeA\x00:\x00b\x00\n\x00\n\x00h\x00i\x00", "text/plain", "hi"},
		"two parts":          {"Content-Type: multipart/mixed; boundary=x\n\n--x\n\na\n--x\nContent-Type: message/delivery-status\n\nb: c\n--x--\n", "multipart/mixed text/plain message/delivery-status", "b: c"},
		"unclosed":           {"Content-Type: multipart/mixed; boundary=x\n\n--x\n\na\n--x\nContent-Type: text/html\n\nb", "multipart/mixed text/plain text/html", "b"},
		"inner unclosed":     {"Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: multipart/alternative; boundary=y\n\n--y\n\na\n--x\nContent-Type: text/html\n\nb\n--x--", "multipart/mixed multipart/alternative text/plain text/html", "b"},
		"wrong boundary":     {"Content-Type: multipart/mixed; boundary=z\n\n--x\nContent-Type: text/html\n\na\n--x--", "multipart/mixed text/html", "a"},
		"no boundary":        {"Content-Type: multipart/mixed\n\nhello\n", "text/plain", "hello\n"},
		"quoted, semicolons": {"Content-Type: multipart/mixed; report-type=\"a;b\" boundary=\"x;y\"\n\n--x;y\n\na\n--x;y--", "multipart/mixed text/plain", "a"},
		"quoted-printable":   {"Content-Transfer-Encoding: quoted-printable\n\na=3Db=\nc=zz =", "text/plain", "a=bc=zz "},
		"base64 with junk":   {"Content-Transfer-Encoding: base64\n\naGVs!bG8=\r\nIHdv cmxk\n", "text/plain", "hello world"},
		"no base64":          {"Content-Transfer-Encoding: base64\n\n<a@b>: (user unknown) - it's (over)!\n", "text/plain", "<a@b>: (user unknown) - it's (over)!\n"},
		"charset":            {"Content-Type: text/plain; charset=koi8-r\n\n\xf2", "text/plain", "Р"},
		"unknown charset":    {"Content-Type: text/plain; charset=x-y\n\n\xe9", "text/plain", "é"},
	} {
		parts := Split([]byte(c.content))
		if got := types(parts); got != c.types {
			t.Errorf("%s: %s, want %s", name, got, c.types)
		}
		if got := parts[len(parts)-1].Text(); got != c.text {
			t.Errorf("%s: %q, want %q", name, got, c.text)
		}
	}
}

func TestHeader(t *testing.T) {
	h, n := ReadHeader([]byte("A: b\r\n c\r\nSubject: =?utf-8?q?=C3=A9?= =?x-unknown?b?6Q==?=\r\nContent-Type: text/plain;\r\n\tcharset=\"a b\"; boundary*=us-ascii''x%\r\n\r\nbody"))
	if got := h.Get("a"); got != "b c" {
		t.Errorf("folded: %q", got)
	}
	if got := h.Decoded("Subject"); got != "éé" {
		t.Errorf("encoded words: %q", got)
	}
	if charset, boundary := h.Param("content-type", "charset"), h.Param("content-type", "boundary"); charset != "a b" || boundary != "x%" {
		t.Errorf("charset %q, boundary %q", charset, boundary)
	}
	if n == 0 || !h.Has("SUBJECT") || len(h.All("A")) != 1 {
		t.Errorf("%d octets: %v", n, h)
	}
}

// TestBounds: whatever comes, the parts, their depth and the fields stay within the limits.
func TestBounds(t *testing.T) {
	var deep strings.Builder
	for i := range 100 {
		b := strings.Repeat("b", i+1)
		deep.WriteString("Content-Type: multipart/mixed; boundary=" + b + "\n\n--" + b + "\n")
	}
	for name, content := range map[string]string{
		"parts":  "Content-Type: multipart/mixed; boundary=x\n\n" + strings.Repeat("--x\n\na\n", 10000),
		"deep":   deep.String(),
		"fields": strings.Repeat("a: b\n", 50000),
		"size":   strings.Repeat("a", 10*MaxSize),
	} {
		parts := Split([]byte(content))
		if len(parts) > MaxParts {
			t.Errorf("%s: %d parts", name, len(parts))
		}
		for i := range parts {
			if len(parts[i].Header) > MaxFields || len(parts[i].Body) > MaxSize {
				t.Errorf("%s: %d fields, %d octets", name, len(parts[i].Header), len(parts[i].Body))
			}
		}
	}
}
