package overload

import (
	"math"

	"example.org/mta/admission"
	"example.org/mta/internal/plot"
)

// Modes are the names of the laws.
var Modes = []string{"utilisation", "pid", "codel", "none"}

// LawOf returns what makes the law of a mode.
func LawOf(mode string) (func() admission.Law, error) {
	switch mode {
	case "utilisation":
		return func() admission.Law { return new(admission.Utilisation) }, nil
	case "pid":
		return func() admission.Law { return admission.Published() }, nil
	case "codel":
		return func() admission.Law { return new(codel) }, nil
	case "none":
		return func() admission.Law { return admission.None{} }, nil
	}
	return nil, plot.Wrong("options", "mode %s is not known; there are %s", mode, list(Modes))
}

func list(names []string) (text string) {
	for i, n := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			text += " and "
		default:
			text += ", "
		}
		text += n
	}
	return text
}

// codel refuses as CoDel drops (RFC 8289): while the line stays too long, more with the square root
// of the time for which it has been; nothing as soon as it is short. It is here to be compared with.
type codel struct{ long int }

func (c *codel) Share(l admission.Load) float64 {
	if float64(l.Waiting) <= max(1, l.Limit/10) {
		c.long = 0
		return 0
	}
	c.long++
	return min(.1*math.Sqrt(float64(c.long)), .98)
}
