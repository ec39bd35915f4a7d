package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// RuleAction is what a rule does with mail.
type RuleAction string

// What rules do, the strictest first.
const (
	RuleBounce  RuleAction = "bounce"  // gives up mail that comes, and what waits when it is next due
	RuleHold    RuleAction = "hold"    // holds mail that was never tried, until it is released
	RuleSuspend RuleAction = "suspend" // lets mail wait until the rule ends: a pause
	RuleReroute RuleAction = "reroute" // sends mail to another host
	RuleSlow    RuleAction = "slow"    // limits the rate of messages
)

// RuleActions are all of them.
var RuleActions = []RuleAction{RuleBounce, RuleHold, RuleSuspend, RuleReroute, RuleSlow}

// Selection is the mail that a rule is for: that which fits all that is given.
type Selection struct {
	Tenant   string `json:"tenant,omitempty" q:"tenant" help:"mail of this <tenant>"`             // whose mail
	Pool     string `json:"pool,omitempty" q:"pool" help:"mail from this <pool>"`                 // that it leaves from
	Source   string `json:"source,omitempty" q:"source" help:"mail from this <source>"`           // likewise
	Provider string `json:"provider,omitempty" q:"provider" help:"mail to this <provider>"`       // of the hosts
	Domain   string `json:"domain,omitempty" q:"domain" help:"mail to recipients at this <name>"` // of recipients
	Campaign string `json:"campaign,omitempty" q:"campaign" help:"mail of this <campaign>"`       // of the mail
	// nothing else is given
	All bool `json:"all,omitempty" q:"all" help:"all mail"`
}

// Terms are what is given of a selection, as pairs of a kind and a name.
func (s *Selection) Terms() (terms [][2]string) {
	for _, t := range [...][2]string{{"tenant", s.Tenant}, {"pool", s.Pool}, {"source", s.Source},
		{"provider", s.Provider}, {"domain", s.Domain}, {"campaign", s.Campaign}} {
		if t[1] != "" {
			terms = append(terms, t)
		}
	}
	return terms
}

// String names the mail: "everything", "tenant acme", "tenant acme, domain example.net".
func (s Selection) String() string {
	if s.All {
		return "everything"
	}
	var words []string
	for _, t := range s.Terms() {
		words = append(words, t[0]+" "+t[1])
	}
	return strings.Join(words, ", ")
}

// Rule is what an operator has asked for about mail, until it is ended or its time is over.
type Rule struct {
	ID     int        `json:"id"`     // names the rule; no other gets it
	Action RuleAction `json:"action"` // what becomes of the mail
	Selection
	Rate   string    `json:"rate,omitempty"`   // of messages at most, as 10/m; of slow
	Host   string    `json:"host,omitempty"`   // where the mail goes, as smtp://mx.example.net:25; of reroute
	Reason string    `json:"reason,omitempty"` // for those who ask why
	By     string    `json:"by"`               // who has asked for it
	Since  time.Time `json:"since"`            // when it began
	Until  time.Time `json:"until,omitzero"`   // when it ends; absent: when somebody ends it
}

// Does puts what a rule does, and with what mail, into words: "slow tenant acme to 10/m".
func (r *Rule) Does() string {
	text := string(r.Action) + " " + r.Selection.String()
	if detail := r.Rate + r.Host; detail != "" {
		text += " to " + detail
	}
	return text
}

// RuleList is all rules in force.
type RuleList struct {
	Rules []Rule `json:"rules"` // the strictest first
}

// AddRule asks for a rule. One with the same action and selection is replaced, and keeps its number.
type AddRule struct {
	Intent
	Action RuleAction `json:"action" q:"action"` // what becomes of the mail
	Selection
	Rate string `json:"rate,omitempty" q:"rate" hint:"100/m"` // of messages at most; of slow
	// Where the mail goes: a name, with or without a port, or smtps://NAME for TLS from the first octet; of reroute.
	Host string `json:"host,omitempty" q:"host" help:"where reroute sends the mail: <name>, name:port or smtps://name"`
	// Left out: until somebody ends it.
	For    *Age   `json:"for,omitempty" q:"for" help:"the duration, such as 90s, 15m, 2h (default: until it is ended)"`
	Reason string `json:"reason,omitempty"` // for those who ask why
	By     string `json:"by,omitempty"`     // who asks for it, where the connection does not say
}

// EndRule asks for the end of a rule: of a number, or with exactly this action and selection.
type EndRule struct {
	Intent
	ID     int        `json:"id,omitempty" q:"id"`         // its number
	Action RuleAction `json:"action,omitempty" q:"action"` // what it does
	Selection
}

// RuleChanged is a rule that has begun or ended.
type RuleChanged struct {
	Effect
	Rule
	Fits *int `json:"fits,omitempty"` // recipients in the queue that a dry run's rule fits; none by pool
}

