package listing

import (
	"fmt"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
)

type stream = api.Stream

// Streams lists the streams of events.
var Streams = Listing[stream]{
	Name: "streams",
	Columns: []Column[stream]{
		{Title: "STREAM", Shrink: true, Cell: func(s *stream) Cell { return Word(s.Name) }},
		{Title: "STATE", Cell: func(s *stream) Cell { return State(s.State) }},
		{Title: "LAG", Right: true, Cell: func(s *stream) Cell { return Count(s.LagEvents) }},
		{Title: "BYTES", Right: true, Cell: func(s *stream) Cell { return Size(s.LagBytes) }},
		{Title: "FOR", Right: true, Cell: func(s *stream) Cell { return Lag(s) }},
		{Title: "PER S", Right: true,
			Cell: func(s *stream) Cell { return figure(fmt.Sprintf("%.1f", s.Rate), s.Rate) }},
		{Title: "DELIVERED", Right: true, Cell: func(s *stream) Cell { return Count(s.Delivered) }},
		{Title: "REFUSED", Right: true, Cell: func(s *stream) Cell { return Count(s.Refused) }},
		{Title: "LOST", Right: true, Cell: func(s *stream) Cell { return Lost(s) }},
	},
	NoteTitle: "LAST ERROR",
	Note: func(s *stream, l Look) string {
		if s.LastError == "" {
			return ""
		}
		return legible.Age(l.Now.Sub(s.ErrorAt)) + " ago: " + s.LastError
	},
	Key: func(s *stream) string { return s.Name },
}

// Lag is how long the oldest event has waited.
func Lag(s *stream) Cell {
	if s.LagEvents == 0 {
		return Unknown()
	}
	return figure(legible.Age(time.Duration(s.LagSeconds*float64(time.Second))), s.LagSeconds)
}

// Lost counts the events that a stream has lost: at least so many, if files were deleted that nobody had counted.
func Lost(s *stream) Cell {
	switch {
	case s.Uncounted == 0:
		return Count(s.Lost)
	case s.Lost == 0:
		return Word("unknown")
	}
	return figure(fmt.Sprintf("%d+", s.Lost), float64(s.Lost))
}
