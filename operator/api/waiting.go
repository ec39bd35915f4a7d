package api

import (
	"fmt"
	"strconv"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/internal/parking"
)

// Waiting is why queued mail waits. Recipients on a connection do not wait. It is counted every five seconds at most.
type Waiting struct {
	Recipients int        `json:"recipients"` // that wait
	Reasons    []WaitsFor `json:"reasons"`    // most recipients first
	Leave      float64    `json:"leave"`      // recipients that hosts take a second, over the last minute
	// seconds that half of what hosts took of late had waited for; null: not known
	Median Figure `json:"median"`
}

// WaitsFor is recipients that wait for one class of reason.
type WaitsFor struct {
	Reason     parking.Reason `json:"reason"`     // the class
	Recipients int            `json:"recipients"` // that wait for it
	// the providers, other sites or domains, limits, pools or pauses that they wait for
	Places  int       `json:"places"`
	Place   string    `json:"place,omitempty"` // the one with the most of them
	AtPlace int       `json:"at_place"`        // how many wait for that one
	Since   time.Time `json:"since,omitzero"`  // since when nothing leaves to it, where that is known
}

// Worst counts the recipients that wait for more than their turn.
func Worst(list []WaitsFor) (n int) {
	for _, w := range list {
		if w.Reason != parking.Turn {
			n += w.Recipients
		}
	}
	return n
}

// shownReasons is how many reasons are named on a line.
const shownReasons = 3

// Line gives the whole on one line: "192,931 wait: 134,000 for unreachable hosts (mx.d290.example, for 38m), ...".
func (w *Waiting) Line(now time.Time) string {
	text := "nothing waits"
	if w.Recipients > 0 {
		text = number(w.Recipients) + " wait: "
	}
	rest := 0
	for i := range w.Reasons {
		r := &w.Reasons[i]
		if i >= shownReasons {
			rest += r.Recipients
			continue
		}
		if i > 0 {
			text += ", "
		}
		text += r.Line(now)
	}
	if rest > 0 {
		text += ", " + number(rest) + " for others"
	}
	if text += "; " + legible.Rate(w.Leave) + "/s leave"; w.Leave > 0 && w.Median.Known() {
		text += ", half of them after " + legible.Age(time.Duration(float64(w.Median)*float64(time.Second)))
	}
	return text
}

// Line gives it in words: "134,000 for unreachable hosts (mx.d290.example, for 38m)".
func (r *WaitsFor) Line(now time.Time) string {
	text, at := number(r.Recipients)+" for "+r.Reason.Phrase(), r.Place
	switch {
	case at == "" || at == r.Reason.Phrase():
		return text
	case r.AtPlace*2 < r.Recipients:
		return text + fmt.Sprintf(" (%s)", legible.Count(r.Places, "place"))
	case r.Places > 1:
		at = number(r.AtPlace) + ": " + at
	}
	if !r.Since.IsZero() {
		at += ", for " + legible.Age(max(now.Sub(r.Since), 0))
	}
	return text + " (" + at + ")"
}

// number gives a number with commas between its thousands.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
