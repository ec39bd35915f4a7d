package mta

import (
	"bytes"
	"fmt"
	"io"
	"net/smtp"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	own "example.org/mta/internal/dkim"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/submission/auth"
)

const dkimKey = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=" // RFC 8463, A.2

// signedBy lists the domains whose signatures of a message are good, in their order.
func signedBy(t *testing.T, content []byte) (domains []string) {
	t.Helper()
	signer, err := own.ParseKey([]byte(dkimKey))
	if err != nil {
		t.Fatal(err)
	}
	key, err := own.NewKey("any.example", "s", signer)
	if err != nil {
		t.Fatal(err)
	}
	found, err := dkim.VerifyWithOptions(bytes.NewReader(content), &dkim.VerifyOptions{
		LookupTXT: func(string) ([]string, error) { return []string{key.Record()}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		if v.Err != nil {
			t.Errorf("signature of %s: %v\n%s", v.Domain, v.Err, content)
		}
		domains = append(domains, v.Domain)
	}
	return domains
}

func dkimBlock(domain, more string) string {
	return fmt.Sprintf("dkim %q {\n domain = %q\n %s\n key \"s\" { private_key = %q }\n}\n", domain, domain, more, dkimKey)
}

func TestMailLeavesSigned(t *testing.T) {
	for name, provider := range map[string]sink.Config{"BDAT": {}, "DATA": {Without: sink.Chunking}} {
		t.Run(name, func(t *testing.T) {
			provider.Refusals = []sink.Refusal{sink.UnknownUsers("nobody")}
			w := newWorld(t, provider, `defaults { smtp_port = PORT }`+"\n"+
				dkimBlock("client.example", "")+dkimBlock("esp.example", `senders = ["*"]`)+dkimBlock("relay.example", ""))
			w.send("ann@client.example", "From: Ann <ann@Client.Example>\r\nSubject: two  words\r\n\r\n.dots\r\n \r\n\r\n", "bob@box.example", "nobody@box.example")
			w.send("eve@else.example", "From: eve@else.example\r\n\r\nx\r\n", "bob@box.example")
			for _, m := range w.arrived(3) {
				want := "client.example esp.example"
				switch m.Sender {
				case "":
					want = "relay.example esp.example" // a report is mail of ours
				case "eve@else.example":
					want = "esp.example"
				}
				if got := strings.Join(signedBy(t, m.Content), " "); got != want {
					t.Errorf("mail from %q is signed by %s, want %s", m.Sender, got, want)
				}
			}
			if n := w.dispatcher.SigningCounts().Signed.Load(); n != 3 {
				t.Errorf("%d messages were signed, want 3", n)
			}
		})
	}
}

// A later attempt carries a signature of that day, and a reload brings other keys.
func TestRetriesAreSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sink.Config{Greylist: 100 * time.Millisecond}, `defaults {
			smtp_port = PORT
			retry_interval = "1s"
		}`+"\n"+dkimBlock("client.example", ""))
	w.send("ann@client.example", "From: ann@client.example\r\n\r\nx\r\n", "bob@box.example")
	for _, m := range w.arrived(1) {
		if got := signedBy(t, m.Content); len(got) != 1 {
			t.Errorf("signed by %v", got)
		}
	}
}

const twoAuthors = "From: a@client.example\r\nFrom: b@client.example\r\n\r\nx\r\n"

// A field that is folded in front of its address names the same author. Names that no grammar knows do, too.
func TestAuthorsOfAllFormsAreSigned(t *testing.T) {
	forms := []string{
		"Ann\r\n <ann@client.example>", "Ann\r\n\t<ann@client.example>", "\r\n ann@client.example",
		"=?utf-8?q?Gr=C3=BC=C3=9Fe_von_M=C3=BCller_=26_S=C3=B6hne_GmbH_K=C3=B6ln?=\r\n <ann@client.example>",
		"O'Neil, Ann <ann@client.example>", "Acme [news] <ann@client.example>", "Acme: [x],\r\n more <ann@client.example>",
		"ann@client.example <ann@client.example>", "Ann. B <ann@client.example>",
	}
	w := newWorld(t, sink.Config{}, "defaults { smtp_port = PORT }\n"+dkimBlock("client.example", ""))
	for _, f := range forms {
		w.send("ann@client.example", "From: "+f+"\r\n\r\nx\r\n", "bob@box.example")
	}
	for _, m := range w.arrived(int64(len(forms))) {
		if got := strings.Join(signedBy(t, m.Content), " "); got != "client.example" {
			t.Errorf("signed by %q:\n%s", got, m.Content)
		}
	}
}

