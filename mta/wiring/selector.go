package wiring

import (
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/submission/intake"
)

// Selectors select the messages that any of them matches.
type Selectors []selector

type selector struct {
	*config.Selector
	marks []string
}

func newSelectors(all []*config.Selector) (s Selectors) {
	for _, x := range all {
		one := selector{Selector: x}
		for _, m := range marksOf(x) {
			one.marks = append(one.marks, m.Text)
		}
		s = append(s, one)
	}
	return s
}

// marksOf are the header fields that a selector looks for.
func marksOf(s *config.Selector) (marks []intake.Mark) {
	for _, h := range s.Headers {
		name, value, _ := config.Mark(h) // checked with the file
		marks = append(marks, intake.Mark{Text: strings.ToLower(name + ": " + value), Name: name, Value: value})
	}
	return marks
}

// marks are the header fields that any selector of a configuration looks for.
func marks(cfg *config.Config) (all []intake.Mark) {
	for _, s := range cfg.Selectors() {
		for _, m := range marksOf(s) {
			if !slices.ContainsFunc(all, func(x intake.Mark) bool { return x.Text == m.Text }) {
				all = append(all, m)
			}
		}
	}
	return all
}

// Has reports whether a message is selected.
func (s Selectors) Has(m *envelope.Message) bool {
	for i := range s {
		if s[i].has(m) {
			return true
		}
	}
	return false
}

func (s *selector) has(m *envelope.Message) bool {
	return (len(s.Tenants) == 0 || slices.Contains(s.Tenants, m.Tenant)) &&
		(len(s.Tiers) == 0 || slices.Contains(s.Tiers, int(m.Tier))) &&
		(len(s.Campaigns) == 0 || slices.Contains(s.Campaigns, m.Campaign)) &&
		(len(s.SenderDomains) == 0 || slices.ContainsFunc(s.SenderDomains, func(d string) bool {
			return strings.EqualFold(d, m.Sender.Domain())
		})) &&
		(len(s.marks) == 0 || slices.ContainsFunc(s.marks, func(x string) bool { return slices.Contains(m.Marks, x) }))
}
