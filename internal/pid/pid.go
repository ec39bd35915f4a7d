// Package pid is a PID controller with bias as arithmetic: it has no clock, no lock and no
// goroutine. Its coefficients and its use for sending volumes come from Mailgun's account of
// its IP warm-up (2019): the process variable is the number of messages sent, the set point is
// the cap, and the output is the probability that the next message takes the warming IP.
//
// The published law does what it promises only near the plant it was tuned on; docs/warmup.md
// shows where. It is here to be compared with.
package pid

// Coefficients weigh the terms. The unit of Ki and Kd follows from the unit of dt that Step is
// given: a controller visited at another pace is another controller.
type Coefficients struct {
	P, I, D, Bias float64
}

// Published are the coefficients as published, for dt in milliseconds and a cap of 350.
var Published = Coefficients{P: .42, I: 1e-6, D: 1.2, Bias: .1}

// State is what a controller remembers from step to step. The zero State is a controller that
// has not run yet. It is plain data: whoever locks an IP, steps it and saves it, must save this
// along, or the next one starts with a wrong derivative and no integral.
type State struct {
	Integral float64 // sum of error*dt
	Error    float64 // of the step before; 0 before the first, as published
}

// Step gives the control variable u for an error seen dt after the step before, and the state to
// save. dt must be above 0.
func (c Coefficients) Step(s State, err, dt float64) (u float64, next State) {
	next = State{Integral: s.Integral + err*dt, Error: err}
	return c.P*err + c.I*next.Integral + c.D*(err-s.Error)/dt + c.Bias, next
}

// Probability makes a probability of u, which the published coefficients place in about [0, 100].
func Probability(u float64) float64 {
	return min(max(u/100, 0), 1)
}
