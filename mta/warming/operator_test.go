package warming

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/warmup"
)

// stepped is a controller that steps while somebody waits for it.
type stepped struct{ *warmup.Controller }

func (s stepped) Do(ctx context.Context, ip string, a warmup.Action) error {
	done := make(chan error, 1)
	go func() { done <- s.Controller.Do(ctx, ip, a) }()
	for {
		select {
		case err := <-done:
			return err
		default:
			s.Step(ctx)
			runtime.Gosched()
		}
	}
}

// operated is a warm-up with its operator.
func operated(t *testing.T) (*warmupAlone, *blocks.Warmups) {
	w := newWarmupAlone(t, acmeWarms)
	return w, &blocks.Warmups{
		Policy: func() *wiring.Policy { return w.c.Policy() }, Now: w.c.Now, Controller: stepped{w.ctl},
		Rules: new(rules.Rules), Diverted: func(string, time.Time) (d blocks.Diverted) { return d },
	}
}

func TestWarmupsForTheOperator(t *testing.T) {
	w, r := operated(t)
	ctx, o := t.Context(), r
	all, err := o.Warmups(ctx, api.Paging{})
	if err != nil || len(all.Warmups) != 1 || all.Warmups[0].Source != "acme-1" || all.Warmups[0].IP != "192.0.2.20" || all.Warmups[0].Providers != nil {
		t.Fatalf("%+v, %v", all, err)
	}
	ctl := r.Controller.(stepped)
	ask := warmup.Ask{Provider: "big", Recipients: 1}
	_, v := ctl.Allowance("192.0.2.20", ask)
	if v == warmup.Asking {
		ctl.Step(ctx)
		_, v = ctl.Allowance("192.0.2.20", ask)
	}
	if v != warmup.Granted || !ctl.Begin("192.0.2.20", "big", 1) {
		t.Fatalf("nothing was sent: %v", v)
	}
	ctl.Report("192.0.2.20", "big", warmup.HardBounce)
	w.clock = w.clock.Add(2 * time.Second)
	ctl.Step(ctx)
	for _, name := range []string{"acme-1", "192.0.2.20"} {
		s, err := o.Warmup(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if s.State != api.WarmupNormal || s.Plan != "small" || s.Pacing != "ledger" || s.Stage != 1 || s.TotalStages != 1 || s.StageLimit != 15 || s.HourlyLimit != 10 ||
			s.SentDay != 1 || s.SentHour != 1 || s.SentStage != 1 || s.DayEnds.Sub(s.Started) != 24*time.Hour || s.Outlook != "stayed: last stage" {
			t.Errorf("%s: %+v", name, s)
		}
		if len(s.Providers) != 1 || s.Providers[0].Provider != "big" || s.Providers[0].HardBounces != 1 || s.Providers[0].State != "normal" || !s.Providers[0].Until.IsZero() {
			t.Errorf("%s: providers %+v", name, s.Providers)
		}
	}
	if _, err := o.Warmup(ctx, "pool-1"); !api.IsNotFound(err) || api.Hint(err) == "" {
		t.Errorf("a source without a plan: %v", err)
	}
}

func TestWarmupActions(t *testing.T) {
	_, r := operated(t)
	ctx, o := t.Context(), r
	for _, x := range []struct {
		action api.WarmupAction
		stage  int
		state  string
	}{
		{api.WarmupPause, 0, api.WarmupPaused}, {api.WarmupResume, 0, api.WarmupNormal},
		{api.WarmupSetStage, 1, api.WarmupNormal}, {api.WarmupPause, 0, api.WarmupPaused}, {api.WarmupStart, 0, api.WarmupNormal},
	} {
		if _, err := o.ChangeWarmup(ctx, "acme-1", x.action, api.StageChoice{Stage: x.stage}); err != nil {
			t.Fatalf("%s: %v", x.action, err)
		}
		if s, _ := o.Warmup(ctx, "acme-1"); s.State != x.state {
			t.Errorf("%s: state %s, want %s", x.action, s.State, x.state)
		}
	}
	refused := func(what, name string, a api.WarmupAction, to api.StageChoice, status int) {
		_, err := o.ChangeWarmup(ctx, name, a, to)
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Status != status || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a stage beyond the plan", "192.0.2.20", api.WarmupSetStage, api.StageChoice{Stage: 2}, http.StatusBadRequest)
	refused("nobody", "nobody", api.WarmupPause, api.StageChoice{}, http.StatusNotFound)
	real := r.Controller
	r.Controller = refusing{real, "normal", fmt.Errorf("waiting for the store: %w", context.DeadlineExceeded)}
	refused("the store is away", "acme-1", api.WarmupPause, api.StageChoice{}, http.StatusServiceUnavailable)
	r.Controller = refusing{real, "corrupt", errors.New("reading the state: cut short")}
	refused("the state can't be read", "acme-1", api.WarmupPause, api.StageChoice{}, http.StatusServiceUnavailable)
}

// refusing is a controller in trouble.
type refusing struct {
	blocks.Controller
	state string
	err   error
}

func (r refusing) Status(ip string) (warmup.Status, bool) {
	s, ok := r.Controller.Status(ip)
	s.State = r.state
	return s, ok
}

func (r refusing) Do(context.Context, string, warmup.Action) error { return r.err }

// TestWarmupPlansForTheOperator: what the API says of a plan, the simulator reads as that plan.
func TestWarmupPlansForTheOperator(t *testing.T) {
	_, r := operated(t)
	list, err := r.WarmupPlans(t.Context())
	plans := list.Plans
	if err != nil || len(plans) != len(warmup.PresetNames())+1 {
		t.Fatalf("%d plans, %v", len(plans), err)
	}
	for _, p := range plans {
		want := r.Policy().Config.WarmupPlan(p.Name)
		text, err := json.Marshal(p.Plan)
		if err != nil {
			t.Fatal(err)
		}
		got, err := warmup.ParsePlan(bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		again, _ := json.Marshal(got)
		if first, _ := json.Marshal(want); !bytes.Equal(first, again) {
			t.Errorf("%s: %s was read from %s", p.Name, again, first)
		}
		if own := p.Name == "small"; own != (p.Origin == "configuration") || own != slices.Equal(p.Sources, []string{"acme-1"}) {
			t.Errorf("%s is of %s, used by %q", p.Name, p.Origin, p.Sources)
		}
	}
}
