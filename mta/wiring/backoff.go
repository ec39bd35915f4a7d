package wiring

import (
	"slices"

	"example.org/mta/delivery"
	"example.org/mta/mta/config"
)

// Backoff makes the back-off rules: those of the configuration, then the built-in ones except those
// whose name the configuration uses.
func Backoff(cfg *config.Config) []delivery.Rule {
	var rules []delivery.Rule
	for _, b := range cfg.Backoffs {
		rules = append(rules, delivery.Rule{
			Name:     b.Name,
			Provider: b.Provider,
			Codes:    b.Codes,
			Classes:  b.ClassList(),
			Pattern:  b.Pattern.Compile(),
			Session:  b.Session,
			Fewer:    b.Fewer,
			Suspend:  b.Suspend,
			BySource: b.BySource,
		})
	}
	own := len(rules)
	for _, r := range delivery.DefaultRules() {
		if !slices.ContainsFunc(rules[:own], func(o delivery.Rule) bool { return o.Name == r.Name }) {
			rules = append(rules, r)
		}
	}
	return rules
}