// Rules is what the server asks of the relay about rules. Errors are of type *Error where the operator can do
// something about them.
type Rules interface {
	Rules(context.Context) (RuleList, error)
	AddRule(context.Context, AddRule) (RuleChanged, error)
	EndRule(context.Context, EndRule) (RuleChanged, error)
}

// selects has what each kind of rule can select by. Mail has a source once one is chosen, so that only what is asked
// then can select by it; a route is found before the provider is known.
var selects = map[RuleAction]string{
	RuleBounce:  "tenant pool provider domain campaign",
	RuleHold:    "tenant pool provider domain campaign",
	RuleSuspend: "tenant pool source provider domain campaign",
	RuleReroute: "tenant domain campaign",
	RuleSlow:    "tenant source provider domain campaign",
}

// maxSelection and maxCampaign bound a name in a selection, in octets. Mail has no longer campaign.
const maxSelection, maxCampaign = 255, 128

// check refuses a selection that a kind of rule can't have, and one that nothing is given of.
func (s *Selection) check(a RuleAction) error {
	terms := s.Terms()
	switch {
	case a == "":
		return Invalid("what rules do: "+join(RuleActions), "no action is given")
	case !slices.Contains(RuleActions, a):
		return Invalid("what rules do: "+join(RuleActions), "%q is nothing that a rule does", a)
	case s.All && len(terms) > 0:
		return Invalid("", "all mail is meant, or that of %s: leave out either", s.named())
	case !s.All && len(terms) == 0:
		return Invalid("to mean all mail: --all; in a request, \"all\": true", "nothing says which mail to %s", a)
	case a == RuleSuspend && s.Source != "" && len(terms) > 1:
		return Invalid("suspend the source at a site: mta sites suspend SITE --source NAME --for TIME",
			"a source is suspended as a whole")
	}
	if other := s.Source + s.Provider + s.Domain; a == RuleSlow && s.Campaign != "" && other != "" {
		return Invalid("leave out "+other, "a campaign has one pace, from all sources to all sites")
	}
	for _, t := range terms {
		if !slices.Contains(strings.Fields(selects[a]), t[0]) {
			return Invalid("it can by: "+strings.ReplaceAll(selects[a], " ", ", "), "%s can't select by %s", a, t[0])
		}
		most := maxSelection
		if t[0] == "campaign" {
			most = maxCampaign
		}
		if len(t[1]) > most || strings.ContainsFunc(t[1], func(c rune) bool { return c < ' ' }) {
			return Invalid(fmt.Sprintf("it has up to %d octets, and no control characters", most),
				"the name of the %s is not valid", t[0])
		}
	}
	return nil
}

func (s Selection) named() string {
	s.All = false
	return s.String()
}

// Check refuses a rule that can't be, and one that has ended.
func (b *AddRule) Check() error {
	if err := b.Selection.check(b.Action); err != nil {
		return err
	}
	switch {
	case b.For != nil && *b.For <= 0:
		return Invalid("leave it out for a rule that lasts until it is ended", "for: want a time ahead, such as 2h")
	case b.Action == RuleSlow && b.Rate == "":
		return Invalid("as in: slow 100/m", "slow needs a rate")
	case b.Action != RuleSlow && b.Rate != "":
		return Invalid("as in: slow "+b.Rate, "only slow has a rate, and %s has none", b.Action)
	case b.Action == RuleReroute && b.Host == "":
		return Invalid("as in: reroute --host mx.example.net", "reroute needs a host")
	case b.Action != RuleReroute && b.Host != "":
		return Invalid("as in: reroute --host "+b.Host, "only reroute has a host, and %s has none", b.Action)
	}
	return nil
}

// Check refuses the end of a rule that can't be.
func (e *EndRule) Check() error {
	if e.ID == 0 && e.Action == "" && e.Selection == (Selection{}) {
		return Invalid("by its number; or by its action and selection", "no rule is named")
	}
	if e.ID == 0 {
		return e.Selection.check(e.Action)
	}
	if e.Action != "" || e.Selection != (Selection{}) {
		return Invalid("", "rule %d is named: leave out the action and the selection", e.ID)
	}
	return nil
}

// Compare orders rules, the strictest first: of those that slow or reroute, the newest.
func (r *Rule) Compare(other *Rule) int {
	return cmp.Or(slices.Index(RuleActions, r.Action)-slices.Index(RuleActions, other.Action), other.ID-r.ID)
}

// InWords describes a rule: what it does, who began it, and why.
func (r *Rule) InWords() string {
	text := fmt.Sprintf("rule %d of %s: %s", r.ID, r.By, r.Does())
	if r.Action == RuleSuspend {
		what := r.Selection.String()
		if r.All {
			what = "all delivery"
		}
		text = fmt.Sprintf("%s is paused by %s", what, r.By)
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}
