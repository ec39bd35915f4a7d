package blocks

import (
	"testing"
	"time"

	"example.org/mta/mta/tally"
	"example.org/mta/operator/api"
)

func TestRatesAreOfTheLastMinute(t *testing.T) {
	var r Rates
	begin := time.Now()
	if got := r.PerSecond(begin, tally.Tally{Counts: tally.Counts{Delivered: 9}}); got != (api.Rates{}) {
		t.Errorf("before the first sample the rates are %+v", got)
	}
	var c tally.Tally
	for i := range 300 { // 2 a second at first, then 10
		at := begin.Add(time.Duration(i) * time.Second)
		r.sample(at, c)
		c.Accepted += 2
		if i >= 200 {
			c.Delivered += 10
		}
		c.Bounced, c.Expired = c.Bounced+1, c.Expired+1
	}
	got := r.PerSecond(begin.Add(300*time.Second), c)
	if want := (api.Rates{Accepted: 2, Delivered: 10, Bounced: 2}); got != want {
		t.Errorf("rates %+v, want %+v", got, want)
	}
}
