package warming

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"example.org/mta/operator/api"
)

// TestWarmupSimulation: a plan of the relay and the same plan as a document give the same forecast, within bounds.
func TestWarmupSimulation(t *testing.T) {
	_, r := operated(t)
	o := r
	ask := api.SimulateWarmup{Plan: "standard", Volume: 500, Days: 6, Seed: 1}
	got, err := o.SimulateWarmup(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if got.Offered != got.Sent+got.Diverted+got.Waiting || got.Full < 3 || got.Full > 5 || len(got.Days) < 5 || len(got.Rows) != 6 {
		t.Errorf("%d offered, %d sent, %d diverted, %d wait; full from day %d; %d days", got.Offered, got.Sent, got.Diverted, got.Waiting, got.Full, len(got.Days))
	}
	for _, row := range got.Rows {
		if row.CapDay > 0 && row.Sent > row.CapDay {
			t.Errorf("more than its cap: %+v", row)
		}
	}
	list, err := o.WarmupPlans(t.Context())
	plans := list.Plans
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		if p.Name == "standard" {
			ask.Plan = ""
			ask.Document, _ = json.Marshal(p.Plan)
		}
	}
	again, err := o.SimulateWarmup(t.Context(), ask)
	if err != nil || !reflect.DeepEqual(again.Rows, got.Rows) {
		t.Errorf("as a document: %v, %d rows", err, len(again.Rows))
	}
	bad, err := o.SimulateWarmup(t.Context(), api.SimulateWarmup{Plan: "standard", Volume: 500, Days: 6, Bounced: .5})
	if err != nil || bad.Sent >= got.Sent || bad.Days[len(bad.Days)-1].Stage >= got.Days[len(got.Days)-1].Stage {
		t.Errorf("with many bounces: %v, %d sent, stage %d", err, bad.Sent, bad.Days[len(bad.Days)-1].Stage)
	}
	hours, err := o.SimulateWarmup(t.Context(), api.SimulateWarmup{Plan: "standard", Volume: 500, Days: 2, Hours: true, Shape: "even"})
	if err != nil || len(hours.Rows) != 48 {
		t.Errorf("%d rows of hours, %v", len(hours.Rows), err)
	}
	urgent := 2
	lumps := api.SimulateWarmup{Plan: "standard", Volume: 2000, Days: 8, Shape: "campaign", On: "mon"}
	later, err := o.SimulateWarmup(t.Context(), lumps)
	if err != nil || later.Offered != 2*2000 || later.Sent < 640 {
		t.Errorf("on two Mondays: %v, %d of %d sent", err, later.Sent, later.Offered)
	}
	lumps.Tier = &urgent
	if at, err := o.SimulateWarmup(t.Context(), lumps); err != nil || at.Sent > later.Sent/10 {
		t.Errorf("mail of tier 2, which has half a minute: %v, %d sent, of tier 3 %d", err, at.Sent, later.Sent)
	}
	lumps.Tier, lumps.Overflow, lumps.Days, lumps.Volume = nil, "hold", 7, 10_000
	if held, err := o.SimulateWarmup(t.Context(), lumps); err != nil || held.Expired == 0 || held.Waiting > 0 || held.Sent+held.Expired != held.Offered {
		t.Errorf("held for longer than max_age: %v, %d offered, %d sent, %d expired, %d wait", err, held.Offered, held.Sent, held.Expired, held.Waiting)
	}
	for want, q := range map[string]api.SimulateWarmup{
		"there is no plan": {Plan: "nonsense", Volume: 1},
		"no stages":        {Document: json.RawMessage(`{"version":1,"stages":[]}`), Volume: 1},
		"shape":            {Plan: "standard", Volume: 1, Shape: "wavy"},
		"write days":       {Plan: "standard", Volume: 1, On: "tues"},
		"overflow":         {Plan: "standard", Volume: 1, Overflow: "lost"},
	} {
		if _, err := o.SimulateWarmup(t.Context(), q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.SimulateWarmup(ctx, ask); !errors.Is(err, context.Canceled) {
		t.Errorf("after its client has gone: %v", err)
	}
}
