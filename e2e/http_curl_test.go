package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// curl asks the relay by curl, and gives the answer's status and body.
func (f *webField) curl(t *testing.T, method, path, kind, body string) (status int, answer string) {
	t.Helper()
	out := runClient(t, body, need(t, "curl")[0], "-sS", "-X", method, "--data-binary", "@-", "-H", "Authorization: Bearer "+f.key,
		"-H", "Content-Type: "+kind, "-w", "\n%{http_code}", f.url+path)
	i := strings.LastIndexByte(out, '\n')
	fmt.Sscan(out[i+1:], &status)
	return status, out[:i]
}

// native is a letter as POST /v1/messages has it.
func (l webLetter) native(t *testing.T) string {
	t.Helper()
	type object = map[string]any
	people := func(all []person) []object {
		out := []object{}
		for _, p := range all {
			out = append(out, object{"address": p.Email, "name": p.Name})
		}
		return out
	}
	replaced := strings.NewReplacer("-name-", "{{name}}", "-code-", "{{code}}").Replace
	q := object{"from": people([]person{l.From})[0], "subject": l.Subject, "text": l.Text, "html": l.HTML, "reply_to": people(l.ReplyTo), "headers": l.Headers}
	if len(l.Recipients) == 0 {
		q["to"], q["cc"], q["bcc"] = people(l.To), people(l.Cc), people(l.Bcc)
	} else {
		q["subject"], q["text"], q["html"] = replaced(l.Subject), replaced(l.Text), replaced(l.HTML)
	}
	var recipients []object
	for _, r := range l.Recipients {
		recipients = append(recipients, object{"to": people(r.To), "data": r.Values})
	}
	if recipients != nil {
		q["recipients"] = recipients
	}
	if l.Tags != nil {
		q["tags"] = l.Tags
	}
	if l.Meta != nil {
		q["meta"] = l.Meta
	}
	if l.SendAt != 0 {
		q["send_at"] = time.Unix(l.SendAt, 0).UTC().Format(time.RFC3339)
	}
	var files []object
	for _, a := range l.Attachments {
		file := object{"name": a.Name, "type": a.Type, "content": a.Content}
		if a.CID != "" {
			file["content_id"] = a.CID
		}
		files = append(files, file)
	}
	if files != nil {
		q["attachments"] = files
	}
	b, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestCurlSubmitsByHTTP does by curl what the SDKs do: letters to two servers, one as raw mail, a personalised batch, a
// scheduled letter and its cancel, and mistakes.
func TestCurlSubmitsByHTTP(t *testing.T) {
	parallel(t)
	f := newWebField(t, "", "", postfix, exim)
	a, b := f.servers[0], f.servers[1]
	for name, l := range webLetters("ann@"+a.domain, "cc@"+b.domain) {
		t.Run(name, func(t *testing.T) {
			id := "curl-" + strings.ReplaceAll(name, " ", "-")
			l := l.tagged(id)
			if status, answer := f.curl(t, "POST", "/v1/messages", "application/json", l.native(t)); status != 202 {
				t.Fatalf("%d %s", status, answer)
			}
			l.same(t, read(t, a.letter(t, id)))
			if len(l.Cc) > 0 {
				l.same(t, read(t, b.letter(t, id)))
			}
		})
	}
	t.Run("raw", func(t *testing.T) {
		content := letter{name: "hello", body: "Hello,\r\n.\r\n..dots\r\nbye\r\n"}.content("curl-raw")
		content = strings.Replace(content, "From: ", "From: shop@acme.example\r\nX-Was-From: ", 1)
		status, answer := f.curl(t, "POST", "/v1/messages?from=shop@acme.example&to=ann@"+a.domain, "message/rfc822", content)
		if status != 202 {
			t.Fatalf("%d %s", status, answer)
		}
		if err := arrived(content, a.wait(t, "curl-raw", patience)); err != nil {
			t.Error(err)
		}
	})
	t.Run("personalised", func(t *testing.T) {
		l := personalLetter(b.domain).tagged("curl-personal")
		status, answer := f.curl(t, "POST", "/v1/messages", "application/json", l.native(t))
		if status != 202 || strings.Count(answer, `"id"`) != 2 {
			t.Fatalf("%d %s", status, answer)
		}
		eventually(t, patience, func() error {
			if n := b.copies(t, "curl-personal"); n != 2 {
				return fmt.Errorf("%d messages have arrived, want 2", n)
			}
			return nil
		})
		for _, m := range b.messages(t) {
			if m.field(testField) != "curl-personal" {
				continue
			}
			got := read(t, m)
			for _, r := range l.Recipients {
				if len(got.To) > 0 && got.To[0].Email == r.To[0].Email {
					l.of(r).same(t, got)
				}
			}
		}
	})
	t.Run("scheduled and cancelled", func(t *testing.T) { f.curlSchedules(t, a) })
	t.Run("mistakes", func(t *testing.T) {
		for body, pointer := range map[string]string{
			`{"from":"shop@acme.example","to":"x","text":"x"}`:                                               "/to",
			`{"from":"shop@acme.example","to":"a@b.example","text":"x","subjct":"x"}`:                        "did you mean",
			`{"from":"shop@acme.example","to":"a@b.example","text":"x","headers":{"X-A":"b\r\nBcc: c@d.e"}}`: "/headers/X-A",
			`{"from":"shop@acme.example","to":"a@b.example","text":"x"`:                                      "ends early",
		} {
			if status, answer := f.curl(t, "POST", "/v1/messages", "application/json", body); status != 400 || !strings.Contains(answer, pointer) {
				t.Errorf("%s: %d %s, want %q", body, status, answer, pointer)
			}
		}
	})
	f.relay.drained(t, patience)
}

func (f *webField) curlSchedules(t *testing.T, s *server) {
	t.Helper()
	l := webLetter{From: person{Email: "shop@acme.example"}, To: []person{{Email: "later@" + s.domain}}, Subject: "later", Text: "x", SendAt: time.Now().Add(time.Hour).Unix()}
	status, answer := f.curl(t, "POST", "/v1/messages", "application/json", l.native(t))
	var sent struct {
		Messages []struct {
			ID     string `json:"id"`
			Status string `json:"status"`
		} `json:"messages"`
	}
	if err := json.Unmarshal([]byte(answer), &sent); err != nil || status != 202 || len(sent.Messages) != 1 || sent.Messages[0].Status != "scheduled" {
		t.Fatalf("%d %s", status, answer)
	}
	path := "/v1/messages/" + sent.Messages[0].ID
	if status, answer := f.curl(t, "GET", path, "application/json", ""); status != 200 || !strings.Contains(answer, `"scheduled"`) {
		t.Errorf("getting: %d %s", status, answer)
	}
	for _, want := range []string{`"cancelled"`, `"cancelled"`} { // the second time, too
		if status, answer := f.curl(t, "POST", path+"/cancel", "application/json", ""); status != 200 || !strings.Contains(answer, want) {
			t.Errorf("cancelling: %d %s", status, answer)
		}
	}
	if n := len(f.scheduled(t, "later@"+s.domain)); n != 0 {
		t.Errorf("%d messages are still scheduled", n)
	}
}
