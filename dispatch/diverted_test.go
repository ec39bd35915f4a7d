package dispatch

import (
	"testing"
	"time"
)

// TestWhatIsDivertedIsCounted: of a day of bursts, by why it took a shared source.
func TestWhatIsDivertedIsCounted(t *testing.T) {
	for _, x := range []struct {
		patience string
		daily    int
		lasts    time.Duration
		diverted Diversions
	}{
		{`patience = "0s"`, 1000, 10 * time.Minute, Diversions{CameFaster: 995}},
		{`patience = "2h"`, 1000, 10 * time.Minute, Diversions{CameTooFast: 907, LostPatience: 31}},
		{"", 1000, 10 * time.Minute, Diversions{ExceededCap: 750}},
		{`patience = "0s"`, 200, 10 * time.Minute, Diversions{CameFaster: 195}},
		{`patience = "0s"`, 1440, 24 * time.Hour, Diversions{CameFaster: 275, ExceededCap: 556}},
	} {
		d := newDays(t, x.patience, x.daily, time.Minute, x.lasts)
		d.pass()
		got, sent := d.diverted, d.evening.SentDay
		got[notDiverted] = 0
		offered := d.diverted.Offered()
		same := got == x.diverted
		if x.lasts > time.Hour { // some minute's mail comes by chance in front of a token or behind it
			same = got.Offered() == x.diverted.Offered()
		}
		if !same {
			t.Errorf("%s, %d in %v: diverted %v of %d, with %d sent of %d; want %v", x.patience, x.daily, x.lasts,
				got, offered, sent, d.evening.StageLimit, x.diverted)
		}
		if x.lasts < time.Hour && offered != int64(x.daily) || offered-got.Offered() != sent {
			t.Errorf("%s: %d offered of %d, %d diverted, %d sent", x.patience, offered, x.daily, got.Offered(), sent)
		}
	}
}
