package api

import (
	"strings"
	"testing"
)

// TestRefusalsInWords: what an operator reads about a request names the remedy, and nothing of the program.
func TestRefusalsInWords(t *testing.T) {
	check := func(b AddRule) error { return b.Check() }
	all := Selection{All: true}
	_, long := ParseAge("99999w")
	if _, err := ParseAge("15000w"); err != nil || Age(maxAge).String() != "15000w" {
		t.Errorf("the longest age: %v", err)
	}
	for want, err := range map[string]error{
		"to mean all mail: --all; in a request,":     check(AddRule{Action: RuleBounce}),
		"for: want a time ahead":                     check(AddRule{Action: RuleBounce, Selection: all, For: new(Age)}),
		"slow needs a rate":                          check(AddRule{Action: RuleSlow, Selection: all}),
		"only slow has a rate, and hold has none":    check(AddRule{Action: RuleHold, Selection: all, Rate: "1/s"}),
		"reroute needs a host":                       check(AddRule{Action: RuleReroute, Selection: all}),
		"only reroute has a host, and hold has none": check(AddRule{Action: RuleHold, Selection: all, Host: "a.example"}),
		"up to 128 octets":                           check(AddRule{Action: RuleBounce, Selection: Selection{Campaign: strings.Repeat("c", 129)}}),
		`"99999w" is too long: at most 15000w`:       long,
		"reading the request: for can't be a number": readJSON(strings.NewReader(`{"for": 3600}`), new(AddRule)),
	} {
		text := ""
		if err != nil {
			text = err.Error()
			if e, ok := err.(*Error); ok {
				text += " " + e.Hint
			}
		}
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if err := check(AddRule{Action: RuleBounce, Selection: Selection{Campaign: strings.Repeat("c", 128)}}); err != nil {
		t.Error(err)
	}
}
