package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"mta/internal/route"
)

func TestParseSmarthost(t *testing.T) {
	secrets := func(kind, name string) (string, error) {
		if name == "missing" {
			return "", errors.New("not set")
		}
		return kind + "/" + name, nil
	}
	for _, tc := range []struct {
		text string
		want string // host, port, TLS, user, password
	}{
		{"smtp://relay.example.com", "relay.example.com 25 0"},
		{"smtp://Relay.Example.COM:587/", "relay.example.com 587 0"},
		{"smtp://relay.example.com?tls=required", "relay.example.com 25 1"},
		{"smtp://relay.example.com?tls=opportunistic", "relay.example.com 25 0"},
		{"smtp://127.0.0.1:2525?tls=off", "127.0.0.1 2525 2"},
		{"smtps://relay.example.com", "relay.example.com 465 3"},
		{"smtps://[2001:db8::1]:1465", "2001:db8::1 1465 3"},
		{"smtp://bücher.example", "xn--bcher-kva.example 25 0"},
		{"smtp://me:p%40ss%3Aword@relay.example.com:587", "relay.example.com 587 1 me p@ss:word"},
		{"smtp://me%40example.com:hush@relay.example.com", "relay.example.com 25 1 me@example.com hush"},
		{"smtps://me@relay.example.com?password_env=RELAY", "relay.example.com 465 3 me env/RELAY"},
		{"smtp://me@relay.example.com?password_file=/run/secrets/pw", "relay.example.com 25 1 me file//run/secrets/pw"},
	} {
		h, err := ParseSmarthost(tc.text, secrets)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		got := fmt.Sprint(h.Host, " ", h.Port, " ", h.TLS)
		if h.Auth != nil {
			got += " " + h.Auth.Username + " " + h.Auth.Password
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.text, got, tc.want)
		}
		// What is shown is a route again, apart from the password.
		if h.Auth == nil {
			if again, err := ParseSmarthost(h.String(), nil); err != nil || again != h {
				t.Errorf("%s is shown as %s, which is %+v, %v", tc.text, h, again, err)
			}
		} else if strings.Contains(h.String(), h.Auth.Password) {
			t.Errorf("%s shows the password", h)
		}
	}
}

func TestParseSmarthostErrors(t *testing.T) {
	secrets := func(kind, name string) (string, error) { return "", errors.New("it is not set") }
	for text, want := range map[string]string{
		"":                                          "must begin with smtp://",
		"relay.example.com":                         "must begin with smtp://",
		"relay.example.com:25":                      "no URL",
		"smtp:relay":                                "no URL",
		"http://relay.example.com":                  "must begin with smtp://",
		"smtp://":                                   "no host",
		"smtp://:25":                                "no host",
		"smtp://relay.example.com:":                 "no port after the colon",
		"smtp://relay.example.com:0":                "1 to 65535",
		"smtp://relay.example.com:65536":            "1 to 65535",
		"smtp://relay.example.com/x":                "must end after",
		"smtp://relay.example.com#x":                "must end after",
		"smtp://a b":                                "no URL",
		"smtp://a..b":                               "host of the route",
		"smtp://[relay]":                            "no URL",
		"smtp://[192.0.2.1]":                        "no URL",
		"smtp://h?tls=maybe":                        "opportunistic, required or off",
		"smtp://h?tls=off&tls=required":             "twice",
		"smtp://h?color=red":                        `no option "color"`,
		"smtp://h?password_env=X":                   "no user",
		"smtps://h?tls=off":                         "always required",
		"smtp://u:hush@h?tls=off":                   "over TLS only",
		"smtp://u:hush@h?tls=opportunistic":         "over TLS only",
		"smtp://u@h":                                "no password",
		"smtp://:hush@h":                            "user of the route is empty",
		"smtp://u:hush@h?password_env=X":            "more than one password",
		"smtp://u@h?password_env=X&password_file=Y": "more than one password",
		"smtp://u@h?password_env=X":                 "it is not set",
		"smtp://u:hu%zzsh@h":                        "percent-encoded",
		"smtp://u:hush:hush@h:99999999":             "1 to 65535",
		"smtp://u:hush@h\x00":                       "no URL",
		"smtp://u:hush@ho st":                       "no URL",
		"smtp://u:hush@h:port":                      "no URL",
	} {
		h, err := ParseSmarthost(text, secrets)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v, want an error with %q", text, h, err, want)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: the error shows the password: %v", text, err)
		}
	}
	if _, err := ParseSmarthost("smtp://u@h?password_env=X", nil); err == nil {
		t.Error("a reference without anybody to follow it: no error")
	}
}

