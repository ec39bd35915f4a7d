package suppression

import (
	"fmt"

	"example.org/mta/internal/faultlog"
)

// Flood returns which providers are doubted and how many addresses are set aside for that, "" when there are none.
func (f *Feeder) Flood() string {
	pending := f.Stats().Pending
	var all []string
	for _, d := range f.Doubted() {
		when := "since " + d.Since.UTC().Format("2006-01-02 15:04 UTC")
		if !d.Until.IsZero() {
			when = fmt.Sprintf("from %s to %s", d.Since.UTC().Format("2006-01-02 15:04"),
				d.Until.UTC().Format("2006-01-02 15:04 UTC"))
		}
		all = append(all, fmt.Sprintf("%s called %d of %d recipients unknown %s, usually %.1f %%", d.Provider,
			d.Unknown, d.Known+d.Unknown, when, 100*d.Usual))
	}
	if pending > 0 {
		all = append(all,
			fmt.Sprintf("addresses set aside until you accept or drop them: %d ('mta suppress pending')", pending))
	}
	return faultlog.Few(all)
}
