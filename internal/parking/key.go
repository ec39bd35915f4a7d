// Package parking names what mail in the queue waits for. Keys are made and taken apart here only: the
// queue compares them, and writes down their text.
package parking

import "strings"

// Kind is the kind of thing that mail waits for.
type Kind uint8

const (
	Site   Kind = iota // space in delivery for a site, or the next attempt there; before it has a route, a domain
	Tokens             // warm-up tokens of a pool's sources for a provider
	Pause              // the end of an operator's pause
	Hours              // the opening of a window
	Pace               // tokens of a campaign
)

// Key is what mail waits for. It outlives a restart, by its text, and mail is listed, counted and aged
// by it. The zero Key is that of mail that nobody has looked at yet.
type Key struct {
	Kind     Kind
	Name     string // the site, pool, window or campaign; of a Pause, what is paused as commands name it: "tenant acme"
	Provider string // of Tokens
}

// Line is where mail that waits for a Key stands: mail is taken from one line at a time. It does not
// outlive a restart. The Line with nothing but a Key is as good as any other.
type Line struct {
	Key
	Route     bool   // the mail waits for the route of the domain that the Key names
	Source    string // the only one that may take it; "" for any
	Tenant    string
	Tier      uint8
	Preferred bool   // a source prefers it to other mail
	Reason    Reason // why its mail was deferred; no line that mail is taken from has one
}

// prefixes begin the texts of keys. No site's name has a colon.
var prefixes = [...]string{Site: "", Tokens: "warmup:", Pause: "paused: ", Hours: "window: ", Pace: "paced: "}

// String gives the text of a key on disk and for operators.
func (k Key) String() string {
	text := prefixes[k.Kind] + k.Name
	if k.Kind == Tokens {
		text += "/" + k.Provider
	}
	return text
}

// Parse gives the key of a text. Any text is that of some key.
func Parse(text string) Key {
	for kind, prefix := range prefixes {
		name, ok := strings.CutPrefix(text, prefix)
		switch {
		case !ok || prefix == "":
		case Kind(kind) == Tokens:
			pool, provider, _ := strings.Cut(name, "/")
			return Key{Tokens, pool, provider}
		default:
			return Key{Kind: Kind(kind), Name: name}
		}
	}
	return Key{Name: text}
}

// Site gives the site or domain that mail waits for, "" when it waits for something else.
func (k Key) Site() string {
	if k.Kind != Site {
		return ""
	}
	return k.Name
}

// Clone gives a line whose strings keep nothing else in memory, such as an envelope.
func (l Line) Clone() Line {
	l.Name, l.Provider = strings.Clone(l.Name), strings.Clone(l.Provider)
	l.Source, l.Tenant = strings.Clone(l.Source), strings.Clone(l.Tenant)
	return l
}
