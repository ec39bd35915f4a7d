package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"example.org/mta/operator/api"
)

func TestWarmupsPage(t *testing.T) {
	c := open(t)
	for _, limit := range []int{1, 2, 3, 100} {
		var got []string
		for after := ""; ; {
			l, err := api.OpWarmups.Call(context.Background(), c.Client, api.Paging{After: after, Limit: limit})
			if err != nil || len(l.Warmups) > limit {
				t.Fatalf("%+v, %v", l, err)
			}
			for _, w := range l.Warmups {
				got = append(got, w.Source)
				if w.Providers != nil || w.History != nil {
					t.Errorf("the list has details of %s", w.Source)
				}
			}
			if after = l.Next; after == "" {
				break
			}
		}
		if all := strings.Join(got, " "); all != "acme-1 news-1" {
			t.Errorf("pages of %d: %s", limit, all)
		}
	}
}

func TestWarmupBySourceOrIP(t *testing.T) {
	c := open(t)
	for name, want := range map[string]string{"acme-1": "192.0.2.20", "192.0.2.20": "192.0.2.20", "2001:db8::20": "2001:db8::20"} {
		w, err := api.OpWarmup.Call(t.Context(), c.Client, api.None{}, name)
		if err != nil || w.IP != want {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
	if _, err := api.OpWarmup.Call(t.Context(), c.Client, api.None{}, "nobody"); !api.IsNotFound(err) || api.Hint(err) == "" {
		t.Errorf("nobody: %v", err)
	}
	const odd = "odd/na%2Fme ?"
	if w, err := api.OpWarmup.Call(t.Context(), serve(t, api.Config{Warmups: warmups{}}), api.None{}, odd); err != nil || w.Source != odd {
		t.Errorf("%+v, %v", w, err)
	}
}

// warmups has one of each name.
type warmups struct{ anyWarmups }

type anyWarmups interface{ api.Warmups } // embedded, it has another name than its method

func (warmups) Warmup(_ context.Context, name string) (api.Warmup, error) {
	return api.Warmup{Source: name}, nil
}

// TestWarmupHasMailgunsNames: who comes from there finds the same fields.
func TestWarmupHasMailgunsNames(t *testing.T) {
	w := httptest.NewRecorder()
	open(t).ServeHTTP(w, httptest.NewRequest("GET", "/v1/warmup/acme-1", nil))
	text := w.Body.Bytes()
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ip", "stage", "stage_limit", "hourly_limit", "throttle", "sent_within_stage", "total_stages", "stage_started_at", "stage_history"} {
		if _, ok := fields[name]; !ok {
			t.Errorf("there is no %s in %s", name, text)
		}
	}
}

func TestWarmupsAreChanged(t *testing.T) {
	c := open(t)
	ctx := context.Background()
	for _, x := range []struct {
		action api.WarmupAction
		stage  int
		state  string
		want   int
	}{
		{api.WarmupPause, 0, api.WarmupPaused, 1}, {api.WarmupResume, 0, api.WarmupNormal, 1},
		{api.WarmupSetStage, 3, api.WarmupNormal, 3}, {api.WarmupStart, 0, api.WarmupNormal, 1}, {api.WarmupStart, 2, api.WarmupNormal, 2},
	} {
		w, err := api.OpChangeWarmup[x.action].Call(ctx, c.Client, api.StageChoice{Stage: x.stage}, "192.0.2.20")
		if err != nil || w.Source != "acme-1" || w.State != x.state || w.Stage != x.want {
			t.Errorf("%s: %+v, %v", x.action, w, err)
		}
	}
	p, err := api.OpActions.Call(ctx, c.Client, api.ActionQuery{Since: now})
	if err != nil || len(p.Actions) != 5 || p.Actions[2].Action != "warmup set-stage" || p.Actions[2].Subject != "name=192.0.2.20 stage=3" {
		t.Errorf("what was written down of 5 actions: %+v, %v", p.Actions, err)
	}
	for what, err := range map[string]error{
		"stage 0":    second(api.OpChangeWarmup[api.WarmupSetStage].Call(ctx, c.Client, api.StageChoice{}, "acme-1")),
		"a negative": second(api.OpChangeWarmup[api.WarmupStart].Call(ctx, c.Client, api.StageChoice{Stage: -1}, "acme-1")),
		"beyond":     second(api.OpChangeWarmup[api.WarmupSetStage].Call(ctx, c.Client, api.StageChoice{Stage: 15}, "acme-1")),
	} {
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Status != http.StatusBadRequest || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := second(api.OpChangeWarmup[api.WarmupPause].Call(ctx, c.Client, api.StageChoice{}, "nobody")); !api.IsNotFound(err) {
		t.Errorf("nobody: %v", err)
	}
}

func TestWarmupPlans(t *testing.T) {
	plans, err := api.OpWarmupPlans.Call(t.Context(), open(t).Client, api.None{})
	for _, p := range plans.Plans {
		if p.Name == "small" && p.Origin == "configuration" && slices.Equal(p.Sources, []string{"news-1"}) && len(p.Plan.Stages) == 3 && len(p.Forecast) == 3 {
			return
		}
	}
	t.Errorf("got %+v, %v", plans, err)
}
