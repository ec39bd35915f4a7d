package api

import (
	"context"
	"encoding/json"

	"example.org/mta/internal/tiers"
	"example.org/mta/warmup"
)

// SimulateWarmup asks how a plan would take a daily volume. Nothing is changed by it.
type SimulateWarmup struct {
	// the name of a preset or of a plan of the configuration; or:
	Plan     string          `json:"plan,omitempty"`
	Document json.RawMessage `json:"document,omitempty"`            // a plan, as plan in the answer to /v1/warmup/plans
	Volume   int64           `json:"volume" min:"1" max:"10000000"` // recipients a day
	// when the mail comes within a day: even, office (8 to 18 o'clock) or campaign (within ten minutes)
	Shape string `json:"shape,omitempty" words:"even,office,campaign" default:"office"`
	// the days of the week with mail, such as mon-fri or tue,thu; left out: all
	On string `json:"on,omitempty"`
	// that of the mail, which decides how long it waits before it uses a shared source
	Tier *int `json:"tier,omitempty" min:"0" max:"5" default:"3"`
	// how many; 0: until there was mail on as many as the plan has caps, and one more
	Days  int  `json:"days,omitempty" min:"0" max:"120"`
	Hours bool `json:"hours,omitempty"` // a row for each hour, not for each day
	// what becomes of mail that exceeds the plan: it takes a shared source, or waits; left out: as the plan or its
	// pools have it
	Overflow   string  `json:"overflow,omitempty" words:"shared,hold"`
	Deferred   float64 `json:"deferred,omitempty" min:"0" max:"1"`   // the share of the sent mail that is deferred
	Bounced    float64 `json:"bounced,omitempty" min:"0" max:"1"`    // the share that bounces
	Complained float64 `json:"complained,omitempty" min:"0" max:"1"` // the share that is complained about
	Seed       uint64  `json:"seed,omitempty" min:"0"`               // the same seed gives the same answer
}

// Bounds of a simulation.
const (
	MaxSimulatedVolume = 10_000_000
	MaxSimulatedDays   = 120
	MaxSimulatedRows   = 10_000 // of the answer
)

// SimulatedWarmup is how a plan takes a volume.
type SimulatedWarmup struct {
	Plan     string             `json:"plan"`     // its name
	Rows     []SimulatedRow     `json:"rows"`     // days or hours
	Days     []warmup.DayStatus `json:"days"`     // what became of the stage on each day, the last 60 at most
	Offered  int64              `json:"offered"`  // recipients in all
	Sent     int64              `json:"sent"`     // of those, by the source
	Diverted int64              `json:"diverted"` // of those, by shared sources
	Expired  int64              `json:"expired"`  // of those, held until their max_age
	Waiting  int64              `json:"waiting"`  // of those, at the end
	// the first day, counted from 1, from which on the source takes all that is offered; left out when there is
	// none
	Full int `json:"full,omitempty"`
}

// SimulatedRow is a day or an hour of a provider's mail.
type SimulatedRow struct {
	Provider string `json:"provider"` // its name; * where the plan has none of its own
	Second   int64  `json:"second"`   // at which it begins, from the begin of the warm-up
	Stage    int64  `json:"stage"`    // counted from 1
	State    string `json:"state"`    // normal or paused
	CapHour  int64  `json:"cap_hour"` // of the last hour in it; 0: none
	CapDay   int64  `json:"cap_day"`  // of the day; 0: none
	Offered  int64  `json:"offered"`  // recipients that came
	Sent     int64  `json:"sent"`     // by the source
	Diverted int64  `json:"diverted"` // by shared sources
	Expired  int64  `json:"expired"`  // held until their max_age
	Waiting  int64  `json:"waiting"`  // at the end of it
}

// Check returns an error if the question has no answer.
func (q *SimulateWarmup) Check() error {
	switch {
	case (q.Plan == "") == (len(q.Document) == 0):
		return Invalid("name one of the relay's (mta warmup plans), or give a document", "simulate: want a plan")
	case q.Volume < 1 || q.Volume > MaxSimulatedVolume:
		return Invalid("", "volume: want 1 to %d recipients a day, not %d", MaxSimulatedVolume, q.Volume)
	case q.Tier != nil && (*q.Tier < 0 || *q.Tier >= tiers.Count):
		return Invalid("", "tier: want 0 to %d, not %d", tiers.Count-1, *q.Tier)
	case q.Days < 0 || q.Days > MaxSimulatedDays:
		return Invalid("", "days: want 1 to %d, not %d", MaxSimulatedDays, q.Days)
	}
	for _, share := range []float64{q.Deferred, q.Bounced, q.Complained} {
		if !(share >= 0 && share <= 1) {
			return Invalid("", "deferred, bounced, complained: want shares from 0 to 1, not %v", share)
		}
	}
	return nil
}

// SimulateWarmup asks how a plan would take a daily volume.
func (c *Client) SimulateWarmup(ctx context.Context, q SimulateWarmup) (SimulatedWarmup, error) {
	return opSimulateWarmup.call(ctx, c, q)
}
