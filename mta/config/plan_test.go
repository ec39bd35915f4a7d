package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/settings"
	"example.org/mta/warmup"
)

const planned = `
source "shared-1" { address = "192.0.2.10" }
source "shared-2" { address = "2001:db8::10" }
source "acme-1" { address = "192.0.2.20" }
source "acme-2" { address = "192.0.2.21" }
source "news-1" { address = "192.0.2.22" }
plan "careful" {
  preset  = "standard"
  spread  = "even"
  weights = { google = 2.5, "mail.ru" = 1 }
  health {
    min_fill = 0.25
    pause { sample = 0 }
  }
}
plan "standard" {
  shrinking = true
  stage {
    hourly = 50
    daily  = 350
    provider "google" { daily = 90 }
  }
  stage {
    hourly = 40
    daily  = 560
    provider "google" { hourly = 7 }
    provider "other" { hourly = 20 }
  }
}
pool "acme" {
  shared = ["shared-2"]
  dedicated "acme-1" { plan = "careful" }
  dedicated "acme-2" {}
}
pool "news" {
  dedicated "acme-1" { plan = "careful" }
  dedicated "news-1" { plan = "sendgrid" }
}
tenant "acme" { pool = "acme" }
`

func TestPools(t *testing.T) {
	c := mustParse(t, planned)
	acme := c.PoolOf("acme")
	if acme.Overflow != "shared" || acme.Dedicated[0].Name != "acme-1" || acme.Dedicated[0].Plan != "careful" || acme.Dedicated[1].Plan != "" {
		t.Errorf("acme's pool is %+v", acme)
	}
	if got, want := acme.Sources(), []string{"acme-1", "acme-2", "shared-2"}; !slices.Equal(got, want) {
		t.Errorf("acme's sources are %q, want %q", got, want)
	}
	if got := c.Pool("news").Overflow; got != "hold" {
		t.Errorf("the overflow of a pool without shared sources is %q", got)
	}
}

