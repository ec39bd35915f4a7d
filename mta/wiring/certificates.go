package wiring

import (
	"slices"
	"time"

	"example.org/mta/internal/certificates"
	"example.org/mta/internal/faultlog"
	"example.org/mta/mta/config"
)

// Ending returns which certificates in use, and which authorities of a configuration, end soon or have ended; "" for
// none.
func Ending(cfg *config.Config, used []certificates.Expiry, now time.Time) string {
	var soon []string
	note := func(file string, end time.Time) {
		if why := certificates.Ending(end, now); why != "" {
			soon = append(soon, file+" "+why)
		}
	}
	for _, e := range used {
		note(e.File, e.At)
	}
	for _, f := range cfg.PEMFiles() {
		if f.Kind != config.Authorities {
			continue
		}
		if end, err := certificates.LastAuthority(f.Path); err == nil {
			note(f.Path, end)
		}
	}
	if len(soon) == 0 {
		return ""
	}
	return faultlog.Few(slices.Compact(soon)) + ": 'mta check' has the remedy"
}
