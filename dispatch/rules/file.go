package rules

import (
	"errors"
	"slices"
	"time"

	"example.org/mta/internal/format"
	"example.org/mta/internal/smallfile"
	"example.org/mta/operator/api"
)

// Format is what this program knows of the file's formats: the first has pauses only.
var Format = format.Store{Name: "pauses", Reads: 1, Writes: 2, Unstated: 1}

// FileName is the name of the file in the data directory. It is that of the first format: a program from before rules
// must find its statement, and refuse to start without what others have suspended.
const FileName = "pauses.json"

// contents is the file in format 2.
type contents struct {
	Rules []api.Rule `json:"rules"`
	Last  int        `json:"last"` // number that was given to a rule
}

// pauses is the file in format 1.
type pauses struct {
	Pauses []pause `json:"pauses"`
}

// pause is a rule that suspends what it selects by one name, or everything.
type pause struct {
	What   string    `json:"what"`
	Name   string    `json:"name,omitempty"`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"`
}

const everything = "everything"

// pauseOf makes a rule a pause of the first format; false if that can't have it.
func pauseOf(r *api.Rule) (p pause, ok bool) {
	p = pause{What: everything, Reason: r.Reason, By: r.By, Since: r.Since, Until: r.Until}
	if terms := r.Terms(); len(terms) == 1 {
		p.What, p.Name = terms[0][0], terms[0][1]
	} else if !r.All {
		return p, false
	}
	return p, r.Action == api.RuleSuspend && r.Provider == "" && r.Campaign == ""
}

// rule is the inverse of pauseOf.
func (p *pause) rule(id int) (api.Rule, error) {
	r := api.Rule{ID: id, Action: api.RuleSuspend, Reason: p.Reason, By: p.By, Since: p.Since, Until: p.Until}
	switch p.What {
	case everything:
		r.All = true
	case "tenant":
		r.Tenant = p.Name
	case "pool":
		r.Pool = p.Name
	case "source":
		r.Source = p.Name
	case "domain":
		r.Domain = p.Name
	default:
		return r, errors.New("it pauses " + p.What + ", which this program does not know")
	}
	return r, nil
}

// write makes rules durable, twice, in the format that the data directory states.
func (r *Rules) write(c contents) error {
	var object any = c
	if r.format() == 1 {
		old := pauses{Pauses: []pause{}}
		for i := range c.Rules {
			p, ok := pauseOf(&c.Rules[i])
			if !ok {
				return errOld
			}
			old.Pauses = append(old.Pauses, p)
		}
		object = old
	}
	return smallfile.WriteTwin(r.path, 0o640, object)
}

// errOld is a rule that the version before does not know, which may be put back.
var errOld = api.Invalid("finish the upgrade first: mta upgrade finish",
	"until the upgrade is finished, rules only suspend, by one name, and not by provider or campaign")

// read reads the rules. If neither the file nor its second copy is what was written, everything is suspended until an
// operator has looked: mail that leaves does not come back.
func (r *Rules) read() (contents, error) {
	f := smallfile.Twin[contents]{
		Path: r.path, Name: "the rules", Parse: parse, Write: r.write, Now: r.now(), Log: r.log,
		Lost: func() (contents, string, string) {
			r.Lost = true
			const remedy = "add the rules and pauses again that you had, then run: mta resume everything"
			all := api.Rule{ID: 1, Action: api.RuleSuspend, Selection: api.Selection{All: true}, By: ByRelay,
				Since: r.now(), Reason: "the rules were damaged: " + remedy}
			return contents{Last: 1, Rules: []api.Rule{all}}, "everything is paused", remedy
		},
	}
	return f.Read()
}

// parse reads the rules of a file in either format.
func parse(text []byte) (c contents, err error) {
	var all struct {
		contents
		pauses
	}
	if _, err = smallfile.Unmarshal(text, &all); err != nil {
		return c, err
	}
	if c = all.contents; c.Rules == nil && all.Pauses == nil {
		return c, errors.New("it has no list")
	}
	for i := range all.Pauses {
		rule, err := all.Pauses[i].rule(i + 1)
		if err != nil {
			return c, err
		}
		c.Rules, c.Last = append(c.Rules, rule), i+1
	}
	for i := range c.Rules {
		if check := (&api.EndRule{Action: c.Rules[i].Action, Selection: c.Rules[i].Selection}).Check(); check != nil {
			return c, check
		}
	}
	slices.SortFunc(c.Rules, func(a, b api.Rule) int { return a.Compare(&b) })
	return c, nil
}
