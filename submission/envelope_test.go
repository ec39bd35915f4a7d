package submission

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"

	"github.com/pires/go-proxyproto"
)

func TestParsePath(t *testing.T) {
	for _, c := range []struct {
		in, address, params string
	}{
		{"<a@example.org>", "a@example.org", ""},
		{" <a@example.org>", "a@example.org", ""},
		{"a@example.org", "a@example.org", ""},
		{"a@example.org SIZE=1", "a@example.org", " SIZE=1"},
		{"<a@example.org> SIZE=1 BODY=8BITMIME", "a@example.org", " SIZE=1 BODY=8BITMIME"},
		{"<>", "", ""},
		{"<> RET=HDRS", "", " RET=HDRS"},
		{"<@one.example,@two.example:a@example.org>", "a@example.org", ""},
		{`<"a b"@example.org>`, `"a b"@example.org`, ""},
		{`<"a@b"@example.org>`, `"a@b"@example.org`, ""},
		{`<"a>b"@example.org> SIZE=1`, `"a>b"@example.org`, " SIZE=1"},
		{`<"a\"b"@example.org>`, `"a\"b"@example.org`, ""},
		{`<"plain"@example.org>`, `plain@example.org`, ""},
		{"<a@[192.0.2.1]>", "a@[192.0.2.1]", ""},
		{"<a@[IPv6:2001:db8::1]>", "a@[IPv6:2001:db8::1]", ""},
		{"<grüße@bücher.example> SMTPUTF8", "grüße@bücher.example", " SMTPUTF8"},
		{"<a%b@example.org>", "a%b@example.org", ""},
	} {
		p, err := parsePath(c.in)
		if err != nil || string(p.address) != c.address || p.params != c.params || p.postmaster {
			t.Errorf("%q: %+v, %v", c.in, p, err)
		}
	}
	for _, in := range []string{
		"", " ", "<", "<a@example.org", "<a>", "<@example.org>", "<a@>", "<a@b@example.org>", "<a b@example.org>", "<a..b@example.org>",
		"<a@example.org>x", "<<a@example.org>>", `<"a@example.org>`, "<a@exa mple.org>", "<@one.example>", "<@one.example:>", "<@a:b:c>",
		"<\xff@example.org>", "<" + strings.Repeat("a", 65) + "@example.org>", "<a@" + strings.Repeat("a.", 130) + "b>",
		"<a@[192.0.2.1>", "< a@example.org>", "<a@example.org >",
	} {
		if p, err := parsePath(in); err == nil {
			t.Errorf("%q: taken for %+v", in, p)
		}
	}
	for _, in := range []string{"<postmaster>", "<Postmaster>", "postmaster NOTIFY=NEVER"} {
		if p, err := parsePath(in); err != nil || !p.postmaster {
			t.Errorf("%q: %+v, %v", in, p, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	withRelay(t, Config{Postmaster: "ops@example.com"}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@b@example.org>", "501 5.1.7")
		p.cmd("MAIL FROM:<postmaster>", "501 5.1.7")
		p.cmd("MAIL TO:<a@example.org>", "501 5.1.7 MAIL FROM:<address> expected")
		p.cmd("MAIL FROM:<grüße@example.org>", "550 5.6.7")
		p.cmd("MAIL FROM:<>", "250")
		p.cmd("RCPT TO:<>", "501 5.1.3")
		p.cmd("RCPT FROM:<a@example.org>", "501 5.1.3")
		p.cmd("RCPT TO:<grüße@example.org>", "553 5.6.7")
		p.cmd("RCPT TO:<a@bücher.example>", "553 5.6.7")
		p.cmd(`RCPT TO:<"a b@c"@example.net>`, "250")
		p.cmd("RCPT TO:<@relay.example,@other.example:user@example.net>", "250")
		p.cmd("RCPT TO:<user@[192.0.2.7]>", "250")
		p.cmd("RCPT TO:<Postmaster>", "250")
		p.cmd("DATA", "354")
		p.send("hi\r\n.\r\n")
		p.expect("250")
		m := r.store.one(t)
		if got := fmt.Sprint(m.Sender, m.Recipients); got != `[{"a b@c"@example.net  } {user@example.net  } {user@[192.0.2.7]  } {ops@example.com  }]` {
			t.Error(got)
		}
		if e := r.events.rejected[len(r.events.rejected)-1]; e.Recipient != "a@bücher.example" || e.Reply.Enhanced.String() != "5.6.7" {
			t.Errorf("rejection %+v", e)
		}
	})
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<grüße@example.org> SMTPUTF8", "250")
		p.cmd("RCPT TO:<postmaster>", "550 5.1.1 no postmaster")
		p.cmd("RCPT TO:<grüße@bücher.example>", "250")
		p.cmd("DATA", "354")
		p.send("hi\r\n.\r\n")
		p.expect("250")
		m := r.store.one(t)
		if m.Sender != "grüße@example.org" || m.Recipients[0].Address != "grüße@bücher.example" || !m.UTF8 || m.Protocol != "UTF8SMTP" {
			t.Errorf("%+v", m.Message)
		}
		if !strings.Contains(m.content, "for <grüße@bücher.example>;") {
			t.Error(m.content)
		}
	})
}

