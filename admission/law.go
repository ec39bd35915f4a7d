package admission

import (
	"math"
	"time"
)

// Period is how often the threshold is computed anew.
const Period = 500 * time.Millisecond

// most is the largest share that is refused: some must pass for the controller to see what can be served.
const most = 0.98

// Load is what one period saw.
type Load struct {
	Offered int     // submissions that asked to be admitted
	In      int     // admitted ones that asked for a slot
	Out     int     // those that got one
	Done    int     // those that gave one back
	Busy    float64 // slots in use, the average over the period
	Waiting int     // for a slot, at the period's end
	Free    int     // slots, at the period's end
	Limit   float64 // how many slots there are
	Starved bool    // CPU is what lacks: what is done is all that can be, however many slots are free
}

// Law computes the share of submissions to refuse, 0 to 1, from the load of the last period.
type Law interface {
	Share(Load) float64
}

// None is the controller that refuses nothing.
type None struct{}

// Share returns 0.
func (None) Share(Load) float64 { return 0 }

// Utilisation is the default controller. Little's formula gives the capacity, also where there is no overload:
// what leaves the slots divided by the part of them that is busy. What is offered above that is
// refused, and a little more or less as the line of those who wait is longer or shorter than it
// should be.
//
// Where little is offered a period says little. The controller then looks at as many periods as have
// enough of it, and moves by smaller steps.
type Utilisation struct {
	// Line is how much work should wait in overload, so that no slot is ever empty; 50 ms when 0.
	Line time.Duration

	window   []Load
	capacity float64 // submissions in a period; 0 while nothing is known
	offered  float64 // in a period, smoothed
	done     float64 // in a period while CPU lacks, smoothed
}

const (
	enough          = 60 // offered submissions that make a measurement
	longest         = 20 // periods in a window
	leastBusy       = .05
	learning        = .2 // how fast the estimate of the capacity follows
	learningStarved = .4
	probing         = 1.03 // times the capacity, in a period without a line
	mostCapacity    = 1e6
	draining        = .1 // the part of a line that is too long or too short that is repaired in a window
	smoothing       = .2
	surprise        = 4 // standard deviations of what is offered that are not chance
	defaultLine     = 50 * time.Millisecond
)

// Share implements Law.
func (u *Utilisation) Share(l Load) float64 {
	n, w := u.look(l)
	line := u.Line
	if line == 0 {
		line = defaultLine
	}
	// The limit can have fallen below what is still under way.
	if busy := min(w.Busy/max(w.Limit, 1), 1); l.Starved {
		done := float64(w.Done) / n
		u.starve(done, float64(l.Waiting) > done*line.Seconds()/Period.Seconds())
	} else if busy >= leastBusy {
		estimate := float64(w.Done) / n / busy
		if u.capacity == 0 {
			u.capacity = estimate
		}
		u.capacity += learning * busy / n * (estimate - u.capacity)
	}
	u.follow(float64(w.Offered)/n, float64(l.Offered))
	if u.offered == 0 || u.capacity == 0 {
		return 0
	}
	aim := max(1, u.capacity*line.Seconds()/Period.Seconds())
	room := u.capacity - min(draining/n*(float64(l.Waiting)-aim), u.capacity/4) // the line has the least important last
	return min(max(1-room/u.offered, 0), most)
}

// look returns the sums of the last periods that hold enough, Busy and Limit as averages, and how
// many periods these are.
func (u *Utilisation) look(l Load) (n float64, sum Load) {
	if len(u.window) == longest {
		copy(u.window, u.window[1:])
		u.window = u.window[:longest-1]
	}
	u.window = append(u.window, l)
	for i := len(u.window) - 1; i >= 0 && sum.Offered < enough; i-- {
		p := u.window[i]
		sum.Offered += p.Offered
		sum.Done += p.Done
		sum.Busy += p.Busy
		sum.Limit += p.Limit
		n++
	}
	sum.Busy, sum.Limit = sum.Busy/n, sum.Limit/n
	return n, sum
}

// starve learns the capacity while CPU is what lacks. Free slots prove nothing then. If more waits in line than should,
// what was done is all that could be. Without that, more could be: the more there is to do, the less each takes, so CPU
// that is used up is not an overload.
func (u *Utilisation) starve(done float64, waits bool) {
	if u.done == 0 {
		u.done = done
	}
	if u.capacity == 0 {
		u.capacity = mostCapacity // nothing is known
	}
	u.done += smoothing * (done - u.done)
	u.capacity = max(u.capacity, u.done)
	if !waits {
		u.capacity = min(u.capacity*probing, mostCapacity)
		return
	}
	u.capacity = min(u.capacity, 2*u.done)
	u.capacity += learningStarved * (u.done - u.capacity)
}

// follow smooths what is offered, and follows at once what chance does not explain.
func (u *Utilisation) follow(average, last float64) {
	if math.Abs(last-u.offered) > surprise*math.Sqrt(max(u.offered, 1)) {
		u.offered = last
		return
	}
	u.offered += smoothing * (average - u.offered)
}

// PID is the controller that Cinnamon's authors published: (in - out - free) / out, proportional and
// integrated over the last 30 seconds. They do not state the unit of the integral; here it is
// seconds. With their gains it moves between refusing everything and nothing once twice the
// capacity is offered; it is here to be compared with.
type PID struct {
	Kp, Ki float64

	history []float64
}

// Published returns the controller with the published gains.
func Published() *PID { return &PID{Kp: .1, Ki: 1.4} }

const remembered = int(30 * time.Second / Period)

// Share implements Law.
func (c *PID) Share(l Load) float64 {
	p := target(l)
	if len(c.history) == remembered {
		copy(c.history, c.history[1:])
		c.history = c.history[:remembered-1]
	}
	c.history = append(c.history, p)
	sum := 0.
	for _, v := range c.history {
		sum += v
	}
	return min(max(c.Kp*p+c.Ki*sum*Period.Seconds(), 0), 1)
}

// target is the published target function.
func target(l Load) float64 {
	out := float64(l.Out)
	if l.Out == 0 {
		out = l.Limit
	}
	return (float64(l.In) - float64(l.Out) - float64(l.Free)) / max(out, 1)
}
