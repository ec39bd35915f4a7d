package wiring

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/mta/config"
)

func TestTheFilesRulesComeFirst(t *testing.T) {
	cfg, err := config.Parse([]byte(`
backoff "mine" {
  provider  = "google"
  codes     = [421]
  classes   = ["SpamBlock"]
  pattern   = "too much"
  session   = true
  fewer     = "2m"
  suspend   = "3m"
  by_source = true
}
backoff "busy" { codes = [421] }
`), "test.conf", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	rules, defaults := Backoff(cfg), delivery.DefaultRules()
	mine := rules[0]
	if mine.Name != "mine" || mine.Provider != "google" || len(mine.Codes) != 1 || !slices.Equal(mine.Classes, []bounce.Class{bounce.SpamBlock}) || !mine.Pattern.MatchString("421 Too much") ||
		!mine.Session || mine.Fewer != 2*time.Minute || mine.Suspend != 3*time.Minute || !mine.BySource {
		t.Errorf("the first rule is %+v", mine)
	}
	if len(rules) != len(defaults)+1 { // "busy" took the place of one
		t.Errorf("%d rules, want one more than the %d built-in ones", len(rules), len(defaults))
	}
	for i, r := range rules {
		if r.Name == "busy" && (i != 1 || r.Fewer != 0) {
			t.Errorf("busy is rule %d: %+v", i, r)
		}
	}
}

func TestTheManualNamesTheBuiltInRules(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\nThe built-in rules: ")
	list, _, _ = strings.Cut(list, "\n")
	var names []string
	for _, r := range delivery.DefaultRules() {
		names = append(names, "`"+r.Name+"`")
	}
	if want := strings.Join(names, ", ") + "."; list != want {
		t.Errorf("the manual has %s, the program %s", list, want)
	}
}
