package submission

import (
	"net/netip"
	"strings"
	"testing"
)

// The message passes, in 7 bits when nothing else has more, and so gets to every host.
func TestMessageWithLatin1Header(t *testing.T) {
	content := "From: J\xf6rg <a@example.org>\r\nSubject: Gr\xfc\xdfe\r\n\r\nplain\r\n"
	withRelay(t, Config{}, func(t *testing.T, r *relay) {
		p := r.greeted()
		if got := codes(p.data(content)); got != "250" {
			t.Fatal(got)
		}
		m := r.store.one(t)
		if !strings.HasSuffix(m.content, "From: =?utf-8?b?SsO2cmc=?= <a@example.org>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\nplain\r\n") {
			t.Errorf("stored %q", m.content)
		}
		if m.Body != 0 {
			t.Errorf("body %v: it is 7bit", m.Body)
		}
		p.data("Subject: Gr\xfc\xdfe\r\n\r\nK\xf6ln\r\n")
		if m := r.store.all(t)[1]; m.Body == 0 || !strings.HasSuffix(m.content, "K\xf6ln\r\n") {
			t.Errorf("%v %q", m.Body, m.content)
		}
	})
}

func TestNewlinesAreNormalisedForSomeNetworks(t *testing.T) {
	cfg := Config{NormaliseFrom: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}}
	withRelay(t, cfg, func(t *testing.T, r *relay) {
		p := r.dial("192.0.2.7")
		p.expect("220")
		p.cmd("EHLO app", "250")
		p.send("NOOP\n")
		p.expect("250 2.0.0")
		const content = "Subject: x\n\nbody\n..\n.\nMAIL FROM:<evil@example.org>\r\n"
		if got := codes(p.data(content)); got != "250" {
			t.Error(got)
		}
		if got := r.store.one(t).content; !strings.HasSuffix(got, "Subject: x\r\n\r\nbody\r\n.\r\n\r\nMAIL FROM:<evil@example.org>\r\n") || hasBareNewline(got) {
			t.Errorf("stored %q", got)
		}
		if got := r.greeted().data(content); !strings.HasPrefix(got, "550 5.6.11") {
			t.Error(got)
		}
	})
}