func TestCheckSmarthosts(t *testing.T) {
	for _, tc := range []struct {
		hosts []Smarthost
		want  string
	}{
		{nil, "names no host"},
		{hosts("smtp://a", "smtp://b:26"), ""},
		{hosts("smtp://a", "smtp://b?tls=required"), "same tls"},
		{hosts("smtp://u:p@a", "smtp://u:p@b"), ""},
		{hosts("smtp://u:p@a", "smtp://u:q@b"), "same user"},
		{hosts("smtp://a?tls=required", "smtp://u:q@b"), "same user"},
	} {
		err := CheckSmarthosts(tc.hosts)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: got %v, want %q", tc.hosts, err, tc.want)
		}
	}
}

func TestSettingsAreValidated(t *testing.T) {
	for _, tc := range []struct {
		s    Settings
		want string
	}{
		{Settings{}, ""},
		{Settings{NoIPv4: true, NoIPv6: true}, "both IPv4 and IPv6"},
		{Settings{Self: []string{"a..b"}}, "own name"},
		{Settings{Smarthosts: []SmarthostRoute{{"*.*.test", hosts("smtp://a")}}}, "before the first dot"},
		{Settings{Smarthosts: []SmarthostRoute{{"", hosts("smtp://a")}}}, "empty"},
		{Settings{Smarthosts: []SmarthostRoute{{"a.test", nil}}}, "names no host"},
		{Settings{Smarthosts: []SmarthostRoute{{"a.test", hosts("smtp://a")}, {"A.test", hosts("smtp://b")}}}, "two routes"},
		{Settings{Smarthosts: []SmarthostRoute{{"*", hosts("smtp://a")}, {"*", hosts("smtp://b")}}}, "two routes"},
		{Settings{Smarthosts: []SmarthostRoute{{"[300.1.1.1]", hosts("smtp://a")}}}, "literal"},
		{Settings{Providers: []Provider{{"a", []string{"*.x.test"}}, {"b", []string{"*.X.test"}}}}, "another provider"},
		{Settings{Providers: []Provider{{"a", []string{"mx[1-3].x.test"}}}}, `provider "a"`},
	} {
		err := tc.s.Validate()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.s, err, tc.want)
		}
	}
}

func TestPatterns(t *testing.T) {
	var p patterns[string]
	for _, pattern := range []string{"example.com", "*.example.com", "*.mail.example.com", "www.example.com", "*", "[192.0.2.1]"} {
		checked, err := CheckPattern(pattern)
		if err != nil || !p.add(checked, pattern) {
			t.Fatalf("%s: %s, %v", pattern, checked, err)
		}
	}
	for name, want := range map[string]string{
		"example.com":          "example.com",
		"www.example.com":      "www.example.com",
		"ftp.example.com":      "*.example.com",
		"a.b.example.com":      "*.example.com",
		"mail.example.com":     "*.example.com",
		"mx1.mail.example.com": "*.mail.example.com",
		"badexample.com":       "*",
		"com":                  "*",
		"[192.0.2.1]":          "[192.0.2.1]",
		"[192.0.2.2]":          "*",
	} {
		if got, ok := p.find(name); !ok || got != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, ok, want)
		}
	}
	var none patterns[string]
	if got, ok := none.find("example.com"); ok {
		t.Errorf("found %q where nothing is", got)
	}
}

func FuzzParseSmarthost(f *testing.F) {
	for _, s := range []string{"smtp://relay.example.com:587", "smtps://u:p@[::1]:1?tls=required", "smtp://u@h?password_env=X", "smtp://%zz@h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const hidden = "TOP-SECRET"
		h, err := ParseSmarthost(text, func(kind, name string) (string, error) { return hidden, nil })
		if err != nil {
			return
		}
		if h.Host == "" || h.Port == 0 {
			t.Errorf("%q: %+v", text, h)
		}
		if h.Auth != nil && (h.Auth.Username == "" || h.Auth.Password == "" || h.TLS != route.TLSRequired && h.TLS != route.TLSImplicit) {
			t.Errorf("%q: credentials %+v with TLS %d", text, h.Auth, h.TLS)
		}
		if shown := h.String(); strings.Contains(shown, hidden) {
			t.Errorf("%q is shown as %s", text, shown)
		}
		if h.Auth == nil {
			if again, err := ParseSmarthost(h.String(), nil); err != nil || again != h {
				t.Errorf("%q is shown as %s, which is %+v, %v", text, h, again, err)
			}
		}
	})
}

func FuzzParseLiteral(f *testing.F) {
	for _, s := range []string{"[192.0.2.1]", "[IPv6:2001:db8::1]", "[ipv6:::ffff:192.0.2.1]", "[fe80::1%eth0]", "[]", "[IPv6:]", "[1.2.3.4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseLiteral(s)
		if err != nil {
			return
		}
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
			t.Errorf("%q: %s", s, a)
		}
		if b, err := parseLiteral(literalName(a)); err != nil || a != b {
			t.Errorf("%q is written as %s, which is %s, %v", s, literalName(a), b, err)
		}
	})
}
