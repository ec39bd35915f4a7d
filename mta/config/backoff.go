package config

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/settings"
)

// Backoff says what a refusal leads to besides its own recipient's fate.
//
// The effect of a refusal on other mail, beyond its own recipient. The first matching rule applies: those of the
// file in their order, then the built-in ones. A rule with the name of a built-in one replaces it; a rule without
// `fewer` and `suspend` has no effect and stops the search. Further refusals never extend an action in force, so its
// end is certain; it is logged, and `mta sites` shows it.
//
// The built-in rules: `google-rate`, `google-recipient-rate`, `microsoft-throttle`, `microsoft-block`,
// `yahoo-deferred`, `orange-rate`, `apple-rate`, `comcast-rate`, `gmx-rate`, `mail.ru-rate`, `mimecast-rate`,
// `proofpoint-rate`, `blocked`, `too-many-connections`, `rate`, `busy`, `greeting-timeout`.
//
// They depend on the [class](bounces.md#classes) of a reply, which the relay derives from enhanced codes and from
// the wording of the large providers and block lists: a block of the source (`blocked`, 15 minutes, at any site),
// too much mail, too many connections. A block counts as one whatever its code: `554 IP address is blacklisted`
// bounces no further mail.
//
//	backoff "example-too-fast" {
//	  provider  = "example"
//	  codes     = [421, 451]
//	  pattern   = "4\\.7\\.[0-9]+ .*too fast"
//	  suspend   = "10m"
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
	// Suspend the site only for the refused source. Its mail waits, and uses no other source of the pool: a provider
	// that blocks one address soon blocks the next with the same mail. To move the mail anyway, remove the source
	// from its pool and reload.
	BySource bool `conf:"by_source"`
}

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
		return settings.Wrong(`write a regular expression of RE2, with \\ for each backslash, such as "4\\.7\\.[0-9]+"`, "%s is not a pattern: %s", settings.Quoted(string(text)), reason)
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
