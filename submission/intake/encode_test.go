package intake

import (
	"mime"
	"net/mail"
	"strings"
	"testing"
	"unicode/utf8"

	"example.org/mta/internal/envelope"
)

func TestLatin1InFieldsIsEncoded(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"Subject: Gr\xfc\xdfe\r\n", "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"},
		{"Subject: Re: Gr\xfc\xdfe aus K\xf6ln, dort\r\n", "Subject: Re: =?utf-8?q?Gr=C3=BC=C3=9Fe_aus_K=C3=B6ln,?= dort\r\n"},
		{"Subject: plain\r\nX: \x80 1\r\n", "Subject: plain\r\nX: =?utf-8?q?=E2=82=AC?= 1\r\n"},
		{"Subject: grün und Gr\xfcn\r\n", "Subject: =?utf-8?q?gr=C3=BCn_und_Gr=C3=BCn?=\r\n"},
		{"Subject: gr\xfcn\r\n gr\xfcn\r\n\tx\r\n", "Subject: =?utf-8?q?gr=C3=BCn?=\r\n =?utf-8?q?_gr=C3=BCn?=\r\n\tx\r\n"},
		{"From: J\xf6rg M\xfcller <j@example.org>\r\n", "From: =?utf-8?b?SsO2cmcgTcO8bGxlcg==?= <j@example.org>\r\n"},
		{"From: \"M\xfcller, J\xf6rg\" <j@example.org>, b@example.net\r\n", "From: =?utf-8?b?TcO8bGxlciwgSsO2cmc=?= <j@example.org>, b@example.net\r\n"},
		{"To: j@example.org (J\xf6rg)\r\n", "To: j@example.org (=?utf-8?b?SsO2cmc=?=)\r\n"},
		{"To: j\xf6rg@example.org\r\n", "To: jörg@example.org\r\n"},
		{"Content-Type: text/plain; name=\"\xe4.txt\"\r\n", "Content-Type: text/plain; name=\"ä.txt\"\r\n"},
		{"From: \"J\xf6rg\\\r\n Bcc: x\" <j@example.org>\r\n", "From: =?utf-8?b?SsO2cmcgQmNjOiB4?= <j@example.org>\r\n"},
		{"To: \xf6 <a@b.example" + strings.Repeat("<", 5) + "\r\n", "To: =?utf-8?b?w7Y=?= <a@b.example<<<<<\r\n"},
		{"Subject: \x9b31m\r\n", "Subject: =?utf-8?q?=E2=80=BA31m?=\r\n"},
		{"Subject: \x81x\r\n", "Subject: =?utf-8?q?=EF=BF=BDx?=\r\n"},
	} {
		got := string(encodeHeader([]byte(c.in)))
		if got != c.want {
			t.Errorf("%q: got\n%q, want\n%q", c.in, got, c.want)
		}
	}
}

// A line within the limit of SMTP (RFC 5321, 4.5.3.1.6) stays within it, however much its names grow.
func TestEncodedNamesAreFolded(t *testing.T) {
	in := "To: b@example.org" + strings.Repeat(", \xf6 <o@example.org>", 45) + "\r\n"
	out := string(encodeHeader([]byte(in)))
	for line := range strings.Lines(out) {
		if len(line) > 100 {
			t.Errorf("a line of %d octets: %s", len(line), line)
		}
	}
	if all, err := mail.ParseAddressList(strings.TrimPrefix(strings.ReplaceAll(out, "\r\n", ""), "To:")); err != nil || len(all) != 46 || all[45].Name != "ö" {
		t.Errorf("%v of %s", err, out)
	}
}

// BenchmarkEncodeUnclosed is for a section that took time by the square of its size: 20 s of 512 KiB.
func BenchmarkEncodeUnclosed(b *testing.B) {
	section := []byte("To: \xf6" + strings.Repeat("<", 512<<10) + "\r\n")
	for b.Loop() {
		encodeHeader(section)
	}
}

// Whatever the octets, fields stay fields: the encoded section has the fields of the old one, is
// UTF-8, and its names and addresses are read as they were meant.
func FuzzEncodeHeader(f *testing.F) {
	for _, s := range []string{"Gr\xfc\xdfe", "\xff\"\xff", "a\xf6 <x@y>", "(\xf6", "\"\xf6\\\" <evil@x>\" <a@b>", "\xf6\r\n \xf6", strings.Repeat("\xfc ", 300)} {
		f.Add("Subject", s)
		f.Add("From", s)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if _, _, ok := envelope.CutField([]byte(name + ":")); !ok || strings.ContainsAny(value, "\x00") {
			return
		}
		value = strings.NewReplacer("\r", "", "\n", "").Replace(value)
		in := name + ": " + value + "\r\nTo: b@example.net\r\n\r\n"
		out := string(encodeHeader([]byte(in)))
		if !utf8.ValidString(out) {
			t.Fatalf("%q is no UTF-8", out)
		}
		m, err := mail.ReadMessage(strings.NewReader(out))
		if err != nil {
			if _, before := mail.ReadMessage(strings.NewReader(in)); before == nil {
				t.Fatalf("%q became %q: %v", in, out, err)
			}
			return
		}
		if strings.EqualFold(name, "To") {
			return
		}
		if len(m.Header) != 2 || m.Header.Get("To") != "b@example.net" {
			t.Fatalf("%q has the fields %v", out, m.Header)
		}
	})
}

func TestEncodedWordsAreReadBack(t *testing.T) {
	long := "Subject: " + strings.Repeat("\xe4\xf6\xfc", 200) + "\r\n"
	out := string(encodeHeader([]byte(long)))
	for line := range strings.Lines(out) {
		if len(line) > 90 {
			t.Errorf("a line of %d octets", len(line))
		}
	}
	got, err := new(mime.WordDecoder).DecodeHeader(strings.ReplaceAll(strings.TrimPrefix(out, "Subject: "), "\r\n", ""))
	if want := strings.Repeat("äöü", 200); err != nil || got != want {
		t.Errorf("read back as %q, %v", got, err)
	}
	list, err := mail.ParseAddressList(strings.TrimSuffix(strings.TrimPrefix(string(encodeHeader([]byte("From: \"M\xfcller, J\xf6rg\" <j@example.org>\r\n"))), "From: "), "\r\n"))
	if err != nil || len(list) != 1 || list[0].Name != "Müller, Jörg" || list[0].Address != "j@example.org" {
		t.Errorf("%v, %v", list, err)
	}
}
