package mta

import (
	"slices"

	"example.org/mta/delivery"
	"example.org/mta/mta/config"
)

// backoffRules gives the rules of the configuration and behind them the built-in ones, but for those
// whose name the configuration has taken.
func backoffRules(cfg *config.Config) []delivery.Rule {
	var rules []delivery.Rule
	for _, b := range cfg.Backoffs {
		rules = append(rules, delivery.Rule{
			Name:     b.Name,
			Provider: b.Provider,
			Codes:    b.Codes,
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
