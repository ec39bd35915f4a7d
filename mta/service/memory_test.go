package service

import "testing"

func TestGCPercent(t *testing.T) {
	const mb = 1 << 20
	for _, test := range []struct {
		what           string
		live, schedule int64
		want           int
	}{
		{"nothing collected yet", 0, 0, 300},
		{"an idle relay", 3 * mb, 0, 300},
		{"a relay without a backlog", 16 * mb, 0, 150},
		{"a full body cache", 100 * mb, 4 * mb, 96},
		{"ten million queued", 430 * mb, 400 * mb, 6},
		{"more schedule than lived at the last collection", 100 * mb, 400 * mb, 24},
	} {
		if got := gcPercent(test.live, test.schedule); got != test.want {
			t.Errorf("%s: %d %%, want %d", test.what, got, test.want)
		}
	}
}
