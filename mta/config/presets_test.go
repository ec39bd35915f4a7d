package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/settings"
)

func TestPresetsAreOfTheProvidersThatTheIssueNames(t *testing.T) {
	want := []string{"google", "microsoft", "yahoo", "apple", "comcast", "gmx", "mail.ru", "orange", "mimecast", "proofpoint"}
	if got := presetNames(); !slices.Equal(got, want) {
		t.Errorf("presets %v, want %v", got, want)
	}
	for _, p := range Default().Providers {
		tr := Default().Traffic("example.com", p.Name)
		if tr.ConnectionLimitPerSource < 1 || tr.ConnectionLimitPerSource > tr.ConnectionLimit || tr.MaxConnectionRatePerSource == (Rate{}) {
			t.Errorf("%s: %d connections from a source of %d, begun at %s", p.Name, tr.ConnectionLimitPerSource, tr.ConnectionLimit, tr.MaxConnectionRatePerSource)
		}
	}
}

func TestABlockGoesBeforeItsPreset(t *testing.T) {
	c := mustParse(t, `
provider "google" {
  connection_limit               = 2
  max_connection_rate_per_source = "none"
  timeouts { dot = "3m" }
}
provider "mine" { mx = ["*.web.de", "*.yahoodns.net", "*.outlook.com", "mx.mail.com"] }
`)
	google := c.Traffic("gmail.com", "google")
	for _, x := range []struct {
		setting   string
		got, want any
		origin    string
	}{
		{"connection_limit", google.ConnectionLimit, 2, `provider "google" (mta.conf:3)`},
		{"max_connection_rate_per_source", google.MaxConnectionRatePerSource, Rate{}, `provider "google" (mta.conf:4)`},
		{"timeouts.dot", google.Timeouts.Dot, 3 * time.Minute, `provider "google" (mta.conf:5)`},
		{"max_deliveries_per_connection", google.MaxDeliveriesPerConnection, 50, `provider "google" (presets:`},
		{"max_message_rate", google.MaxMessageRate, Rate{}, "default"},
	} {
		if x.got != x.want || !strings.HasPrefix(google.Origin(x.setting), x.origin) {
			t.Errorf("%s is %v by %s, want %v by %s", x.setting, x.got, google.Origin(x.setting), x.want, x.origin)
		}
	}
	mx := make(map[string][]Pattern)
	for _, p := range c.Providers {
		mx[p.Name] = p.MX
	}
	want := map[string][]Pattern{
		"google": {"*.google.com", "*.googlemail.com"}, // from the preset
		"mine":   {"*.web.de", "*.yahoodns.net", "*.outlook.com", "mx.mail.com"},
		"gmx":    {"*.gmx.net", "*.mail.com"}, // without what is mine; one host of it goes by the router's rule

		"microsoft": {"*.mx.microsoft", "*.protection.office365.us"},
		"yahoo":     nil,
	}
	for name, patterns := range want {
		if !slices.Equal(mx[name], patterns) {
			t.Errorf("mx of %s is %v, want %v", name, mx[name], patterns)
		}
	}
}

func TestPresetsCanBeSwitchedOff(t *testing.T) {
	if c := mustParse(t, `presets = false`); len(c.Providers) > 0 {
		t.Errorf("there are providers: %v", c.Names("provider"))
	}
	if _, err := Parse([]byte("presets = false\nprovider \"google\" { connection_limit = 3 }"), "f", noEnv); err == nil {
		t.Error("a provider without exchangers was taken")
	}
}

func TestAPresetIsPrintedAsSuch(t *testing.T) {
	printed := string(Effective(mustParse(t, "provider \"orange\" {\n  connection_limit = 2\n}")))
	_, orange, _ := strings.Cut(printed, `provider "orange" {`)
	orange, _, _ = strings.Cut(orange, "}")
	orange = strings.Join(strings.Fields(orange), " ")
	for _, want := range []string{"connection_limit = 2 # line 2", "connection_limit_per_source = 3 # preset"} {
		if !strings.Contains(orange, want) {
			t.Errorf("%q is not in %q", want, orange)
		}
	}
	if !strings.Contains(printed, `provider "google"`) {
		t.Error("a preset without a block is not printed")
	}
}

// TestTheManualHasThePresets holds the table of the manual against the presets.
func TestTheManualHasThePresets(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Presets\n")
	section, _, _ = strings.Cut(section, "\n## ")
	columns := []string{"mx", "connection_limit", "connection_limit_per_source", "max_deliveries_per_connection", "max_connection_rate_per_source"}
	for _, p := range presets() {
		row := "| `" + p.Name + "` |"
		own := make(map[string]string)
		for _, name := range settings.Names(p) {
			if f, _ := named(reflect.ValueOf(p).Elem(), name); p.Set(name) {
				own[name] = settings.Literal(f.Value, "")
			}
		}
		for _, c := range columns {
			row += fmt.Sprintf(" `%s` |", own[c])
			delete(own, c)
		}
		if !strings.Contains(section, row+"\n") {
			t.Errorf("the manual does not have\n%s", row)
		}
		for name := range own {
			t.Errorf("the manual's table has no column for %s, which %s has", name, p.Name)
		}
	}
}

func TestBackoffRules(t *testing.T) {
	c := mustParse(t, `
backoff "busy" {
  provider  = "google"
  codes     = [421, 450]
  pattern   = "4\\.7\\.[0-9]+ TOO many"
  suspend   = "10m"
  by_source = true
}
backoff "session" {
  session = true
  fewer   = "5m"
}`)
	busy := *c.Backoffs[0]
	busy.block = block{}
	want := Backoff{Name: "busy", Provider: "google", Codes: []int{421, 450}, Pattern: `4\.7\.[0-9]+ TOO many`, Suspend: 10 * time.Minute, Slow: 10 * time.Minute, BySource: true}
	if !reflect.DeepEqual(busy, want) {
		t.Errorf("got %+v, want %+v", busy, want)
	}
	if p := busy.Pattern.Compile(); !p.MatchString("421 4.7.28 too many messages") || p.MatchString("421 4x7.28 too many") {
		t.Errorf("%s does not find what it should", p)
	}
	if s := c.Backoffs[1]; !s.Session || s.Fewer != 5*time.Minute || s.Pattern.Compile() != nil {
		t.Errorf("got %+v", s)
	}
	again := mustParse(t, string(Effective(c)))
	wantSame(t, "printed rules", c, again)
}
