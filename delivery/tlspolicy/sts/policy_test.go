package sts

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// valid is a policy in few words, with the example's fields where a test changes others.
const valid = "version: STSv1\nmode: enforce\nmx: mail.example.com\nmx: *.example.net\nmax_age: 604800\n"

func TestPolicies(t *testing.T) {
	const plain = "enforce [mail.example.com *.example.net] 168h0m0s"
	for _, tc := range []struct{ name, text, want string }{
		{"as in the RFC", valid, plain},
		{"CRLF", strings.ReplaceAll(valid, "\n", "\r\n"), plain},
		{"LF and CRLF", strings.Replace(valid, "\n", "\r\n", 2), plain},
		{"no line end at the end", strings.TrimSuffix(valid, "\n"), plain},
		{"blank lines", strings.ReplaceAll(valid, "\n", "\r\n\r\n \n"), plain},
		{"any order", "max_age:604800\nmx:\t mail.example.com\nmx: *.example.net  \nmode: enforce \t\nversion:STSv1", plain},
		{"unknown fields", "x-1._: a b=c;d:e \xc3\xa4\n" + valid + "Mode: none\n", plain},
		{"repeated fields", valid + "mode: none\nmax_age: x\nversion: STSv2\n", plain},
		{"testing", strings.Replace(valid, "enforce", "testing", 1), "testing [mail.example.com *.example.net] 168h0m0s"},
		{"none without mx", "version: STSv1\nmode: none\nmax_age: 0\n", "none [] 0s"},
		{"upper case and an IDN in A-labels", "version: STSv1\nmode: enforce\nmx: *.XN--MGBA3A4F16A.example\nmax_age: 1\n", "enforce [*.xn--mgba3a4f16a.example] 1s"},
		{"one label", "version: STSv1\nmode: enforce\nmx: mx\nmax_age: 1\n", "enforce [mx] 1s"},
		{"a year", strings.Replace(valid, "604800", "31557600", 1), "enforce [mail.example.com *.example.net] 8766h0m0s"},
		{"longer than a year", strings.Replace(valid, "604800", "9999999999", 1), "enforce [mail.example.com *.example.net] 8766h0m0s"},

		{"HTML", "<!DOCTYPE html>\n<html>", "line 1 of the policy: no colon"},
		{"empty", "", "no version"},
		{"CR alone", strings.ReplaceAll(valid, "\n", "\r"), "line 1 of the policy: malformed value"},
		{"CR at the end", strings.TrimSuffix(valid, "\n") + "\r", "line 5 of the policy: malformed value"},
		{"space before the colon", strings.Replace(valid, "mode:", "mode :", 1), "line 2 of the policy: malformed field name"},
		{"space before the name", " " + valid, "line 1 of the policy: malformed field name"},
		{"byte order mark", "\xef\xbb\xbf" + valid, "line 1 of the policy: malformed field name"},
		{"not UTF-8", valid + "x: \xff\n", "not UTF-8"},
		{"control character", valid + "x: a\x00b\n", "line 6 of the policy: malformed value of x"},
		{"tab within a value", valid + "x: a\tb\n", "line 6 of the policy: malformed value of x"},
		{"no value", valid + "x:\n", "line 6 of the policy: malformed value of x"},
		{"long name", valid + strings.Repeat("x", 33) + ": y\n", "line 6 of the policy: malformed field name"},
		{"another version", strings.Replace(valid, "STSv1", "STSv2", 1), "version is not STSv1"},
		{"version in lower case", strings.Replace(valid, "STSv1", "stsv1", 1), "version is not STSv1"},
		{"no version", strings.Replace(valid, "version: STSv1\n", "", 1), "has no version"},
		{"no mode", strings.Replace(valid, "mode: enforce\n", "", 1), "has no mode"},
		{"mode in upper case", strings.Replace(valid, "enforce", "Enforce", 1), "mode is not valid"},
		{"mode of a draft", strings.Replace(valid, "enforce", "report", 1), "mode is not valid"},
		{"no max_age", strings.Replace(valid, "max_age: 604800\n", "", 1), "has no max_age"},
		{"negative max_age", strings.Replace(valid, "604800", "-1", 1), "max_age is not a number"},
		{"signed max_age", strings.Replace(valid, "604800", "+1", 1), "max_age is not a number"},
		{"11 digits", strings.Replace(valid, "604800", "00000000001", 1), "max_age is not a number"},
		{"no mx", "version: STSv1\nmode: enforce\nmax_age: 1\n", "has no mx"},
		{"no mx, testing", "version: STSv1\nmode: testing\nmax_age: 1\n", "has no mx"},
		{"every host", valid + "mx: *\n", "line 6 of the policy: mx is not a host name"},
		{"every host, with a dot", valid + "mx: *.\n", "mx is not a host name"},
		{"wildcard within", valid + "mx: mx.*.example.com\n", "mx is not a host name"},
		{"part of a label", valid + "mx: mx*.example.com\n", "mx is not a host name"},
		{"leading dot", valid + "mx: .example.com\n", "mx is not a host name"},
		{"final dot", valid + "mx: mail.example.com.\n", "mx is not a host name"},
		{"underscore", valid + "mx: a_b.example.com\n", "mx is not a host name"},
		{"U-labels", valid + "mx: m\xc3\xa4il.example.com\n", "mx is not a host name"},
		{"literal", valid + "mx: [192.0.2.1]\n", "mx is not a host name"},
		{"several on a line", valid + "mx: a.example.com b.example.com\n", "mx is not a host name"},
	} {
		p, err := Parse([]byte(tc.text))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%s %v %s", p.Mode, p.MX, p.MaxAge)
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		pattern, host string
		want          bool
	}{
		{"mail.example.com", "mail.example.com", true},
		{"mail.example.com", "MAIL.example.com.", true},
		{"mail.example.com", "mx.mail.example.com", false},
		{"mail.example.com", "example.com", false},
		{"mail.example.com", "mailxexample.com", false},
		{"mail.example.com", "mail.example.com.attacker.test", false},
		{"*.example.com", "mail.example.com", true},
		{"*.example.com", "Mail.Example.Com.", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "foo.bar.example.com", false},
		{"*.example.com", ".example.com", false},
		{"*.example.com", "mailexample.com", false},
		{"*.example.com", "*.example.com", true}, // no host has that name
		{"*.xn--mgba3a4f16a.example", "mx1.XN--MGBA3A4F16A.example", true},
		{"xn--mgba3a4f16a.example", "\xd8\xa7\xdb\x8c\xd8\xb1\xd8\xa7\xd9\x86.example", false}, // hosts' names are in A-labels
		{"mx", "mx", true},
		{"*.com", "com", false},
		{"mail.example.com", "", false},
		{"*.example.com", "192.0.2.1", false},
	} {
		p := &Policy{MX: []string{"other.test", tc.pattern}}
		if got := p.Match(tc.host); got != tc.want {
			t.Errorf("%s and %s: %v", tc.pattern, tc.host, got)
		}
	}
	if none.Match("mail.example.com") {
		t.Error("a policy without patterns has a host")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte(strings.ReplaceAll(valid, "\n", "\r\n")))
	f.Add([]byte("version: STSv1\nmode: none\nmax_age: 86400"))
	f.Add([]byte("x: \xc3\xa4\nmode:testing\t \nmx:*.a\nversion:STSv1\nmax_age: 9999999999"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if p.MaxAge < 0 || p.MaxAge > MaxMaxAge || p.Mode != None && len(p.MX) == 0 {
			t.Fatalf("%+v", p)
		}
		for _, mx := range p.MX {
			host := strings.Replace(mx, "*", "a", 1)
			if !isDomain(host) || !p.Match(host) {
				t.Fatalf("pattern %q does not match %q", mx, host)
			}
		}
		again, err := Parse([]byte(strings.Join(p.Lines(), "\n")))
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}

func TestLines(t *testing.T) {
	p := &Policy{Mode: Testing, MX: []string{"*.example.com"}, MaxAge: time.Hour}
	if got := strings.Join(p.Lines(), "|"); got != "version: STSv1|mode: testing|mx: *.example.com|max_age: 3600" {
		t.Error(got)
	}
}

// A policy takes up what its cost says, however long the text that it came in.
func TestPoliciesLeaveTheirTextBehind(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 200
	text, before := valid+"x: "+strings.Repeat("x", 60<<10)+"\n", heap()
	kept := make([]*Policy, n)
	for i := range kept {
		p, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		kept[i] = p
	}
	if grown := int64(heap() - before); grown > n*10<<10 {
		t.Errorf("%d octets for each of %d policies", grown/n, n)
	}
	runtime.KeepAlive(kept)
}