func TestDSNOptions(t *testing.T) {
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		p.cmd("MAIL FROM:<a@example.org> RET=HDRS ENVID=QQ+2B1", "250")
		p.cmd("RCPT TO:<b@example.net> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;Bob+2Bx@example.net", "250")
		p.cmd("RCPT TO:<c@example.net> NOTIFY=NEVER", "250")
		p.cmd("RCPT TO:<d@example.net>", "250")
		p.cmd("RCPT TO:<e@example.net> ORCPT=utf-8;e\\x{1F}@example.net", "501")
		p.cmd("RCPT TO:<e@example.net> ORCPT=utf-8;e\\x{10}@example.net", "501 5.5.4 control character in ORCPT")
		p.cmd("RCPT TO:<e@example.net> ORCPT=rfc822;e+0D+0AX@example.net", "501")
		p.cmd("RCPT TO:<e@example.net> ORCPT=utf-8;gr\\x{FC}n@example.net", "250")
		p.cmd("DATA", "354")
		p.send("hi\r\n.\r\n")
		p.expect("250")
		m := r.store.one(t)
		if m.Ret != envelope.RetHeaders || m.EnvID != "QQ+1" {
			t.Errorf("%+v", m.Message)
		}
		want := []envelope.Recipient{
			{Address: "b@example.net", Notify: envelope.NotifySuccess | envelope.NotifyDelay, ORcpt: "rfc822;Bob+x@example.net"},
			{Address: "c@example.net", Notify: envelope.NotifyNever},
			{Address: "d@example.net"},
			{Address: "e@example.net", ORcpt: "utf-8;grün@example.net"},
		}
		if fmt.Sprint(m.Recipients) != fmt.Sprint(want) {
			t.Errorf("%v", m.Recipients)
		}
	})
}

func TestMessageFacts(t *testing.T) {
	withRelay(t, Config{Intake: intake.Config{Tenant: "acme", Tier: 3}}, func(t *testing.T, r *relay) {
		p := r.dial("2001:db8::7")
		p.expect("220")
		p.cmd("HELO app", "250")
		p.data("hi\r\n")
		m := r.store.one(t)
		if m.Tenant != "acme" || m.Tier != 3 || m.Peer != netip.MustParseAddrPort("[2001:db8::7]:40000") || m.HeloName != "app" ||
			m.Protocol != "SMTP" || !m.Received.Equal(time.Now()) || len(m.Session) != 13 || r.events.received[0] != m.Message {
			t.Errorf("%+v", m.Message)
		}
		p.cmd("EHLO other", "250")
		p.data("hi\r\n")
		if n := r.store.all(t)[1]; n.HeloName != "other" || n.Protocol != "ESMTP" || n.Session != m.Session {
			t.Errorf("%+v", n.Message)
		}
	})
}

// Relaying is for RelayFrom only, whatever the client says of itself.
func TestRelayingIsForKnownNetworksOnly(t *testing.T) {
	withRelay(t, Config{Postmaster: "ops@example.com"}, func(t *testing.T, r *relay) {
		for _, addr := range []string{"198.51.100.1", "192.0.3.1", "2001:db9::1", "::ffff:198.51.100.1", "127.0.0.1"} {
			p := r.dial(addr)
			p.expect("220 relay.example.com") // a stranger is greeted like anybody
			p.cmd("EHLO [192.0.2.1]", "250")
			p.cmd("MAIL FROM:<a@relay.example.com>", "250")
			p.cmd("RCPT TO:<b@example.net>", "550 5.7.1 relaying denied for "+netip.MustParseAddr(addr).Unmap().String()+"\r\n")
			p.cmd("RCPT TO:<a@relay.example.com>", "550 5.7.1")
			p.cmd("RCPT TO:<postmaster>", "550 5.7.1")
			p.cmd(`RCPT TO:<"b@example.net"@relay.example.com>`, "550 5.7.1")
			p.cmd("RCPT TO:<b%example.net@relay.example.com>", "550 5.7.1")
			p.cmd("RCPT TO:<@relay.example.com:b@example.net>", "550 5.7.1")
			p.cmd("DATA", "554 5.5.1")
			p.cmd("XCLIENT ADDR=192.0.2.1 NAME=app.example.org", "500 5.5.2")
			p.cmd("XFORWARD ADDR=192.0.2.1", "500 5.5.2")
			p.cmd("PROXY TCP4 192.0.2.1 192.0.2.250 1 25", "500 5.5.2")
		}
		r.store.none(t)
		if e := r.events.rejected[0]; e.Peer.Addr() != netip.MustParseAddr("198.51.100.1") || e.Recipient != "b@example.net" || e.HeloName != "[192.0.2.1]" {
			t.Errorf("rejection %+v", e)
		}
		p := r.dial("::ffff:192.0.2.1") // an IPv4 client on a listener for both
		p.expect("220")
		p.cmd("EHLO app", "250")
		p.envelope()
	})
}

