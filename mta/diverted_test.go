package mta

import (
	"testing"
	"time"

	"example.org/mta/mta/control"
)

// TestTheOutlookKnowsWhatCameTooFast: of a day of bursts the operator sees what was diverted, and why; where
// that keeps the day from being filled, what helps.
func TestTheOutlookKnowsWhatCameTooFast(t *testing.T) {
	for _, x := range []struct {
		patience string
		daily    int
		lasts    time.Duration
		diverted control.WarmupDiverted
		advice   string
	}{
		{`patience = "0s"`, 1000, 10 * time.Minute, control.WarmupDiverted{TooFast: 995},
			"99 % of the mail came faster than the plan takes it: give it patience"},
		{`patience = "2h"`, 1000, 10 * time.Minute, control.WarmupDiverted{TooFast: 900, Waited: 38},
			"90 % of the mail came faster than the plan takes it: give it more patience"},
		{"", 1000, 10 * time.Minute, control.WarmupDiverted{OverCap: 750}, ""},
		{`patience = "0s"`, 200, 10 * time.Minute, control.WarmupDiverted{TooFast: 195},
			"97 % of the mail came faster than the plan takes it: give it patience"},
		{`patience = "0s"`, 1440, 24 * time.Hour, control.WarmupDiverted{TooFast: 275, OverCap: 556}, ""},
	} {
		d := newDays(t, x.patience, x.daily, time.Minute, x.lasts)
		d.pass()
		w := d.evening
		same := w.Diverted == x.diverted
		if x.lasts > time.Hour { // some minute's mail comes by chance in front of a token or behind it
			same = w.Diverted.Sum() == x.diverted.Sum()
		}
		if !same || w.Advice != x.advice {
			t.Errorf("%s, %d in %v: diverted %+v of %d, with %d sent of %d: %q; want %+v, %q", x.patience, x.daily, x.lasts,
				w.Diverted, w.Offered, w.SentDay, w.StageLimit, w.Advice, x.diverted, x.advice)
		}
		if x.lasts < time.Hour && w.Offered != int64(x.daily) || w.Offered-w.Diverted.Sum() != w.SentDay {
			t.Errorf("%s: %d offered of %d, %d diverted, %d sent", x.patience, w.Offered, x.daily, w.Diverted.Sum(), w.SentDay)
		}
	}
}
