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
		rule := delivery.Rule{
			Name:        b.Name,
			Provider:    b.Provider,
			Codes:       b.Codes,
			Classes:     b.ClassList(),
			Pattern:     b.Pattern.Compile(),
			Session:     b.Session,
			Fewer:       b.Fewer,
			Suspend:     b.Suspend,
			Rate:        rate(b.Rate),
			RateFactor:  b.RateFactor,
			Connections: b.Connections,
			BySource:    b.BySource,
			After:       rate(b.After),
		}
		if b.Slows() {
			rule.Slow = b.Slow
		}
		rules = append(rules, rule)
	}
	own := len(rules)
	for _, r := range delivery.DefaultRules() {
		if !slices.ContainsFunc(rules[:own], func(o delivery.Rule) bool { return o.Name == r.Name }) {
			rules = append(rules, r)
		}
	}
	return rules
}
