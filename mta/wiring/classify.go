package wiring

import (
	"regexp"
	"strings"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/mta/config"
	"example.org/mta/suppression"
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

const (
	day      = 24 * time.Hour
	feedKeep = 90 * day // how long an address stays on the list, unless a block of its class has another time
)

// Feed makes the rules by which refusals put addresses on the suppression list: those of the configuration, and the
// built-in ones for classes that it does not name.
func Feed(cfg *config.Config) *suppression.FeedSettings {
	c := &cfg.Suppression
	rules := map[bounce.Class]suppression.Rule{
		bounce.InvalidRecipient: {After: 1, Keep: feedKeep},
		bounce.BadDomain:        {After: 1, Keep: feedKeep},
		// A mailbox that nobody has used for long is not always gone: some hosts say so of those that get too much for
		// now.
		bounce.InactiveMailbox: {After: 3, Within: 30 * day, Keep: feedKeep},
		// A full mailbox may belong to somebody on holiday. Five weeks of a weekly letter, or five days of a daily one.
		bounce.QuotaIssues: {After: 5, Within: 60 * day, Keep: 30 * day},
	}
	for _, own := range c.Classes {
		class, err := bounce.ParseClass(string(own.Class))
		switch {
		case err != nil: // checked with the file
		case own.After == 0:
			delete(rules, class)
		default:
			rules[class] = suppression.Rule{After: own.After, Within: own.Within, Keep: own.Keep}
		}
	}
	// Below 50 a day small hosts are believed; a quarter of unknown recipients, or five times the usual share, is a
	// flood.
	flood := suppression.Flood{Factor: 5, Share: 0.25, Min: 50}
	return &suppression.FeedSettings{Bounces: c.Feed, Classes: rules, Flood: flood}
}
