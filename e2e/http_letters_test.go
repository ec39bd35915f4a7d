package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// person is a mailbox as the programs in sdk/ are given it.
type person struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

// webFile is an attachment; with a CID it is displayed within the HTML.
type webFile struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	CID     string `json:"cid,omitempty"`
	Content []byte `json:"content"`
}

// webLetter is what an SDK is asked to send. The programs in sdk/ put it into the SDK's own words.
type webLetter struct {
	From        person            `json:"from"`
	To          []person          `json:"to,omitempty"`
	Cc          []person          `json:"cc,omitempty"`
	Bcc         []person          `json:"bcc,omitempty"`
	ReplyTo     []person          `json:"reply_to,omitempty"`
	Subject     string            `json:"subject,omitempty"`
	Text        string            `json:"text,omitempty"`
	HTML        string            `json:"html,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Attachments []webFile         `json:"attachments,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Meta        map[string]string `json:"meta,omitempty"`
	SendAt      int64             `json:"send_at,omitempty"` // seconds since 1970
	Batch       string            `json:"batch,omitempty"`
	Tracking    bool              `json:"tracking,omitempty"`
	Template    string            `json:"template,omitempty"`
	Data        map[string]any    `json:"data,omitempty"`
	// Recipients get a message each, with -NAME- replaced by their values.
	Recipients []webRecipient `json:"recipients,omitempty"`
}

type webRecipient struct {
	To     []person          `json:"to"`
	Values map[string]string `json:"values,omitempty"`
}

// webJob is what a program in sdk/ reads.
type webJob struct {
	URL            string      `json:"url"`
	Key            string      `json:"key"`
	Do             string      `json:"do"`
	ESP            string      `json:"esp,omitempty"` // of Anymail
	Letter         *webLetter  `json:"letter,omitempty"`
	Letters        []webLetter `json:"letters,omitempty"`
	ID             string      `json:"id,omitempty"`
	SendAt         int64       `json:"send_at,omitempty"`
	IdempotencyKey string      `json:"idempotency_key,omitempty"`
	Permissive     bool        `json:"permissive,omitempty"`
}

// webResult is what it prints.
type webResult struct {
	Status  int               `json:"status"`
	Body    string            `json:"body"`
	Error   string            `json:"error"` // the SDK's class of errors, "" for none
	Shown   string            `json:"shown"` // how the SDK shows the error
	Headers map[string]string `json:"headers"`
}

