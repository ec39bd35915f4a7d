package rules

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
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

// copyPath is where the second copy of the file is.
func (r *Rules) copyPath() string { return r.path + ".copy" }

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
	text, err := smallfile.Marshal(object)
	for _, path := range []string{r.path, r.copyPath()} {
		if err == nil {
			err = smallfile.Write(path, 0o640, text)
		}
	}
	return err
}

// errOld is a rule that the version before does not know, which may be put back.
var errOld = api.Invalid("finish the upgrade first: mta upgrade finish",
	"until the upgrade is finished, rules only suspend, by one name, and not by provider or campaign")

// read reads the file, or else its second copy. If neither is what was written, everything is suspended until an
// operator has looked: mail that leaves does not come back. A file that is damaged is set aside.
func (r *Rules) read() (c contents, err error) {
	c, text, err := readFile(r.path)
	if errors.Is(err, fs.ErrPermission) {
		return c, err
	}
	second, copied, copyErr := readFile(r.copyPath())
	gone, noCopy := errors.Is(err, fs.ErrNotExist), errors.Is(copyErr, fs.ErrNotExist)
	var then string
	var more []any
	switch {
	case err == nil && bytes.Equal(text, copied):
		return c, nil
	case err == nil && copyErr != nil && !noCopy:
		aside, moved := smallfile.SetAside(r.copyPath(), r.now())
		r.log.Error("the second copy of the rules was damaged, and is made anew", "file", r.copyPath(), "kept", aside,
			"error", copyErr)
		return c, errors.Join(moved, r.write(c))
	case err == nil: // a program without sums wrote it, or the copy is missing or behind
		return c, r.write(c)
	case gone && noCopy:
		return contents{}, nil
	case copyErr == nil:
		c, then = second, "their second copy is in their place"
	default:
		const remedy = "add the rules and pauses again that you had, then run: mta resume everything"
		c = contents{Last: 1, Rules: []api.Rule{{ID: 1, Action: api.RuleSuspend, Selection: api.Selection{All: true},
			By: "the relay", Since: r.now(), Reason: "the rules were damaged: " + remedy}}}
		then, more = "everything is paused", []any{"copy", copyErr, "remedy", remedy}
	}
	aside, moved := smallfile.SetAside(r.path, r.now())
	if moved != nil {
		return c, moved
	}
	r.log.Error("the rules were damaged, or are gone: "+then,
		append([]any{"file", r.path, "kept", aside, "error", err}, more...)...)
	return c, r.write(c)
}

// readFile reads the rules of a file in either format, and its text.
func readFile(path string) (c contents, text []byte, err error) {
	if text, err = os.ReadFile(path); err != nil {
		return c, nil, err
	}
	var all struct {
		contents
		pauses
	}
	if _, err = smallfile.Unmarshal(text, &all); err != nil {
		return c, text, err
	}
	if c = all.contents; c.Rules == nil && all.Pauses == nil {
		return c, text, errors.New("it has no list")
	}
	for i := range all.Pauses {
		rule, err := all.Pauses[i].rule(i + 1)
		if err != nil {
			return c, text, err
		}
		c.Rules, c.Last = append(c.Rules, rule), i+1
	}
	for i := range c.Rules {
		if check := (&api.EndRule{Action: c.Rules[i].Action, Selection: c.Rules[i].Selection}).Check(); check != nil {
			return c, text, check
		}
	}
	slices.SortFunc(c.Rules, func(a, b api.Rule) int { return a.Compare(&b) })
	return c, text, nil
}
