package mta

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/sink"
	"example.org/mta/mta/config"
)

func TestTheFilesRulesComeFirst(t *testing.T) {
	cfg, err := config.Parse([]byte(`
backoff "mine" {
  provider  = "google"
  codes     = [421]
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
	rules, defaults := backoffRules(cfg), delivery.DefaultRules()
	mine := rules[0]
	if mine.Name != "mine" || mine.Provider != "google" || len(mine.Codes) != 1 || !mine.Pattern.MatchString("421 Too much") ||
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
	page, err := os.ReadFile("../docs/configuration.md")
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

func TestARuleSuspendsASite(t *testing.T) {
	refuse := sink.Refusal{Phase: sink.Mail, Reply: "450 4.9.9 acme is full"}
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{refuse}}, `defaults { smtp_port = PORT }`)
	suspensions := func() (reasons []string) {
		for _, s := range w.delivery.Sites("", 10) {
			for _, a := range s.Actions {
				reasons = append(reasons, a.What+": "+a.Reason)
			}
		}
		return reasons
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	if got := suspensions(); len(got) > 0 {
		t.Fatalf("no built-in rule is about this answer, and there is %v", got)
	}
	w.rewrite("rule", `
		listener "smtp" { address = "127.0.0.1:0" }
		defaults { smtp_port = `+w.port+` }
		backoff "full" {
			pattern = "ACME is full"
			suspend = "1h"
		}`)
	if _, err := w.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", letter, "eve@box.example")
	w.await("eve@box.example", "TransientFailure")
	got := suspensions()
	if len(got) != 1 || !strings.HasPrefix(got[0], "suspended: full: mx.box.example answered 450 4.9.9 acme is full") {
		t.Errorf("actions: %v", got)
	}
}
