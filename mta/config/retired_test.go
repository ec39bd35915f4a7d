package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/mta/internal/settings"
)

// TestRetiredSettings: a file of an earlier version is read, and each setting that is gone has a warning.
func TestRetiredSettings(t *testing.T) {
	const text = `router { workers = 7 }
suppression {
  feed_status = ["5.1.1"]
  flood { min = 3 }
}
defaults {
  backlog_threshold = 5
}
plan "p" {
  preset = "standard"
  peak   = 3
}
`
	c, problems := parse([]byte(text), "mta.conf", noEnv, func() string { return "host.example" })
	if problems.Err() != nil {
		t.Fatal(problems.Err())
	}
	if got := c.Warnings(); len(got) != 5 || !strings.HasPrefix(got[0], "mta.conf:1: workers is not a setting any more") {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	if changes := settings.Diff(c, mustParse(t, "plan \"p\" { preset = \"standard\" }")); len(changes) > 0 {
		t.Errorf("the settings have an effect: %v", changes)
	}
}

// TestRetiredAreNotSettings: what there is in a block is not retired there, and each retired block is one.
func TestRetiredAreNotSettings(t *testing.T) {
	var types []string
	for _, v := range blocks() {
		types = append(types, v.Type().Name())
		for f := range settings.Fields(v) {
			if _, ok := retired[fmt.Sprint(v.Type().Name(), " ", f.Name)]; ok {
				t.Errorf("%s of %s is a setting", f.Name, v.Type().Name())
			}
		}
	}
	for name := range retired {
		if block, _, ok := strings.Cut(name, " "); ok && !slices.Contains(types, block) {
			t.Errorf("%s: there is no block of that type", name)
		}
	}
}
