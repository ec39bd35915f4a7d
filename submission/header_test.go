package submission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/submission/intake"
)

func TestProtocolName(t *testing.T) {
	for _, c := range []struct {
		extended, utf8, secure, loggedIn bool
		want                             string
	}{
		{false, false, false, false, "SMTP"}, {true, false, false, false, "ESMTP"}, {true, false, true, false, "ESMTPS"},
		{true, true, false, false, "UTF8SMTP"}, {true, true, true, false, "UTF8SMTPS"}, {false, false, true, false, "ESMTPS"},
		{true, false, false, true, "ESMTPA"}, {true, false, true, true, "ESMTPSA"}, {true, true, true, true, "UTF8SMTPSA"},
	} {
		if got := protocolName(c.extended, c.utf8, c.secure, c.loggedIn); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// Nothing that a client can say gets into the Received field unless it is harmless there.
func TestHeaderInjection(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.1")
		p.expect("220")
		p.cmd("EHLO a\x0bb", "500")
		for _, name := range []string{"a(b", "a;b", "<script>", `"q"`, "[1.2.3.4", "x:y", "a,b", "[]", "a)b"} {
			p.cmd("EHLO "+name, "250")
			p.data("hi\r\n")
		}
		p.cmd("EHLO ok", "250")
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd(`RCPT TO:<"x>;y\"z"@example.net>`, "250")
		p.cmd("DATA", "354")
		p.send("hi\r\n.\r\n")
		p.expect("250")
		all := r.store.all(t)
		for i, m := range all[:9] {
			if !strings.HasPrefix(m.content, "Received: from [192.0.2.1] ([192.0.2.1])\r\n\tby relay.example.com") {
				t.Errorf("%d: %s", i, m.content)
			}
		}
		if got := all[9].content; !strings.Contains(got, `for <"x>;y\"z"@example.net>;`) {
			t.Error(got)
		}
	})
}

// RFC 6409, 8: Date and Message-ID are added when missing, on top and in one write.
func TestMissingFieldsAreAdded(t *testing.T) {
	for content, added := range map[string]string{
		"":                                      "Date Message-ID",
		"\r\nDate: in body\r\n":                 "Date Message-ID",
		"Subject: x\r\n\r\nb\r\n":               "Date Message-ID",
		"date: x\r\n\r\nb\r\n":                  "Message-ID",
		"MESSAGE-ID : <x>\r\n\r\nb\r\n":         "Date",
		"Message-ID: <x>\r\nDate: y\r\n\r\n":    "",
		"Message-ID:\r\n <x>\r\nDate: y\r\n":    "",
		"X: y\r\n Date: folded\r\n\r\nb\r\n":    "Date Message-ID",
		"X-Date: y\r\nDated: y\r\n\r\n":         "Date Message-ID",
		"Subject: x\r\nno field\r\nDate: y\r\n": "Date Message-ID",
	} {
		withRelay(t, Config{}, func(t *testing.T, r *relay) {
			p := r.greeted()
			p.envelope()
			p.cmd("DATA", "354")
			p.send(content + ".\r\n")
			p.expect("250")
			m := r.store.one(t)
			rest := m.content
			for range 5 {
				_, rest, _ = strings.Cut(rest, "\r\n")
			}
			var names []string
			for _, name := range []string{"Date", "Message-ID"} {
				if line, after, _ := strings.Cut(rest, "\r\n"); strings.HasPrefix(line, name+": ") && !strings.HasPrefix(content, name) {
					names, rest = append(names, name), after
				}
			}
			if got := strings.Join(names, " "); got != added {
				t.Errorf("%q: added %q, want %q:\n%s", content, got, added, m.content)
			}
		})
	}
}

