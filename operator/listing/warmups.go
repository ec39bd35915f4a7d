package listing

import (
	"fmt"

	"example.org/mta/operator/api"
)

type warming = api.Warmup

// Warmups lists the sources that have a plan.
var Warmups = Listing[warming]{
	Name:  "warm-ups",
	Noun:  "source",
	Empty: "give it a plan where a pool dedicates it",
	Columns: []Column[warming]{
		{Title: "SOURCE", Shrink: true, Cell: func(w *warming) Cell { return Name(ToWarmup, w.Source) }},
		{Title: "IP", Spare: 5, Cell: func(w *warming) Cell { return Word(w.IP) }},
		{Title: "PLAN", Shrink: true, Spare: 6, Cell: func(w *warming) Cell { return Word(w.Plan) }},
		{Title: "STATE", Cell: func(w *warming) Cell { return State(w.State) }},
		{Title: "STAGE", Right: true, Cell: func(w *warming) Cell { return known(w, Of(w.Stage, w.TotalStages)) }},
		{Title: "HOUR", Right: true, Spare: 2,
			Cell: func(w *warming) Cell { return OfCap(w, w.SentHour, w.HourlyLimit) }},
		{Title: "DAY", Right: true, Cell: func(w *warming) Cell { return OfCap(w, w.SentDay, w.StageLimit) }},
		{Title: "THROTTLE", Right: true, Spare: 3, Cell: Throttle},
		{Title: "DIVERTED", Right: true, In: Console, Cell: func(w *warming) Cell { return Count(w.Diverted.Sum()) }},
	},
	NoteTitle: "OUTLOOK",
	Note:      func(w *warming, _ Look) string { return Outlook(w) },
	Key:       func(w *warming) string { return w.Source },
}

// known is a cell of a warm-up whose ledger could be read.
func known(w *warming, c Cell) Cell {
	if w.Stage == 0 {
		return Unknown()
	}
	return c
}

// OfCap is a count beside the plan's cap for it.
func OfCap(w *warming, sent, limit int64) Cell {
	if w.State == api.WarmupWarm {
		limit = 0
	}
	return known(w, OfLimit(sent, limit))
}

// Throttle is the share of the mail that takes the source: a small one isn't written as none.
func Throttle(w *warming) Cell {
	text := fmt.Sprintf("%.2f", w.Throttle)
	if w.Throttle > 0 && w.Throttle < 0.01 {
		text = "<0.01"
	}
	return known(w, figure(text, w.Throttle))
}

// Outlook is what the day would do to the stage, after what pauses the source.
func Outlook(w *warming) string {
	return Join(w.Paused, Because(w.Outlook, w.OutlookProvider), w.Advice)
}

// Because is what a day does to a stage, and on account of which provider.
func Because(why, provider string) string {
	if provider == "" {
		return why
	}
	return why + " (" + provider + ")"
}
