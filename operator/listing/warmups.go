package listing

import (
	"fmt"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
	"example.org/mta/warmup"
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
			Cell: func(w *warming) Cell { return ofCap(w, w.SentHour, w.HourlyLimit) }},
		{Title: "DAY", Right: true, Cell: func(w *warming) Cell { return ofCap(w, w.SentDay, w.StageLimit) }},
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

// ofCap is a count beside the plan's cap for it.
func ofCap(w *warming, sent, limit int64) Cell {
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

// WarmupProvider is a provider of a warm-up.
type WarmupProvider struct {
	of *warming
	*warmup.ProviderStatus
}

// ProvidersOf are the rows of a warm-up.
func ProvidersOf(w *api.Warmup) (rows []WarmupProvider) {
	for i := range w.Providers {
		rows = append(rows, WarmupProvider{w, &w.Providers[i]})
	}
	return rows
}

// WarmupProviders lists the providers to which a source has sent in its warm-up.
var WarmupProviders = Listing[WarmupProvider]{
	Name: "providers",
	Columns: []Column[WarmupProvider]{
		{Title: "PROVIDER", Shrink: true, Cell: func(p *WarmupProvider) Cell { return Word(p.Provider) }},
		{Title: "STATE", In: Console, Cell: func(p *WarmupProvider) Cell { return State(p.State) }},
		{Title: "HOUR", Right: true, Cell: func(p *WarmupProvider) Cell {
			return ofCap(p.of, p.SentHour, p.HourlyLimit)
		}},
		{Title: "DAY", Right: true, Cell: func(p *WarmupProvider) Cell { return ofCap(p.of, p.SentDay, p.DailyLimit) }},
		{Title: "RATE/s", Right: true, Cell: func(p *WarmupProvider) Cell { return KnownRate(p.Rate) }},
		{Title: "DEMAND/s", Right: true, Cell: func(p *WarmupProvider) Cell { return KnownRate(p.Demand) }},
		{Title: "WAITING", Right: true, Cell: func(p *WarmupProvider) Cell { return Count(p.Waiting) }},
		{Title: "NEXT TOKEN", In: Console, At: func(p *WarmupProvider, l Look) Cell { return l.until(p.NextToken) }},
	},
	NoteTitle: "STATE",
	Note:      providerNote,
	Key:       func(p *WarmupProvider) string { return p.Provider },
}

// providerNote is what is unusual about a provider.
func providerNote(p *WarmupProvider, l Look) string {
	var state, network, refused, stage, factor string
	if p.State != "normal" {
		state = p.State + l.More(p.Until)
	}
	if p.Network != "" {
		network = "it blocks another source in " + p.Network
	}
	if p.Refused > 0 {
		refused = legible.Count(int(p.Refused), "refusal") + " by policy"
	}
	if p.Stage > 0 {
		stage = fmt.Sprintf("it is on stage %d by itself", p.Stage)
	}
	if p.Factor < 1 {
		factor = fmt.Sprintf("its caps are %.3g %% of the stage's after a bad day", 100*p.Factor)
	}
	return Join(state, network, refused, stage, factor)
}
