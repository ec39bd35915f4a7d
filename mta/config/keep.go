package config

import (
	"reflect"
	"slices"
)

// Keep puts into c, which was just read, what a running relay can't take over from it: settings
// and blocks marked for a restart stay as they are in old, which is in force. c must not be in
// use yet. What was kept is marked when c is printed, and Waiting has what the file says instead.
func (c *Config) Keep(old *Config) {
	c.waiting = slices.DeleteFunc(Diff(old, c), func(d Change) bool { return !d.Restart })
	k := keeper{c}
	k.body(reflect.ValueOf(c).Elem(), reflect.ValueOf(old).Elem(), &c.block, &old.block, "", false)
	c.derive(c.Hostname) // what follows from the kept settings follows from them now
}

// Waiting lists what the file has that takes a restart to come into force.
func (c *Config) Waiting() []Change { return c.waiting }

type keeper struct{ *Config }

// body keeps what must be of a block and of those in it. restart: all of it.
func (k keeper) body(to, from reflect.Value, b, old *block, prefix string, restart bool) {
	for f := range fields(to) {
		was, _ := named(from, f.name)
		restart := restart || f.tag.Get("reload") == "restart"
		switch f.kind {
		case setting:
			if restart {
				k.setting(f, was, b, old, prefix+f.name)
			}
		case single:
			inner, innerOld, sub := b, old, prefix+f.name+"."
			if own := blockOf(f.value); own != nil {
				inner, innerOld, sub = own, blockOf(was.value), ""
			}
			k.body(f.value, was.value, inner, innerOld, sub, restart)
		case many:
			k.blocks(f, was, restart)
		}
	}
}

func (k keeper) setting(f, was field, b, old *block, name string) {
	if same(entryOf(f, b, name), entryOf(was, old, name)) {
		return
	}
	f.value.Set(was.value)
	if text, ok := f.value.Addr().Interface().(*string); ok {
		delete(k.derived, text)
	}
	if b.kept == nil {
		b.kept = make(map[string]bool)
	}
	b.kept[name] = true
}

// blocks keeps settings of blocks by their name.
func (k keeper) blocks(f, was field, restart bool) {
	for i := range was.value.Len() {
		old := was.value.Index(i).Elem()
		for j := range f.value.Len() {
			if e := f.value.Index(j).Elem(); labelOf(e) == labelOf(old) {
				k.body(e, old, blockOf(e), blockOf(old), "", restart)
			}
		}
	}
}
