package mta

import (
	"bytes"
	"context"
	"fmt"
	"net/mail"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
)

// returned is a mail that arrived, and what its return path names.
type returned struct {
	sink.Message
	domain string
	returnpath.Token
	header mail.Header
}

// readReturnPath takes a mail that arrived apart.
func (w *world) readReturnPath(m sink.Message) (out returned) {
	w.t.Helper()
	out.Message = m
	letter, err := mail.ReadMessage(bytes.NewReader(m.Content))
	if err != nil {
		w.t.Fatal(err)
	}
	out.header = letter.Header
	local, domain, _ := strings.Cut(m.Sender, "@")
	purpose, token, ok := returnpath.Cut(local)
	if !ok || purpose != returnpath.Bounce {
		return out
	}
	out.domain = domain
	if out.Token, err = w.returnPaths.Load().Read(purpose, token, time.Now()); err != nil {
		w.t.Errorf("MAIL FROM:<%s>: %v", m.Sender, err)
	}
	if out.Node != returnpath.NodeOf("relay.example") {
		w.t.Errorf("node %v", out.Node)
	}
	return out
}

// Mail of a tenant, and of a sender's domain, leaves with a return path that names message and recipient; so do
// its header fields, which are signed.
func TestReturnPaths(t *testing.T) {
	for name, signing := range map[string]string{"signed": dkimBlock("client.example", `tenants = ["acme"]`), "unsigned": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, sink.Config{}, `
				defaults { smtp_port = PORT }
				listener "acme" {
					address = "127.0.0.1:0"
					tenant  = "acme"
				}
				tenant "acme" { return_path = "B.acme.example" }
				sender_domain "*.client.example" { return_path = "b.client.example" }
				sender_domain "off.client.example" { return_path = "" }
			`+signing)
			for _, from := range []string{"ann@client.example", "ann@sub.client.example", "ann@off.client.example"} {
				w.sendTo(w.listeners.Addresses(listen.SMTP)[1], from, "From: ann@client.example\r\nSubject: "+from+"\r\n\r\nx\r\n", "bob@box.example")
			}
			for _, m := range w.arrived(3) {
				got := w.readReturnPath(m)
				want := map[string]string{"ann@client.example": "b.acme.example", "ann@sub.client.example": "b.client.example"}[got.header.Get("Subject")]
				if got.domain != want || want != "" && (got.Recipient != 0 || got.Token.Message == 0) {
					t.Errorf("mail from %s has MAIL FROM:<%s>: %+v, want %s", got.header.Get("Subject"), m.Sender, got.Token, want)
				}
				if want == "" {
					if m.Sender != "ann@off.client.example" || got.header.Get("X-MTA-Token") != "" {
						t.Errorf("mail without a return path: %+v", got)
					}
					continue
				}
				token := strings.TrimPrefix(m.Sender[:strings.IndexByte(m.Sender, '@')], "b-")
				if got.header.Get("X-MTA-Token") != token || got.header.Get("CFBL-Feedback-ID") != token || got.header.Get("CFBL-Address") != m.Sender+"; report=arf" {
					t.Errorf("the fields are %q", got.header)
				}
				if wantSize := fmt.Sprintf("SIZE=%d", len(m.Content)); !strings.Contains(m.MailParams, wantSize) {
					t.Errorf("MAIL has %q, want %s", m.MailParams, wantSize)
				}
				if signing == "" {
					continue
				}
				if by := signedBy(t, m.Content); !slices.Equal(by, []string{"client.example"}) {
					t.Errorf("signed by %v", by)
				}
				_, signed, _ := strings.Cut(strings.ReplaceAll(got.header.Get("DKIM-Signature"), " ", ""), ";h=")
				signed, _, _ = strings.Cut(":"+signed, ";")
				for _, field := range []string{":x-mta-token", ":cfbl-address", ":cfbl-feedback-id"} {
					if strings.Count(signed, field) != 1 {
						t.Errorf("%s is signed %d times: %s", field, strings.Count(signed, field), signed)
					}
				}
			}
			if rec := w.await("bob@box.example", "Delivery"); !strings.HasPrefix(string(rec.Sender), "ann@") {
				t.Errorf("the record has the sender %s", rec.Sender)
			}
		})
	}
}

