package sendmail

import (
	"bytes"
	"errors"
	"io"
	"net/mail"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"example.org/mta/internal/envelope"
)

func TestAddressSpecs(t *testing.T) {
	for _, test := range []struct {
		value string
		want  string // joined by |
	}{
		{"", ""},
		{"a@b.example", "a@b.example"},
		{"a@b.example, c@d.example", "a@b.example|c@d.example"},
		{`"Doe, Jane" <jane@example.org>`, "jane@example.org"},
		{"root", "root"},
		{"Root <root>", "root"},
		{"undisclosed-recipients:;", ""},
		{"Team: a@b.example, c@d.example;, e@f.example", "a@b.example|c@d.example|e@f.example"},
		{"a@b.example (a comment, (nested) with \\) comma)", "a@b.example"},
		{"(c) a (c) @ (c) b.example (c)", "a@b.example"},
		{`"odd, local"@example.org`, `"odd, local"@example.org`},
		{`"quo\"te"@example.org`, `"quo\"te"@example.org`},
		{"<@one.example,@two.example:a@b.example>", "a@b.example"},
		{"a@[IPv6:2001:db8::1]", "a@[IPv6:2001:db8::1]"},
		{"<>, ,,", ""},
		{"John Smith", "John Smith"},
		{`"unclosed <a@b.example>`, `"unclosed <a@b.example>`},
		{"(unclosed a@b.example", ""},
		{"<a@b.example", "a@b.example"},
		{"[unclosed", "[unclosed"},
		{`"\`, `"\`},
	} {
		if got := strings.Join(addressSpecs(test.value), "|"); got != test.want {
			t.Errorf("%q: got %q, want %q", test.value, got, test.want)
		}
	}
}

// FuzzAddressSpecs: where Go's own strict parser finds addresses, so does this one, and the same.
func FuzzAddressSpecs(f *testing.F) {
	for _, s := range []string{`"Doe, Jane" <jane@example.org>, x@y.example (c)`, "Team: a@b.example;", `"a\"b"@c.example`, "<@x:y@z>", "a@[1.2.3.4]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		found := addressSpecs(value)
		strict, err := mail.ParseAddressList(value)
		if err != nil {
			return
		}
		var want []string
		for _, a := range strict {
			at := strings.LastIndexByte(a.Address, '@')
			want = append(want, string(envelope.Join(a.Address[:at], a.Address[at+1:])))
		}
		var got []string
		for _, s := range found {
			a, err := envelope.ParseAddress(s)
			if err != nil {
				return // longer, or stranger, than SMTP allows: refused
			}
			got = append(got, string(a))
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	})
}

// TestNamesGetADomain takes what cron, PHP and mailx write; all that has a domain, or is no name, stays as it is.
func TestNamesGetADomain(t *testing.T) {
	for _, test := range []struct{ value, want string }{
		{" root\r\n", " root@h.example\r\n"},
		{" root (Cron Daemon)\r\n", " root@h.example (Cron Daemon)\r\n"},
		{" (Cron Daemon) root", " (Cron Daemon) root@h.example"},
		{` "(Cron Daemon)" <root>`, ` "(Cron Daemon)" <root@h.example>`},
		{" Cron < root >", " Cron < root@h.example >"},
		{" root, ann@b.example,\r\n\tbob , <carl> (c, d)\r\n", " root@h.example, ann@b.example,\r\n\tbob@h.example , <carl@h.example> (c, d)\r\n"},
		{" staff: ann, bob@b.example, carl;", " staff: ann@h.example, bob@b.example, carl@h.example;"},
		{" undisclosed-recipients:;\r\n", " undisclosed-recipients:;\r\n"},
		{" root @ b.example", " root @ b.example"},
		{" <@relay.example:ann@b.example>", " <@relay.example:ann@b.example>"},
		{` "ann lee"`, ` "ann lee"`}, {" Cron Daemon", " Cron Daemon"}, {" <>", " <>"}, {" a!b, [192.0.2.1], jos\xe9", " a!b, [192.0.2.1], jos\xe9"},
		{"", ""}, {" (comment", " (comment"}, {` "open`, ` "open`}, {" <root", " <root@h.example"}, {" <root> x", " <root@h.example> x"},
	} {
		if got := withDomain(test.value, "h.example"); got != test.want {
			t.Errorf("%q: got %q, want %q", test.value, got, test.want)
		}
	}
	got := sent(t, strings.NewReader("From: root\nTo: \n root\nBcc: ann\nSubject: root\nX-To: root\n\nTo: root\n"), true)
	if want := "From: root@here.example\r\nTo: \r\n root@here.example\r\nSubject: root\r\nX-To: root\r\n\r\nTo: root\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// sent gives what would be sent of a message.
func sent(t *testing.T, input io.Reader, ignoreDots bool) string {
	t.Helper()
	m, err := readMessage(input, ignoreDots)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	m.finish("<me@here.example>", "here.example")
	r, err := m.content()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(text)) != m.size() {
		t.Errorf("the message has %d octets, and %d were promised", len(text), m.size())
	}
	return string(text)
}

const someHeader = "From: a@b.example\r\nSubject: x\r\n\r\n"

// TestMessageLineEnds: lines of any length with any end come out with CRLF, wherever the end of a
// buffer falls, and what is no line end is left alone.
func TestMessageLineEnds(t *testing.T) {
	for _, size := range []int{1, 100, 64<<10 - 2, 64<<10 - 1, 64 << 10, 64<<10 + 1, 200 << 10} {
		line := strings.Repeat("x", size)
		want := someHeader + line + "\r\n.\rbare\r\n\r\n"
		for _, end := range []string{"\n", "\r\n"} {
			input := strings.ReplaceAll(someHeader+line+"\r\n.\rbare\r\n\r\n", "\r\n", end)
			for name, r := range map[string]io.Reader{"whole": strings.NewReader(input), "octet by octet": iotest.OneByteReader(strings.NewReader(input))} {
				if got := sent(t, r, false); got != want {
					t.Errorf("%d octets with %q, %s: %d octets came out, want %d", size, end, name, len(got), len(want))
				}
			}
		}
	}
}

func TestMessageEndsAtDot(t *testing.T) {
	for _, input := range []string{"a\n.\nb\n", "a\r\n.\r\nb\r\n", "a\n.", "a\n"} {
		if got := sent(t, strings.NewReader(someHeader+input), false); got != someHeader+"a\r\n" {
			t.Errorf("%q: got %q", input, got)
		}
	}
	if got := sent(t, strings.NewReader(someHeader+"a\n.\n..\nb"), true); got != someHeader+"a\r\n.\r\n..\r\nb\r\n" {
		t.Errorf("dots ignored: got %q", got)
	}
	// A dot that ends a line longer than the buffer is no line of its own.
	long := strings.Repeat("x", 64<<10)
	if got := sent(t, strings.NewReader(someHeader+long+".\nafter\n"), false); got != someHeader+long+".\r\nafter\r\n" {
		t.Errorf("a long line: %d octets came out", len(got))
	}
}

// TestMessageLargerThanMemory goes through the file.
func TestMessageLargerThanMemory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	body := strings.Repeat(strings.Repeat("0123456789abcde", 5)+"\r\n", 3*maxMemory/77)
	if got := sent(t, strings.NewReader(someHeader+body), false); got != someHeader+body {
		t.Errorf("%d octets came out, want %d", len(got), len(someHeader)+len(body))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMessageHeaderIsBounded(t *testing.T) {
	for name, header := range map[string]string{
		"a long line": "Subject: " + strings.Repeat("x", maxHeader+1<<17) + "\n",
		"many lines":  strings.Repeat("X-Field: some text\n", maxHeader/10),
	} {
		_, err := readMessage(strings.NewReader(header), false)
		if e := (exit{}); !errors.As(err, &e) || e.code != ExDataErr {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestMessageReadError(t *testing.T) {
	_, err := readMessage(io.MultiReader(strings.NewReader(someHeader+"half"), iotest.ErrReader(errors.New("the pipe broke"))), false)
	if e := (exit{}); !errors.As(err, &e) || e.code != ExIOErr {
		t.Errorf("got %v", err)
	}
}

// FuzzMessage: whatever comes in, what goes out has CRLF line ends only, a From, and no Bcc.
func FuzzMessage(f *testing.F) {
	f.Add([]byte("To: a@b\nBcc: c@d\n e@f\n\nbody\n.\nmore"), true)
	f.Add([]byte("no header\r\n"), false)
	f.Add([]byte("From x\nBcc : y\r\n\r\n\r"), false)
	f.Fuzz(func(t *testing.T, input []byte, ignoreDots bool) {
		text := sent(t, bytes.NewReader(input), ignoreDots)
		if bare := strings.ReplaceAll(text, "\r\n", ""); strings.Contains(bare, "\n") {
			t.Errorf("%q: a bare LF goes out", text)
		}
		header, _, ok := strings.Cut(text, "\r\n\r\n")
		if !ok {
			t.Fatalf("%q: no end of the header section", text)
		}
		from := false
		for line := range strings.SplitSeq(header, "\r\n") {
			name, _, _ := strings.Cut(strings.ToLower(line), ":")
			name = strings.TrimRight(name, " \t")
			if name == "bcc" || name == "resent-bcc" {
				t.Errorf("%q: Bcc goes out", text)
			}
			from = from || name == "from"
		}
		if !from {
			t.Errorf("%q: no From", text)
		}
	})
}
