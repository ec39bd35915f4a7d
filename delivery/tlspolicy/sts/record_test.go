package sts

import (
	"strings"
	"testing"
)

func TestRecords(t *testing.T) {
	for _, tc := range []struct{ records, want string }{
		{"v=STSv1; id=20160831085700Z;", "20160831085700Z"},
		{"v=STSv1; id=20160831085700Z", "20160831085700Z"},
		{"v=STSv1;id=1", "1"},
		{"v=STSv1;\t id=1 \t; ", "1"},
		{"v=STSv1; a-b_c.9=x:y/z; id=1; ext=!", "1"},
		{"v=STSv1; id=1; id=2", "1"},
		{"v=STSv1; id=1; id=!", "1"}, // the first of several counts, the others are ignored
		{"v=STSv1; id=" + strings.Repeat("a", 32), strings.Repeat("a", 32)},
		{"v=spf1 -all|v=STSv1; id=1;", "1"},
		{"v=STSv10; id=2|v=STSv1; id=1;", "1"},

		{"", "no MTA-STS record"},
		{"v=spf1 -all", "no MTA-STS record"},
		{"V=STSv1; id=1", "no MTA-STS record"},
		{"v=stsv1; id=1", "no MTA-STS record"},
		{"v=STSv1", "no MTA-STS record"}, // it does not begin with "v=STSv1;"
		{"v=STSv1 ; id=1", "no MTA-STS record"},
		{" v=STSv1; id=1", "no MTA-STS record"},
		{"id=1; v=STSv1;", "no MTA-STS record"},
		{"v=STSv1; id=1|v=STSv1; id=1", "more than one MTA-STS record"},
		{"v=STSv1; id=1|v=STSv1; ?", "more than one MTA-STS record"},
		{"v=STSv1;", "malformed"},
		{"v=STSv1; id=", "malformed"},
		{"v=STSv1; id", "malformed"},
		{"v=STSv1; id=a-b", "malformed"},
		{"v=STSv1; id=a b", "malformed"},
		{"v=STSv1; id=1;;", "malformed"},
		{"v=STSv1;; id=1", "malformed"},
		{"v=STSv1; id=1 ", "malformed"}, // white space stands around a semicolon
		{"v=STSv1; id=1; x", "malformed"},
		{"v=STSv1; id=1; x=", "malformed"},
		{"v=STSv1; id=1; x=y=z", "malformed"},
		{"v=STSv1; id=1; -x=y", "malformed"},
		{"v=STSv1; id=1; x=\xc3\xa4", "malformed"},
		{"v=STSv1; id=" + strings.Repeat("a", 33), "malformed"},
		{"v=STSv1; " + strings.Repeat("a", 33) + "=1; id=1", "malformed"},
		{"v=STSv1; ext=1", "has no id"},
		{"v=STSv1; ID=1", "has no id"},
	} {
		got, err := ParseRecord(strings.Split(tc.records, "|"))
		if err != nil {
			got = err.Error()
		}
		if got != tc.want && (err == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%q: got %q, want %q", tc.records, got, tc.want)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, s := range []string{"v=STSv1; id=1;", "v=STSv1; id=1; x=y", "v=STSv1;", "v=STSv1; id=1;;", "v=STSv1;id=1 ; "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, record string) {
		id, err := ParseRecord([]string{record})
		if err != nil {
			return
		}
		if !isID(id) {
			t.Fatalf("id %q of %q", id, record)
		}
		if again, err := ParseRecord([]string{"v=STSv1; id=" + id}); err != nil || again != id {
			t.Fatalf("id %q: %q, %v", id, again, err)
		}
		if _, err := ParseRecord([]string{record, record}); err == nil {
			t.Fatalf("%q twice is taken", record)
		}
	})
}
