package web

import (
	"encoding/json"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
)

// Plot is curves over time, for {{template "plot" .}}: they are drawn by the page's script, and stand in a
// sentence and a table, too.
type Plot struct {
	ID       string // on the page
	Title    string
	Unit     string // of the values, as "/s"; "B" is octets, "s" seconds
	Sentence string // what the curves say; "" is made from the newest values
	Start    time.Time
	Step     time.Duration
	Series   []Series
	Stacked  bool // areas on each other
	Log      bool // logarithmic
}

// Series is a curve.
type Series struct {
	Name   string
	Values []float64 // NaN: not known
}

// Empty reports whether there is nothing to draw.
func (p Plot) Empty() bool {
	return !slices.ContainsFunc(p.Series, func(s Series) bool { return !math.IsNaN(most(s.Values)) })
}

// JSON is what the script draws.
func (p Plot) JSON() (string, error) {
	type series struct {
		Name   string          `json:"name"`
		Values json.RawMessage `json:"values"`
	}
	out := struct {
		Start   int64    `json:"start"`
		Step    float64  `json:"step"`
		Unit    string   `json:"unit"`
		Stacked bool     `json:"stacked,omitempty"`
		Log     bool     `json:"log,omitempty"`
		Series  []series `json:"series"`
	}{p.Start.Unix(), p.Step.Seconds(), p.Unit, p.Stacked, p.Log, nil}
	for _, s := range p.Series {
		out.Series = append(out.Series, series{legible.Escaped(s.Name, maxTitle), numbers(s.Values, p.Log)})
	}
	text, err := json.Marshal(out)
	return string(text), err
}

// numbers writes values with four digits as an array of JSON, null where they are not known, or have no place on a
// logarithmic scale. By reflection each of them would cost two allocations.
func numbers(values []float64, log bool) []byte {
	b := append(make([]byte, 0, 8*len(values)+2), '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, v, 'g', 4, 64)
		}
	}
	return append(b, ']')
}

// Text gives the sentence of the plot.
func (p Plot) Text() string {
	if p.Sentence != "" {
		return p.Sentence
	}
	var parts []string
	for _, s := range p.Series {
		if now := last(s.Values); !math.IsNaN(now) {
			parts = append(parts, s.Name+" "+p.value(now)+" now, "+p.value(most(s.Values))+" at most")
		}
	}
	if len(parts) == 0 {
		return "Nothing was measured yet."
	}
	return "Over " + legible.Age(p.Step*time.Duration(p.points())) + ": " + strings.Join(parts, "; ") + "."
}

func (p Plot) points() (n int) {
	for _, s := range p.Series {
		n = max(n, len(s.Values))
	}
	return n
}

// last is the newest value that is known.
func last(values []float64) float64 {
	for i := len(values) - 1; i >= 0; i-- {
		if !math.IsNaN(values[i]) {
			return values[i]
		}
	}
	return math.NaN()
}

// most is the largest value that is known.
func most(values []float64) float64 {
	top := math.NaN()
	for _, v := range values {
		if math.IsNaN(top) || v > top {
			top = v
		}
	}
	return top
}

// value writes a value with the unit of the plot.
func (p Plot) value(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case p.Unit == "B":
		return legible.Size(int64(v))
	case p.Unit == "s":
		return seconds(v)
	case p.Unit == "":
		return count(int64(v + 0.5))
	}
	return legible.Rate(v) + p.Unit
}

// seconds writes a duration that may be short.
func seconds(v float64) string {
	if v < 1 {
		return strconv.FormatFloat(1000*v, 'f', 0, 64) + "ms"
	}
	if v < 10 {
		return strconv.FormatFloat(v, 'g', 3, 64) + "s"
	}
	return legible.Age(time.Duration(v * float64(time.Second)))
}

// plotRows is how many rows the table of a plot has at most.
const plotRows = 15

// PlotRow is a row of the table: the values at a time.
type PlotRow struct {
	At     template.HTML
	Values []string
}

// Rows thins the curves out for the table, the newest first. Rates are the means of what a row stands for.
func (p Plot) Rows() (rows []PlotRow) {
	n := p.points()
	if n == 0 {
		return nil
	}
	step := max(1, (n+plotRows-1)/plotRows)
	for i := n - 1; i >= 0; i -= step {
		row := PlotRow{At: clock(p.Start.Add(time.Duration(i) * p.Step))}
		for _, s := range p.Series {
			from, to := min(i, len(s.Values)), min(i+1, len(s.Values))
			if p.Unit == "/s" {
				from = max(0, min(i+1-step, to))
			}
			row.Values = append(row.Values, p.value(mean(s.Values[from:to])))
		}
		rows = append(rows, row)
	}
	return rows
}

// mean is that of the values that are known.
func mean(values []float64) float64 {
	sum, n := 0.0, 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	return sum / n
}

// history makes a plot of figures that the relay keeps: of those named, in this order, with the ones that it has.
// Names of figures become words: queued_deferred is "deferred".
func history(h api.History, id, title, unit string, figures ...string) Plot {
	p := Plot{ID: id, Title: title, Unit: unit, Start: h.Start, Step: time.Duration(h.Step * float64(time.Second))}
	for _, name := range figures {
		s, ok := h.Series[name]
		if !ok {
			continue
		}
		values := make([]float64, len(s.Values))
		for i, v := range s.Values {
			values[i] = float64(v)
		}
		p.Series = append(p.Series, Series{figureName(name), values})
	}
	return p
}

func figureName(name string) string {
	for _, prefix := range []string{"queued_", "delay_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest
		}
	}
	return strings.ReplaceAll(name, "_", " ")
}

// plotsOf are the curves of a subject; none if nothing is kept of it by itself.
func plotsOf(r *request, of api.Subject, name string, span api.Span) ([]Plot, error) {
	h, err := api.OpHistory.Call(r.ctx, r.relay, api.HistoryQuery{Of: of, Name: name, Span: span})
	switch {
	case api.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []Plot{history(h, "rates", "Recipients", "/s", "accepted", "delivered", "deferred", "bounced"),
		history(h, "delay", "Time to delivery", "s", "delay_p50", "delay_p99")}, nil
}
