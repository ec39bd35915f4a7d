package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestSiteName(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  string
	}{
		{[]string{"mx.example.com"}, "mx.example.com"},
		{[]string{"com"}, "com"},
		{[]string{"mx2.example.com", "mx1.example.com", "mx1.example.com"}, "(mx1|mx2).example.com"},
		{[]string{"gmail-smtp-in.l.google.com", "alt1.gmail-smtp-in.l.google.com", "alt2.gmail-smtp-in.l.google.com",
			"alt3.gmail-smtp-in.l.google.com", "alt4.gmail-smtp-in.l.google.com"},
			"(alt1|alt2|alt3|alt4|).gmail-smtp-in.l.google.com"},
		{[]string{"aspmx.l.google.com", "alt1.aspmx.l.google.com", "alt2.aspmx.l.google.com", "aspmx2.googlemail.com", "aspmx3.googlemail.com"},
			"(alt1|alt2|).aspmx.l.google.com,(aspmx2|aspmx3).googlemail.com"},
		{[]string{"mta5.am0.yahoodns.net", "mta6.am0.yahoodns.net", "mta7.am0.yahoodns.net"}, "(mta5|mta6|mta7).am0.yahoodns.net"},
		{[]string{"a.b.example.com", "c.b.example.com", "d.example.com"}, "((a|c).b|d).example.com"},
		{[]string{"mx.example.com", "mx.example.org"}, "mx.example.com,mx.example.org"},
		{[]string{"mx-eu.mail.am0.yahoodns.net"}, "mx-eu.mail.am0.yahoodns.net"},
		{[]string{"example.com", "mx.example.com"}, "(mx|).example.com"},
	} {
		if got := siteName(tc.names); got != tc.want {
			t.Errorf("%v:\n got  %s\n want %s", tc.names, got, tc.want)
		}
	}
}

func TestSiteNameOfCrossedLabelsIsNotShared(t *testing.T) {
	// A factoring by position would call both (a|b).(x|y).test.
	one, other := siteName([]string{"a.x.s.test", "b.y.s.test"}), siteName([]string{"a.y.s.test", "b.x.s.test"})
	if one == other {
		t.Errorf("both are %s", one)
	}
}

func TestLongSiteNamesAreCutAndStayApart(t *testing.T) {
	names := func(last string) []string {
		var out []string
		for i := range 30 {
			out = append(out, fmt.Sprintf("exchanger%02d.mail.example.com", i))
		}
		return append(out, last)
	}
	one, other := siteName(names("x.mail.example.com")), siteName(names("y.mail.example.com"))
	if len(one) > maxSite || len(other) > maxSite || one == other {
		t.Errorf("%d and %d octets:\n%s\n%s", len(one), len(other), one, other)
	}
	if again := siteName(names("x.mail.example.com")); again != one {
		t.Errorf("not the same the second time: %s", again)
	}
	if !strings.HasPrefix(one, "(exchanger00|exchanger01|") {
		t.Errorf("the start of the name is not readable: %s", one)
	}
}

// expand is the inverse of siteName, written apart from it.
func expand(t *testing.T, s string) []string {
	var alternatives func() []string
	pos := 0
	sequence := func() []string { // items up to , | ) or the end
		out := []string{""}
		for pos < len(s) && s[pos] != '|' && s[pos] != ')' && s[pos] != ',' {
			var item []string
			if s[pos] == '(' {
				pos++
				item = alternatives()
				if pos == len(s) || s[pos] != ')' {
					t.Fatalf("unbalanced: %s", s)
				}
				pos++
			} else {
				item = []string{s[pos : pos+1]}
				pos++
			}
			var next []string
			for _, a := range out {
				for _, b := range item {
					next = append(next, a+b)
				}
			}
			out = next
		}
		return out
	}
	alternatives = func() []string {
		out := sequence()
		for pos < len(s) && s[pos] == '|' {
			pos++
			out = append(out, sequence()...)
		}
		return out
	}
	out := sequence()
	for pos < len(s) && s[pos] == ',' {
		pos++
		out = append(out, sequence()...)
	}
	for i := range out {
		out[i] = strings.TrimPrefix(out[i], ".") // of an empty alternative
		out[i] = strings.ReplaceAll(out[i], "..", ".")
	}
	slices.Sort(out)
	return out
}

func TestSiteNameCanBeExpandedAgain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	seen := make(map[string]string) // name of a site -> its set
	for range 20_000 {
		set := make(map[string]bool)
		for range 1 + rnd.IntN(4) {
			labels := make([]string, 1+rnd.IntN(4))
			for i := range labels {
				labels[i] = string(rune('a' + rnd.IntN(3)))
			}
			set[strings.Join(labels, ".")] = true
		}
		var names []string
		for n := range set { // in any order: the name must not depend on it
			names = append(names, n)
		}
		site := siteName(names)
		slices.Sort(names)
		key := strings.Join(names, " ")
		if other, ok := seen[site]; ok && other != key {
			t.Fatalf("%s names both {%s} and {%s}", site, key, other)
		}
		seen[site] = key
		if got := strings.Join(expand(t, site), " "); got != key {
			t.Fatalf("{%s} is named %s, which expands to {%s}", key, site, got)
		}
	}
	if len(seen) < 1000 {
		t.Errorf("only %d sets were tried", len(seen))
	}
}

func FuzzSiteName(f *testing.F) {
	f.Add("mx1.example.com mx2.example.com")
	f.Add("alt1.aspmx.l.google.com aspmx.l.google.com aspmx2.googlemail.com")
	f.Fuzz(func(t *testing.T, text string) {
		var names []string
		for _, n := range strings.Fields(text) {
			if isHostName(n) && !strings.HasSuffix(n, ".") {
				names = append(names, n)
			}
		}
		if len(names) == 0 {
			return
		}
		site := siteName(names)
		if len(site) > maxSite {
			t.Errorf("%d octets: %s", len(site), site)
		}
		slices.Reverse(names)
		if other := siteName(names); other != site {
			t.Errorf("depends on the order: %s and %s", site, other)
		}
		if strings.Contains(site, "~") || len(names) > 8 {
			return
		}
		slices.Sort(names)
		names = slices.Compact(names)
		if got := expand(t, site); !slices.Equal(got, names) {
			t.Errorf("%v is named %s, which expands to %v", names, site, got)
		}
	})
}

func BenchmarkSiteName(b *testing.B) {
	names := []string{"gmail-smtp-in.l.google.com", "alt1.gmail-smtp-in.l.google.com", "alt2.gmail-smtp-in.l.google.com",
		"alt3.gmail-smtp-in.l.google.com", "alt4.gmail-smtp-in.l.google.com"}
	b.ReportAllocs()
	for b.Loop() {
		siteName(names)
	}
}
