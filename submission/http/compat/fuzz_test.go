package compat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/mta/submission/request"
)

// FuzzRequests: whatever a document has, a translation gives faults or requests, and what it gives to
// templates gives back the text that was sent.
func FuzzRequests(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no recorded requests: ", err)
	}
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(doc)
	}
	f.Add([]byte(personal(`{"-a-":"1","-a":"{{x}}"}`, `"{{{-a-}} -a {"`, `"send_at":1,"reply_to":{"email":"-a-@b.example"},`)))
	f.Fuzz(func(t *testing.T, doc []byte) {
		root, faults := request.ParseTree(doc, limits)
		if root == nil || len(faults) > 0 {
			return
		}
		all, r := sendGrid(root)
		if len(r.faults) == 0 {
			for i, q := range all {
				check(t, q)
				substituted(t, root, i, q)
			}
		}
		if root.Kind == request.Object {
			if q, r := resend(root, now); len(r.faults) == 0 {
				check(t, q)
			}
		}
	})
}

func check(t *testing.T, q *request.Request) {
	for _, list := range [][]request.Mailbox{q.From, q.To, q.Cc, q.Bcc, q.ReplyTo} {
		for _, m := range list {
			if strings.ContainsAny(string(m.Address), "\r\n\x00 ") && !strings.HasPrefix(string(m.Address), `"`) {
				t.Errorf("the address %q was taken", m.Address)
			}
		}
	}
}

// substituted compares the text of a message with what its tags make of the content in one pass.
func substituted(t *testing.T, root *request.Node, i int, q *request.Request) {
	values := at(each(root, "personalizations")[i], "substitutions")
	if values == nil || values.Len == 0 || q.Template != "" {
		return
	}
	for _, c := range each(root, "content") {
		if textAt(c, "type") != "text/plain" {
			continue
		}
		want := textAt(c, "value")
		for m := range values.All() {
			if strings.Contains(want, m.Name) {
				return // TestSubstitutionsAreExact has those
			}
		}
		if got := render(t, q.Text, q.Data); got != want {
			t.Errorf("a text without tags became %q, want %q", got, want)
		}
	}
}
