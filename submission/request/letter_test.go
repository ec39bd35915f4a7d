package request

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

// zeros is a source of chance without any.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.FixedZone("", 3600))

func box(name, address string) Mailbox {
	return Mailbox{Name: name, Address: envelope.Address(address)}
}

// plain is a letter that others are made from.
func plain() *Letter {
	return &Letter{
		From: []Mailbox{box("Shop", "shop@acme.example")}, To: []Mailbox{box("", "ann@example.com")},
		Subject: "Your order", Text: "Thank you.\n", Date: noon, MessageID: "1@acme.example", Random: zeros{},
	}
}

func build(t testing.TB, l *Letter) string {
	t.Helper()
	var b bytes.Buffer
	n, err := l.WriteTo(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n != int64(b.Len()) {
		t.Fatalf("WriteTo returned %d for %d octets", n, b.Len())
	}
	return b.String()
}

func TestTheSimplestLetter(t *testing.T) {
	const want = "Date: Sun, 22 Nov 2026 12:00:00 +0100\r\n" +
		"From: Shop <shop@acme.example>\r\n" +
		"To: ann@example.com\r\n" +
		"Subject: Your order\r\n" +
		"Message-ID: <1@acme.example>\r\n" +
		"MIME-Version: 1.0\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\n" +
		"Content-Transfer-Encoding: quoted-printable\r\n" +
		"\r\n" +
		"Thank you.\r\n"
	if got := build(t, plain()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// part is a parsed entity.
type part struct {
	mediaType string
	params    map[string]string
	header    map[string][]string
	content   []byte
	parts     []*part
}

func (p *part) get(name string) string { return mail.Header(p.header).Get(name) }

// shape is the structure in one line.
func (p *part) shape() string {
	if p.parts == nil {
		return p.mediaType
	}
	var s []string
	for _, c := range p.parts {
		s = append(s, c.shape())
	}
	return strings.TrimPrefix(p.mediaType, "multipart/") + "(" + strings.Join(s, " ") + ")"
}

// leaves are the parts without parts, from first to last.
func (p *part) leaves() []*part {
	if p.parts == nil {
		return []*part{p}
	}
	var all []*part
	for _, c := range p.parts {
		all = append(all, c.leaves()...)
	}
	return all
}

// parse reads a message by the standard library.
func parse(t testing.TB, raw string) *part {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(raw))
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	return parsePart(t, m.Header, m.Body)
}

func parsePart(t testing.TB, header map[string][]string, body io.Reader) *part {
	t.Helper()
	p := &part{header: header}
	var err error
	if p.mediaType, p.params, err = mime.ParseMediaType(p.get("Content-Type")); err != nil {
		t.Fatalf("%q: %v", p.get("Content-Type"), err)
	}
	if strings.HasPrefix(p.mediaType, "multipart/") {
		r := multipart.NewReader(body, p.params["boundary"])
		for {
			c, err := r.NextRawPart()
			if errors.Is(err, io.EOF) {
				return p
			}
			if err != nil {
				t.Fatal(err)
			}
			p.parts = append(p.parts, parsePart(t, c.Header, c))
		}
	}
	switch encoding := p.get("Content-Transfer-Encoding"); encoding {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "7bit", "8bit":
	default:
		t.Fatalf("the transfer encoding is %q", encoding)
	}
	if p.content, err = io.ReadAll(body); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOnlyTheLevelsNeeded lists the shapes.
func TestOnlyTheLevelsNeeded(t *testing.T) {
	file := Attachment{Name: "a.pdf", Type: "application/pdf", Content: []byte("%PDF")}
	logo := Attachment{Name: "l.png", Type: "image/png", ContentID: "logo", Content: []byte("PNG")}
	for _, c := range []struct {
		text, html string
		files      []Attachment
		want       string
	}{
		{"", "", nil, "text/plain"},
		{"t", "", nil, "text/plain"},
		{"", "<p>", nil, "text/html"},
		{"t", "<p>", nil, "alternative(text/plain text/html)"},
		{"t", "", []Attachment{file}, "mixed(text/plain application/pdf)"},
		{"", "", []Attachment{file}, "application/pdf"},
		{"", "", []Attachment{file, file}, "mixed(application/pdf application/pdf)"},
		{"", "<p>", []Attachment{logo}, "related(text/html image/png)"},
		{"t", "<p>", []Attachment{logo}, "related(alternative(text/plain text/html) image/png)"},
		{"t", "<p>", []Attachment{file, logo, file, logo}, "mixed(related(alternative(text/plain text/html) image/png image/png) application/pdf application/pdf)"},
		{"t", "<p>", []Attachment{file}, "mixed(alternative(text/plain text/html) application/pdf)"},
		{"t", "", []Attachment{logo}, "mixed(text/plain image/png)"},
	} {
		l := plain()
		l.Text, l.HTML, l.Attachments = c.text, c.html, c.files
		raw := build(t, l)
		if got := parse(t, raw).shape(); got != c.want {
			t.Errorf("%q %q and %d files: %s, want %s", c.text, c.html, len(c.files), got, c.want)
		}
		if !strings.HasSuffix(raw, "\r\n") {
			t.Errorf("%s doesn't end in a line end", c.want)
		}
	}
}

func TestInlinePictureHasItsID(t *testing.T) {
	l := plain()
	l.HTML = `<img src="cid:logo@acme">`
	l.Attachments = []Attachment{{Name: "l.png", ContentID: "logo@acme", Content: []byte("PNG")}}
	root := parse(t, build(t, l))
	if got := root.params["type"]; got != "multipart/alternative" {
		t.Errorf("related has the type %q (RFC 2387, 3.1)", got)
	}
	logo := root.leaves()[2]
	if logo.get("Content-ID") != "<logo@acme>" || !strings.HasPrefix(logo.get("Content-Disposition"), "inline") || logo.mediaType != "image/png" {
		t.Errorf("the picture's header is %v", logo.header)
	}
}

func TestAttachedMessageIsNotBase64(t *testing.T) {
	for content, want := range map[string]string{
		"Subject: a\r\n\r\nb\r\n": "message/rfc822 7bit",
		"Subject: a\n\nb":         "message/rfc822 7bit",
		"Subject: ä\r\n\r\n":      "message/rfc822 8bit",
		"Subject: \x00\r\n\r\n":   "application/octet-stream base64",
		strings.Repeat("x", 1000): "application/octet-stream base64",
		"a\rb":                    "application/octet-stream base64",
	} {
		l := plain()
		l.Attachments = []Attachment{{Name: "m.eml", Type: "message/rfc822", Content: []byte(content)}}
		leaf := parse(t, build(t, l)).leaves()[1]
		if got := leaf.mediaType + " " + leaf.get("Content-Transfer-Encoding"); got != want {
			t.Errorf("%q: %s, want %s", content, got, want)
		}
		if want := canonical(content); !strings.HasPrefix(leaf.mediaType, "application") && string(leaf.content) != want {
			t.Errorf("%q arrives as %q", content, leaf.content)
		}
	}
}

func TestMailboxFields(t *testing.T) {
	l := plain()
	l.From = []Mailbox{box("Jörg, Müller", "j@acme.example"), box(`a "b" \c`, "b@acme.example")}
	l.Sender = &l.From[0]
	l.ReplyTo = []Mailbox{box("", `"a b"@acme.example`)}
	l.To, l.Cc = nil, nil
	raw := build(t, l)
	for _, want := range []string{
		"From: =?utf-8?b?SsO2cmcsIE3DvGxsZXI=?= <j@acme.example>, \"a \\\"b\\\" \\\\c\"\r\n <b@acme.example>\r\n",
		"Sender: =?utf-8?b?SsO2cmcsIE3DvGxsZXI=?= <j@acme.example>\r\n",
		"Reply-To: \"a b\"@acme.example\r\n",
		"To: undisclosed-recipients:;\r\n",
	} {
		if !strings.Contains(raw, want) {
			t.Errorf("the header lacks %q:\n%s", want, raw)
		}
	}
	l = plain()
	l.Sender = &l.From[0]
	if raw := build(t, l); strings.Contains(raw, "Sender:") {
		t.Errorf("a Sender field repeats the author (RFC 5322, 3.6.2):\n%s", raw)
	}
}

func TestUTF8Mailboxes(t *testing.T) {
	for address, want := range map[string]bool{"ann@example.com": false, "ann@exämple.com": false, "änn@exämple.com": true} {
		l := plain()
		l.Cc = []Mailbox{box("", address)}
		if l.UTF8() != want {
			t.Errorf("%s: UTF8 is %v", address, !want)
		}
	}
	l := plain()
	l.To = []Mailbox{box("Ann", "ann@exämple.com"), box("", "änn@exämple.com")}
	if raw := build(t, l); !strings.Contains(raw, "To: Ann <ann@xn--exmple-cua.com>, änn@exämple.com\r\n") {
		t.Errorf("got\n%s", raw)
	}
}

func TestLongListIsFolded(t *testing.T) {
	l := plain()
	l.To = nil
	for i := range 1000 {
		l.To = append(l.To, box(fmt.Sprintf("Recipient %d", i), fmt.Sprintf("recipient-%d@example.com", i)))
	}
	raw := build(t, l)
	checkLines(t, raw, 78)
	list, err := mail.ParseAddressList(parse(t, raw).get("To"))
	if err != nil || len(list) != 1000 || list[999].Address != "recipient-999@example.com" {
		t.Errorf("%d recipients arrive: %v", len(list), err)
	}
}

// checkLines checks line ends and lengths, without the line end.
func checkLines(t testing.TB, raw string, limit int) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSuffix(raw, "\r\n"), "\r\n") {
		if len(line) > limit {
			t.Fatalf("a line has %d octets: %q", len(line), line)
		}
		if strings.ContainsAny(line, "\r\n") {
			t.Fatalf("a bare CR or LF in %q", line)
		}
	}
}

func TestFileNames(t *testing.T) {
	for name, want := range map[string]string{
		"a.pdf":                  `attachment; filename="a.pdf"`,
		`quote " and \.txt`:      `attachment; filename="quote \" and \\.txt"`,
		"Rechnung März.pdf":      "attachment; filename*=utf-8''Rechnung%20M%C3%A4rz.pdf",
		"請求書.pdf":                "attachment;\r\n filename*=utf-8''%E8%AB%8B%E6%B1%82%E6%9B%B8.pdf",
		strings.Repeat("ä", 200): "",
	} {
		l := plain()
		l.Attachments = []Attachment{{Name: name, Type: "application/x-test", Content: []byte("x")}}
		raw := build(t, l)
		checkLines(t, raw, 78)
		if !strings.Contains(raw, want) {
			t.Errorf("the disposition %q isn't in\n%s", want, raw)
		}
		leaf := parse(t, raw).leaves()[1]
		_, params, err := mime.ParseMediaType(leaf.get("Content-Disposition"))
		if err != nil || params["filename"] != name || leaf.params["name"] != name {
			t.Errorf("%q arrives as %q and %q: %v", name, params["filename"], leaf.params["name"], err)
		}
	}
}

func TestTypeOfAFile(t *testing.T) {
	for _, c := range []struct{ name, given, want string }{
		{"a.pdf", "", "application/pdf"},
		{"noext", "", "application/octet-stream"},
		{"a.csv", `text/csv; header=present; charset="windows-1252"`, `text/csv; charset="windows-1252"; header="present"; name="a.csv"`},
	} {
		l := plain()
		l.Attachments = []Attachment{{Name: c.name, Type: c.given, Content: []byte("x")}}
		raw := strings.ReplaceAll(build(t, l), "\r\n ", " ")
		if !strings.Contains(raw, "Content-Type: "+c.want) {
			t.Errorf("%s %s: no %q in\n%s", c.name, c.given, c.want, raw)
		}
	}
}

func TestCallersFields(t *testing.T) {
	l := plain()
	l.Headers = []Header{
		{Name: "List-Unsubscribe", Value: "<https://acme.example/" + strings.Repeat("u", 100) + ">"},
		{Name: "List-Id", Value: "Grüße <list.acme.example>"},
		{Name: "message-id", Value: "<mine@acme.example>"},
		{Name: "X-Case", Value: "=?utf-8?q?literal?="},
	}
	raw := build(t, l)
	for _, want := range []string{
		"\r\nList-Unsubscribe: <https://acme.example/" + strings.Repeat("u", 100) + ">\r\n",
		"\r\nList-Id: =?utf-8?b?R3LDvMOfZQ==?= <list.acme.example>\r\n",
		"\r\nmessage-id: <mine@acme.example>\r\n",
	} {
		if !strings.Contains(raw, want) {
			t.Errorf("no %q in\n%s", want, raw)
		}
	}
	if strings.Contains(raw, "<1@acme.example>") {
		t.Error("two Message-IDs")
	}
	if got := decode(t, parse(t, raw).get("X-Case")); got != "=?utf-8?q?literal?=" {
		t.Errorf("what looks like an encoded word arrives as %q", got)
	}
}

func decode(t testing.TB, s string) string {
	t.Helper()
	s, err := new(mime.WordDecoder).DecodeHeader(s)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNoFieldIsAddedByALineBreak: the writer refuses what the checks should have found.
func TestNoFieldIsAddedByALineBreak(t *testing.T) {
	const evil = "a\r\nBcc: all@example.com"
	for place, change := range map[string]func(*Letter){
		"subject":    func(l *Letter) { l.Subject = evil },
		"name":       func(l *Letter) { l.To[0].Name = evil },
		"utf-8 name": func(l *Letter) { l.To[0].Name = "ä" + evil },
		"address":    func(l *Letter) { l.To[0].Address = evil },
		"value":      func(l *Letter) { l.Headers = []Header{{Name: "X-A", Value: evil}} },
		"field name": func(l *Letter) { l.Headers = []Header{{Name: evil, Value: "a"}} },
		"message id": func(l *Letter) { l.MessageID = evil },
		"file name":  func(l *Letter) { l.Attachments = []Attachment{{Name: evil}} },
		"content id": func(l *Letter) { l.Attachments = []Attachment{{ContentID: evil}} },
		"type":       func(l *Letter) { l.Attachments = []Attachment{{Type: "a/b; c=\"" + evil + "\""}} },
		"NUL":        func(l *Letter) { l.Subject = "a\x00b" },
	} {
		l := plain()
		change(l)
		var b bytes.Buffer
		if _, err := l.WriteTo(&b); err == nil && strings.Contains(b.String(), "\r\nBcc:") || err == nil && place != "type" {
			t.Errorf("%s: accepted:\n%s", place, b.String())
		}
	}
}

func TestSameLetterSameMessage(t *testing.T) {
	l := plain()
	l.HTML = "<p>"
	if a, b := build(t, l), build(t, l); a != b {
		t.Errorf("two messages from one letter:\n%s\n%s", a, b)
	}
}

func TestCheckHeaders(t *testing.T) {
	for _, c := range []struct {
		headers []Header
		want    string
	}{
		{[]Header{{Name: "X-A", Value: "b"}, {Name: "X-A", Value: "ü"}}, ""},
		{[]Header{{Name: "References", Value: "<a@b>"}, {Name: "references", Value: "<a@b>"}}, "/1/name: a message can have only one references field (send it once)"},
		{[]Header{{Name: "bcc", Value: "a@b"}}, `/0/name: the relay writes the field bcc (use "bcc")`},
		{[]Header{{Name: "X", Value: ""}, {Name: "Content-Type", Value: "a@b"}}, `/1/name: the field Content-Type can't be set (use "text", "html" and "attachments")`},
		{[]Header{{Name: "X A", Value: "b"}}, "/0/name: a field name is printable ASCII without colon and space (use letters, digits and hyphens)"},
		{[]Header{{Name: "", Value: "b"}}, "/0/name: a field name has 1 to 126 characters (name the field)"},
		{[]Header{{Name: "X-A", Value: "b\nc"}}, "/0/value: the value contains CR, LF or NUL (send it in one line: the relay folds it)"},
		{[]Header{{Name: "Message-ID", Value: "abc"}}, "/0/value: the value is not a valid message id (send <something-unique@example.com>, or leave it out)"},
		{[]Header{{Name: "Message-ID", Value: "<abc@d.example>"}, {Name: "Date", Value: "Sun, 22 Nov 2026 12:00:00 +0000"}}, ""},
		{[]Header{{Name: "List-Unsubscribe", Value: "<https://a.example/" + strings.Repeat("x", 900) + ">"}}, "/0/value: a link or id is longer than 900 octets, and does not fit in a line (shorten it)"},
		{[]Header{{Name: "X-Long", Value: strings.Repeat("x", 1000)}}, ""},
		{[]Header{{Name: "Date", Value: "today"}}, "/0/value: the value is not a valid date (send Sun, 22 Nov 2026 12:00:00 +0000, or leave it out)"},
		{[]Header{{Name: "Received", Value: "x"}, {Name: "X-MTA-Tenant", Value: "x"}}, "/0/name: the relay writes the field Received (leave it out: the relay writes it); /1/name: the field X-MTA-Tenant can't be set (leave it out: fields of the request and its login stand in its place)"},
	} {
		if got := CheckHeaders(c.headers).Error(); got != c.want {
			t.Errorf("%v: %s\nwant %s", c.headers, got, c.want)
		}
	}
}

func TestCheckAttachment(t *testing.T) {
	for _, c := range []struct {
		a    Attachment
		want string
	}{
		{Attachment{Name: "ä.pdf", Type: "application/pdf; a=b", ContentID: "a@b"}, ""},
		{Attachment{Name: "a\nb"}, "/name"},
		{Attachment{Type: "pdf"}, "/type"},
		{Attachment{Type: "multipart/mixed"}, "/type"},
		{Attachment{Type: "a/b; c"}, "/type"},
		{Attachment{ContentID: "<a>"}, "/content_id"},
	} {
		got := ""
		if f := CheckAttachment(&c.a); f != nil {
			got = f.Pointer
		}
		if got != c.want {
			t.Errorf("%+v: a fault at %q, want %q", c.a, got, c.want)
		}
	}
}