// Mail that a block should sign and can't is refused, and no other.
func TestMailThatCannotBeSignedIsRefused(t *testing.T) {
	blocks := map[string]string{"client.example": dkimBlock("client.example", ""), "*": dkimBlock("esp.example", `senders = ["*"]`),
		"send": dkimBlock("client.example", `on_failure = "send"`)}
	for name, block := range blocks {
		w := newWorld(t, sink.Config{}, "defaults { smtp_port = PORT }\n"+block)
		for header, by := range map[string]string{ // blocks that refuse it
			twoAuthors:                            "client.example *",
			"Subject: x\r\n\r\nx\r\n":             "*",
			"From: root\r\n\r\nx\r\n":             "*",
			"From: ann@else.example\r\n\r\nx\r\n": "",
			"From: ann@client.example <eve@else.example>\r\n\r\nx\r\n":   "client.example *",
			"From: <ann@client.example> <eve@else.example>\r\n\r\nx\r\n": "client.example *",
		} {
			err := smtp.SendMail(w.listeners.Addresses(listen.SMTP)[0], nil, "ann@client.example", []string{"bob@box.example"}, []byte(header))
			refused := err != nil && strings.Contains(err.Error(), "5.6.0 DKIM: the message can't be signed") && strings.Contains(err.Error(), "From")
			if refused != slices.Contains(strings.Fields(by), name) {
				t.Errorf("%q with block %s: %v", header, name, err)
			}
		}
	}
}

// A message that came without From is the request's fault, by HTTP.
func TestPostedMailThatCannotBeSignedIsAFault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	token, _, err := auth.AddKey(path, auth.Key{Tenant: "acme", Name: "shop", Scopes: auth.MaySend}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p := &poster{newWorld(t, sink.Config{}, fmt.Sprintf(`
		defaults { smtp_port = PORT }
		keys { file = %q }
		api "web" { address = "127.0.0.1:0" }
		tenant "acme" {}
		%s`, path, dkimBlock("esp.example", "senders = [\"*\"]\n tenants = [\"acme\"]"))), token, path}
	code, _, _ := p.post("?from=ann@client.example&to=bob@box.example", "message/rfc822", "Subject: x\r\n\r\nx\r\n", "")
	if code != 422 {
		t.Errorf("a message without From got %d", code)
	}
	code, sent, _ := p.post("", "application/json", `{"from":"Grüße von Müller & Söhne GmbH Köln am Rhein, \"O'Neil\" <ann@client.example>","to":["bob@box.example"],"text":"x"}`, "")
	if code != 202 {
		t.Fatalf("got %d, %+v", code, sent)
	}
	for _, m := range p.w.arrived(1) {
		if got := strings.Join(signedBy(t, m.Content), " "); got != "esp.example" {
			t.Errorf("signed by %q:\n%s", got, m.Content)
		}
	}
}

func TestMailThatCannotBeSigned(t *testing.T) {
	t.Run("waits", func(t *testing.T) {
		w := newWorld(t, sink.Config{}, "defaults { smtp_port = PORT }\n"+dkimBlock("esp.example", `senders = ["*"]`))
		w.accept(t, twoAuthors, "bob@box.example") // before there was a block
		rec := w.await("bob@box.example", "TransientFailure")
		if why, _ := w.dispatcher.SigningTrouble(); !strings.Contains(why, "more than one From field") {
			t.Errorf("the alarm is %q", why)
		}
		if !strings.Contains(fmt.Sprint(rec), "more than one From field") {
			t.Errorf("the record is %+v", rec)
		}
		if w.dispatcher.SigningCounts().Failed.Load() == 0 || !strings.Contains(w.book.String(), "mail can't be signed") {
			t.Error("neither metrics nor log have it")
		}
	})
	t.Run("goes out", func(t *testing.T) {
		w := newWorld(t, sink.Config{}, "defaults { smtp_port = PORT }\n"+dkimBlock("esp.example", `senders = ["*"]
			on_failure = "send"`))
		w.send("ann@client.example", twoAuthors, "bob@box.example")
		for _, m := range w.arrived(1) {
			if bytes.Contains(m.Content, []byte("DKIM-Signature")) {
				t.Errorf("arrived:\n%s", m.Content)
			}
		}
	})
}