var proxied = Config{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}

// dialProxy connects through the proxy 203.0.113.1, which sends header.
func (r *relay) dialProxy(header string) *peer {
	p := r.dial("203.0.113.1")
	p.send(header)
	return p
}

func proxyHeader(version byte, client string) string {
	src := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(client))
	dst := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 1), Port: 25}
	if src.IP.To4() == nil {
		dst.IP = net.ParseIP("2001:db8::25")
	}
	b, err := proxyproto.HeaderProxyFromAddrs(version, src, dst).Format()
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestProxiedClientIsTheClient(t *testing.T) {
	for version := byte(1); version <= 2; version++ {
		withRelay(t, proxied, func(t *testing.T, r *relay) {
			p := r.dialProxy(proxyHeader(version, "192.0.2.1:4711"))
			p.expect("220")
			p.cmd("EHLO app", "250")
			if got := codes(p.data("hi\r\n")); got != "250" {
				t.Fatal(got)
			}
			m := r.store.one(t)
			if m.Peer != netip.MustParseAddrPort("192.0.2.1:4711") || !strings.Contains(m.content, "from app ([192.0.2.1])") {
				t.Errorf("%v %s", m.Peer, m.content)
			}
			p = r.dialProxy(proxyHeader(version, "198.51.100.1:4711"))
			p.expect("220")
			p.cmd("EHLO app", "250")
			p.cmd("MAIL FROM:<a@example.org>", "250")
			p.cmd("RCPT TO:<b@example.net>", "550 5.7.1 relaying denied for 198.51.100.1")
		})
	}
}

func TestProxiedClientsAreCountedEach(t *testing.T) {
	cfg := proxied
	cfg.Limits.ConnectionsPerClient = 1
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		r.dialProxy(proxyHeader(2, "192.0.2.1:1")).expect("220")
		r.dialProxy(proxyHeader(2, "192.0.2.2:1")).expect("220")
		r.dialProxy(proxyHeader(2, "192.0.2.2:2")).expect("421 4.7.0 too many connections from 192.0.2.2/32")
	})
}

func TestProxyHeaderIsDemanded(t *testing.T) {
	withRelay(t, proxied, func(t *testing.T, r *relay) {
		for _, header := range []string{"EHLO app\r\n", "PROXY TCP4 junk\r\n", "PROXY TCP4 192.0.2.1\r\n", "PROXYX\r\n", "\r\n\r\n\x00\r\nQUIT\n\xff\xff\xff\xff"} {
			p := r.dialProxy(header)
			p.expect("421 4.7.0 PROXY header expected from 203.0.113.1")
			p.mustBeClosed()
		}
		p := r.dial("203.0.113.1")
		time.Sleep(6 * time.Second)
		p.expect("421 4.7.0 PROXY header expected")
		p.mustBeClosed()
	})
}

// A proxy that can't tell the client's address must not lend the client its own rights.
func TestProxyWithoutAClientMayNotRelay(t *testing.T) {
	cfg := proxied
	cfg.RelayFrom = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		for _, header := range []string{
			"PROXY UNKNOWN\r\n",
			"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", // LOCAL
			"\r\n\r\n\x00\r\nQUIT\n\x21\x00\x00\x00", // PROXY, UNSPEC
		} {
			p := r.dialProxy(header)
			if got := p.got(); strings.HasPrefix(got, "421") {
				continue
			}
			p.cmd("EHLO app", "250")
			p.cmd("MAIL FROM:<a@example.org>", "250")
			p.cmd("RCPT TO:<b@example.net>", "550 5.7.1")
		}
		r.store.none(t)
	})
}

// A second header behind the first, as a client of the proxy might send one, is nothing but a
// command that does not exist.
func TestForgedProxyHeader(t *testing.T) {
	withRelay(t, proxied, func(t *testing.T, r *relay) {
		p := r.dialProxy(proxyHeader(1, "198.51.100.1:4711") + proxyHeader(1, "192.0.2.1:4711"))
		if got := codes(p.got()); got != "220 500" {
			t.Errorf("codes %s", got)
		}
		p.mustBeClosed()
		p = r.dial("198.51.100.1") // not a proxy
		p.expect("220")
		p.send(proxyHeader(1, "192.0.2.1:4711"))
		p.expect("500 5.5.2")
		p.mustBeClosed()
	})
}

// TCP may part a header anywhere, and the proxy can't help it.
func TestProxyHeaderInTwoSegments(t *testing.T) {
	for version := byte(1); version <= 2; version++ {
		header := proxyHeader(version, "192.0.2.1:4711")
		withRelay(t, proxied, func(t *testing.T, r *relay) {
			for i := 1; i < len(header); i++ {
				p := r.dial("203.0.113.1")
				p.send(header[:i])
				p.send(header[i:])
				p.expect("220")
				p.cmd("EHLO app", "250")
				p.envelope() // may relay, as the client that it is
				p.cmd("QUIT", "221")
			}
		})
	}
}
