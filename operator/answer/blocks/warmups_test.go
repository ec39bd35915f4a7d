package blocks

import (
	"testing"

	"example.org/mta/operator/api"
	"example.org/mta/warmup"
)

// Where mail that came too fast keeps the day from being filled, the operator learns what helps.
func TestAdviceOnAFastDay(t *testing.T) {
	fast := func(offered, faster, tooFast int64) Diverted {
		return Diverted{Offered: offered, Faster: faster, WarmupDiverted: api.WarmupDiverted{TooFast: tooFast}}
	}
	for _, x := range []struct {
		diverted Diverted
		sent     int64
		want     string
	}{
		{fast(1000, 995, 995), 5, "99 % of the mail came faster than the plan takes it: give it patience"},
		{fast(1000, 0, 900), 62, "90 % of the mail came faster than the plan takes it: give it more patience"},
		{fast(1000, 0, 0), 250, ""},
		{fast(200, 195, 195), 5, "97 % of the mail came faster than the plan takes it: give it patience"},
		{fast(1440, 275, 275), 609, ""},
	} {
		s := warmup.Status{Outlook: warmup.Undecided.String(), SentDay: x.sent, StageLimit: 500}
		if got := x.diverted.advice(&s); got != x.want {
			t.Errorf("%+v: %q, want %q", x.diverted, got, x.want)
		}
	}
}
