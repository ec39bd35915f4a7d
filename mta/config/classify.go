package config

import (
	"strings"

	"example.org/mta/bounce"
	"example.org/mta/internal/settings"
	"example.org/mta/internal/spelling"
)

// Classify gives a class to replies.
//
// A [class](bounces.md#classes) for replies that the built-in rules do not know, or know otherwise. The first
// matching block applies: those of the file in their order, then the built-in rules. All conditions of a block must
// hold; of `words` and `pattern`, one must be in the reply. `mta bounce unknown` shows the replies that no rule
// knows, and `mta bounce classify --reply` tries a block before it is needed.
//
//	classify "example-full" {
//	  class    = "QuotaIssues"
//	  provider = "example"
//	  codes    = [550, 552]
//	  words    = ["over the limit of this team", "team is full"]
//	}
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
		if guess := spelling.Nearest(string(text), bounce.Names()); guess != "" {
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
		return settings.Wrong(`write it as "5.1.1", "x.1.1" for any class, "5.7.606-649" or "x.6.*"`, "%s is not an enhanced status code", settings.Quoted(string(text)))
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
			k.reference(&r.block, "provider", "provider", r.Provider, providerNames(k.Providers))
		}
		if len(r.Codes)+len(r.Status)+len(r.Words) == 0 && r.Pattern == "" && !r.Set("codes") && !r.Set("status") && !r.Set("words") && !r.Set("pattern") {
			k.problem(&r.block, "words", `write a condition, such as words = ["over the limit"], codes = [552], or status = ["5.2.2"]`,
				"classify %q would give its class to every refusal", r.Name)
		}
		for _, w := range r.Words {
			if len(strings.TrimSpace(w)) < 2 || len(w) > maxPhrase {
				k.problem(&r.block, "words", "write what the reply has, such as \"over the limit\"", "words: %s must have from 2 to %d octets", settings.Quoted(w), maxPhrase)
			}
		}
		if len(r.Pattern) > maxExpression {
			k.problem(&r.block, "pattern", "write several classify blocks", "pattern: it has %d octets, and at most %d are allowed", len(r.Pattern), maxExpression)
		}
		if r.Pattern != "" && bounce.Needs(anyCase+string(r.Pattern)) == nil {
			if wordless++; wordless > maxWordless {
				k.problem(&r.block, "pattern", `add a word of the reply to it, such as "quota.*[0-9]+ MB"`, "pattern: at most %d patterns may be without a word that the reply must have: each costs time with every reply", maxWordless)
			}
		}
		if i == maxClassify {
			k.problem(&r.block, "", "put several words into a block", "there are more than %d classify blocks", maxClassify)
		}
	}
}
