package intake

import (
	"crypto/tls"
	"fmt"
	"net/netip"
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
		{"tls, several recipients", trace{helo: "[192.0.2.1]", peer: netip.MustParseAddrPort("[2001:db8::1]:1"), protocol: "ESMTPS", tls: (&Client{TLS: state}).overTLS()},
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

func TestTierOfPriorityField(t *testing.T) {
	for value, want := range map[string]uint8{
		"9": 0, "6": 0, "5": 1, "4": 1, "3": 2, "2": 2, "1": 3, "0": 3, "-1": 4, "-2": 4, "-3": 5, "-4": 5, "-9": 5, "+3": 2, " 4 (flash) ": 1,
	} {
		var h header
		h.add(fmt.Appendf(nil, "mt-priority: %s\r\n\r\n", value))
		if p, ok := h.asksPriority(); !ok || tierOf(p) != want {
			t.Errorf("%q: %d, %v", value, p, ok)
		}
	}
	for _, value := range []string{"", "10", "-10", "x", "1.5"} {
		var h header
		h.add(fmt.Appendf(nil, "MT-Priority: %s\r\n\r\n", value))
		if got, ok := h.asksPriority(); ok {
			t.Errorf("%q: %d", value, got)
		}
	}
}