// header gives a field of the answer, however the SDK spells names.
func (r webResult) header(name string) string {
	for k, v := range r.Headers {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// sdk is a client that others wrote.
type sdk struct {
	name    string
	esp     string   // whose requests it makes
	command []string // that reads a job
	env     []string
	anymail bool
}

// sdks gives those that install.sh has fetched.
func sdks(t *testing.T) []sdk {
	t.Helper()
	folder := filepath.Join(cacheDir(), "sdk")
	for _, language := range []string{"python", "node"} {
		if _, err := os.Stat(filepath.Join(folder, language, "versions")); err != nil {
			cannot(t, "the SDKs for "+language+" are not there")
		}
	}
	python, node := need(t, "python3")[0], need(t, "node")[0]
	paths := []string{"PYTHONPATH=" + folder + "/python", "NODE_PATH=" + folder + "/node/node_modules", "PYTHONDONTWRITEBYTECODE=1"}
	return []sdk{
		{name: "sendgrid for Python", esp: "sendgrid", command: []string{python, "sdk/sendgrid_client.py"}, env: paths},
		{name: "sendgrid for Node", esp: "sendgrid", command: []string{node, "sdk/sendgrid_client.js"}, env: paths},
		{name: "Anymail as SendGrid", esp: "sendgrid", command: []string{python, "sdk/anymail_client.py"}, env: paths, anymail: true},
		{name: "resend for Python", esp: "resend", command: []string{python, "sdk/resend_client.py"}, env: paths},
		{name: "resend for Node", esp: "resend", command: []string{node, "sdk/resend_client.mjs"}, env: paths},
		{name: "Anymail as Resend", esp: "resend", command: []string{python, "sdk/anymail_client.py"}, env: paths, anymail: true},
	}
}

// do has the SDK do a job.
func (s sdk) do(t *testing.T, job webJob) webResult {
	t.Helper()
	if s.anymail {
		job.ESP = s.esp
	}
	in, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat([]string{need(t, "env")[0]}, s.env, s.command)
	var r webResult
	if out := runClient(t, string(in), argv...); json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("%s printed %q", s.name, out)
	}
	return r
}

// readMail is a message as Python's email reads it.
type readMail struct {
	From      []person          `json:"from"`
	To        []person          `json:"to"`
	Cc        []person          `json:"cc"`
	Bcc       []person          `json:"bcc"`
	ReplyTo   []person          `json:"reply_to"`
	Subject   string            `json:"subject"`
	Headers   map[string]string `json:"headers"`
	Text      string            `json:"text/plain"`
	HTML      string            `json:"text/html"`
	Structure any               `json:"structure"`
	Defects   []string          `json:"defects"`
	Files     []struct {
		webFile
		Disposition string `json:"disposition"`
	} `json:"files"`
}

func read(t *testing.T, m stored) (r readMail) {
	t.Helper()
	out := runClient(t, string(m.head)+"\r\n"+string(m.body), need(t, "python3")[0], "sdk/read_mail.py")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return r
}

// same compares a message that arrived with the letter that was asked for, field by field.
func (l webLetter) same(t *testing.T, got readMail) {
	t.Helper()
	compare := func(what string, got, want any) {
		t.Helper()
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		if string(g) != string(w) {
			t.Errorf("%s: got %s, want %s", what, g, w)
		}
	}
	people := func(all []person) []person { return append([]person{}, all...) }
	compare("From", got.From, []person{l.From})
	compare("To", people(got.To), people(l.To))
	compare("Cc", people(got.Cc), people(l.Cc))
	compare("Bcc", people(got.Bcc), []person{})
	compare("Reply-To", people(got.ReplyTo), people(l.ReplyTo))
	compare("Subject", got.Subject, l.Subject)
	compare("text", lines(got.Text), lines(l.Text))
	compare("HTML", lines(got.HTML), lines(l.HTML))
	compare("defects", got.Defects, []string{})
	for name, value := range l.Headers {
		compare(name, got.Headers[name], value)
	}
	for _, name := range []string{"Date", "Message-ID", "MIME-Version"} {
		if got.Headers[name] == "" {
			t.Errorf("the message has no %s", name)
		}
	}
	files := make(map[string]webFile)
	for _, f := range got.Files {
		want := "attachment"
		if f.CID != "" {
			want = "inline"
		}
		if f.Disposition != want {
			t.Errorf("%s: the disposition is %s, want %s", f.Name, f.Disposition, want)
		}
		files[f.Name] = f.webFile
	}
	want := make(map[string]webFile)
	for _, f := range l.Attachments {
		want[f.Name] = f
	}
	compare("files", files, want)
}

// lines is a text without the line end at its end, which mail adds.
func lines(s string) string {
	return strings.TrimSuffix(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
}

// webLetters are those that each SDK sends to two servers.
func webLetters(to, cc string) map[string]webLetter {
	base := func() webLetter {
		return webLetter{
			From: person{"shop@acme.example", "Acme"}, To: []person{{to, "Ann"}},
			Subject: "Hello", Text: "Hello Ann,\n\n.\n..dots\nbye\n",
		}
	}
	plain := base()
	named := base()
	named.From.Name = `Acme, "the" shop; Zoë`
	named.To = append(named.To, person{Email: "second@" + strings.SplitN(to, "@", 2)[1]})
	named.Cc, named.Bcc = []person{{cc, "Çelik, A. (boss)"}}, []person{{Email: "hidden@" + strings.SplitN(cc, "@", 2)[1]}}
	named.ReplyTo = []person{{"help@acme.example", "Hilfe für alle"}}
	named.Subject = "Grüße aus Köln – 日本語の件名 " + strings.Repeat("und noch mehr ", 8) + "Ende"
	named.Text = "Zeile mit Ünicode 日本語\n" + strings.Repeat("long ", 400) + "\nFrom here\n"
	named.Headers = map[string]string{"X-Order": "77", "X-Words": "grün " + strings.Repeat("word ", 30) + "end"}
	named.Tags, named.Meta = []string{"order", "eu"}, map[string]string{"order": "77"}
	html := base()
	html.HTML = "<html><body><p>Hello <b>Ann</b> ü 日本 {{not}} {{{a}}} =3D</p>\n" + strings.Repeat("<i>x</i>", 300) + "\n</body></html>\n"
	only := base()
	only.Text, only.HTML = "", "<p>only</p>\n"
	file := base()
	file.Attachments = []webFile{
		{Name: "Übersicht & more 1.pdf", Type: "application/pdf", Content: []byte("%PDF-1.4\r\n\x00\xff" + strings.Repeat("data\n", 3000))},
		{Name: "empty.bin", Type: "application/octet-stream", Content: []byte{0}},
	}
	picture := html
	picture.HTML = `<p>Look: <img src="cid:pic-1"></p>` + "\n"
	picture.Attachments = []webFile{
		{Name: "pic.png", Type: "image/png", CID: "pic-1", Content: []byte("\x89PNG\r\n\x1a\n" + strings.Repeat("\x00\x01", 500))},
		{Name: "notes.txt", Type: "text/plain", Content: []byte("some notes\nwith ü\n")},
	}
	return map[string]webLetter{"text": plain, "names": named, "HTML": html, "HTML alone": only, "attachment": file, "picture": picture}
}

// testField is that of letters which come by HTTP: the relay's own fields can't be set there.
const testField = "X-Test-Id"

// tagged gives a letter a field by which it is found again.
func (l webLetter) tagged(id string) webLetter {
	h := map[string]string{testField: id}
	for k, v := range l.Headers {
		h[k] = v
	}
	l.Headers = h
	return l
}

// copies is how many messages with that id a server has.
func (s *server) copies(t *testing.T, id string) (n int) {
	t.Helper()
	for _, m := range s.messages(t) {
		if m.field(testField) == id {
			n++
		}
	}
	return n
}

// letter gives the message with that id once it has arrived.
func (s *server) letter(t *testing.T, id string) (found stored) {
	t.Helper()
	eventually(t, patience, func() error {
		for _, m := range s.messages(t) {
			if m.field(testField) == id {
				found = m
				return nil
			}
		}
		return fmt.Errorf("%s has not got %s", s.name, id)
	})
	return found
}

// personalLetter is a letter to each of two.
func personalLetter(domain string) webLetter {
	return webLetter{
		From: person{"shop@acme.example", "Acme"}, Subject: "For -name-",
		Text: "Dear -name-, your code is -code-.\n", HTML: "<p>Dear -name-, <b>-code-</b></p>\n",
		Recipients: []webRecipient{
			{To: []person{{"ann@" + domain, "Ann"}}, Values: map[string]string{"name": "Ann Ünal", "code": "A-1"}},
			{To: []person{{"bob@" + domain, ""}}, Values: map[string]string{"name": "Bob", "code": "B-2"}},
		},
	}
}

// of is the letter that a recipient gets of a personalised one.
func (l webLetter) of(r webRecipient) webLetter {
	replace := func(s string) string {
		for k, v := range r.Values {
			s = strings.ReplaceAll(s, "-"+k+"-", v)
		}
		return s
	}
	l.To, l.Recipients = r.To, nil
	l.Subject, l.Text, l.HTML = replace(l.Subject), replace(l.Text), replace(l.HTML)
	return l
}

func (p person) String() string { return fmt.Sprintf("%s <%s>", p.Name, p.Email) }
