package config

import (
	"net/netip"
	"strings"
	"testing"
)

// The smallest network that has an address decides.
func TestTenantAt(t *testing.T) {
	cfg, err := Parse([]byte(`
		tenant "wide" { networks = ["192.0.2.0/24", "2001:db8::/32"] }
		tenant "narrow" { networks = ["192.0.2.128/25", "2001:db8:1::/48", "192.0.2.7/32"] }
	`), "mta.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		"192.0.2.1": "wide", "192.0.2.129": "narrow", "192.0.2.7": "narrow", "::ffff:192.0.2.129": "narrow",
		"2001:db8::1": "wide", "2001:db8:1::1": "narrow", "198.51.100.1": "", "2001:db9::1": "",
	} {
		if got := cfg.TenantAt(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is of tenant %q, want %q", address, got, want)
		}
	}
}

func TestTenantHeaderIsForFew(t *testing.T) {
	for text, want := range map[string]string{
		`tenant "a" { networks = ["192.0.2.0/24"] }` + "\n" + `tenant "b" { networks = ["192.0.2.0/24"] }`: `already belongs to tenant "a"`,
		`listener "smtp" {
			address = "127.0.0.1:2525"
			tenant_header_from = ["0.0.0.0/0"]
		}`: "lets everyone send as any tenant",
		`listener "smtp" {
			address = "127.0.0.1:2525"
			tenant_header_from = ["0.0.0.0/1", "128.0.0.0/1"]
		}`: "send as any tenant",
	} {
		if _, err := Parse([]byte(text), "mta.conf", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v, want %q", text, err, want)
		}
	}
}

func TestUnsubscribeIsAnHTTPSURL(t *testing.T) {
	for setting, want := range map[string]string{
		`"http://mail.acme.example/unsubscribe"`:                          "must be an https URL",
		`"mailto:u@acme.example"`:                                         "must be an https URL",
		`"https:///unsubscribe"`:                                          "must be an https URL",
		`"https://ann:secret@acme.example/u"`:                             "must be an https URL",
		`"https://acme.example/u?x=1"`:                                    "can't end in a slash or have a query",
		`"https://acme.example/u/"`:                                       "can't end in a slash or have a query",
		`"https://acme.example/u>"`:                                       "can't end in a slash or have a query",
		`"https://acme.example/` + strings.Repeat("u", 200) + `"`:         "more than 200 octets",
		"\"https://acme.example/u\"\n}\nsuppression {\n mode = \"off\"\n": "would still get mail",
		`"https://mail.acme.example/unsubscribe"`:                         "",
		`"https://mail.acme.example"`:                                     "",
		`""`:                                                              "",
	} {
		_, err := Parse([]byte("tenant \"acme\" {\n unsubscribe = "+setting+"\n}\n"), "mta.conf", nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", setting, err, want)
		}
	}
}
