package warmup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestW5_PlansLoadOrSayWhy(t *testing.T) {
	fourteen := `{"version":1,"stages":[` + strings.TrimSuffix(strings.Repeat(`{"hourly":50,"daily":350},`, 14), ",") + `]}`
	p, err := ParsePlan(strings.NewReader(fourteen))
	if err != nil || len(p.Stages) != 14 || p.StartStage != 1 || p.Burst != 2 || p.Health.MinSample != 100 {
		t.Fatalf("a plan of 14 stages: %+v, %v", p, err)
	}
	for _, c := range []struct{ name, plan, want string }{
		{"no stages", `{"version":1,"stages":[]}`, "plan has no stages: write at least one stage with hourly and daily"},
		{"no hourly", `{"version":1,"stages":[{"daily":350}]}`, "stage 1 has no hourly cap: write both hourly and daily"},
		{"no daily", `{"version":1,"stages":[{"hourly":5,"daily":9},{"hourly":50}]}`, "stage 2 has no daily cap: write both hourly and daily"},
		{"hourly above daily", `{"version":1,"stages":[{"hourly":400,"daily":350}]}`, "stage 1 has hourly = 400 above daily = 350: lower hourly, or raise daily"},
		{"negative", `{"version":1,"stages":[{"hourly":-1,"daily":350}]}`, "stage 1 has a negative cap: caps are numbers of recipients"},
		{"shrinks", `{"version":1,"stages":[{"hourly":50,"daily":350},{"hourly":50,"daily":300}]}`, "stage 2 has daily = 300 below the 350 of the stage before: raise it, or set shrinking = true if this is intended"},
		{"provider shrinks", `{"version":1,"stages":[{"hourly":50,"daily":350,"providers":{"google":{"hourly":9,"daily":90}}},{"hourly":50,"daily":350,"providers":{"google":{"hourly":8,"daily":90}}}]}`,
			`stage 2: provider "google" has hourly = 8 below the 9 of the stage before: raise it, or set shrinking = true if this is intended`},
		{"provider without caps", `{"version":1,"stages":[{"hourly":50,"daily":350,"providers":{"google":{}}}]}`, `stage 1: provider "google" has no caps: write hourly, daily or both, or remove the block`},
		{"unknown field", `{"version":1,"stagez":[]}`, `reading plan: unknown field "stagez"`},
		{"not a number", `{"version":1,"stages":[{"hourly":"many","daily":350}]}`, "reading plan: stages.hourly can't be string"},
		{"cut short", `{"version":1,`, "reading plan: the file ends too early"},
		{"two plans", fourteen + "{}", "reading plan: there is more after the plan's closing brace"},
		{"version", `{"version":2,"stages":[]}`, "plan version is 2: this program knows version 1"},
		{"overflow", `{"version":1,"overflow":"drop"}`, `overflow "drop" is not known: use shared or hold`},
		{"start", `{"version":1,"start_stage":3,"stages":[{"hourly":5,"daily":9}]}`, "start_stage 3 is not one of the 1 stages: stages are numbered from 1 to 1"},
		{"burst", `{"version":1,"burst":0.5,"stages":[{"hourly":5,"daily":9}]}`, "burst is 0.5: it must be from 1 to 60"},
		{"weight", `{"version":1,"weights":{"a":0},"stages":[{"hourly":5,"daily":9}]}`, `the weight of provider "a" is 0: it must be above 0`},
		{"health", `{"version":1,"health":{"advance_below":{"bounce":0.5}},"stages":[{"hourly":5,"daily":9}]}`, "health: advance_below.bounce, 0.5, is above regress_above.bounce, 0.05: a day between the two holds the stage, so lower the one or raise the other"},
		{"no way on", `{"version":1,"stages":[{"hourly":5,"daily":350},{"hourly":50,"daily":350}]}`,
			"stage 1 could never be passed: 24 hours of 5 are 120, and min_fill requires 0.5 of 350 a day: raise hourly, or lower daily or min_fill"},
		{"never good", `{"version":1,"health":{"advance_below":{"complaint":0}},"stages":[{"hourly":5,"daily":9}]}`,
			"health: advance_below.complaint is 0, and no day can be below that: raise it, or set min_sample = 0 to advance regardless of outcomes"},
		{"always paused", `{"version":1,"health":{"pause":{"share":0}},"stages":[{"hourly":5,"daily":9}]}`,
			"health: pause.share is 0, so that every provider would be paused: raise it, or set sample = 0 for no pauses"},
		{"pause", `{"version":1,"health":{"pause":{"sample":99}},"stages":[{"hourly":5,"daily":9}]}`, "health: pause.sample is 99: it must be from 1 to 64, or 0 for no pauses"},
	} {
		_, err := ParsePlan(strings.NewReader(c.plan))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	shrinking := `{"version":1,"shrinking":true,"stages":[{"hourly":50,"daily":350},{"hourly":50,"daily":300}]}`
	if _, err := ParsePlan(strings.NewReader(shrinking)); err != nil {
		t.Errorf("a plan that means to shrink: %v", err)
	}
	all := Plan{Stages: []Stage{{Caps: Caps{Hourly: 9, Daily: 5}}, {Caps: Caps{Daily: 5}}}, StartStage: 3}
	var found []string
	for _, f := range all.Faults() {
		found = append(found, fmt.Sprintf("%d %s", f.Stage, f.Setting))
	}
	if want := []string{"0 overflow", "0 pacing", "0 start_stage", "0 burst", "0 bucket_seconds", "0 peak", "0 sliding_hour_factor", "0 hour", "1 hourly", "2 hourly"}; !slices.Equal(found, want) {
		t.Errorf("all that is wrong: %q, want %q", found, want)
	}
}

// TestPlansAreWrittenAsTheyAreRead holds File against ParsePlan.
func TestPlansAreWrittenAsTheyAreRead(t *testing.T) {
	odd := DefaultPlan()
	odd.Overflow, odd.Pacing, odd.Burst, odd.BucketSeconds, odd.Peak, odd.SlidingHour = Hold, PID, 1.5, 60, 7, 1.25
	odd.StartStage, odd.Weights, odd.Shrinking, odd.SpreadEven, odd.Finish, odd.Hour = 2, map[string]float64{"google": .5}, true, true, true, 90*time.Second
	odd.Stages = []Stage{{Caps: Caps{50, 350}}, {Caps: Caps{40, 300}, Providers: map[string]Caps{"google": {Daily: 7}, Other: {Hourly: 9}}}}
	odd.Health.MinSample, odd.Health.Pause.Probe = 7, 8
	plans := []*Plan{&odd}
	for _, name := range PresetNames() {
		p, _ := Preset(name)
		plans = append(plans, p)
	}
	for _, p := range plans {
		text, err := json.Marshal(p.File())
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParsePlan(bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v in %s", p.Name, err, text)
			continue
		}
		if got.Name = p.Name; !reflect.DeepEqual(got, p) {
			t.Errorf("%s: written and read\n%+v, want\n%+v", p.Name, got, p)
		}
	}
}

func TestPresets(t *testing.T) {
	want := map[string]struct {
		stages                  int
		hourly, daily, lastHour int64
		lastDay                 int64
	}{
		"standard":  {14, 31, 250, 14_074, 112_590},
		"sendgrid":  {42, 20, 480, 19_601_056, 24 * 19_601_056},
		"sparkpost": {29, 25, 200, 1_250_000, 10_000_000},
		"mailtrap":  {21, 60, 300, 11_400, 57_000},
		"ses45":     {45, 6, 50, 6_250, 50_000},
		"linear":    {30, 125, 1000, 3_750, 30_000},
	}
	for _, name := range PresetNames() {
		p, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w, ok := want[name]
		first, last := p.Stages[0], p.Stages[len(p.Stages)-1]
		if ok && (len(p.Stages) != w.stages || first.Hourly != w.hourly || first.Daily != w.daily || last.Hourly != w.lastHour || last.Daily != w.lastDay) {
			t.Errorf("%s: %d stages from %+v to %+v, want %+v", name, len(p.Stages), first.Caps, last.Caps, w)
		}
	}
	// SendGrid's published hours.
	p, _ := Preset("sendgrid")
	for i, h := range []int64{20, 28, 39, 55, 77} {
		if p.Stages[i].Hourly != h {
			t.Errorf("sendgrid day %d: %d an hour, want %d", i, p.Stages[i].Hourly, h)
		}
	}
	if p.Health.MinSample != 0 || p.Stages[12].Hourly != 1000 {
		t.Errorf("sendgrid: %+v, day 12 has %d an hour", p.Health, p.Stages[12].Hourly)
	}
	if p, _ := Preset("sparkpost"); p.Health.MinFill != .9 {
		t.Errorf("sparkpost wants %v of a stage", p.Health.MinFill)
	}
	if _, err := Preset("nosuch"); err == nil {
		t.Error("a preset that does not exist was given")
	}
}

// TestDivideKeepsTheSum: the parts of numbered nodes add up to each cap, a provider's share included; those of
// nodes without numbers are never above it.
func TestDivideKeepsTheSum(t *testing.T) {
	p, _ := Preset("standard")
	p.Shares = map[string]float64{"google": .41, "yahoo": 1. / 3}
	p.Growths = map[string]float64{"yahoo": 1.3, "microsoft": 1.45}
	p.Stages[3].Providers = map[string]Caps{"google": {Daily: 77}}
	for _, n := range []int{2, 3, 5, 7} {
		sum := make([]map[string]Caps, len(p.Stages)+3) // the caps are eased out in three days
		for i := range sum {
			sum[i] = make(map[string]Caps)
		}
		add := func(i int, name string, c Caps) {
			s := sum[i][name]
			sum[i][name] = Caps{s.Hourly + c.Hourly, s.Daily + c.Daily}
		}
		floor, err := p.Divide(n, 0)
		if err != nil {
			t.Fatal(err)
		}
		for node := 1; node <= n; node++ {
			q, err := p.Divide(n, node)
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Stages {
				add(i, "", q.stage(i).Caps)
			}
			for i := range sum {
				for name := range p.named() {
					add(i, name, q.own(i, name))
				}
			}
		}
		for i := range sum {
			for name, got := range sum[i] {
				want, least := p.own(i, name), floor.own(i, name)
				if name == "" {
					want, least = p.stage(i).Caps, floor.stage(i).Caps
				}
				if got != want {
					t.Errorf("stage %d, %q: the parts of %d nodes are %+v together, want %+v", i+1, name, n, got, want)
				}
				if m := int64(n); least.Hourly != want.Hourly/m || least.Daily != want.Daily/m {
					t.Errorf("stage %d, %q: a node without a number has %+v of %+v", i+1, name, least, want)
				}
			}
		}
	}
	if _, err := p.Divide(100, 1); err == nil {
		t.Error("31 an hour were divided among 100 nodes")
	}
	p.Shares["google"] = .1
	if _, err := p.Divide(5, 5); err == nil || !strings.Contains(err.Error(), "google") {
		t.Errorf("a share of 4 an hour was divided among 5 nodes: %v", err)
	}
}

func FuzzParsePlan(f *testing.F) {
	f.Add(`{"version":1,"overflow":"hold","stages":[{"hourly":50,"daily":350,"providers":{"google":{"hourly":9}}}],"health":{"min_sample":0}}`)
	names, _ := filepath.Glob("testdata/*.json")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePlan(strings.NewReader(text))
		if err != nil {
			return
		}
		s := NewState(p, 0)
		i := s.Provider(p, "google")
		for now := Instant(0); now < 2*p.hour(); now += p.hour() / 7 {
			s.Advance(p, now)
			s.Grant(p, i, 1000, 0)
			if s.Total.Hour > s.Caps.Hourly || s.Total.Day > s.Caps.Daily {
				t.Fatalf("over the cap: %+v of %+v", s.Total, s.Caps)
			}
		}
	})
}
