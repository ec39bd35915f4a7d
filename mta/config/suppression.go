package config

import (
	"slices"
	"strings"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/settings"
)

// Suppression is what becomes of mail to addresses on the suppression list, and how they get there.
//
// The [list of addresses that get no mail](submission.md#suppressed-addresses), in `data_dir`; [`mta
// suppress`](cli.md#mta-suppress) changes it.
type Suppression struct {
	block
	// The handling of mail to such an address: `"refuse"` it at RCPT with 550 5.1.1; `"bounce"`: accept it, send
	// nothing, and report to the sender; `"off"`: send it. With the first two, queued mail is bounced, too. Reports
	// (null sender) and mail for a postmaster are always sent.
	Mode string `conf:"mode" default:"refuse" oneof:"refuse bounce off"`
	// Add addresses that remote hosts refuse, by the [class](bounces.md) of the refusal, in reply to RCPT or in a later
	// report. Enable it for mailing lists; an application should see each new failure. Complaints and unsubscriptions
	// are always added, permanently.
	Feed    bool                `conf:"feed"`
	Classes []*SuppressionClass `conf:"class,block"`
}

// SuppressionClass says when refusals of a class put an address on the list.
//
// When refusals of a class add the address. Without a block: `InvalidRecipient` and `BadDomain` at once,
// `InactiveMailbox` after 3 days within 30, `QuotaIssues` after 5 days within 60 (and for 30 days only); other classes
// never do. Only classes that are about the address can be named. Days are counted for each tenant and address, in UTC;
// a delivery in between begins anew.
type SuppressionClass struct {
	block
	Class AddressClass `conf:",label"`
	// On how many days the address must have been refused; 1: at once; 0: never.
	After int `conf:"after" default:"1" min:"0" max:"60"`
	// The days that count, up to 60.
	Within time.Duration `conf:"within" default:"60d" min:"1d" max:"60d"`
	// How long the entry stays. `"0s"` means forever.
	Keep time.Duration `conf:"keep" default:"90d" min:"0"`
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
		return settings.Wrong("write one of "+strings.Join(names, ", "),
			"%s is not a class of refusals that are about an address", settings.Quoted(string(text)))
	}
	*c = AddressClass(text)
	return nil
}

func (k checker) suppression() {
	for _, c := range k.Suppression.Classes {
		if days := int(c.Within / day); c.After > days {
			k.problem(&c.block, "after", "write a smaller number, or a longer within",
				"after: refusals on %d days do not fit into %d days", c.After, days)
		}
	}
}
