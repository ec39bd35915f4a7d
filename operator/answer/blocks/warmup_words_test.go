package blocks

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// plans are warm-ups whose states are given.
type plans map[string]warmup.Status

func (p plans) Status(key string) (warmup.Status, bool)         { s, ok := p[key]; return s, ok }
func (p plans) IPs() []string                                   { return slices.Sorted(maps.Keys(p)) }
func (p plans) Do(context.Context, string, warmup.Action) error { return nil }
func (p plans) Check(string, warmup.Action) error               { return nil }

// What mail waits for is the warm-up that has tokens first, by its name, address and stage, and what it lacks.
func TestWhyMailIsThrottled(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		source "shared" { address = "192.0.2.9" }
		source "acme-1" { address = "192.0.2.20" }
		source "acme-2" { address = "192.0.2.21" }
		plan "small" {
			stage {
				hourly = 10
				daily  = 15
			}
		}
		pool "default" { shared = ["shared"] }
		pool "acme" {
			overflow = "hold"
			dedicated "acme-1" { plan = "small" }
			dedicated "acme-2" { plan = "small" }
		}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	policy := wiring.New(cfg)
	hour, day := time.Now().Add(time.Hour), time.Now().Add(24*time.Hour)
	status := func(ip string, sentHour, sentDay int64) warmup.Status {
		return warmup.Status{IP: ip, State: "normal", Plan: "small", Stage: 1, TotalStages: 1, SentHour: sentHour, HourlyLimit: 10, SentDay: sentDay, StageLimit: 15, HourEnds: hour, DayEnds: day}
	}
	w := &Warmups{
		Policy:     func() *wiring.Policy { return policy },
		Controller: plans{"192.0.2.20": status("192.0.2.20", 10, 12), "192.0.2.21": status("192.0.2.21", 3, 15)},
	}
	big := parking.Key{Kind: parking.Tokens, Name: "acme", Provider: "big"}
	for _, x := range []struct {
		line parking.Line
		want string
		till time.Time
	}{
		{parking.Line{Key: big}, "source acme-1 (192.0.2.20): plan small, stage 1 of 1, 10 of 10 sent this hour, 12 of 15 today: the hour's cap is used", hour},
		{parking.Line{Key: big, Source: "acme-2"}, "source acme-2 (192.0.2.21): plan small, stage 1 of 1, 3 of 10 sent this hour, 15 of 15 today: the day's cap is used", day},
		{parking.Line{Key: parking.Key{Kind: parking.Tokens, Name: "gone", Provider: "big"}}, "has ended", time.Time{}},
	} {
		if why, until, ok := w.WhyThrottled(x.line); !ok || !strings.Contains(why, x.want) || !until.Equal(x.till) {
			t.Errorf("%+v: %q until %v, %v", x.line, why, until, ok)
		}
		if text, until, ok := w.ThrottledBy(x.line); !ok || text == "" || !until.Equal(x.till) {
			t.Errorf("%+v: %q until %v, %v", x.line, text, until, ok)
		}
	}
	if _, _, ok := w.WhyThrottled(parking.Line{Key: parking.Key{Name: "mx.x.example"}}); ok {
		t.Error("a site is taken for a warm-up")
	}
}
