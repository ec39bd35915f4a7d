package config

import (
	"fmt"
	"reflect"
)

// Change is one setting in which two configurations differ.
type Change struct {
	Setting string // as `listener "smtp": max_recipients`
	Old     string // as in the file; "" when the setting or its block was not there
	New     string // "" when it is not there any more
	Restart bool   // a running relay goes on with Old until it is started anew
}

// String gives the change on one line for the log.
func (c Change) String() string {
	s := ""
	switch {
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

// Diff lists the settings in which two configurations differ, in the order of the manual.
// Secrets are masked.
func Diff(old, new *Config) []Change {
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
		if !there || !same(o, e) {
			changes = append(changes, Change{e.name, o.text, e.text, e.restart})
		}
	}
	for _, e := range before {
		if !is[e.name] {
			changes = append(changes, Change{e.name, e.text, "", e.restart})
		}
	}
	return changes
}

// nameOf names the i-th block of f.
func nameOf(f field, i int) string {
	if e := f.value.Index(i).Elem(); hasLabel(e) {
		return fmt.Sprintf("%s %q", f.name, labelOf(e))
	}
	return fmt.Sprintf("%s %d", f.name, i+1)
}

// entry is a setting with its full name.
type entry struct {
	name    string
	text    string
	value   any
	restart bool
}

// entryOf gives a setting as it is named in its block.
func entryOf(f field, b *block, name string) entry {
	return entry{name: name, text: literal(f.value, b.env[name]), value: f.value.Interface()}
}

// same compares secrets by what they are and all else by what is printed: an empty list is
// written in two ways.
func same(a, b entry) bool {
	if s, secret := a.value.(Secret); secret {
		return s == b.value
	}
	return a.text == b.text
}

// flat lists all settings that are there.
func flat(c *Config) []entry {
	var all []entry
	collect(&all, reflect.ValueOf(c).Elem(), &c.block, "", "", false)
	return all
}

func collect(all *[]entry, v reflect.Value, b *block, title, prefix string, restart bool) {
	for f := range fields(v) {
		restart := restart || f.tag.Get("reload") == "restart"
		switch f.kind {
		case setting:
			if b.overrides && !b.set(prefix+f.name) {
				continue
			}
			e := entryOf(f, b, prefix+f.name)
			e.name, e.restart = title+e.name, restart
			*all = append(*all, e)
		case single:
			if own := blockOf(f.value); own != nil {
				collect(all, f.value, own, f.name+": ", "", restart)
			} else {
				collect(all, f.value, b, title, prefix+f.name+".", restart)
			}
		case many:
			for i := range f.value.Len() {
				e := f.value.Index(i).Elem()
				collect(all, e, blockOf(e), title+nameOf(f, i)+": ", "", restart)
			}
		}
	}
}
