package config

import (
	"encoding"
	"fmt"
	"strings"
	"testing"
)

func TestNamesAndHosts(t *testing.T) {
	for _, c := range []struct {
		to       encoding.TextUnmarshaler
		in, want string // want "" is an error
	}{
		{new(Pattern), "Example.COM.", "example.com"}, {new(Pattern), "*.Bücher.example", "*.xn--bcher-kva.example"}, {new(Pattern), "*", "*"},
		{new(Pattern), "[192.0.2.1]", "[192.0.2.1]"}, {new(Pattern), "[IPv6:2001:DB8::1]", "[ipv6:2001:db8::1]"}, {new(Pattern), "[2001:db8::1]", ""},
		{new(Pattern), "", ""}, {new(Pattern), "*.", ""}, {new(Pattern), "a*.example", ""}, {new(Pattern), "a b", ""}, {new(Pattern), "**.example", ""},
		{new(Smarthost), "smtp://relay.example", "smtp://relay.example:25"}, {new(Smarthost), "smtps://relay.example", "smtps://relay.example:465"},
		{new(Smarthost), "smtp://Relay.Example:587", "smtp://relay.example:587"}, {new(Smarthost), "smtp://[2001:db8::1]:26", "smtp://[2001:db8::1]:26"},
		{new(Smarthost), "smtp://192.0.2.1", "smtp://192.0.2.1:25"}, {new(Smarthost), "smtp://", ""}, {new(Smarthost), "relay:25", ""},
		{new(Smarthost), "smtp://a:0", ""}, {new(Smarthost), "smtp://a:65536", ""}, {new(Smarthost), "smtp://a:", ""}, {new(Smarthost), "smtp://a/", ""},
		{new(Smarthost), "smtp://u:p@a", ""}, {new(Smarthost), "smtp://a?x=1", ""}, {new(Smarthost), "smtp://[fe80::1%25eth0]", ""}, {new(Smarthost), "lmtp://a", ""},
		{new(Smarthost), "discard", "discard"}, {new(Smarthost), "fail 451 4.3.0 try later", "fail 451 4.3.0 try later"},
		{new(Smarthost), "fail 550 no", "fail 550 no"}, {new(Smarthost), "fail", ""}, {new(Smarthost), "fail ", ""}, {new(Smarthost), "fail 250 2.0.0 ok", ""},
		{new(Smarthost), "fail 600 6.0.0 no", ""}, {new(Smarthost), "fail 451", ""}, {new(Smarthost), "fail 451 4.3.0", ""}, {new(Smarthost), "fail 451-4.3.0 more", ""},
		{new(Smarthost), "fail 451 4.3.0 a\r\nRCPT", ""}, {new(Smarthost), "fail 451 4.3.0 " + strings.Repeat("x", 200), ""}, {new(Smarthost), "discard ", ""},
	} {
		err := c.to.UnmarshalText([]byte(c.in))
		if (err != nil) != (c.want == "") {
			t.Errorf("%T %q: error %v", c.to, c.in, err)
			continue
		}
		if err == nil {
			got := fmt.Sprint(c.to)
			if p, ok := c.to.(*Pattern); ok {
				got = string(*p)
			}
			if got != c.want {
				t.Errorf("%T %q: got %s, want %s", c.to, c.in, got, c.want)
			}
		}
	}
}
