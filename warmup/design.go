package warmup

import (
	"fmt"
	"math"
)

// How fast a plan may grow that is made from a volume and a day.
const (
	firstDay  = 250. // what an address that nobody knows may send, as in "standard"
	slowest   = 1.2  // growth a day: a slower one earns nothing more
	usual     = 1.6  // that of "standard"
	steepest  = 2.
	spareDays = .2 // of the days, for those that hold a stage
)

// Ramp is a plan's stages on the way to the last, and how it came to them.
type Ramp struct {
	Stages []Stage // an eighth of the day in any hour
	Growth float64 // a day
	Spare  int     // days that are left for those that hold a stage
	Steep  bool    // there are too few days to grow as usual
}

// NewRamp finds how a volume a day is reached on the last of so many days: with days to spare where there are
// enough, neither slower nor faster than is of use. The error says how many days it takes at least.
func NewRamp(volume int64, days int) (*Ramp, error) {
	first := min(firstDay, float64(volume))
	ratio := float64(volume) / first
	stages := func(growth float64) int { return 1 + int(math.Ceil(math.Log(ratio)/math.Log(growth)-1e-9)) }
	n := min(max(int(math.Floor(float64(days)*(1-spareDays))), stages(usual)), stages(slowest), days)
	if least := stages(steepest); n < least {
		return nil, &TooFewDays{Days: days, Least: least}
	}
	r := &Ramp{Growth: 1, Spare: days - n, Steep: n < stages(usual)}
	if n > 1 {
		r.Growth = math.Pow(ratio, 1/float64(n-1))
	}
	r.Stages = growing(n, func(day float64) float64 { return first * math.Pow(r.Growth, day) })
	return r, nil
}

// TooFewDays is the error of a ramp that would be too steep.
type TooFewDays struct{ Days, Least int }

// Error implements error.
func (e *TooFewDays) Error() string {
	return fmt.Sprintf("it takes %d days at least, twice as much on each as on the one before, and there are %d", e.Least, e.Days)
}
