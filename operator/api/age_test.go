package api

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	for _, test := range []struct {
		text string
		want time.Duration
		back string
	}{
		{"90s", 90 * time.Second, "1m30s"},
		{"2h30m", 150 * time.Minute, "2h30m"},
		{"3d", 72 * time.Hour, "3d"},
		{"1w", 168 * time.Hour, "1w"},
		{"8d", 192 * time.Hour, "8d"},
		{"0s", 0, "0s"},
		{"1d1h1m1s", 25*time.Hour + 61*time.Second, "1d1h1m1s"},
	} {
		got, err := ParseAge(test.text)
		if err != nil || time.Duration(got) != test.want || got.String() != test.back {
			t.Errorf("%s: %v as %q, %v", test.text, time.Duration(got), got, err)
		}
	}
	for _, bad := range []string{"", "5", "m", "5 m", "-5m", "5x", "1.5h", "99999999999999999999w", "2000000000w", "5µs", "5m "} {
		if a, err := ParseAge(bad); err == nil {
			t.Errorf("%q was read as %v", bad, a)
		}
	}
}

func FuzzAge(f *testing.F) {
	f.Add("1w2d3h4m5s")
	f.Add("00000s")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAge(s)
		if err != nil {
			return
		}
		if b, err := ParseAge(a.String()); err != nil || a != b || a < 0 {
			t.Errorf("%q gives %v, which gives %v, %v", s, a, b, err)
		}
	})
}
