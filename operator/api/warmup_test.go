package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"example.org/mta/operator/api"
	"example.org/mta/operator/api/controltest"
)

func TestWarmupsPage(t *testing.T) {
	c := serve(t, controltest.Sample(now))
	for _, limit := range []int{1, 2, 3, 100} {
		var got []string
		for after := ""; ; {
			l, err := c.Warmups(context.Background(), after, limit)
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
		if all := strings.Join(got, " "); all != "acme-1 news-1 old-1" {
			t.Errorf("pages of %d: %s", limit, all)
		}
	}
}

func TestWarmupBySourceOrIP(t *testing.T) {
	r := controltest.Sample(now)
	r.KnownWarmups[2].Source = "odd/na%2Fme ?"
	c := serve(t, r)
	for name, want := range map[string]string{"acme-1": "192.0.2.20", "192.0.2.20": "192.0.2.20", "2001:db8::20": "2001:db8::20", "odd/na%2Fme ?": "192.0.2.21"} {
		w, err := c.Warmup(context.Background(), name)
		if err != nil || w.IP != want {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
	w, err := c.Warmup(context.Background(), "acme-1")
	if err != nil || !reflect.DeepEqual(w, r.KnownWarmups[0]) {
		t.Errorf("got %+v, %v", w, err)
	}
	if _, err := c.Warmup(context.Background(), "nobody"); !api.IsNotFound(err) || api.Hint(err) == "" {
		t.Errorf("nobody: %v", err)
	}
}

// TestWarmupHasMailgunsNames: who comes from there finds the same fields.
func TestWarmupHasMailgunsNames(t *testing.T) {
	text, err := json.Marshal(controltest.Sample(now).KnownWarmups[0])
	if err != nil {
		t.Fatal(err)
	}
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
	r := controltest.Sample(now)
	var events bytes.Buffer
	r.Events = slog.New(slog.NewTextHandler(&events, nil))
	c := serve(t, r)
	ctx := context.Background()
	for _, x := range []struct {
		action api.WarmupAction
		stage  int
		state  string
		want   int
	}{
		{api.WarmupPause, 0, api.WarmupPaused, 6}, {api.WarmupResume, 0, api.WarmupNormal, 6},
		{api.WarmupSetStage, 3, api.WarmupNormal, 3}, {api.WarmupStart, 0, api.WarmupNormal, 1}, {api.WarmupStart, 2, api.WarmupNormal, 2},
	} {
		w, err := c.ChangeWarmup(ctx, "192.0.2.20", x.action, api.StageChoice{Stage: x.stage})
		if err != nil || w.Source != "acme-1" || w.State != x.state || w.Stage != x.want {
			t.Errorf("%s: %+v, %v", x.action, w, err)
		}
	}
	if n := strings.Count(events.String(), "operator acts"); n != 5 || !strings.Contains(events.String(), `action="warmup set-stage" subject="name=192.0.2.20 stage=3"`) {
		t.Errorf("%d of 5 actions were written down:\n%s", n, &events)
	}
	for what, err := range map[string]error{
		"stage 0":    second(c.ChangeWarmup(ctx, "acme-1", api.WarmupSetStage, api.StageChoice{})),
		"a negative": second(c.ChangeWarmup(ctx, "acme-1", api.WarmupStart, api.StageChoice{Stage: -1})),
		"beyond":     second(c.ChangeWarmup(ctx, "acme-1", api.WarmupSetStage, api.StageChoice{Stage: 15})),
	} {
		if e := (*api.Error)(nil); !errors.As(err, &e) || e.Status != http.StatusBadRequest || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := second(c.ChangeWarmup(ctx, "nobody", api.WarmupPause, api.StageChoice{})); !api.IsNotFound(err) {
		t.Errorf("nobody: %v", err)
	}
}

func TestWarmupPlans(t *testing.T) {
	r := controltest.Sample(now)
	c := serve(t, r)
	plans, err := c.WarmupPlans(context.Background())
	if err != nil || !reflect.DeepEqual(plans, r.KnownPlans) {
		t.Errorf("got %+v, %v", plans, err)
	}
}
