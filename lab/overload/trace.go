// Package simulate runs the production controller of package admission on a virtual clock: what is
// offered and what can be served comes from a trace. The same seed gives the same rows.
package overload

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/admission"
	"example.org/mta/internal/plot"
)

// InputError is what is wrong with a trace or an option.
type InputError = plot.InputError

// Kind is what an event of a trace sets.
type Kind string

const (
	RPS      Kind = "rps"      // submissions offered a second, to all nodes together
	Capacity Kind = "capacity" // submissions that all nodes together can serve a second
	Slots    Kind = "slots"    // in-flight slots of each node
	Nodes    Kind = "nodes"    // that share the offered submissions
	Mix      Kind = "mix"      // shares of tiers, as 0:10,3:60,4:30
	Tenants  Kind = "tenants"  // among whom all is divided evenly; 0: all cohorts are filled
	End      Kind = "end"      // of the simulation
)

var ranges = map[Kind]struct{ least, most float64 }{
	RPS: {0, 1e6}, Capacity: {0, 1e6}, Slots: {1, 1e5}, Nodes: {1, 100}, Tenants: {0, 1e6},
}

// Event is a line of a trace.
type Event struct {
	T     float64 // seconds
	Kind  Kind
	Value float64
	Mix   [admission.Tiers]float64
}

const (
	header     = "t,event,value"
	maxSeconds = 7 * 86_400
)

// ParseTrace reads a trace as CSV: t,event,value. Errors of the input are of type *InputError.
func ParseTrace(r io.Reader) (events []Event, err error) {
	err = plot.ReadTrace(r, header, func(line string) error {
		e, err := parseEvent(line)
		if n := len(events); err == nil && n > 0 && e.T < events[n-1].T {
			err = fmt.Errorf("t goes back from %v to %v: sort by time", events[n-1].T, e.T)
		}
		events = append(events, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return events, check(events)
}

// check looks for what a simulation can't do without.
func check(events []Event) error {
	if len(events) == 0 {
		return plot.Wrong("trace", "it has no events")
	}
	if events[len(events)-1].Kind != End {
		return plot.Wrong("trace", `the last event must be "end"`)
	}
	for _, k := range []Kind{RPS, Capacity} {
		if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == k }) {
			return plot.Wrong("trace", "no event sets %q", k)
		}
	}
	return nil
}

func parseEvent(text string) (Event, error) {
	f := strings.SplitN(text, ",", 3)
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	if len(f) == 2 && Kind(f[1]) == End {
		f = append(f, "")
	}
	if len(f) != 3 {
		return Event{}, fmt.Errorf("%d fields, want 3: %s", len(f), header)
	}
	t, err := strconv.ParseFloat(f[0], 64)
	if err != nil || !(t >= 0 && t <= maxSeconds) {
		return Event{}, fmt.Errorf("t is %q, want seconds from 0 to %d", f[0], maxSeconds)
	}
	e := Event{T: t, Kind: Kind(f[1])}
	switch e.Kind {
	case End:
		return e, nil
	case Mix:
		e.Mix, err = parseMix(f[2])
		return e, err
	}
	r, known := ranges[e.Kind]
	if !known {
		return Event{}, fmt.Errorf("event %q is not known; there are rps, capacity, slots, nodes, mix, tenants and end",
			f[1])
	}
	e.Value, err = strconv.ParseFloat(f[2], 64)
	if err != nil || !(e.Value >= r.least && e.Value <= r.most) {
		return Event{}, fmt.Errorf("value of %s is %q, want a number from %g to %g", e.Kind, f[2], r.least, r.most)
	}
	return e, nil
}

// parseMix reads shares of tiers, which are made to sum to 1.
func parseMix(text string) (mix [admission.Tiers]float64, err error) {
	sum := 0.
	for part := range strings.SplitSeq(strings.Trim(text, `"`), ",") {
		name, share, _ := strings.Cut(strings.TrimSpace(part), ":")
		tier, err1 := strconv.Atoi(name)
		v, err2 := strconv.ParseFloat(share, 64)
		if err1 != nil || err2 != nil || tier < 0 || tier >= admission.Tiers || !(v >= 0 && v <= 1e6) {
			return mix, fmt.Errorf("mix has %q, want TIER:SHARE as in 0:10,3:60,4:30", part)
		}
		mix[tier] += v
		sum += v
	}
	if sum == 0 {
		return mix, fmt.Errorf("shares of mix are all 0")
	}
	for i := range mix {
		mix[i] /= sum
	}
	return mix, nil
}
