package main

import (
	"strings"
	"testing"
)

// TestCurveFits: a curve is as wide as the screen at most, and shows the last days when there are
// more than columns.
func TestCurveFits(t *testing.T) {
	var many []curveDay
	for i := range 300 {
		many = append(many, curveDay{desired: float64(100 * i), sent: float64(100 * i)})
	}
	for name, days := range map[string][]curveDay{
		"one": many[7:8], "few": many[:9], "many": many, "sent above desired": {{desired: 10, sent: 400}, {desired: 1e9}},
		"nothing sent": {{desired: 350}}, "future": {{desired: 10, sent: 10}, {desired: 16, future: true}},
	} {
		for _, width := range []int{0, 1, 20, 80, 200} {
			out := curve(days, screen{width: width})
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			if len(lines) != curveHeight+1 {
				t.Fatalf("%s, %d columns: %d lines", name, width, len(lines))
			}
			for _, l := range lines {
				if width >= 20 && columns(l) > width || width == 0 && columns(l) > curveWidth {
					t.Errorf("%s, %d columns: a line takes %d:\n%s", name, width, columns(l), out)
				}
			}
		}
	}
	if out := curve([]curveDay{{}, {}}, screen{}); out != "" {
		t.Errorf("nothing was drawn as %q", out)
	}
}

// TestCurveShows: heights are in proportion, what was desired and not sent is a line, and what is to
// come a broken one.
func TestCurveShows(t *testing.T) {
	out := curve([]curveDay{{desired: 20, sent: 20}, {desired: 40, sent: 10}, {desired: 80, sent: 80}, {desired: 100, future: true}}, screen{})
	want := strings.TrimPrefix(`
100 │            ╌╌╌
    │
    │        ███
    │        ███
    │        ███
    │        ███
    │    ─── ███
    │        ███
    │███     ███
  0 │███ ███ ███
    └────────────────
`, "\n")
	if out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}