func TestTierByPriorityParameter(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Tier: 3, TierCeiling: 2}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		for i, c := range []struct {
			params string
			tier   uint8
			next   int // for the next host
		}{{"", 5, -4}, {" MT-PRIORITY=-2", 4, -2}, {" SIZE=9 mt-priority=0 BODY=7BIT", 3, 0}, {" MT-PRIORITY=9", 2, 2}, {" MT-PRIORITY=-9", 5, -9}} {
			p.cmd("MAIL FROM:<a@example.org>"+c.params, "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			p.send("MT-Priority: -4\r\n\r\nhi\r\n.\r\n")
			p.expect("250")
			m := r.store.all(t)[i]
			if n, ok := m.Priority(); m.Tier != c.tier || !ok || n != c.next {
				t.Errorf("%q: tier %d and priority %d, want %d and %d", c.params, m.Tier, n, c.tier, c.next)
			}
		}
		for _, bad := range []string{"", "=", "=10", "=-10", "=+1", "=01", "=-0", "=x", "=1.5", "=1 MT-PRIORITY=2"} {
			p.cmd("MAIL FROM:<a@example.org> MT-PRIORITY"+bad, "501 5.5.4")
		}
		p.cmd("MAIL FROM:<a@example.org>", "250")
		p.cmd("RCPT TO:<b@example.net> MT-PRIORITY=1", "555 5.5.4")
	})
}

// TestBy: BY is kept with the message, and ends it in mode R, or what its header has if that is sooner (RFC 2852, 4).
func TestBy(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{MaxHold: 24 * time.Hour}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		begun := time.Now()
		for i, c := range []struct {
			params, header string
			ends           time.Duration // 0: by its max_age
			by             bool
		}{
			{" BY=600;R", "", 10 * time.Minute, true},
			{" by=600;rt MT-PRIORITY=2 SIZE=9", "", 10 * time.Minute, true},
			{" BY=600;N", "", 0, true},
			{" BY=-5;NT", "", 0, true},
			{"", "", 0, false},
			{" BY=600;R", "X-MTA-Expires-At: " + begun.Add(5*time.Minute).UTC().Format(time.RFC3339) + "\r\n", 5 * time.Minute, true},
			{" BY=60;R", "X-MTA-Expires-At: " + begun.Add(5*time.Minute).UTC().Format(time.RFC3339) + "\r\n", time.Minute, true},
		} {
			p.cmd("MAIL FROM:<a@example.org>"+c.params, "250")
			p.cmd("RCPT TO:<b@example.net>", "250")
			p.cmd("DATA", "354")
			p.send(c.header + "Subject: x\r\n\r\nhi\r\n.\r\n")
			p.expect("250")
			m := r.store.all(t)[i]
			ends := time.Duration(0)
			if !m.Expires.IsZero() {
				ends = m.Expires.Sub(begun).Round(10 * time.Second)
			}
			if ends != c.ends || m.By().At.IsZero() == c.by {
				t.Errorf("%q: ends after %v, with %+v", c.params, ends, m.By())
			}
		}
		for bad, want := range map[string]string{
			"": "501 5.5.4", "=": "501 5.5.4", "=-5;R": "501 5.5.4", "=0;R": "501 5.5.4", "=60": "501 5.5.4", "=60;X": "501 5.5.4",
			"=999999999999;R": "501 5.5.4", "=1000000000;N": "501 5.5.4", "=60;R BY=60;R": "501 5.5.4 parameter BY is given twice",
		} {
			p.cmd("MAIL FROM:<a@example.org> BY"+bad, want)
		}
		p.cmd("MAIL FROM:<a@example.org> BY=60;R", "250")
		p.cmd("RCPT TO:<b@example.net> BY=60;R", "555 5.5.4")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.cmd("DATA", "354")
		p.send("X-Hold-For: 2h\r\n\r\nhi\r\n.\r\n")
		p.expect("554 5.5.4 can't schedule the message: it would expire")
		p.cmd("MAIL FROM:<a@example.org> BY=60;N", "250")
		p.cmd("RCPT TO:<b@example.net>", "250")
		p.cmd("DATA", "354")
		p.send("X-Hold-For: 2h\r\n\r\nhi\r\n.\r\n")
		p.expect("554 5.5.4 can't schedule the message: the time of BY comes before its release")
	})
}

func TestTierByPriorityField(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Tier: 3, TierCeiling: 2}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		for _, value := range []string{"9", "2", "-4", "junk"} {
			p.data("MT-Priority: " + value + "\r\n\r\n")
		}
		var got []uint8
		for _, m := range r.store.all(t) {
			got = append(got, m.Tier)
		}
		if fmt.Sprint(got) != "[2 2 5 3]" {
			t.Error(got)
		}
	})
}

