package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestMailFollowsItsMXRecords routes by a real name server.
func TestMailFollowsItsMXRecords(t *testing.T) {
	parallel(t)
	// 127.20.0.66 has nobody listening.
	f := newFieldWith(t, `
dead A 127.20.0.66
preferred MX 20 mx.exim
preferred MX 10 mx.postfix
preferred MX 30 dead
deadfirst MX 10 dead
deadfirst MX 20 mx.postfix
deadfirst MX 30 mx.exim
noaddress MX 10 nowhere
noaddress MX 20 mx.postfix
implicit A 127.20.0.1
aliased CNAME preferred
`, "", postfix, exim)
	first := f.servers[0]
	for _, domain := range []string{"preferred", "deadfirst", "noaddress", "implicit", "aliased"} {
		t.Run(domain, func(t *testing.T) {
			content := letter{name: domain, body: "x\r\n"}.content("mx-" + domain)
			f.python(t, "sender@client.example", []string{"user@" + domain + ".example"}, content)
			if err := arrived(content, first.wait(t, "mx-"+domain, patience)); err != nil {
				t.Error(err)
			}
		})
	}
	f.relay.drained(t, patience)
	if n := len(f.servers[1].messages(t)); n != 0 {
		t.Errorf("%d messages went to the exchanger that is second", n)
	}
}

// TestUndeliverableMailComesBackAsAReport is about the domains that no server serves.
func TestUndeliverableMailComesBackAsAReport(t *testing.T) {
	parallel(t)
	t.Run("null MX", func(t *testing.T) { comesBack(t, "gone MX 0 .\n", "", "Status: 5.1.10") })
	t.Run("NXDOMAIN", func(t *testing.T) { comesBack(t, "", "", "Status: 5.1.2") })
}

// TestExpiredMailComesBackAsAReport is about the domain whose only exchanger is dead.
func TestExpiredMailComesBackAsAReport(t *testing.T) {
	t.Parallel() // most of it is waiting
	comesBack(t, "gone MX 10 dead.gone\ndead.gone A 127.20.0.66\n", "domain \"gone.example\" { max_age = \"1m\" }\n", "Status: 4.4.1")
}

// comesBack sends to gone.example and wants one report with that status, and nothing else.
func comesBack(t *testing.T, records, config, status string) {
	t.Helper()
	f := newFieldWith(t, records, config, postfix)
	home := f.servers[0]
	content := letter{name: "lost", body: "x\r\n"}.content("report")
	f.python(t, "boss@"+home.domain, []string{"user@gone.example"}, content)
	report := f.reportTo(t, home, "user@gone.example")
	wantReport(t, report, "Action: failed", status, "Final-Recipient: rfc822; user@gone.example", "Subject: lost")
	if to := report.field("X-Original-To"); to != "boss@"+home.domain {
		t.Errorf("the report went to %s", to)
	}
	f.relay.drained(t, patience)
	if n := len(home.messages(t)); n != 1 {
		t.Errorf("the sender has %d messages, want one report", n)
	}
}

// TestMailGoesByARecursiveNameServer has Unbound between the relay and the zone: it caches, cuts large
// answers, validates, and loses its way.
func TestMailGoesByARecursiveNameServer(t *testing.T) {
	t.Parallel() // most of it is waiting
	var large strings.Builder
	for i := range 60 {
		fmt.Fprintf(&large, "large MX 20 an-exchanger-with-a-name-that-fills-the-answer-%02d.filler\n", i)
	}
	f := newFieldBehind(t, unbound, large.String()+`
large MX 10 mx.postfix
aliased CNAME postfix
broken MX 10 mx.postfix
later MX 10 mx.postfix
`, "", postfix)
	home := f.servers[0]
	send := func(t *testing.T, domain string) (content string) {
		t.Helper()
		content = letter{name: domain, body: "x\r\n"}.content("unbound-" + domain)
		f.python(t, "sender@client.example", []string{"user@" + domain + ".example"}, content)
		return content
	}
	arrives := func(t *testing.T, domain, content string) {
		t.Helper()
		if err := arrived(content, home.wait(t, "unbound-"+domain, patience)); err != nil {
			t.Error(err)
		}
	}
	// waits until the queue shows a reply with one of the words, for mail that must not come back.
	waits := func(t *testing.T, domain string, words ...string) {
		t.Helper()
		eventually(t, patience, func() error {
			text, err := f.relay.reply("user@" + domain + ".example")
			if err != nil || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) }) {
				return err
			}
			return fmt.Errorf("the last reply is %q, want one of %q", text, words)
		})
	}
	for _, domain := range []string{"postfix", "aliased", "large"} {
		t.Run(domain, func(t *testing.T) { arrives(t, domain, send(t, domain)) })
	}
	t.Run("signatures are missing", func(t *testing.T) {
		send(t, "broken")
		waits(t, "broken", "SERVFAIL, DNSSEC Bogus")
	})
	t.Run("zone is away for a while", func(t *testing.T) {
		f.zone.pause(t)
		content := send(t, "later")
		waits(t, "later", "SERVFAIL", "no answer in time")
		f.zone.resume()
		arrives(t, "later", content)
	})
	// The exchanger has a message a moment before the relay has read the reply to it.
	eventually(t, patience, func() error {
		left, err := f.relay.queued()
		if err != nil || slices.Equal(left, []string{"user@broken.example"}) {
			return err
		}
		return fmt.Errorf("queued at the end: %q; want what has a broken zone, and nothing else", left)
	})
}
