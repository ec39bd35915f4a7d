package mta

import (
	"fmt"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/trouble"
	"example.org/mta/mta/accounting"
	"example.org/mta/warmup"
)

// tell writes down what has happened to a warm-up: in the log, in the accounting records, in the metrics.
func (w *warming) report(e warmup.Event) {
	source := w.policy().WarmupSource(e.IP)
	log := w.log.Info
	switch e.Kind {
	case warmup.EventBack, warmup.EventProviderPaused, warmup.EventProviderHalved, warmup.EventProviderBack, warmup.EventLedgerLost:
		log = w.log.Warn
	}
	attrs := []any{"event", string(e.Kind), "source", source, "ip", e.IP, "what", e.String()}
	if e.Provider != "" {
		attrs = append(attrs, "provider", e.Provider)
	}
	log("warm-up", attrs...)
	w.count(source, string(e.Kind))
	if w.records != nil {
		w.records(&accounting.Record{
			Type: accounting.Warmup, Event: string(e.Kind), Stage: e.Stage, Time: w.now(),
			Attempt:  accounting.Attempt{EgressSource: source, Provider: e.Provider},
			Response: reply.Reply{Text: e.String(), Local: true},
		})
	}
}

// shortOfHealth returns which warm-ups are in trouble with providers, so that somebody should look why, ""
// when none is.
func (w *warming) shortOfHealth() string {
	var all []string
	for _, key := range w.ctl.IPs() {
		s, _ := w.ctl.Status(key)
		for i := range s.Providers {
			if p := &s.Providers[i]; p.State != "normal" {
				what := "the mail of " + w.policy().WarmupSource(key)
				if p.Network != "" {
					what += ", or of another source in " + p.Network
				}
				all = append(all, fmt.Sprintf("%s refuses %s by policy (%s)", p.Provider, what, p.State))
			}
		}
		if n := len(s.History); n > 0 && s.History[n-1].Why == warmup.Regressed.String() {
			all = append(all, fmt.Sprintf("the warm-up of %s went back to stage %d yesterday: %s was over the limits", w.policy().WarmupSource(key), s.Stage, s.History[n-1].Provider))
		}
	}
	return trouble.Few(all)
}

// recordWarmups gives what warm-ups write their accounting records with; nil when they are off.
func (r *Relay) recordWarmups() func(*accounting.Record) {
	return func(rec *accounting.Record) {
		if r.accounting != nil {
			r.accounting.Add(rec)
		}
	}
}
