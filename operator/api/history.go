package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Histories is what the server asks of the figures that the relay keeps of the last two weeks.
type Histories interface {
	// History gives what is kept of one subject over a span; NotFound when nothing is.
	History(context.Context, HistoryQuery) (History, error)
	// HistoryNames gives the subjects of a kind with their latest figures, the busiest first and OtherSubjects last.
	HistoryNames(context.Context, Subject) (HistoryNames, error)
}

// Subject is a kind of thing of which figures are kept.
type Subject string

// The kinds.
const (
	OfRelay    Subject = "relay" // there is one, without a name
	OfProvider Subject = "provider"
	OfSource   Subject = "source"
	OfSite     Subject = "site"
	OfTenant   Subject = "tenant"
)

// Subjects are all of them.
var Subjects = []Subject{OfRelay, OfProvider, OfSource, OfSite, OfTenant}

// OtherSubjects is the name of all subjects of a kind that have no figures kept by themselves.
const OtherSubjects = "other"

// Span is how far back a history goes, and with it how far apart its values are.
type Span string

// The spans.
const (
	Last15Minutes Span = "15m" // a value for each 2 s
	Last12Hours   Span = "12h" // for each 30 s
	Last14Days    Span = "14d" // for each 10 min; the only one that outlives a restart
)

// Spans are all of them.
var Spans = []Span{Last15Minutes, Last12Hours, Last14Days}

// HistoryQuery names a history.
type HistoryQuery struct {
	Of Subject `q:"of" default:"relay" help:"the kind of subject"`
	// Name is that of the provider, source, site or tenant; "" of the relay.
	Name string `q:"name" help:"of the provider, source, site or tenant; other: all those that have no history by themselves"`
	Span Span   `q:"span" default:"15m" help:"the <span>: 15m (a value for each 2 s), 12h (30 s) or 14d (10 min)"`
}

// Check refuses a name for the relay.
func (q *HistoryQuery) Check() error {
	if q.Of == OfRelay && q.Name != "" {
		return Invalid("", "name: the history of the relay has none, not %q", q.Name)
	}
	return nil
}

type historyNamesQuery struct {
	Of Subject `q:"of" default:"relay" help:"the kind of subject"`
}

// History is what is kept of one subject over a span.
type History struct {
	Of    Subject   `json:"of"`           // the kind of subject
	Name  string    `json:"name"`         // of the subject; empty for the relay
	Span  Span      `json:"span"`         // how far back it goes
	Step  float64   `json:"step_seconds"` // the time between two values
	Start time.Time `json:"start"`        // the beginning of the step that the first values are for

	// by the name of the figure; all have the same number of values
	Series map[string]HistorySeries `json:"series"`
}

// HistorySeries is a figure over time.
type HistorySeries struct {
	Unit   string  `json:"unit"`   // recipients/s, recipients, seconds, connections, bytes and the like
	Values Figures `json:"values"` // one for each step, the oldest first, to three digits; null: not known
}

// HistoryNames are the subjects of a kind.
type HistoryNames struct {
	Of Subject `json:"of"` // the kind of subject
	// the busiest first; other, which is all that have no history by themselves, last
	Rows []HistoryRow `json:"rows"`
}

// HistoryRow is a subject with its latest figures: those per second over the last minute, the others as they are
// now. A figure that nothing is known of is null.
type HistoryRow struct {
	Name string `json:"name"` // of the subject
	// by the name of the figure: rates over the last minute, the others as they are now; null: not known
	Latest map[string]Figure `json:"latest"`
}

// Figure is a number that may be unknown: NaN here, null in JSON.
type Figure float64

// UnknownFigure is one that nothing is known of.
func UnknownFigure() Figure { return Figure(math.NaN()) }

// Known reports whether it is known.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) }

// MarshalJSON implements json.Marshaler. Figures are kept with three digits, so that five are enough.
func (f Figure) MarshalJSON() ([]byte, error) { return f.append(nil), nil }

func (f Figure) append(b []byte) []byte {
	if !f.Known() {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, float64(f), 'g', 5, 64)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Figure) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*f = UnknownFigure()
		return nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if *f = Figure(v); err != nil {
		return fmt.Errorf("a figure: %w", err)
	}
	return nil
}

// Figures are numbers one after the other.
type Figures []Figure

// MarshalJSON implements json.Marshaler: that of a slice would cost an allocation for each figure.
func (f Figures) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 8*len(f)+2), '[')
	for i, v := range f {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.append(b)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler, for the same reason.
func (f *Figures) UnmarshalJSON(b []byte) error {
	if *f = nil; string(b) == "null" {
		return nil
	}
	inner, opened := bytes.CutPrefix(b, []byte("["))
	inner, closed := bytes.CutSuffix(inner, []byte("]"))
	if !opened || !closed {
		return errors.New("figures: want an array of numbers")
	}
	if inner = bytes.TrimSpace(inner); len(inner) == 0 {
		*f = Figures{}
		return nil
	}
	*f = make(Figures, 0, bytes.Count(inner, []byte(","))+1)
	for word := range bytes.SplitSeq(inner, []byte(",")) {
		var v Figure
		if err := v.UnmarshalJSON(bytes.TrimSpace(word)); err != nil {
			return err
		}
		*f = append(*f, v)
	}
	return nil
}

// History gives what is kept of one subject over a span.
func (c *Client) History(ctx context.Context, q HistoryQuery) (History, error) {
	return opHistory.call(ctx, c, q)
}

// HistoryNames gives the subjects of a kind with their latest figures, the busiest first and OtherSubjects last.
func (c *Client) HistoryNames(ctx context.Context, of Subject) (HistoryNames, error) {
	return opHistoryNames.call(ctx, c, historyNamesQuery{of})
}
