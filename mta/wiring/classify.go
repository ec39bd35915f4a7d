package wiring

import (
	"regexp"
	"strings"

	"example.org/mta/bounce"
	"example.org/mta/mta/config"
)

// Classify makes the rules by which replies are classified before the built-in ones.
func Classify(cfg *config.Config) []bounce.Named {
	rules := make([]bounce.Named, len(cfg.Classifies))
	for i, c := range cfg.Classifies {
		r := bounce.Rule{Class: c.Class.Class(), Provider: c.Provider, Codes: c.Codes}
		for _, s := range c.Status {
			st, _ := bounce.ParseStatus(string(s)) // it was read
			r.Status = append(r.Status, st)
		}
		for _, w := range c.Words {
			r.Phrases = append(r.Phrases, strings.ToLower(w))
		}
		if c.Pattern != "" {
			r.Patterns = []*regexp.Regexp{c.Pattern.Compile()}
		}
		rules[i] = bounce.Named{Name: c.Name, Rule: r}
	}
	return rules
}
