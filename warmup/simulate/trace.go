package simulate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"example.org/mta/internal/plot"
)

// InputError is what is wrong with a plan, a trace or an option.
type InputError = plot.InputError

// IsInputError reports whether err is about the input, which is the caller's to mend.
func IsInputError(err error) bool { return errors.As(err, new(*InputError)) }

// Kind is what an event of a trace does.
type Kind string

const (
	Offer      Kind = "offer"     // value messages are there to be sent
	Defer      Kind = "defer"     // share of later sends that get a temporary failure
	Bounce     Kind = "bounce"    // share that bounces
	Complain   Kind = "complaint" // share of the delivered that complains
	Block      Kind = "block"     // 1: each attempt gets a policy refusal; 0: no longer
	Nodes      Kind = "nodes"     // that share the store
	Lag        Kind = "lag"       // seconds by which statistics are late
	StoreState Kind = "store"     // 1: can be reached; 0: can't
	Crash      Kind = "crash"     // that many nodes lose their memory
	End        Kind = "end"       // of the simulation
)

// Event is a line of a trace.
type Event struct {
	T        int64 // seconds since the warm-up began
	Kind     Kind
	Provider string // "": all
	Value    float64
}

const traceHeader = "t,event,provider,value"

const (
	daySeconds = 86_400
	maxSeconds = 10 * 365 * daySeconds // a simulation of ten years
)

// ParseTrace reads a trace as CSV. Errors that are not of reading are of type *InputError.
func ParseTrace(r io.Reader) (events []Event, err error) {
	err = plot.ReadTrace(r, traceHeader, func(line string) error {
		e, err := parseEvent(line)
		if n := len(events); err == nil && n > 0 && e.T < events[n-1].T {
			err = fmt.Errorf("t goes back from %d to %d: sort by time", events[n-1].T, e.T)
		}
		events = append(events, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}

func parseEvent(text string) (Event, error) {
	f := strings.Split(text, ",")
	if len(f) != 4 {
		return Event{}, fmt.Errorf("%d fields, want 4: %s", len(f), traceHeader)
	}
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	t, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil || t < 0 || t > maxSeconds {
		return Event{}, fmt.Errorf("t is %q, want whole seconds from 0", f[0])
	}
	e := Event{T: t, Kind: Kind(f[1]), Provider: f[2]}
	if e.Provider == "*" {
		e.Provider = ""
	}
	if e.Kind == End && f[3] == "" {
		return e, nil
	}
	e.Value, err = strconv.ParseFloat(f[3], 64)
	if err != nil {
		return Event{}, fmt.Errorf("value is %q, want a number", f[3])
	}
	return e, e.check()
}

// values are those that an event can have.
var values = map[Kind]struct {
	least, most float64
	part        bool // it needn't be whole
}{
	Offer: {0, 1e9, false}, Nodes: {1, 1000, false}, Crash: {0, 1000, false}, Block: {0, 1, false},
	StoreState: {0, 1, false},
	Defer:      {0, 1, true}, Bounce: {0, 1, true}, Complain: {0, 1, true}, Lag: {0, daySeconds, true},
	End: {math.Inf(-1), math.Inf(1), true},
}

func (e *Event) check() error {
	v, ok := values[e.Kind]
	switch {
	case !ok:
		return fmt.Errorf("event %q is not known", e.Kind)
	case !(e.Value >= v.least && e.Value <= v.most):
		return fmt.Errorf("value of %s is %v, outside %v to %v", e.Kind, e.Value, v.least, v.most)
	case !v.part && e.Value != math.Trunc(e.Value):
		return fmt.Errorf("value of %s is %v, want a whole number", e.Kind, e.Value)
	}
	return nil
}
