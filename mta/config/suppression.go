package config

import (
	"slices"
	"strings"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/settings"
)

// Suppression is what becomes of mail to addresses on the suppression list, and how they get there.
type Suppression struct {
	block
	// Mode is what becomes of mail to them: refused at RCPT, taken and bounced, or nothing.
	Mode string `conf:"mode" oneof:"refuse bounce off"`
	// Feed puts addresses on the list that hosts refuse.
	Feed     bool          `conf:"feed"`
	FeedKeep time.Duration `conf:"feed_keep" min:"0"` // how long such an entry stays; 0: for ever
	// Classes are rules beside the built-in ones, and in their place.
	Classes []*SuppressionClass `conf:"class,block"`
	Flood   SuppressionFlood    `conf:"flood,block"`
}

// SuppressionClass says when refusals of a class put an address on the list.
type SuppressionClass struct {
	block
	Class  AddressClass  `conf:",label"`
	After  int           `conf:"after" min:"0" max:"60"`    // days with a refusal, and no delivery in between. 0: never
	Within time.Duration `conf:"within" min:"1d" max:"60d"` // of each other
	Keep   time.Duration `conf:"keep" min:"0"`              // how long the entry stays; 0: for ever
}

// SetDefaults is called for each block of the file.
func (c *SuppressionClass) SetDefaults() {
	c.After, c.Within, c.Keep = 1, 60*day, 90*day
}

// SuppressionFlood says when a provider that calls recipients unknown is not believed.
type SuppressionFlood struct {
	Factor float64 `conf:"factor"` // times its usual share; 0: it always is
	Share  float64 `conf:"share"`  // at least, from 0 to 1
	Min    int     `conf:"min" min:"1"`
}

// AddressClass is the name of a class of refusals that can be about an address.
type AddressClass string

// UnmarshalText takes the classes that can be about an address. A refusal that is about us says nothing of one.
func (c *AddressClass) UnmarshalText(text []byte) error {
	var names []string
	for _, of := range bounce.Classes() {
		if of.AboutRecipient() || of.Hard() {
			names = append(names, of.String())
		}
	}
	if !slices.Contains(names, string(text)) {
		return settings.Wrong("write one of "+strings.Join(names, ", "), "%s is not a class of refusals that are about an address", settings.Quoted(string(text)))
	}
	*c = AddressClass(text)
	return nil
}

func (k checker) suppression() {
	f := &k.Suppression.Flood
	if f.Factor != 0 && f.Factor <= 1 {
		k.problem(&k.Suppression.block, "flood.factor", "write a number above 1, such as factor = 5; 0: no provider is doubted", "flood.factor: %v times the usual share is no more than usual", f.Factor)
	}
	if f.Share < 0 || f.Share >= 1 {
		k.problem(&k.Suppression.block, "flood.share", "write a share from 0 to below 1, such as share = 0.25", "flood.share: %v is no share of recipients", f.Share)
	}
	for _, c := range k.Suppression.Classes {
		if days := int(c.Within / day); c.After > days {
			k.problem(&c.block, "after", "write a smaller number, or a longer within", "after: refusals on %d days do not fit into %d days", c.After, days)
		}
	}
}
