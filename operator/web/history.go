package web

import (
	"strings"
	"time"

	"example.org/mta/operator/api"
)

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
