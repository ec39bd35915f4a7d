package request

import (
	"mime"
	"net/mail"
	"strings"
	"testing"
)

// FuzzLetter: what is built parses to what was asked.
func FuzzLetter(f *testing.F) {
	f.Add("Grüße aus Köln", "Jörg, Müller", "Hallo\nWelt =", "<p>ü</p>", "März.pdf", "a  b", []byte{0, 1}, "logo")
	f.Add(" =?utf-8?q?x?= ", `"`, ".\r\r\n\n \t\n", "", strings.Repeat("ä'%", 80), strings.Repeat("x", 2000), []byte{}, "")
	f.Add(strings.Repeat("日本 ", 50), "a b", strings.Repeat("日本", 100), "x", "=?a?=", strings.Repeat(" ", 100)+"x"+strings.Repeat(" ", 100)+"y", []byte("--=_"), "a")
	f.Fuzz(func(t *testing.T, subject, name, text, html, file, value string, content []byte, id string) {
		l := plain()
		l.Subject, l.Text, l.HTML = subject, text, html
		l.To[0].Name = name
		l.Headers = []Header{{Name: "X-Value", Value: value}}
		l.Attachments = []Attachment{{Name: file, Type: "application/x-test", ContentID: id, Content: content}}
		if CheckHeaders(l.Headers) != nil || CheckAttachment(&l.Attachments[0]) != nil || strings.ContainsAny(subject+name, "\r\n\x00") {
			return
		}
		raw := build(t, l)
		checkLines(t, raw, 998)
		root := parse(t, raw)
		for field, want := range map[string]string{"Subject": subject, "X-Value": value} {
			if got, want := decode(t, root.get(field)), valid(strings.TrimSpace(want)); got != strings.TrimSpace(want) {
				t.Errorf("%s: %q arrives as %q\n%s", field, want, got, raw)
			}
		}
		list, err := mail.ParseAddressList(root.get("To"))
		if err != nil || len(list) != 1 || list[0].Address != "ann@example.com" || list[0].Name != valid(strings.TrimSpace(name)) {
			t.Errorf("the name %q arrives as %v: %v\n%s", name, list, err, raw)
		}
		checkContent(t, root, l)
	})
}

// checkContent compares the leaves with the letter.
func checkContent(t *testing.T, root *part, l *Letter) {
	leaves := root.leaves()
	for _, body := range []string{l.Text, l.HTML} {
		if body == "" {
			continue
		}
		if got := string(leaves[0].content); got != canonical(body) {
			t.Errorf("%q arrives as %q", body, got)
		}
		leaves = leaves[1:]
	}
	if len(leaves) != 1 {
		t.Fatalf("the message is %s", root.shape())
	}
	a, got := l.Attachments[0], leaves[0]
	if string(got.content) != string(a.Content) {
		t.Errorf("the file %q arrives as %q", a.Content, got.content)
	}
	_, params, err := mime.ParseMediaType(got.get("Content-Disposition"))
	if err != nil || params["filename"] != valid(a.Name) {
		t.Errorf("the file name %q arrives as %q: %v", a.Name, params["filename"], err)
	}
	if a.ContentID != "" && got.get("Content-ID") != "<"+a.ContentID+">" {
		t.Errorf("the content id %q arrives as %q", a.ContentID, got.get("Content-ID"))
	}
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
