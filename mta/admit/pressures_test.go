package admit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
)

// pressure returns a reading of the last calibration.
func pressure(t *testing.T, g *Gate, name string) (value, share float64) {
	t.Helper()
	for _, p := range g.Status().Now.Pressures {
		if p.Name == name {
			return p.Value, p.Share
		}
	}
	t.Fatalf("there is no pressure %q: %+v", name, g.Status().Now.Pressures)
	return 0, 0
}

// TestTheDiskFills has mail come in faster than it leaves. The disk is full when as much is left as
// came in over the last minute.
func TestTheDiskFills(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := machine()
		var room atomic.Int64
		room.Store(10_000)
		m.Room = room.Load
		g := running(t, settings(), m)
		began, first := time.Now(), time.Duration(0)
		for room.Load() > 0 {
			time.Sleep(time.Second)
			room.Add(-20)
			g.Admit(request("t", 4))
			if _, share := pressure(t, g, Disk); share > 0 && first == 0 {
				first = time.Since(began)
			}
		}
		if first < 400*time.Second || first > 460*time.Second {
			t.Errorf("refusals begin %v after the start, a minute before the end at 500 s is due", first)
		}
		time.Sleep(time.Second)
		if _, share := pressure(t, g, Disk); share < .9 {
			t.Errorf("a share of %.2f is refused when the disk is full", share)
		}
		if _, refused := g.Admit(request("t", 5)); refused == nil || !refused.Disk {
			t.Errorf("refused: %+v", refused)
		}
		room.Store(10_000)
		time.Sleep(time.Second)
		if _, share := pressure(t, g, Disk); share != 0 {
			t.Errorf("a share of %.2f is refused when there is room again", share)
		}
	})
}

// A disk that is nearly full, and stays so, is no reason to refuse anything.
func TestADiskThatStaysNearlyFull(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := machine()
		m.Room = func() int64 { return 4096 }
		g := running(t, settings(), m)
		time.Sleep(time.Minute)
		if _, share := pressure(t, g, Disk); share != 0 {
			t.Errorf("a share of %.2f is refused", share)
		}
	})
}

func TestMemoryRunsShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var used atomic.Int64
		m := machine()
		m.Memory = used.Load
		s := settings()
		s.MemoryLimit = 100
		g := running(t, s, m)
		for _, step := range []struct {
			used        int64
			least, most float64
		}{{79, 0, 0}, {86, .3, .5}, {95, .97, .99}, {200, .97, .99}, {50, 0, 0}} {
			used.Store(step.used)
			time.Sleep(time.Second)
			if _, share := pressure(t, g, Memory); share < step.least || share > step.most {
				t.Errorf("with %d of 100 octets in use a share of %.2f is refused", step.used, share)
			}
		}
	})
}

// TestADiskThatHangs ends no commit at all.
func TestADiskThatHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := running(t, settings(), machine())
		a, _ := g.Admit(request("t", 3))
		hangs, done := make(chan bool), make(chan bool)
		go func() {
			a.Commit(context.Background(), 3, func() error { <-hangs; return nil })
			close(done)
		}()
		time.Sleep(900 * time.Millisecond)
		if _, share := pressure(t, g, Sync); share != 0 {
			t.Errorf("a share of %.2f is refused after 0.9 s", share)
		}
		time.Sleep(5 * time.Second)
		if value, share := pressure(t, g, Sync); share < .9 || value < 5 {
			t.Errorf("a share of %.2f is refused after 6 s; latency %.1f s", share, value)
		}
		close(hangs)
		<-done
		time.Sleep(5 * time.Second)
		if _, share := pressure(t, g, Sync); share != 0 {
			t.Errorf("a share of %.2f is refused after it has ended", share)
		}
	})
}

func TestLimitsOfControlGroups(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a/b/memory.max", "max\n")
	write("a/memory.max", "1000\n")
	write("c/memory.max", "max\n")
	write("memory/d/memory.limit_in_bytes", "9223372036854771712\n")
	write("memory/e/memory.limit_in_bytes", "500\n")
	for groups, want := range map[string]int64{
		"0::/a/b\n":                          1000,
		"0::/c\n":                            0,
		"0::/nowhere/at/all\n":               0,
		"12:cpu:/x\n5:memory:/d\n0::/\n":     0,
		"5:memory:/e/f\n":                    500,
		"0::/../../../../../../etc/passwd\n": 0,
		"":                                   0,
		strings.Repeat("nonsense\n", 3):      0,
	} {
		if got := limitOf(root, groups); got != want {
			t.Errorf("%q: %d, want %d", groups, got, want)
		}
	}
}

// TestWhoComesBackAtOnceWaits refuses one message again and again: each time its client waits longer,
// and a minute later it is forgotten.
func TestWhoComesBackAtOnceWaits(t *testing.T) {
	var r returns
	now := time.Unix(1000, 0)
	attempt := []string{"192.0.2.1/32", "a@b.example", "", "1"}
	for n, want := range []struct{ least, most time.Duration }{{0, 0}, {500 * time.Millisecond, time.Second}, {time.Second, 2 * time.Second}, {2 * time.Second, 4 * time.Second}, {2500 * time.Millisecond, 5 * time.Second}} {
		if d := r.refused(now, attempt); d < want.least || d > want.most {
			t.Errorf("refusal %d waits %v, want %v to %v", n+1, d, want.least, want.most)
		}
		now = now.Add(time.Second)
	}
	if d := r.refused(now, []string{"192.0.2.1/32", "a@b.example", "", "2"}); d != 0 {
		t.Errorf("another message waits %v", d)
	}
	if d := r.refused(now.Add(atOnce+time.Second), attempt); d != 0 {
		t.Errorf("a minute later it waits %v", d)
	}
	r.refused(now, attempt)
	for i := range 3 { // each read the clock before the one that is counted before it
		r.refused(now.Add(-time.Duration(i+1)*time.Millisecond), []string{"another"})
	}
	if d := r.refused(now, attempt); d == 0 {
		t.Error("the next refusal does not wait")
	}
	r.taken(attempt)
	if d := r.refused(now, attempt); d != 0 {
		t.Errorf("after it was taken it waits %v", d)
	}
	for i := range 3 * mostKept {
		r.refused(now, []string{fmt.Sprint(i)})
	}
	if n := len(r.young) + len(r.old); n > 2*mostKept {
		t.Errorf("%d messages are kept", n)
	}
}

// TestFewAreHeld lets those go at once that are too many to wait.
func TestFewAreHeld(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r returns
		began := time.Now()
		done := make(chan time.Duration, mostHeld+1)
		for range mostHeld + 1 {
			go func() { r.hold(context.Background(), time.Second); done <- time.Since(began) }()
		}
		atOnce := 0
		for range mostHeld + 1 {
			if <-done == 0 {
				atOnce++
			}
		}
		if atOnce != 1 || r.held.Load() != 0 {
			t.Errorf("%d are let go at once; %d wait", atOnce, r.held.Load())
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		r.hold(ctx, time.Hour)
	})
}

// A relay that has run for a year without a pause still knows how long commits take.
func TestCommitsOfAYear(t *testing.T) {
	var c commits
	now := time.Unix(1e9, 0)
	c.begin(now)
	for range 366 * 24 {
		next := now.Add(time.Hour)
		c.begin(next)
		c.end(now, time.Millisecond)
		now = next
	}
	for range 1000 {
		c.begin(now)
	}
	if d := c.latency(now.Add(time.Second)); d != time.Second {
		t.Errorf("commits that began a second ago take %v", d)
	}
}
