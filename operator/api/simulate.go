package api

import (
	"context"
	"encoding/json"

	"example.org/mta/internal/tiers"
	"example.org/mta/warmup"
)

// SimulateWarmup asks how a plan would take a daily volume. Nothing is changed by it.
type SimulateWarmup struct {
	// Plan is the name of a plan that the relay knows, or Document is a plan as WarmupPlan.Plan has it: one of the two.
	Plan     string          `json:"plan,omitempty"`
	Document json.RawMessage `json:"document,omitempty"`
	Volume   int64           `json:"volume"`          // recipients a day, up to MaxSimulatedVolume
	Shape    string          `json:"shape,omitempty"` // even, office (8 to 18 o'clock; the default) or campaign (within ten minutes)
	On       string          `json:"on,omitempty"`    // the days of the week with mail, such as mon-fri or tue; "": all
	Tier     *int            `json:"tier,omitempty"`  // of the mail, 0 to 5, which decides on its patience; nil: 3
	Days     int             `json:"days,omitempty"`  // up to MaxSimulatedDays; 0: until there was mail on as many as the plan has caps, and one more
	Hours    bool            `json:"hours,omitempty"` // a row for each hour, not for each day
	Overflow string          `json:"overflow,omitempty"`
	// Deferred, Bounced and Complained are the shares of the sent mail, from 0 to 1, with these outcomes.
	Deferred   float64 `json:"deferred,omitempty"`
	Bounced    float64 `json:"bounced,omitempty"`
	Complained float64 `json:"complained,omitempty"`
	Seed       uint64  `json:"seed,omitempty"` // the same seed gives the same answer
}

// Bounds of a simulation.
const (
	MaxSimulatedVolume = 10_000_000
	MaxSimulatedDays   = 120
	MaxSimulatedRows   = 10_000 // of the answer
)

// SimulatedWarmup is how a plan takes a volume.
type SimulatedWarmup struct {
	Plan string         `json:"plan"`
	Rows []SimulatedRow `json:"rows"` // by time; of days or hours
	// Days is what became of the stage on each day, the last 60 at most.
	Days []warmup.DayStatus `json:"days"`
	// Sent, Diverted, Expired and Waiting are recipients in all: by the source, by shared ones, at their max_age, and at
	// the end.
	Offered  int64 `json:"offered"`
	Sent     int64 `json:"sent"`
	Diverted int64 `json:"diverted"`
	Expired  int64 `json:"expired"`
	Waiting  int64 `json:"waiting"`
	// Full is the first day, counted from 1, on which the source takes all that is offered, and on each later one; 0: none is.
	Full int `json:"full,omitempty"`
}

// SimulatedRow is a day or an hour of a provider's mail.
type SimulatedRow struct {
	Provider string `json:"provider"` // "*" where the plan tells none apart
	Second   int64  `json:"second"`   // at which it begins, from the begin of the warm-up
	Stage    int64  `json:"stage"`
	State    string `json:"state"`    // normal or paused
	CapHour  int64  `json:"cap_hour"` // 0: none
	CapDay   int64  `json:"cap_day"`  // 0: none
	Offered  int64  `json:"offered"`
	Sent     int64  `json:"sent"`
	Diverted int64  `json:"diverted"`
	Expired  int64  `json:"expired"` // of mail that is held, at its max_age
	Waiting  int64  `json:"waiting"` // at the end of it
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
