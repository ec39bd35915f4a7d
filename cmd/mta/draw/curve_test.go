package draw

import (
	"strings"
	"testing"

	"example.org/mta/internal/legible"
)

// TestCurveFits: a curve is as wide as the screen at most, and shows the last days when there are
// more than columns.
func TestCurveFits(t *testing.T) {
	var many []Day
	for i := range 300 {
		many = append(many, Day{Desired: float64(100 * i), Sent: float64(100 * i)})
	}
	for name, days := range map[string][]Day{
		"one": many[7:8], "few": many[:9], "many": many, "sent above desired": {{Desired: 10, Sent: 400}, {Desired: 1e9}},
		"nothing sent": {{Desired: 350}}, "future": {{Desired: 10, Sent: 10}, {Desired: 16, Future: true}},
	} {
		for _, width := range []int{0, 1, 20, 80, 200} {
			out := Curve(days, Screen{Width: width})
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			if len(lines) != curveHeight+1 {
				t.Fatalf("%s, %d columns: %d lines", name, width, len(lines))
			}
			for _, l := range lines {
				if width >= 20 && legible.Columns(l) > width || width == 0 && legible.Columns(l) > curveWidth {
					t.Errorf("%s, %d columns: a line takes %d:\n%s", name, width, legible.Columns(l), out)
				}
			}
		}
	}
	if out := Curve([]Day{{}, {}}, Screen{}); out != "" {
		t.Errorf("nothing was drawn as %q", out)
	}
}

// TestCurveShows: heights are in proportion, what was desired and not sent is a line, and what is to
// come a broken one.
func TestCurveShows(t *testing.T) {
	out := Curve([]Day{{Desired: 20, Sent: 20}, {Desired: 40, Sent: 10}, {Desired: 80, Sent: 80}, {Desired: 100, Future: true}}, Screen{})
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
