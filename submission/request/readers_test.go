package request

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jhillyerd/enmime/v2"
)

// full is a letter with everything in it.
func full() *Letter {
	l := plain()
	l.From = []Mailbox{box("Jörg, Müller (Laden)", "joerg@acme.example")}
	l.Sender = &Mailbox{Address: "bounces@acme.example"}
	l.To = []Mailbox{box("Ann Example", "ann@example.com"), box(`Bob "B" \ Example`, `"b b"@example.com`), box("日本太郎", "taro@example.jp")}
	l.Cc = []Mailbox{box(strings.Repeat("A very long (and quoted) name ", 5), "lang@example.com")}
	l.Cc = append(l.Cc, box(strings.Repeat("Ein sehr langer Name mit Umläuten ", 5), "lang@example.com"))
	l.ReplyTo = []Mailbox{box("", "help@acme.example")}
	l.Subject = "Ihre Bestellung Nr. 4711 ist unterwegs – voraussichtliche Zustellung am Dienstag, den 24. November: grüße aus Köln"
	l.Text = "Grüße aus Köln\n.\nFrom here = there \n\n" + strings.Repeat("long ", 60) + "\n"
	l.HTML = "<html><p>" + strings.Repeat("日本語", 60) + "</p><img src=\"cid:logo@acme\"></html>\n"
	l.Headers = []Header{{Name: "X-Ref", Value: strings.Repeat("abc ", 50) + "ü  =?utf-8?q?x?="}, {Name: "List-Unsubscribe", Value: "<https://acme.example/u?" + strings.Repeat("x", 150) + ">"}}
	l.Attachments = []Attachment{
		{Name: "logo.png", Type: "image/png", ContentID: "logo@acme", Content: []byte("\x89PNG\r\n\x1a\n\x00")},
		{Name: "Rechnung für März 2026 - " + strings.Repeat("ß", 80) + ".pdf", Type: "application/pdf", Content: bytes.Repeat([]byte{0, 255, 10, 13}, 500)},
		{Name: `a "b".csv`, Type: "text/csv; charset=windows-1252", Content: []byte("a;\xe4\r\n")},
		{Name: "old.eml", Type: "message/rfc822", Content: []byte("Subject: inner\n\ninner\n")},
	}
	return l
}

// TestEnmimeReadsIt: another library's reading of a letter with everything in it.
func TestEnmimeReadsIt(t *testing.T) {
	l := full()
	e, err := enmime.ReadEnvelope(strings.NewReader(build(t, l)))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range e.Errors {
		if fault.Name != enmime.ErrorCharsetDeclaration { // a guess at the charset of a short text
			t.Errorf("enmime: %v", fault)
		}
	}
	if got := e.GetHeader("Subject"); got != l.Subject {
		t.Errorf("the subject arrives as %q", got)
	}
	if got := e.GetHeader("X-Ref"); got != l.Headers[0].Value {
		t.Errorf("X-Ref arrives as %q", got)
	}
	if canonical(e.Text) != canonical(l.Text) || canonical(e.HTML) != canonical(l.HTML) {
		t.Errorf("the bodies arrive as %q and %q", e.Text, e.HTML)
	}
	to, err := e.AddressList("To")
	if err != nil || len(to) != 3 || to[1].Name != l.To[1].Name || to[2].Name != l.To[2].Name {
		t.Errorf("the recipients arrive as %v: %v", to, err)
	}
	if cc, err := e.AddressList("Cc"); err != nil || len(cc) != 2 || cc[1].Name != strings.TrimSpace(l.Cc[1].Name) {
		t.Errorf("the long names arrive as %v: %v", cc, err)
	}
	if len(e.Inlines) != 1 || e.Inlines[0].ContentID != "logo@acme" || len(e.Attachments) != 3 {
		t.Fatalf("%d inline parts and %d attachments arrive", len(e.Inlines), len(e.Attachments))
	}
	if got := e.Attachments[0]; got.FileName != l.Attachments[1].Name || !bytes.Equal(got.Content, l.Attachments[1].Content) {
		t.Errorf("the file %q arrives", got.FileName)
	}
}