// accept puts a message into the queue without looking at it.
func (w *world) accept(t *testing.T, content, to string) {
	t.Helper()
	draft := w.queue.Begin()
	if _, err := io.WriteString(draft, content); err != nil {
		t.Fatal(err)
	}
	m := &envelope.Message{Sender: "ann@client.example", Received: time.Now(), Recipients: []envelope.Recipient{{Address: envelope.Address(to)}}}
	if err := draft.Commit(m); err != nil {
		t.Fatal(err)
	}
	w.events.Received(m)
}

// No form of From gets a tenant a signature of another's domain. Reports about a tenant's mail are the relay's own.
func TestTenantsAreNotSignedAsAnother(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{sink.UnknownUsers("nobody")}}, `
		defaults { smtp_port = PORT }
		tenant "a" { senders = ["a.test", "x@client.example"] }
		tenant "b" { senders = ["client.example", "sub.a.test"] }
		tenant "open" {}
		listener "tenants" {
			address            = "127.0.0.1:0"
			relay_from         = ["127.0.0.0/8"]
			tenant_header_from = ["127.0.0.0/8"]
		}
`+dkimBlock("a.test", "")+dkimBlock("client.example", "")+dkimBlock("relay.example", ""))
	port := w.listeners.Addresses(listen.SMTP)[1]
	submit := func(tenant, header, to string) bool {
		return smtp.SendMail(port, nil, "x@client.example", []string{to}, []byte("X-MTA-Tenant: "+tenant+"\r\n"+header+"\r\n\r\nx\r\n")) == nil
	}
	var accepted int64
	for _, tenant := range []string{"b", "open"} {
		for _, header := range forged("ceo@a.test", "eve@client.example") {
			if submit(tenant, header, tenant+"@box.example") {
				accepted++
			}
		}
	}
	t.Logf("%d forms accepted", accepted)
	if accepted < 40 {
		t.Fatalf("only %d forms were accepted", accepted)
	}
	for _, m := range w.arrived(accepted) {
		by, to := signedBy(t, m.Content), m.Recipients[0]
		if slices.Contains(by, "a.test") || to == "open@box.example" && len(by) > 0 {
			t.Errorf("mail to %s is signed by %s:\n%s", to, by, m.Content)
		}
	}
	if _, withheld := w.dispatcher.SigningTrouble(); !strings.Contains(withheld, `of tenant "open" from`) {
		t.Errorf("the alarm is %q", withheld)
	}
	if !submit("a", "From: ceo@a.test", "a@box.example") || !submit("a", "From: ceo@a.test", "nobody@box.example") {
		t.Fatal("the owner's mail is refused")
	}
	var got []string
	for _, m := range w.arrived(accepted + 2)[accepted:] {
		got = append(got, fmt.Sprint(m.Recipients[0], signedBy(t, m.Content)))
	}
	if slices.Sort(got); strings.Join(got, " ") != "a@box.example[a.test] x@client.example[relay.example]" {
		t.Errorf("the owner's mail and a report arrived as %q", got)
	}
}

// Where another block signs, mail that loses the signature of its author's domain is noticed all the same: DMARC needs it.
func TestMailWithoutItsOwnDomainsSignatureIsNoticed(t *testing.T) {
	for author, withheld := range map[string]string{"a.test": "a.test", "else.test": "", "esp.example": "esp.example"} {
		w := newWorld(t, sink.Config{}, `
			defaults { smtp_port = PORT }
			tenant "open" { networks = ["127.0.0.0/8"] }
`+dkimBlock("a.test", "")+dkimBlock("other.test", `senders = ["*"]`)+dkimBlock("esp.example", "senders = [\"*\"]\n tenants = [\"*\"]"))
		w.send("x@"+author, "From: x@"+author+"\r\n\r\nx\r\n", "bob@box.example")
		by := strings.Join(signedBy(t, w.arrived(1)[0].Content), " ")
		if by == "esp.example" == (author == "esp.example") { // no tenant writes as the ESP
			t.Errorf("from %s: signed by %q", author, by)
		}
		_, noticed := w.dispatcher.SigningTrouble()
		if noticed != "" != (withheld != "") || !strings.Contains(noticed, withheld) {
			t.Errorf("from %s: the alarm is %q", author, noticed)
		}
	}
}

