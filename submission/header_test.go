package submission

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var traceTime = time.Date(2025, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600))

func TestTrace(t *testing.T) {
	state := &tls.ConnectionState{Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256}
	for _, c := range []struct {
		name string
		t    trace
		want string
	}{
		{"plain", trace{helo: "app.example.org", peer: netip.MustParseAddrPort("192.0.2.1:1"), protocol: "ESMTP", only: "b@example.net"},
			"Received: from app.example.org ([192.0.2.1])\r\n\tby relay.example.com with ESMTP\r\n\tid 01abc.1\r\n\tfor <b@example.net>;\r\n\tTue, 04 Mar 2025 05:06:07 +0100\r\n"},
		{"tls, several recipients", trace{helo: "[192.0.2.1]", peer: netip.MustParseAddrPort("[2001:db8::1]:1"), protocol: "ESMTPS", tls: state},
			"Received: from [192.0.2.1] ([IPv6:2001:db8::1])\r\n\tby relay.example.com with ESMTPS (TLS1.3 TLS_AES_128_GCM_SHA256)\r\n\tid 01abc.1;\r\n\tTue, 04 Mar 2025 05:06:07 +0100\r\n"},
		{"odd name", trace{helo: "x(y)", peer: netip.MustParseAddrPort("192.0.2.1:1"), protocol: "SMTP"},
			"Received: from [192.0.2.1] ([192.0.2.1])\r\n\tby relay.example.com with SMTP\r\n\tid 01abc.1;\r\n\tTue, 04 Mar 2025 05:06:07 +0100\r\n"},
		{"nothing known", trace{protocol: "SMTP", needDate: true, needID: true},
			"Received: from unknown\r\n\tby relay.example.com with SMTP\r\n\tid 01abc.1;\r\n\tTue, 04 Mar 2025 05:06:07 +0100\r\nDate: Tue, 04 Mar 2025 05:06:07 +0100\r\nMessage-ID: <01abc.1@relay.example.com>\r\n"},
	} {
		c.t.hostname, c.t.id, c.t.time = "relay.example.com", "01abc.1", traceTime
		if got := string(c.t.append(nil)); got != c.want {
			t.Errorf("%s:\n%s", c.name, got)
		}
	}
}

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

func TestHeaderSection(t *testing.T) {
	for _, c := range []struct{ in, header, body string }{
		{"", "", ""},
		{"\r\n", "\r\n", ""},
		{"A: b\r\n\r\nC: d\r\n", "A: b\r\n\r\n", "C: d\r\n"},
		{"A: b\r\n c\r\n\td\r\n\r\ne", "A: b\r\n c\r\n\td\r\n\r\n", "e"},
		{" a\r\nB: c\r\n", "", " a\r\nB: c\r\n"},
		{"A: b\r\nhello\r\n\r\n", "A: b\r\n", "hello\r\n\r\n"},
		{"From me Thu\r\nA: b\r\n", "", "From me Thu\r\nA: b\r\n"},
		{": b\r\n", "", ": b\r\n"},
		{"A\x01: b\r\n", "", "A\x01: b\r\n"},
		{"A :b\r\n\r\n", "A :b\r\n\r\n", ""},
		{"A: b", "A: b", ""},
		{"hello", "", "hello"},
	} {
		for size := 1; size <= len(c.in)+1; size++ {
			var h header
			var body strings.Builder
			for rest := c.in; rest != ""; {
				n := min(size, len(rest))
				done := h.done
				b := []byte(rest[:n])
				if !done {
					b = h.add(b)
				}
				if !done && h.done {
					body.Write(h.body)
				}
				body.Write(b)
				rest = rest[n:]
			}
			if !h.done {
				h.end()
				body.Write(h.body)
			}
			if string(h.text) != c.header || body.String() != c.body {
				t.Errorf("%q in pieces of %d: header %q, body %q", c.in, size, h.text, body.String())
			}
		}
	}
}

func TestTierByPriorityField(t *testing.T) {
	for value, want := range map[string]uint8{
		"9": 0, "6": 0, "5": 1, "4": 1, "3": 2, "2": 2, "1": 3, "0": 3, "-1": 4, "-2": 4, "-3": 5, "-4": 5, "-9": 5, "+3": 2, " 4 (flash) ": 1,
	} {
		var h header
		h.add(fmt.Appendf(nil, "mt-priority: %s\r\n\r\n", value))
		if got, ok := h.tier(); !ok || got != want {
			t.Errorf("%q: %d, %v", value, got, ok)
		}
	}
	for _, value := range []string{"", "10", "-10", "x", "1.5"} {
		var h header
		h.add(fmt.Appendf(nil, "MT-Priority: %s\r\n\r\n", value))
		if got, ok := h.tier(); ok {
			t.Errorf("%q: %d", value, got)
		}
	}
	withRelay(t, Config{Tier: 3, TierCeiling: 2}, func(t *testing.T, r *relay) {
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
	asked := []Mark{{"x-mta-engaged: yes", "X-MTA-Engaged", "yes"}, {"list-id: ", "List-Id", ""}}
	withRelay(t, Config{Marks: asked}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.data("x-mta-engaged:  YES \r\nX-MTA-Engaged: yes\r\nLIST-ID: <news>\r\n folded\r\nX-MTA-Campaign: autumn\r\nX-MTA-Campaign: winter\r\n\r\n")
		p.data("X-MTA-Engaged: yes, no\r\nX-MTA-Campaign: a\x07b\r\n\r\nList-Id: body\r\n")
		var got []string
		for _, m := range r.store.all(t) {
			got = append(got, fmt.Sprintf("%s %q", m.Campaign, m.Marks))
		}
		if want := []string{`autumn ["x-mta-engaged: yes" "list-id: "]`, " []"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAddressLiteral(t *testing.T) {
	for in, want := range map[netip.Addr]string{
		netip.MustParseAddr("192.0.2.1"):    "[192.0.2.1]",
		netip.MustParseAddr("2001:db8::1"):  "[IPv6:2001:db8::1]",
		netip.MustParseAddr("fe80::1%eth0"): "[IPv6:fe80::1]",
	} {
		if got := string(appendLiteral(nil, in)); got != want {
			t.Errorf("%v: %s", in, got)
		}
	}
}
