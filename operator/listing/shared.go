package listing

import (
	"fmt"

	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
)

// tally are the columns of what was counted since the start of the relay. What expired has bounced, too.
func tally[T any](in Face, of func(*T) *api.Tally) []Column[T] {
	return []Column[T]{
		{Title: "DELIVERED", Right: true, In: in, Cell: func(x *T) Cell { return Count(of(x).Delivered) }},
		{Title: "DEFERRALS", Right: true, In: in, Cell: func(x *T) Cell { return Count(of(x).Deferred) }},
		{Title: "BOUNCED", Right: true, In: in, Cell: func(x *T) Cell { return Count(of(x).Bounced + of(x).Expired) }},
	}
}

// load are the columns of what delivery has in hand, in transactions.
func load[T any](in Face, of func(*T) *api.Load) []Column[T] {
	return []Column[T]{
		{Title: "CONNS", Right: true, Spare: 3, Cell: func(x *T) Cell { return Count(of(x).Connections) }},
		{Title: "READY", Right: true, Spare: 4, In: in, Cell: func(x *T) Cell { return Count(of(x).Waiting) }},
		{Title: "RUNNING", Right: true, Spare: 7, In: in, Cell: func(x *T) Cell { return Count(of(x).Running) }},
	}
}

// waits is the column of what mail waits for but its turn: the commonest reason, in the order of all of that.
func waits[T any](spare int, of func(*T) []api.WaitsFor) Column[T] {
	return Column[T]{Title: "WAITS FOR", Right: true, Spare: spare, Cell: func(x *T) Cell {
		for _, w := range of(x) {
			if w.Reason != parking.Turn {
				return figure(fmt.Sprintf("%v: %d", w.Reason, w.Recipients), float64(api.Worst(of(x))))
			}
		}
		return Unknown()
	}}
}

// rate is a column of figures that the history keeps: the sum of some series.
func rate[T any](title string, spare int, series ...string) Column[T] {
	return Column[T]{Title: title, Right: true, Spare: spare, In: Top,
		At: func(_ *T, l Look) Cell { return l.rate(series...) }}
}
