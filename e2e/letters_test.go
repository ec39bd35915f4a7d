package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// letter is a message of the kind that something in between tends to damage.
type letter struct {
	name    string
	body    string
	local   string   // local part of the recipient
	options []string // of MAIL
	utf8    bool     // needs SMTPUTF8 of the server
	quoted  bool     // needs a server that knows quoted local parts
	head    string   // further headers, each with its CRLF
}

func hardLetters() []letter {
	return []letter{
		{name: "plain", body: "Hello.\r\n"},
		{name: "8bit", body: "Gr\xfc\xdfe in ISO 8859-1, \xa0\xff\xfe, and UTF-8: Grüße, 你好\r\n", options: []string{"BODY=8BITMIME"},
			head: "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=ISO-8859-1\r\nContent-Transfer-Encoding: 8bit\r\n"},
		{name: "utf8-address", body: "你好\r\n", local: "jörg.用户", options: []string{"SMTPUTF8", "BODY=8BITMIME"}, utf8: true,
			head: "X-Name: Jörg 用户\r\n"},
		{name: "dots", body: ".\r\n..\r\n...\r\n.x\r\n\r\n.\r\n.\r\n \r\n. \r\nend.\r\n"},
		{name: "long-lines", body: strings.Repeat(strings.Repeat("x", 998)+"\r\n"+strings.Repeat(".", 998)+"\r\n", 20)},
		{name: "empty-body", body: ""},
		{name: "blank-lines", body: "\r\n\r\n\r\n"},
		{name: "quoted-local-part", body: "x\r\n", local: `"two words, @ and \"quotes\""`, quoted: true},
		{name: "from-lines", body: "From here on\r\n>From there\r\n\r\nFrom again\r\n"},
		{name: "tabs-and-spaces", body: "\ttab\t\r\n trailing   \r\n\x0cform feed\x0b\x7f\x1b[0m\r\n"},
		{name: "25MB", body: strings.Repeat(strings.Repeat("0123456789abcdef", 4)+"mta12345\r\n", 25<<20/74)},
	}
}

// content gives the whole message. All that a server may add is there already.
func (l letter) content(id string) string {
	return "Date: Sat, 21 Nov 2026 04:00:00 +0000\r\n" +
		"From: Sender <sender@client.example>\r\n" +
		"To: somebody@elsewhere.example\r\n" +
		"Subject: " + l.name + "\r\n" +
		"Message-ID: <" + id + "@client.example>\r\n" +
		"X-Mta-Test-Id: " + id + "\r\n" + l.head + "\r\n" + l.body
}

// TestServersKeepHardLettersAsTheyAre sends straight to the servers: what fails here is not the
// relay's fault.
func TestServersKeepHardLettersAsTheyAre(t *testing.T) {
	parallel(t)
	run := []runServer{postfix, exim, opensmtpd, smtpSink}
	addrs := addresses(len(run))
	port := commonPort(t, addrs...)
	var servers []*server
	for i, r := range run {
		servers = append(servers, r(t, addrs[i], port))
	}
	sendHardLetters(t, servers, func(s *server) string { return net.JoinHostPort(s.addr, port) })
}

func TestHardLettersArriveByteForByte(t *testing.T) {
	parallel(t)
	f := newField(t, postfix, exim, opensmtpd, smtpSink)
	sendHardLetters(t, f.servers, func(*server) string { return f.relay.addr })
	f.relay.drained(t, patience)
}

// sendHardLetters sends every letter for every server to the address that via gives, and
// compares what arrives.
func sendHardLetters(t *testing.T, servers []*server, via func(*server) string) {
	type sent struct {
		server  *server
		id      string
		content string
	}
	var all []sent
	for _, s := range servers {
		for _, l := range hardLetters() {
			if l.utf8 && !s.utf8 {
				continue
			}
			if l.quoted && !s.quoted {
				continue
			}
			local := l.local
			if local == "" {
				local = "user"
			}
			id := s.name + "-" + l.name
			content := l.content(id)
			python(t, via(s), "sender@client.example", []string{local + "@" + s.domain}, content, l.options...)
			all = append(all, sent{s, id, content})
		}
	}
	for _, m := range all {
		t.Run(m.id, func(t *testing.T) {
			got := m.server.wait(t, m.id, patience)
			// A server may still be writing the file that was found.
			eventually(t, patience, func() error {
				err := arrived(m.content, got)
				if err != nil {
					got = m.server.wait(t, m.id, time.Second)
				}
				return err
			})
		})
	}
}

func TestAThousandRecipientsGetOneMessage(t *testing.T) {
	parallel(t)
	f := newField(t, postfix, exim)
	var to []string
	for _, s := range f.servers {
		for i := range 500 {
			to = append(to, fmt.Sprintf("user%d@%s", i, s.domain))
		}
	}
	content := letter{name: "thousand", body: "To all of you.\r\n"}.content("thousand")
	f.python(t, "sender@client.example", to, content)
	for _, s := range f.servers {
		eventually(t, patience, func() error {
			got := make(map[string]int)
			for _, m := range s.messages(t) {
				if err := arrived(content, m); err != nil {
					return err
				}
				got[m.field("X-Original-To")+m.field("Envelope-to")]++
			}
			for i := range 500 {
				if n := got[fmt.Sprintf("user%d@%s", i, s.domain)]; n != 1 {
					return fmt.Errorf("user%d@%s has %d copies", i, s.domain, n)
				}
			}
			if len(got) != 500 {
				return fmt.Errorf("%s has mail for %d recipients, want 500", s.name, len(got))
			}
			return nil
		})
	}
	f.relay.drained(t, patience)
}

func TestUTF8AddressWithoutSMTPUTF8ComesBackToItsSender(t *testing.T) {
	parallel(t)
	f := newField(t, postfix, opensmtpd)
	home, old := f.servers[0], f.servers[1]
	for _, tc := range []struct{ local, head, status string }{
		// 5.6.7 is of the address, 5.6.9 of header fields (RFC 6531, 3.5). Here either is true: the
		// address stands in the relay's own Received field.
		{"jörg", "", "Status: 5.6."},
		{"joerg", "X-Name: Jörg\r\n", "Status: 5.6.9"},
	} {
		content := letter{name: "utf8", body: "x\r\n", head: tc.head}.content("utf8-refused")
		f.python(t, "boss@"+home.domain, []string{tc.local + "@" + old.domain}, content, "SMTPUTF8", "BODY=8BITMIME")
		wantReport(t, f.reportTo(t, home, tc.local+"@"+old.domain), "Action: failed", tc.status)
	}
	f.relay.drained(t, patience)
}

// python sends to the relay by Python's smtplib, which must be told of no refused recipient.
func (f *field) python(t *testing.T, from string, to []string, content string, options ...string) {
	t.Helper()
	python(t, f.relay.addr, from, to, content, options...)
}

func python(t *testing.T, server, from string, to []string, content string, options ...string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(server)
	request, err := json.Marshal(map[string]any{"host": host, "port": port, "from": from, "to": to,
		"content": base64.StdEncoding.EncodeToString([]byte(content)), "options": options})
	if err != nil {
		t.Fatal(err)
	}
	runClient(t, string(request), need(t, "python3")[0], "-c", `
import base64, json, smtplib, sys
j = json.load(sys.stdin)
s = smtplib.SMTP(j["host"], int(j["port"]), local_hostname="client.example", timeout=120)
s.ehlo()
refused = s.sendmail(j["from"], j["to"], base64.b64decode(j["content"]), mail_options=j["options"] or [])
s.quit()
sys.exit("refused: %r" % refused if refused else 0)
`)
}
