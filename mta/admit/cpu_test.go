package admit

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestA18_WhoIsRefusedAgainAndAgainWaits refuses new messages of one session while the quota of CPU is used up: the
// reply is held, longer each time, from the second on.
func TestA18_WhoIsRefusedAgainAndAgainWaits(t *testing.T) {
	m, early, all := machine(), int64(100), int64(100)
	m.Throttled = func() (int64, int64) { return early, all }
	g := New(settings(), m)
	held := func(refusals int) time.Duration {
		r := request("t", 4)
		r.Refused = refusals
		refused := g.refuse(&r, 0, "overload")
		d := g.Last(func(*Refusal) bool { return true })[0].Held
		if (refused.Hold != nil) != (d > 0) {
			t.Errorf("held for %v, and hold is %v", d, refused.Hold != nil)
		}
		return d
	}
	g.tick()
	if d := held(3); d != 0 {
		t.Errorf("held for %v before anything is known", d)
	}
	for _, part := range []struct{ early, all, held int64 }{{5, 5, 1}, {3, 5, 0}, {4, 5, 1}, {0, 0, 0}} {
		early, all = early+part.early, all+part.all
		g.tick()
		for refusals, longest := range []time.Duration{0, firstHold, 2 * firstHold, 4 * firstHold, longestOne, longestOne} {
			longest *= time.Duration(part.held)
			if d := held(refusals); d < longest/2 || d > longest {
				t.Errorf("%d of %d periods ended early: after %d refusals held for %v, want %v at most", part.early, part.all, refusals, d, longest)
			}
		}
	}
}

func TestQuotaOfControlGroups(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/b/cpu.stat":   "usage_usec 7\nnr_periods 50\nnr_throttled 20\nthrottled_usec 9\n",
		"cpu.stat":       "usage_usec 7\n",
		"cpu/c/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 12\n",
		"d/cpu.stat":     "nr_periods many\nnr_throttled\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string][2]int64{
		"0::/a/b\n":              {20, 50},
		"5:cpu,cpuacct:/c\n":     {4, 10},
		"5:cpu:/c\n0::/\n":       {4, 10},
		"0::/d\n":                {0, 0},
		"3:memory:/a\n":          {0, 0},
		"0::/../../etc/passwd\n": {0, 0},
		"":                       {0, 0},
	} {
		if early, all := throttledOf(root, groups); early != want[0] || all != want[1] {
			t.Errorf("%q: %d of %d, want %v", groups, early, all, want)
		}
	}
}