// TestMarksAndCampaign: a message keeps which of the fields it has that are looked for, and its campaign.
func TestMarksAndCampaign(t *testing.T) {
	asked := []intake.Mark{{Text: "x-mta-engaged: yes", Name: "X-MTA-Engaged", Value: "yes"}, {Text: "list-id: ", Name: "List-Id"}}
	withRelay(t, Config{Intake: intake.Config{Marks: asked}}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.data("x-mta-engaged:  YES \r\nX-MTA-Engaged: yes\r\nLIST-ID: <news>\r\n folded\r\nX-MTA-Campaign: autumn\r\nX-MTA-Campaign: winter\r\n\r\n")
		p.data("X-MTA-Engaged: yes, no\r\nX-MTA-Campaign: a\x07b\r\n\r\nList-Id: body\r\n")
		var got []string
		for _, m := range r.store.all(t) {
			got = append(got, fmt.Sprintf("%s %q", m.Campaign, m.Marks))
			if strings.Contains(m.content, "X-MTA-Campaign") {
				t.Error("the campaign goes out")
			}
		}
		if want := []string{`autumn ["x-mta-engaged: yes" "list-id: "]`, " []"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestMeta: fields with metadata are removed, and become a JSON object; a message with a malformed one is refused.
func TestMeta(t *testing.T) {
	long := strings.Repeat("x", 400)
	for _, c := range []struct{ fields, want string }{
		{"X-MTA-Meta: order=17\r\n", `{"order":"17"}`},
		{"x-mta-meta:  order = 17 \r\nSubject: x\r\nX-MTA-META: note=a=b \"c\"\r\n <d>\r\n", `{"order":"17","note":"a=b \"c\" <d>"}`},
		{"X-MTA-Meta: empty=\r\n", `{"empty":""}`},
		{"X-MTA-Meta: name=J\u00fcrgen\r\n", `{"name":"Jürgen"}`},
		{"X-MTA-Meta: =?utf-8?q?name=3DJ=C3=BCrgen?=\r\n", `{"name":"Jürgen"}`},
		{"X-MTA-Meta: a=" + long + "\r\nX-MTA-Meta: b=" + long + "\r\n", `{"a":"` + long + `","b":"` + long + `"}`},
		{"Subject: X-MTA-Meta: a=b\r\n", ""},
		{"X-MTA-Meta: order\r\n", "554 5.5.4 X-MTA-Meta: write it as name=value"},
		{"X-MTA-Meta: =17\r\n", "554 5.5.4 X-MTA-Meta: write it as name=value"},
		{"X-MTA-Meta:\r\n", "554 5.5.4 X-MTA-Meta: write it as name=value"},
		{"X-MTA-Meta: a=1\r\nX-MTA-Meta: a=2\r\n", "554 5.5.4 X-MTA-Meta: a is given twice"},
		{"X-MTA-Meta: a=\x07\r\n", "554 5.5.4 X-MTA-Meta: it must be printable UTF-8"},
		{"X-MTA-Meta: a=\xfc\r\n", "554 5.5.4 X-MTA-Meta: it must be printable UTF-8"},
		{"X-MTA-Meta: a=" + long + "\r\nX-MTA-Meta: b=" + long + "\r\nX-MTA-Meta: c=" + long + "\r\n", "554 5.5.4 X-MTA-Meta: names and values of all fields have more than 1024 octets"},
		{strings.Repeat("X-MTA-Meta: a="+long+"\r\n", 1000), "554 5.5.4 X-MTA-Meta: a is given twice"},
		{"X-MTA-Meta: a=" + strings.Repeat("x", 10_000) + "\r\n", "554 5.5.4 X-MTA-Meta: names and values of all fields have more than 1024 octets"},
	} {
		withRelay(t, Config{}, func(t *testing.T, r *relay) {
			p := r.greeted()
			got := strings.TrimSpace(p.data(c.fields + "\r\nbody\r\n"))
			for _, m := range r.store.all(t) {
				got = m.Meta
				if content := m.content; strings.Contains(strings.ToLower(content), "\nx-mta-meta") {
					t.Errorf("%.40q: goes out:\n%s", c.fields, content)
				}
			}
			if got != c.want {
				t.Errorf("%.60q: %s, want %s", c.fields, got, c.want)
			}
		})
	}
}
