package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is one setting in which two files differ.
type Change struct {
	Setting string // as `listener "smtp": max_recipients`
	Old     string // as in the file; "" when the setting or its block was not there
	New     string // "" when it is not there any more
	Restart bool   // Old stays in force until a restart
}

// String gives the change on one line for the log.
func (c Change) String() string {
	s := ""
	switch {
	case c.Old == "" && c.New == emptyBlock:
		s = c.Setting + " {} (new)"
	case c.New == "" && c.Old == emptyBlock:
		s = c.Setting + " {} (removed)"
	case c.Old == "":
		s = fmt.Sprintf("%s = %s (new)", c.Setting, c.New)
	case c.New == "":
		s = fmt.Sprintf("%s = %s (removed)", c.Setting, c.Old)
	default:
		s = fmt.Sprintf("%s = %s (was %s)", c.Setting, c.New, c.Old)
	}
	if c.Restart {
		s += ", needs a restart"
	}
	return s
}

// Diff lists the settings in which two structs of one type differ, in the order of the struct. Both are
// pointers. Of a block that one of them lacks it lists what the file has, not the defaults. Secrets are masked.
func Diff(old, new any) []Change {
	before, after := flat(old), flat(new)
	was := make(map[string]entry, len(before))
	for _, e := range before {
		was[e.name] = e
	}
	is := make(map[string]bool, len(after))
	var changes []Change
	for _, e := range after {
		is[e.name] = true
		o, there := was[e.name]
		if there && !same(o, e) || !there && e.set {
			changes = append(changes, Change{e.name, o.text, e.text, e.restart})
		}
	}
	for _, e := range before {
		if !is[e.name] && e.set {
			changes = append(changes, Change{e.name, e.text, "", e.restart})
		}
	}
	waiting := waitingBlocks(reflect.ValueOf(new).Elem(), changes)
	for i := range changes {
		block, _, _ := strings.Cut(changes[i].Setting, ": ")
		changes[i].Restart = changes[i].Restart || waiting[block]
	}
	return changes
}

// waitingBlocks names the blocks marked "whole" of which a setting waits for a restart.
func waitingBlocks(v reflect.Value, changes []Change) map[string]bool {
	waiting := make(map[string]bool)
	for f := range Fields(v) {
		if f.Tag.Get("reload") == "whole" {
			waiting[f.Name] = slices.ContainsFunc(changes, func(c Change) bool {
				return c.Restart && strings.HasPrefix(c.Setting, f.Name+": ")
			})
		}
	}
	return waiting
}

// nameOf names the i-th block of f.
func nameOf(f Field, i int) string {
	if e := f.Value.Index(i).Elem(); hasLabel(e) {
		return fmt.Sprintf("%s %q", f.Name, labelOf(e))
	}
	return fmt.Sprintf("%s %d", f.Name, i+1)
}

// entry is a setting with its full name, or a block.
type entry struct {
	name    string
	text    string
	value   any
	set     bool // a setting that the file has, or a block without any
	restart bool
}

const emptyBlock = "{}"

// entryOf gives a setting as it is named in its block.
func entryOf(f Field, b *Block, name string) entry {
	return entry{name: name, text: Literal(f.Value, b.env[name]), value: f.Value.Interface(), set: b.Set(name)}
}

// same compares secrets by value and everything else as printed, since an empty list has two forms.
func same(a, b entry) bool {
	switch s := a.value.(type) {
	case Secret:
		return s == b.value
	case []Secret:
		others, _ := b.value.([]Secret)
		return slices.Equal(s, others)
	}
	return a.text == b.text
}

// flat lists all settings that are there.
func flat(root any) []entry {
	var all []entry
	v := reflect.ValueOf(root).Elem()
	collect(&all, v, BlockOf(v), "", "", false)
	return all
}

func collect(all *[]entry, v reflect.Value, b *Block, title, prefix string, restart bool) {
	for f := range Fields(v) {
		restart := restart || f.Tag.Get("reload") == "restart"
		switch f.Kind {
		case Setting:
			if b.sparse && !b.Set(prefix+f.Name) {
				continue
			}
			e := entryOf(f, b, prefix+f.Name)
			e.name, e.restart = title+e.name, restart
			*all = append(*all, e)
		case Single:
			if own := BlockOf(f.Value); own != nil {
				collect(all, f.Value, own, f.Name+": ", "", restart)
			} else {
				collect(all, f.Value, b, title, prefix+f.Name+".", restart)
			}
		case Many:
			for i := range f.Value.Len() {
				e := f.Value.Index(i).Elem()
				b, name := BlockOf(e), title+nameOf(f, i)
				*all = append(*all, entry{name: name, text: emptyBlock, set: len(b.at) == 0, restart: restart})
				collect(all, e, b, name+": ", "", restart)
			}
		}
	}
}
