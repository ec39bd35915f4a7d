package settings

import (
	"reflect"
	"slices"
)

// Keep puts into the struct that fresh points to, which was just read, those settings of old, which is
// in force, that a running program can't change: settings and blocks marked for a restart, and whole blocks that one
// such setting is part of, where they are marked so: what is old and new in them may not go together. fresh must not
// be in use yet. What was kept is marked when fresh is printed; kept, unless it is nil, is given a
// pointer to each. Keep returns what fresh has that waits for a restart.
func Keep(fresh, old any, kept func(setting any)) []Change {
	waiting := slices.DeleteFunc(Diff(old, fresh), func(d Change) bool { return !d.Restart })
	to, from := reflect.ValueOf(fresh).Elem(), reflect.ValueOf(old).Elem()
	k := keeper{kept, waitingBlocks(to, waiting)}
	k.body(to, from, BlockOf(to), BlockOf(from), "", false)
	return waiting
}

type keeper struct {
	kept  func(setting any)
	whole map[string]bool // names of blocks of which everything waits
}

// body keeps what must be of a block and of those in it. restart: all of it.
func (k keeper) body(to, from reflect.Value, b, old *Block, prefix string, restart bool) {
	for f := range Fields(to) {
		was, _ := named(from, f.Name)
		restart := restart || f.Tag.Get("reload") == "restart"
		switch f.Kind {
		case Setting:
			if restart {
				k.setting(f, was, b, old, prefix+f.Name)
			}
		case Single:
			inner, innerOld, sub := b, old, prefix+f.Name+"."
			if own := BlockOf(f.Value); own != nil {
				inner, innerOld, sub = own, BlockOf(was.Value), ""
				restart = restart || k.whole[f.Name]
			}
			k.body(f.Value, was.Value, inner, innerOld, sub, restart)
		case Many:
			k.blocks(f, was, restart)
		}
	}
}

func (k keeper) setting(f, was Field, b, old *Block, name string) {
	if same(entryOf(f, b, name), entryOf(was, old, name)) {
		return
	}
	f.Value.Set(was.Value)
	if k.kept != nil {
		k.kept(f.Value.Addr().Interface())
	}
	if b.kept == nil {
		b.kept = make(map[string]bool)
	}
	b.kept[name] = true
}

// blocks keeps settings of blocks by their name.
func (k keeper) blocks(f, was Field, restart bool) {
	for i := range was.Value.Len() {
		old := was.Value.Index(i).Elem()
		for j := range f.Value.Len() {
			if e := f.Value.Index(j).Elem(); labelOf(e) == labelOf(old) {
				k.body(e, old, BlockOf(e), BlockOf(old), "", restart)
			}
		}
	}
}