func TestPlansAreReadyForUse(t *testing.T) {
	c := mustParse(t, planned)
	preset, err := warmup.Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	careful := *preset
	careful.Name, careful.SpreadEven = "careful", true
	careful.Weights = map[string]float64{"google": 2.5, "mail.ru": 1}
	careful.Health.MinFill, careful.Health.Pause.Sample = .25, 0

	own := warmup.DefaultPlan()
	own.Name, own.Shrinking = "standard", true
	own.Stages = []warmup.Stage{
		{Caps: warmup.Caps{Hourly: 50, Daily: 350}, Providers: map[string]warmup.Caps{"google": {Daily: 90}}},
		{Caps: warmup.Caps{Hourly: 40, Daily: 560}, Providers: map[string]warmup.Caps{"google": {Hourly: 7}, "other": {Hourly: 20}}},
	}
	sendgrid, _ := warmup.Preset("sendgrid")
	for name, want := range map[string]*warmup.Plan{"careful": &careful, "standard": &own, "sendgrid": sendgrid} {
		got := c.WarmupPlan(name)
		if w := plainWeights(*got); !reflect.DeepEqual(w, plainWeights(*want)) {
			t.Errorf("%s: got\n%+v, want\n%+v", name, *got, *want)
		}
		if got != c.WarmupPlan(name) {
			t.Errorf("%s: made anew when asked again", name)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.WarmupPlan("nosuch") != nil {
		t.Error("a plan that nobody wrote was given")
	}
	want := slices.Sorted(slices.Values(append(warmup.PresetNames(), "careful")))
	if got := c.WarmupPlans(); !slices.Equal(got, want) {
		t.Errorf("the plans are %q, want %q", got, want)
	}
}

// TestShortHours: only the environment of a relay under test makes hours short, and a warning says so.
func TestShortHours(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mta.conf")
	if err := os.WriteFile(path, []byte("plan \"p\" { preset = \"standard\" }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]time.Duration{"": time.Hour, "10s": 10 * time.Second, "1": 0, "10ms": 0, "2h": 0} {
		c, err := Load(path, func(name string) string { return map[string]string{testHours: value}[name] })
		if want == 0 {
			if err == nil || !strings.Contains(err.Error(), "MTA_TEST_HOURS="+value) {
				t.Errorf("%s: got %v", value, err)
			}
			continue
		}
		if err != nil || c.WarmupPlan("p").Hour != want || c.WarmupPlan("standard").Hour != want || len(c.Warnings()) > 0 != (value != "") {
			t.Errorf("%s: got %v, %v", value, err, c.Warnings())
		}
	}
}

// TestPlanOfSeveralNodes: relays that share an address keep a plan together.
func TestPlanOfSeveralNodes(t *testing.T) {
	const text = `plan "p" {
		preset = "standard"
		nodes  = 2
		NODE
		stage {
			hourly = 51
			daily  = 350
			provider "other" { hourly = 7 }
		}
	}`
	for node, hourly := range map[string][2]int64{"": {25, 3}, "node = 1": {26, 4}, "node = 2": {25, 3}} {
		c := mustParse(t, strings.Replace(text, "NODE", node, 1))
		want := warmup.Stage{Caps: warmup.Caps{Hourly: hourly[0], Daily: 175}, Providers: map[string]warmup.Caps{"other": {Hourly: hourly[1]}}}
		if got := c.WarmupPlan("p").Stages; !reflect.DeepEqual(got, []warmup.Stage{want}) {
			t.Errorf("%s: got %+v, want %+v", node, got, want)
		}
		if text := string(Effective(c)); !strings.Contains(text, "hourly = 51") || !strings.Contains(text, "nodes") {
			t.Errorf("the configuration in force is not shown as the file has it:\n%s", text)
		}
	}
	const member = `cluster {
		database    = "host=db"
		address     = "10.0.0.1:2571"
		certificate = "/c"
		key         = "/k"
		ca          = "/ca"
	}
	`
	for text, want := range map[string]int{member + strings.Replace(text, "NODE", "", 1): 1, member: 0, text[:0]: 0} {
		if w := mustParse(t, text).Warnings(); len(w) != want || want > 0 && !strings.Contains(w[0], "nodes = 2 divides") {
			t.Errorf("the warnings are %q", w)
		}
	}
	_, err := Parse([]byte(strings.Replace(text, "NODE", "node = 3", 1)), "f", os.Getenv)
	if err == nil || !strings.Contains(err.Error(), ":4:10: node 3 of 2 relays") {
		t.Errorf("a third node of two: %v", err)
	}
}

// plainWeights gives the plan with weights in the plain type.
func plainWeights(p warmup.Plan) warmup.Plan {
	p.Weights = map[string]float64(p.Weights)
	if len(p.Weights) == 0 {
		p.Weights = nil
	}
	return p
}

func TestPlanDefaultsAreThoseOfWarmup(t *testing.T) {
	c := mustParse(t, "plan \"p\" {\n stage {\n hourly = 5\n daily = 9\n}\n}\n")
	want := warmup.DefaultPlan()
	want.Name, want.Stages = "p", []warmup.Stage{{Caps: warmup.Caps{Hourly: 5, Daily: 9}}}
	if got := plainWeights(*c.WarmupPlan("p")); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestPlansInADiff(t *testing.T) {
	a := mustParse(t, planned)
	b := mustParse(t, strings.NewReplacer("hourly = 7", "hourly = 8", `plan = "sendgrid"`, `plan = "careful"`,
		"2.5", "3", "min_fill = 0.25", "min_fill = 0.4").Replace(planned))
	var got []string
	for _, c := range settings.Diff(a, b) {
		got = append(got, c.String())
	}
	want := []string{
		`plan "careful": weights = { "google" = 3, "mail.ru" = 1 } (was { "google" = 2.5, "mail.ru" = 1 })`,
		`plan "careful": health.min_fill = 0.4 (was 0.25)`,
		`plan "standard": stage 2: provider "google": hourly = 8 (was 7)`,
		`pool "news": dedicated "news-1": plan = "careful" (was "sendgrid")`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPrintMarksWhatIsOfAPreset(t *testing.T) {
	out := string(Effective(mustParse(t, planned)))
	out = regexp.MustCompile(" +").ReplaceAllString(out, " ")
	for _, want := range []string{"\n finish = true # preset", "\n hourly = 31 # preset", " provider \"google\" {\n hourly = 7 # line", " dedicated \"acme-2\" {\n }\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
}

// TestTheWarmupPage reads the examples of docs/warmup.md.
func TestTheWarmupPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/warmup.md")
	if err != nil {
		t.Fatal(err)
	}
	read := make(map[string]int)
	for _, m := range regexp.MustCompile("(?s)\n```(\\w+)\n(.*?)\n```").FindAllStringSubmatch(string(page), -1) {
		read[m[1]]++
		switch m[1] {
		case "hcl":
			mustParse(t, m[2])
		case "json":
			if _, err := warmup.ParsePlan(strings.NewReader(m[2])); err != nil {
				t.Errorf("%v in\n%s", err, m[2])
			}
		}
	}
	if read["hcl"] < 2 || read["json"] < 1 {
		t.Errorf("the examples are gone: %v", read)
	}
}

// TestTheDefaultPoolLeavesDedicatedSourcesOut: mail without a tenant must not take a source that
// warms up for somebody.
func TestTheDefaultPoolLeavesDedicatedSourcesOut(t *testing.T) {
	c := mustParse(t, planned)
	if got, want := c.Pool(DefaultPool).Shared, []string{"shared-1", "shared-2"}; !slices.Equal(got, want) {
		t.Errorf("the default pool has %q, want %q", got, want)
	}
	none := mustParse(t, `
listener "smtp" {
  address = ":25"
  tenant  = "acme"
}
source "a" { address = "192.0.2.1" }
pool "acme" {
  dedicated "a" { plan = "standard" }
}
tenant "acme" { pool = "acme" }
`)
	if p := none.PoolOf(""); p == nil || len(p.Sources()) > 0 || p.Overflow != "hold" {
		t.Errorf("all sources are dedicated, the default pool is %+v", p)
	}
	if _, err := Parse(Effective(none), "effective.conf", noEnv); err != nil {
		t.Errorf("printed, it does not load: %v", err)
	}
}

// TestSharesOfAPlan: they must be shares, of providers that there are.
func TestSharesOfAPlan(t *testing.T) {
	plan := func(inner string) (*Config, error) {
		return Parse([]byte("plan \"p\" {\n  preset = \"standard\"\n  "+inner+"\n}\n"), "f", os.Getenv)
	}
	c, err := plan(`provider "google" { share = 0.4 }`)
	if err != nil || c.WarmupPlan("p").Shares["google"] != .4 {
		t.Fatalf("%v", err)
	}
	for text, want := range map[string]string{
		`provider "google" { share = 1.4 }`: `f:3:31: plan "p": the share of provider "google" is 1.4`,
		`provider "google" { }`:             `f:3:3: plan "p": the share of provider "google" is 0`,
		`provider "gogle" { share = 0.4 }`:  `gogle`,
	} {
		if _, err := plan(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAPresetsHealth: what a preset wants of a stage comes with its stages, unless the block says otherwise.
func TestAPresetsHealth(t *testing.T) {
	c := mustParse(t, "plan \"a\" { preset = \"sendgrid\" }\nplan \"b\" {\n  preset = \"sendgrid\"\n  health { min_sample = 50 }\n}\n")
	if a, b := c.WarmupPlan("a").Health.MinSample, c.WarmupPlan("b").Health.MinSample; a != 0 || b != 50 {
		t.Errorf("min_sample is %d, and %d where the file has 50", a, b)
	}
}

func TestPatienceIsShorterThanMaxAge(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{`pool "default" {
			shared   = ["a"]
			patience = "6d"
		}`, "patience: 144h0m0s is longer than max_age"},
		{`pool "p" {
			shared = ["default"]
			tier_patience = ["0s", "6d"]
		}`, "tier_patience: 144h0m0s is longer than max_age"},
		{`pool "p" {
			shared = ["default"]
			patience = "1h"
			tier_patience = ["0s", "4d"]
		}`, "remove patience"},
		{`pool "p" {
			shared = ["default"]
			tier_patience = ["0s", "0s", "0s", "0s", "0s", "0s", "1h"]
		}`, "has 7 durations, but there are 6 tiers"},
		{`tenant "t" { patience = "6d" }`, "patience: 144h0m0s is longer than max_age"},
		{`tenant "t" { patience = "4d" }`, ""},
	} {
		_, err := Parse([]byte("source \"a\" {}\n"+x.text), "test.conf", nil)
		if got := fmt.Sprint(err); x.want == "" && err != nil || !strings.Contains(got, x.want) {
			t.Errorf("%s: %v, want %q", x.text, err, x.want)
		}
	}
}

func TestPatienceOfATier(t *testing.T) {
	c, err := Parse([]byte(`
		source "a" {}
		pool "p" {
			shared        = ["a"]
			tier_patience = ["0s", "10m", "4h"]
		}
		tenant "t" { pool = "p" }
		tenant "u" {
			pool     = "p"
			patience = "1h"
		}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	for tier, want := range []time.Duration{0, 10 * time.Minute, 4 * time.Hour, 4 * time.Hour, 4 * time.Hour, 4 * time.Hour} {
		if got := c.Pool("p").PatienceOf(c.Tenant("t"), tier); got != want {
			t.Errorf("tier %d: %v, want %v", tier, got, want)
		}
		if got := c.Pool("p").PatienceOf(c.Tenant("u"), tier); got != time.Hour {
			t.Errorf("tier %d of a tenant with its own: %v", tier, got)
		}
	}
	pool := c.Pool("p")
	pool.Dedicated = append(pool.Dedicated, &Dedicated{Plan: "of p"})
	for plan, want := range map[string]time.Duration{"of p": 10 * time.Minute, "of none": 30 * time.Second} {
		if got := c.PatienceOf(plan, 1); got != want {
			t.Errorf("mail of tier 1 waits %v for a plan %s", got, plan)
		}
	}
	for _, x := range []struct {
		patience      time.Duration
		urgent, later time.Duration
	}{{DefaultPatience, 30 * time.Second, DefaultPatience}, {10 * time.Second, 10 * time.Second, 10 * time.Second}, {}} {
		p := &Pool{Patience: x.patience}
		if urgent, later := p.PatienceOf(nil, DefaultTier-1), p.PatienceOf(nil, DefaultTier); urgent != x.urgent || later != x.later {
			t.Errorf("of %v: %v before the tier, %v from it on", x.patience, urgent, later)
		}
	}
}
