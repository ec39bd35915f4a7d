package envelope

import (
	"strings"
	"testing"
)

// One reader of From: whatever is accepted leaves no reader another domain.
func TestFrom(t *testing.T) {
	for _, c := range []struct{ header, want string }{
		{"From: a@b.example\r\n", "a@b.example"},
		{"Subject: x\r\nFROM : Ann\r\n <a@b.example>\r\nTo: c@d.example\r\n", "a@b.example"},
		{"From:\r\n\tAnn\r\n\tBee\r\n <a@b.example>\r\n", "a@b.example"},
		{"From: =?utf-8?q?a?=\r\n =?utf-8?q?b?=\r\n <a@b.example>\r\n", "a@b.example"},
		{"From: a@b.example,\r\n c@d.example\r\n", "a@b.example c@d.example"},
		{"From: O'Neil, Bob <bob@b.example>\r\n", "bob@b.example"},
		{"From: Acme [news] < bob@b.example >\r\n", "bob@b.example"},
		{"From: Dr. \"Bob <bob@b.example>\r\n", "bob@b.example"},
		{"From: x@B.example [x] <bob@b.example>\r\n", "bob@b.example x@B.example"},
		{"From: Grüße, Köln <bob@b.example>\r\n", "bob@b.example"},

		{"To: a@b.example\r\n", "!"},
		{"From: Bob\r\n", "!"},
		{"From: <>\r\n", "!"},
		{"From: a@b.example\r\nfrom: c@d.example\r\n", "! a@b.example c@d.example"},
		{"From: a@b.example\r\nFrom: a@b.example\r\n", "! a@b.example a@b.example"},
		{"From: ceo@a.example [x] <eve@b.example>\r\n", "! ceo@a.example eve@b.example"},
		{"From: ceo@a.example, x <eve@b.example> y\r\n", "! ceo@a.example eve@b.example"},
		{"From: <ceo@a.example> <eve@b.example>\r\n", "! ceo@a.example eve@b.example"},
		{"From: ceo @ a.example [x] <eve@b.example>\r\n", "! @ eve@b.example"},
		{"From: ceo(x)@(y)a.example [x] <eve@b.example>\r\n", "! @ eve@b.example"},
		{"From: \"ceo\"@a.example [x] <eve@b.example>\r\n", "! @a.example eve@b.example"},
		{"From: [x] <@a.example:eve@b.example>\r\n", "! @a.example eve@b.example"},
		{"From: [x] <eve@b.example>, ceo@a.example>\r\n", "! eve@b.example ceo@a.example"},
		{"From: [x] <\"ceo@a.example\"@b.example>\r\n", "! ceo@a.example @b.example"},
		{"From: [x] <ceo@a.example@b.example>\r\n", "! ceo@a.example@b.example"},
		{"From: ceo@[192.0.2.1] <eve@b.example>\r\n", "! ceo@ eve@b.example"},
		{"From: =?utf-8?q?ceo@a.example?= <eve@b.example>\r\n", "! =?utf-8?q?ceo@a.example?= eve@b.example"},
	} {
		addresses, err := From([]byte(c.header))
		got := strings.Join(addresses, " ")
		if err != nil {
			got = strings.TrimSpace("! " + got)
		}
		if got != c.want {
			t.Errorf("%q: %s (%v), want %s", c.header, got, err, c.want)
		}
	}
}

// The reason that senders get is that of their field.
func TestFromReasons(t *testing.T) {
	for header, want := range map[string]string{
		"From: ceo@a.example <eve@b.example>\r\n": "different addresses",
		"From: <a@b.example\r\n":                  "no address",
		"From: Bob\r\n":                           "no address",
		"From: a@b.example\r\nFrom: a@b.example\r\nFrom: a@b.example\r\n": "more than one From field",
	} {
		if _, err := From([]byte(header)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", header, err, want)
		}
	}
}

// FuzzFrom looks for names off the grammar behind which another domain stands.
func FuzzFrom(f *testing.F) {
	for _, s := range []string{"O'Neil, Bob <bob@b.example>", "x@b.example [x] <bob@b.example>", "a@c.example [x] <bob@b.example>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		addresses, ok := behindName(value)
		if !ok {
			return
		}
		domain := domainOf(addresses[0])
		if n := strings.Count(value, "@"); n != len(addresses) || n != strings.Count(strings.ToLower(value), "@"+strings.ToLower(domain)) {
			t.Errorf("%q is read as %q", value, addresses)
		}
	})
}