// forged gives header sections that some reader takes for the victim's, and some for the sender's.
func forged(victim, own string) (all []string) {
	at := strings.Replace(victim, "@", " @ ", 1)
	for _, from := range []string{
		"%V", "Boss <%V>", "%V, %O", "%O, %V", "<%V>, <%O>", "%V <%O>", "\"%V\" <%O>", "%V [x] <%O>", "[x] <%O> %V", "<%V> <%O>",
		"Team: %V, %O;", "%V (x) <%O>", "(%O) %V", "(%V) %O", "<%O>(%V)", "\r\n %V", "x\r\n\t<%V>", "x [y]\r\n\t<%V>", "%V\r\n , %O",
		at + " <%O>", at, "<@client.example:%V>", "%V%O", "=?utf-8?q?%V?= <%O>", "%O <%V>", "O'Neil, x <%V>", "%V; %O", "\"%O <%V>",
		"ceo@A.TEST", "ceo@a.test.", "ceo@ａ.test", "x@sub.a.test", "x@sub.a.test, %V", "\"ceo@a.test\"@client.example", "%O\\ <%V>",
	} {
		from = strings.NewReplacer("%V", victim, "%O", own).Replace(from)
		all = append(all, "From: "+from, "fRoM :"+from, "From: "+from+"\r\nFrom: "+own, "From: "+own+"\r\nFrom: "+from,
			"Resent-From: "+own+"\r\nSender: "+own+"\r\nFrom: "+from)
	}
	return all
}

// DMARC evaluates the domains of all authors, so mail of two is signed by both, or, where the tenant may not write as one
// of them, by neither.
func TestMailOfSeveralAuthors(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		tenant "a" { senders = ["a.test", "plain.test", "*.client.example"] }
		listener "tenants" {
			address            = "127.0.0.1:0"
			relay_from         = ["127.0.0.0/8"]
			tenant_header_from = ["127.0.0.0/8"]
		}
`+dkimBlock("a.test", "")+dkimBlock("client.example", "")+dkimBlock("named.test", `tenants = ["a"]`)+dkimBlock("victim.test", "")+
		dkimBlock("esp.example", "senders = [\"*\"]\n tenants = [\"*\"]"))
	want := map[string]string{
		"x@a.test, y@a.test":           "a.test esp.example",
		"x@a.test, y@named.test":       "named.test a.test esp.example", // the longest first
		"x@a.test, y@plain.test":       "a.test esp.example",
		"x@a.test, ceo@victim.test":    "esp.example",
		"ceo@victim.test, x@a.test":    "esp.example",
		"x@a.test, ceo@elsewhere.test": "esp.example",
		"x@named.test":                 "named.test esp.example",
	}
	for from := range want {
		err := smtp.SendMail(w.listeners.Addresses(listen.SMTP)[1], nil, "x@a.test", []string{"bob@box.example"}, []byte("X-MTA-Tenant: a\r\nFrom: "+from+"\r\nSender: x@a.test\r\n\r\nx\r\n"))
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
	}
	for _, m := range w.arrived(int64(len(want))) {
		_, rest, _ := strings.Cut("\n"+string(m.Content), "\nFrom: ")
		from, _, _ := strings.Cut(rest, "\r")
		if by := strings.Join(signedBy(t, m.Content), " "); by != want[from] {
			t.Errorf("from %s: signed by %q, want %q", from, by, want[from])
		}
	}
	if _, withheld := w.dispatcher.SigningTrouble(); !strings.Contains(withheld, "the tenant may not write as") {
		t.Errorf("the alarm is %q", withheld)
	}
}
