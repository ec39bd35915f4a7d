package warmup

import (
	"errors"
	"testing"
)

// TestRamps: a volume is reached in time, with days to spare and at a growth that providers bear, or not at
// all.
func TestRamps(t *testing.T) {
	for _, x := range []struct {
		volume        int64
		days          int
		stages, spare int
		steep         bool
	}{
		{20_000, 99, 26, 73, false}, // no slower than x1.2
		{20_000, 25, 20, 5, false},  // a fifth to spare
		{20_000, 12, 11, 1, false},  // no faster than x1.6 while there are days
		{20_000, 11, 11, 0, false},
		{20_000, 9, 9, 0, true},
		{20_000, 8, 8, 0, true},
		{20_000, 7, 0, 0, false},
		{200, 1, 1, 0, false},
		{250, 30, 1, 29, false},
		{1_000_000_000, 200, 85, 115, false},
		{20_000, 0, 0, 0, false},
	} {
		r, err := NewRamp(x.volume, x.days)
		if x.stages == 0 {
			if few := (*TooFewDays)(nil); !errors.As(err, &few) || few.Least != 8 {
				t.Errorf("%d in %d days: %+v, %v", x.volume, x.days, r, err)
			}
			continue
		}
		if err != nil || len(r.Stages) != x.stages || r.Spare != x.spare || r.Steep != x.steep {
			t.Errorf("%d in %d days: %+v, %v; want %d stages, %d days to spare", x.volume, x.days, r, err, x.stages, x.spare)
			continue
		}
		if last := r.Stages[len(r.Stages)-1].Daily; last != x.volume || r.Growth > 2 {
			t.Errorf("%d in %d days: ends with %d, growing by %v", x.volume, x.days, last, r.Growth)
		}
		p := DefaultPlan()
		if p.Stages = r.Stages; p.Check() != nil {
			t.Errorf("%d in %d days: %v", x.volume, x.days, p.Check())
		}
	}
}
