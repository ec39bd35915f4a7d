package config

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/settings"
)

// Backoff says what a refusal leads to besides its own recipient's fate. The first rule that fits
// decides; those of the file come before the built-in ones.
type Backoff struct {
	block
	Name string `conf:",label"`

	// Provider is the name of one, "" for any site.
	Provider string `conf:"provider"`
	// Codes are the reply codes that it is about. Empty: all from 400 to 599.
	Codes []int `conf:"codes" min:"400" max:"599"`
	// Classes are what the reply is about. Empty: anything.
	Classes []ReplyClass `conf:"classes"`
	// Pattern is looked for in "code enhanced text", as "421 4.7.0 too many connections". "": any.
	Pattern Regexp `conf:"pattern"`
	// Session restricts it to refusals of a session as a whole: connect, greeting, EHLO, TLS, AUTH.
	Session bool `conf:"session"`

	// Fewer halves the connections to the site, and lets them not grow for so long. 0: no.
	Fewer time.Duration `conf:"fewer" min:"0" max:"1d"`
	// Suspend sends the site nothing for so long; with BySource, nothing from the source that was
	// refused. 0: no.
	Suspend  time.Duration `conf:"suspend" min:"0" max:"1d"`
	BySource bool          `conf:"by_source"`
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