// readByPython prints what Python's email makes of a message.
const readByPython = `
import sys, json, email, email.policy
m = email.message_from_bytes(sys.stdin.buffer.read(), policy=email.policy.SMTPUTF8)
def defects(p): return [repr(d) for q in p.walk() for d in q.defects] + [repr(d) for h in p.values() for d in getattr(h, 'defects', [])]
def boxes(name): return [[a.display_name, a.addr_spec] for a in m[name].addresses] if m[name] else []
parts = [p for p in m.walk() if not p.is_multipart() or p.get_content_type() == 'message/rfc822']
json.dump({
  'defects': defects(m), 'shape': [p.get_content_type() for p in m.walk()],
  'subject': str(m['Subject']), 'xref': str(m['X-Ref']), 'unsubscribe': str(m['List-Unsubscribe']),
  'from': boxes('From'), 'to': boxes('To'), 'cc': boxes('Cc'), 'sender': str(m['Sender']), 'date': m['Date'].datetime.isoformat(),
  'text': m.get_body(('plain',)).get_content(), 'html': m.get_body(('html',)).get_content(),
  'files': [[p.get_filename(), p.get_content_type(), str(p['Content-ID'] or ''), p.get_payload(decode=True).hex() if p.get_content_type() != 'message/rfc822' else p.get_content()['Subject'], p.get_content_disposition()]
            for p in parts if p.get_content_disposition() in ('attachment', 'inline')],
}, sys.stdout)
`

// TestPythonReadsIt: Python's email finds no defect, and finds what was asked. (It puts a space between
// two encoded words of a display name, against RFC 2047, 6.2: enmime reads the name that needs two.)
func TestPythonReadsIt(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("MTA_E2E_REQUIRE") != "" {
			t.Fatal("python3 is missing, and MTA_E2E_REQUIRE is set: ", err)
		}
		t.Skip("python3 is not installed: ", err)
	}
	l := full()
	cmd := exec.Command(python, "-c", readByPython)
	cmd.Stdin = strings.NewReader(build(t, l))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var got struct {
		Defects, Shape                                       []string
		Subject, Xref, Unsubscribe, Sender, Date, Text, HTML string
		From, To, Cc, Files                                  [][]string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Defects) > 0 {
		t.Errorf("defects: %v", got.Defects)
	}
	for _, c := range []struct{ what, got, want string }{
		{"shape", strings.Join(got.Shape, " "), "multipart/mixed multipart/related multipart/alternative text/plain text/html image/png application/pdf text/csv message/rfc822 text/plain"},
		{"subject", got.Subject, l.Subject},
		{"X-Ref", got.Xref, l.Headers[0].Value},
		{"List-Unsubscribe", got.Unsubscribe, l.Headers[1].Value},
		{"sender", got.Sender, "bounces@acme.example"},
		{"date", got.Date, "2026-11-22T12:00:00+01:00"},
		{"text", canonical(got.Text), canonical(l.Text)},
		{"html", canonical(got.HTML), canonical(l.HTML)},
		{"author", strings.Join(got.From[0], "|"), l.From[0].Name + "|joerg@acme.example"},
		{"quoted name", strings.Join(got.To[1], "|"), l.To[1].Name + `|"b b"@example.com`},
		{"long name", strings.Join(got.Cc[0], "|"), strings.TrimSpace(l.Cc[0].Name) + "|lang@example.com"},
		{"picture", strings.Join(got.Files[0], "|"), "logo.png|image/png|<logo@acme>|89504e470d0a1a0a00|inline"},
		{"long file name", got.Files[1][0], l.Attachments[1].Name},
		{"quoted file name", strings.Join(got.Files[2], "|"), `a "b".csv|text/csv||613be40d0a|attachment`},
		{"attached message", strings.Join(got.Files[3], "|"), "old.eml|message/rfc822||inner|attachment"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q arrives as %q", c.what, c.want, c.got)
		}
	}
}
