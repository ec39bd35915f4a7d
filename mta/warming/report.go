package warming

import (
	"fmt"

	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/warmup"
)

// report puts an event of a warm-up into the log, the accounting log and the metrics.
func (w *Warming) report(e warmup.Event) {
	source := w.c.Policy().WarmupSource(e.IP)
	log := w.c.Log.Info
	switch e.Kind {
	case warmup.EventBack, warmup.EventProviderPaused, warmup.EventProviderHalved, warmup.EventProviderBack,
		warmup.EventLedgerLost:
		log = w.c.Log.Warn
	}
	attrs := []any{"event", string(e.Kind), "source", source, "ip", e.IP, "what", e.String()}
	if e.Provider != "" {
		attrs = append(attrs, "provider", e.Provider)
	}
	log("warm-up", attrs...)
	w.c.Count(source, string(e.Kind))
	w.c.Records(&accounting.Record{
		Type: accounting.Warmup, Event: string(e.Kind), Stage: e.Stage, Time: w.c.Now(),
		Attempt:  accounting.Attempt{EgressSource: source, Provider: e.Provider},
		Response: reply.Reply{Text: e.String(), Local: true},
	})
}

// Health returns which warm-ups are in trouble with providers, so that somebody should look why, ""
// when none is.
func (w *Warming) Health() string {
	var all []string
	for _, key := range w.ctl.IPs() {
		s, _ := w.ctl.Status(key)
		for i := range s.Providers {
			if p := &s.Providers[i]; p.State != "normal" {
				what := "the mail of " + w.c.Policy().WarmupSource(key)
				if p.Network != "" {
					what += ", or of another source in " + p.Network
				}
				all = append(all, fmt.Sprintf("%s refuses %s by policy (%s)", p.Provider, what, p.State))
			}
		}
		if n := len(s.History); n > 0 && s.History[n-1].Why == warmup.Regressed.String() {
			all = append(all, fmt.Sprintf("the warm-up of %s went back to stage %d yesterday: %s was over the limits",
				w.c.Policy().WarmupSource(key), s.Stage, s.History[n-1].Provider))
		}
	}
	return faultlog.Few(all)
}