// A mail that fails is reported to its sender, by mail with the null sender, which stays null; NOTIFY is not passed
// on, and a success that was to be reported is reported by the relay.
func TestReturnPathsAndReports(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, `
		defaults { smtp_port = PORT }
		sender_domain "*" { return_path = "b.client.example" }
	`)
	w.send("ann@client.example", letter, "nobody@box.example")
	for _, m := range w.arrived(1) {
		if m.Sender != "" || !slices.Equal(m.Recipients, []string{"ann@client.example"}) || bytes.Contains(m.Content, []byte("X-MTA-Token")) {
			t.Errorf("the report is from %q to %v:\n%s", m.Sender, m.Recipients, m.Content)
		}
	}
	if rec := w.await("nobody@box.example", "Bounce"); rec.Sender != "ann@client.example" {
		t.Errorf("the record has the sender %s", rec.Sender)
	}
	c, err := textproto.Dial("tcp", w.listeners.Addresses(listen.SMTP)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, step := range []struct {
		command string
		code    int
	}{
		{"", 220}, {"EHLO client.example", 250}, {"MAIL FROM:<ann@client.example> ENVID=xyz", 250},
		{"RCPT TO:<bob@box.example> NOTIFY=SUCCESS ORCPT=rfc822;b@else.example", 250}, {"DATA", 354}, {"Subject: x\r\n\r\nx\r\n.", 250},
	} {
		if step.command != "" {
			if err := c.PrintfLine("%s", step.command); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := c.ReadResponse(step.code); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range w.arrived(3)[1:] {
		switch m.Sender {
		case "":
			if !slices.Equal(m.Recipients, []string{"ann@client.example"}) || !bytes.Contains(m.Content, []byte("Action: relayed")) {
				t.Errorf("the report of the success is to %v:\n%s", m.Recipients, m.Content)
			}
		default:
			if got := w.readReturnPath(m); got.domain != "b.client.example" || !strings.Contains(m.MailParams, "ENVID=xyz") ||
				strings.Contains(m.RcptParams[0], "NOTIFY") || !strings.Contains(m.RcptParams[0], "ORCPT=rfc822;b@else.example") {
				t.Errorf("MAIL FROM:<%s> %s, RCPT %q", m.Sender, m.MailParams, m.RcptParams)
			}
		}
	}
}

// With per_recipient each recipient has a transaction and a token; the relay keeps one message. Without, the token
// of a transaction with several names none, and the header is the same for all.
func TestPerRecipient(t *testing.T) {
	var to []string
	for i := range 30 {
		to = append(to, fmt.Sprintf("r%d@box.example", i))
	}
	for _, per := range []bool{true, false} {
		t.Run(fmt.Sprint(per), func(t *testing.T) {
			w := newWorld(t, sink.Config{}, fmt.Sprintf(`
				defaults { smtp_port = PORT }
				sender_domain "client.example" {
					return_path   = "b.client.example"
					per_recipient = %v
				}
			`, per)+dkimBlock("client.example", ""))
			w.send("ann@client.example", letter, to...)
			var id envelope.ID
			var recipients []string
			for _, m := range w.arrived(30) {
				got := w.readReturnPath(m)
				if id == 0 {
					id = got.Token.Message
				}
				if got.Token.Message != id {
					t.Errorf("messages %v and %v", id, got.Token.Message)
				}
				if by := signedBy(t, m.Content); len(by) != 1 {
					t.Errorf("signed by %v", by)
				}
				header, err := w.returnPaths.Load().Read(returnpath.Bounce, got.header.Get("X-MTA-Token"), time.Now())
				switch {
				case err != nil:
					t.Error(err)
				case per && (len(m.Recipients) != 1 || m.Recipients[0] != to[got.Recipient] || header != got.Token):
					t.Errorf("to %v with a return path for %d and a header for %d", m.Recipients, got.Recipient, header.Recipient)
				case !per && (got.Recipient != returnpath.NoRecipient || header != got.Token):
					t.Errorf("to %v with a return path for %d and a header for %d", m.Recipients, got.Recipient, header.Recipient)
				}
				recipients = append(recipients, m.Recipients...)
			}
			slices.Sort(recipients)
			if len(slices.Compact(recipients)) != 30 {
				t.Errorf("delivered to %v", recipients)
			}
			want := int64(1)
			if per {
				want = 30
			}
			if n := w.dispatcher.SigningCounts().Signed.Load(); n != want {
				t.Errorf("signed %d times, want %d", n, want)
			}
		})
	}
}

// unsubscribe_mail adds an address to what has no List-Unsubscribe, and only there.
func TestUnsubscribeMail(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		listener "acme" {
			address = "127.0.0.1:0"
			tenant  = "acme"
		}
		tenant "acme" {
			return_path      = "b.acme.example"
			unsubscribe_mail = true
		}
	`)
	w.sendTo(w.listeners.Addresses(listen.SMTP)[1], "ann@client.example", "Subject: without\r\n\r\nx\r\n", "bob@box.example")
	w.sendTo(w.listeners.Addresses(listen.SMTP)[1], "ann@client.example", "Subject: with\r\nlist-unsubscribe: <mailto:me@client.example>\r\n\r\nx\r\n", "bob@box.example")
	w.sendTo(w.listeners.Addresses(listen.SMTP)[1], "ann@client.example", "Subject: several\r\n\r\nx\r\n", "bob@box.example", "joe@box.example")
	w.sendTo(w.listeners.Addresses(listen.SMTP)[1], "ann@client.example", "Subject: postmaster\r\n\r\nx\r\n", "postmaster@box.example")
	for _, m := range w.arrived(5) {
		got := w.readReturnPath(m)
		field := got.header["List-Unsubscribe"]
		switch got.header.Get("Subject") {
		case "without":
			token, ok := "", false
			if len(field) == 1 {
				token, ok = strings.CutPrefix(field[0], "<mailto:u-")
				token = strings.TrimSuffix(token, "@b.acme.example>")
			}
			if named, err := w.returnPaths.Load().Read(returnpath.Unsubscribe, token, time.Now()); !ok || err != nil || named != got.Token {
				t.Errorf("List-Unsubscribe is %q: %+v, %v", field, named, err)
			}
		case "with":
			if !slices.Equal(field, []string{"<mailto:me@client.example>"}) {
				t.Errorf("List-Unsubscribe is %q", field)
			}
		default:
			if len(field) > 0 {
				t.Errorf("%s: List-Unsubscribe is %q", got.header.Get("Subject"), field)
			}
		}
	}
}

// A reload brings a return path, takes it away, and brings other keys; a token of the key before is still read.
func TestReloadOfReturnPaths(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	reload := func(extra string) {
		t.Helper()
		w.rewrite("next", strings.ReplaceAll(`defaults { smtp_port = PORT }`, "PORT", w.port)+"\nresolver { servers = [\""+w.cfg.Resolver.Servers[0]+"\"] }\n"+extra)
		if _, err := w.Reload(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	const on = `sender_domain "client.example" { return_path = "b.client.example" }` + "\n"
	secret := func(c string) string { return strings.Repeat(c, 32) }
	steps := []struct{ extra, domain string }{
		{on, "b.client.example"},
		{on + fmt.Sprintf("return_path { secrets = [%q] }\n", secret("a")), "b.client.example"},
		{on + fmt.Sprintf("return_path { secrets = [%q, %q] }\n", secret("b"), secret("a")), "b.client.example"},
		{"", ""},
	}
	var before string
	for i, step := range steps {
		reload(step.extra)
		w.send("ann@client.example", letter, "bob@box.example")
		all := w.arrived(int64(i + 1))
		got := w.readReturnPath(all[i])
		if got.domain != step.domain {
			t.Errorf("step %d: MAIL FROM:<%s>", i, got.Sender)
		}
		if i == 2 {
			if _, err := w.returnPaths.Load().Read(returnpath.Bounce, before, time.Now()); err != nil {
				t.Errorf("the token of the secret before: %v", err)
			}
		}
		before = got.header.Get("X-MTA-Token")
	}
	if err := os.WriteFile(filepath.Join(w.cfg.DataDir, "return-path-secret"), []byte("no secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := w.returnPaths.Load()
	if _, err := w.Reload(context.Background()); err != nil || !strings.Contains(w.data.Damaged(), "return-path-secret.damaged-") {
		t.Errorf("a damaged secret: %v, %q", err, w.data.Damaged())
	}
	if token := (returnpath.Token{Message: 7}); keys.Make(returnpath.Bounce, token) != w.returnPaths.Load().Make(returnpath.Bounce, token) {
		t.Error("the secret is another")
	}
}
