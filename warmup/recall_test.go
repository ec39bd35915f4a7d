package warmup

import "testing"

func TestRestoredCountsTheHourAsFull(t *testing.T) {
	p := planOf(100, 400)
	s := NewState(p, 0)
	i := s.Provider(p, "google")
	s.Advance(p, 600_000)
	s.Count(&s.Providers[i], 30)
	back, err := Restored(s.Append(nil), 660_000)
	if err != nil {
		t.Fatal(err)
	}
	back.Advance(p, 660_000)
	if back.Total.Hour != 100 || back.Total.Day != 100 || back.Total.Sliding != 100 || back.Grant(p, 0, 10, 0) != 0 {
		t.Errorf("hour %d, day %d, 60 minutes %d; want 100 each", back.Total.Hour, back.Total.Day, back.Total.Sliding)
	}
	back.Advance(p, 2*3_600_000)
	if back.Total.Hour != 0 || back.Total.Day != 100 {
		t.Errorf("an hour later: hour %d, day %d; want 0 and 100", back.Total.Hour, back.Total.Day)
	}
	// A copy from a clock that was ahead is as good.
	if ahead, err := Restored(s.Append(nil), 300_000); err != nil || ahead.Now != 300_000 || ahead.Begin != -300_000 {
		t.Errorf("now %d, begun %d, %v", ahead.Now, ahead.Begin, err)
	}
}

func TestProvenStages(t *testing.T) {
	p := threeStages() // 1,000, 2,000 and 4,000 a day; it starts at the second
	for _, c := range []struct {
		most  int64
		stage int
	}{{0, 2}, {1500, 2}, {2000, 2}, {2001, 3}, {1 << 40, 3}} {
		s := Proven(p, 0, c.most)
		s.Advance(p, 1000)
		if s.Stage+1 != c.stage || s.left() != 0 {
			t.Errorf("%d in a day: stage %d with %d left, want %d with none", c.most, s.Stage+1, s.left(), c.stage)
		}
		if s.Advance(p, p.day()+60_000); s.left() == 0 {
			t.Errorf("%d in a day: nothing left a day later", c.most)
		}
	}
}

func TestCopyOfWhatChanged(t *testing.T) {
	c := New(Config{Node: "a"})
	if value, version := c.Copy("ip", 0); value != nil || version != 0 {
		t.Errorf("an unknown address: %d octets, version %d", len(value), version)
	}
}
