package config

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/settings"
)

// Classify gives a class to replies.
//
// A [class](bounces.md#classes) for replies that the built-in rules do not know, or know otherwise. The first matching
// block applies, then the built-in rules. All conditions of a block must hold; of `words` and `pattern`, one must be
// in the reply. `mta bounce classify --reply` tries a block.
type Classify struct {
	block
	Name string `conf:",label"`

	// The class; required.
	Class ReplyClass `conf:"class"`
	// The name of a provider. Default: any site.
	Provider string `conf:"provider"`
	// Reply codes. Default: all from 400 to 599.
	Codes []int `conf:"codes" min:"400" max:"599"`
	// Enhanced status codes: `"5.1.1"`, `"x.1.1"` for 4.1.1 and 5.1.1, `"5.7.606-649"`, `"x.6.*"`. Default: any.
	Status []StatusRange `conf:"status"`
	// Phrases of 2 to 200 octets, one of which is in `552 5.2.2 the text`, case-insensitively. Default: any text.
	Words []string `conf:"words"`
	// A regular expression of at most 1,000 octets, as in [`backoff`](#backoff-name). At most ten patterns may lack
	// a word that the reply must have: they are tried on every reply. Default: any text.
	Pattern Regexp `conf:"pattern"`
}

// ReplyClass is the name of a class of replies.
type ReplyClass string

// UnmarshalText takes the name of a class.
func (c *ReplyClass) UnmarshalText(text []byte) error {
	if _, err := bounce.ParseClass(string(text)); err != nil {
		remedy := "docs/bounces.md has the classes, such as InvalidRecipient or SpamBlock"
		if guess := legible.Nearest(string(text), bounce.Names()); guess != "" {
			remedy = `did you mean "` + guess + `"?`
		}
		return settings.Wrong(remedy, "there is no class %s", settings.Quoted(string(text)))
	}
	*c = ReplyClass(text)
	return nil
}

// Class gives the class itself, bounce.None of the zero value.
func (c ReplyClass) Class() bounce.Class {
	class, _ := bounce.ParseClass(string(c)) // it was read
	return class
}

// classesOf gives the classes themselves.
func classesOf(names []ReplyClass) []bounce.Class {
	var all []bounce.Class
	for _, n := range names {
		all = append(all, n.Class())
	}
	return all
}

// StatusRange is a range of enhanced status codes: 5.1.1, x.1.1, 5.7.606-649 or x.6.*.
type StatusRange string

// UnmarshalText takes a range.
func (s *StatusRange) UnmarshalText(text []byte) error {
	if _, err := bounce.ParseStatus(string(text)); err != nil {
		return settings.Wrong(`write it as "5.1.1", "x.1.1" for any class, "5.7.606-649" or "x.6.*"`,
			"%s is not an enhanced status code", settings.Quoted(string(text)))
	}
	*s = StatusRange(text)
	return nil
}

// What bounds the work on a reply.
const (
	maxClassify   = 1000 // blocks
	maxPhrase     = 200  // octets of a phrase
	maxExpression = 1000 // octets of a pattern
	maxWordless   = 10   // patterns that are tried on each reply that was not seen lately
)

func (k checker) classifies() {
	wordless := 0
	for i, r := range k.Classifies {
		if r.Class == "" && !r.Set("class") {
			k.problem(&r.block, "class", `write one, such as class = "QuotaIssues"`, "classify %q has no class", r.Name)
		}
		if r.Provider != "" && k.resolved.providers[r.Provider] == nil {
			k.reference(&r.block, "provider", "provider", r.Provider, k.Names("provider"))
		}
		if len(r.Codes)+len(r.Status)+len(r.Words) == 0 && r.Pattern == "" && !r.Set("codes") && !r.Set("status") &&
			!r.Set("words") && !r.Set("pattern") {
			k.problem(&r.block, "words",
				`write a condition, such as words = ["over the limit"], codes = [552], or status = ["5.2.2"]`,
				"classify %q would give its class to every refusal", r.Name)
		}
		for _, w := range r.Words {
			if len(strings.TrimSpace(w)) < 2 || len(w) > maxPhrase {
				k.problem(&r.block, "words", "write what the reply has, such as \"over the limit\"",
					"words: %s must have from 2 to %d octets", settings.Quoted(w), maxPhrase)
			}
		}
		if len(r.Pattern) > maxExpression {
			k.problem(&r.block, "pattern", "write several classify blocks",
				"pattern: it has %d octets, and at most %d are allowed", len(r.Pattern), maxExpression)
		}
		if r.Pattern != "" && bounce.Needs(anyCase+string(r.Pattern)) == nil {
			if wordless++; wordless > maxWordless {
				k.problem(&r.block, "pattern", `add a word of the reply to it, such as "quota.*[0-9]+ MB"`,
					"pattern: at most %d patterns may be without a word that the reply must have: each costs time "+
						"with every reply", maxWordless)
			}
		}
		if i == maxClassify {
			k.problem(&r.block, "", "put several words into a block",
				"there are more than %d classify blocks", maxClassify)
		}
	}
}

// Backoff says what a refusal leads to besides its own recipient's fate.
//
// The effect of a refusal on other mail, beyond its own recipient. The first matching rule applies: those of the file
// in their order, then the built-in ones. A rule with the name of a built-in one replaces it; a rule without an action
// stops the search. Further refusals never extend `suspend` and `fewer`.
//
// With `rate`, `rate_factor` or `connections` mail goes on within these limits. After `slow` without another such
// refusal they double, then again every fifth of that time, and after eight doublings the slow-down ends. A refusal
// takes the last doubling back, and `slow` begins anew.
//
// The built-in rules: `google-block`, `google-rate`, `google-recipient-rate`, `microsoft-throttle`, `microsoft-block`,
// `yahoo-deferred`, `orange-rate`, `apple-rate`, `comcast-rate`, `gmx-rate`, `mail.ru-rate`, `mimecast-rate`,
// `proofpoint-rate`, `blocked`, `too-many-connections`, `rate`, `busy`, `greeting-timeout`.
//
// They depend on the [class](bounces.md#classes) of a reply: a block of the source, whatever its code (`blocked`, 15
// minutes, at any site), too much mail, too many connections.
//
//	backoff "example-too-fast" {
//	  provider  = "example"
//	  codes     = [421, 451]
//	  pattern   = "4\\.7\\.[0-9]+ .*too fast"
//	  rate      = "10/min"
//	  by_source = true
//	}
type Backoff struct {
	block
	Name string `conf:",label"`

	// The name of a provider. Default: any site.
	Provider string `conf:"provider"`
	// Reply codes. Default: all from 400 to 599.
	Codes []int `conf:"codes" min:"400" max:"599"`
	// [classes](bounces.md#classes) of replies, such as `["RateLimited"]`. Default: any.
	Classes []ReplyClass `conf:"classes"`
	// A regular expression ([RE2](https://github.com/google/re2/wiki/Syntax)), matched against `421 4.7.0 the text`,
	// case-insensitively. Write a backslash as `\\`. Default: any text.
	Pattern Regexp `conf:"pattern"`
	// Only refusals of a session as a whole: connect, greeting, EHLO, TLS, AUTH.
	Session bool `conf:"session"`

	// Halve the connections to the site, for this time; `"0"`: no.
	Fewer time.Duration `conf:"fewer" min:"0" max:"1d"`
	// Suspend the site for this time; `"0"`: no. At most 1d, like `fewer`.
	Suspend time.Duration `conf:"suspend" min:"0" max:"1d"`
	// Send this many messages at most.
	Rate Rate `conf:"rate"`
	// Or this part of the rate at which the site has taken mail of late, from 0.001 to 1.
	RateFactor float64 `conf:"rate_factor"`
	// This many connections at most.
	Connections int `conf:"connections" min:"0"`
	// How long `rate`, `rate_factor` and `connections` apply after the last refusal, before they double.
	Slow time.Duration `conf:"slow" default:"10m" min:"10s" max:"1d"`
	// Suspend or slow down the site only for the refused source. Its mail waits, and uses no other source of the pool.
	BySource bool `conf:"by_source"`
	// The number of refusals of a source by a site, up to 1,000, within a time: `"3/h"` applies the rule to the third
	// within an hour. Others go on to the next rules. Default: each refusal.
	After Rate `conf:"after"`
}

// Slows reports whether the rule slows a site down.
func (b *Backoff) Slows() bool { return b.Rate != (Rate{}) || b.RateFactor > 0 || b.Connections > 0 }

// ClassList gives the classes themselves.
func (b *Backoff) ClassList() []bounce.Class { return classesOf(b.Classes) }

// Regexp is a regular expression in the syntax of package regexp (RE2) that compiles. The case of
// letters doesn't matter to it.
type Regexp string

// UnmarshalText takes what compiles.
func (r *Regexp) UnmarshalText(text []byte) error {
	if _, err := regexp.Compile(anyCase + string(text)); err != nil {
		reason := err.Error()
		if e := (*syntax.Error)(nil); errors.As(err, &e) {
			reason = e.Code.String()
		}
		return settings.Wrong(`write a regular expression of RE2, with \\ for each backslash, such as "4\\.7\\.[0-9]+"`,
			"%s is not a pattern: %s", settings.Quoted(string(text)), reason)
	}
	*r = Regexp(text)
	return nil
}

const anyCase = "(?i)"

// Compile gives the expression for use, nil when there is none.
func (r Regexp) Compile() *regexp.Regexp {
	if r == "" {
		return nil
	}
	return regexp.MustCompile(anyCase + string(r))
}
