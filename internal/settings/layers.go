package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// Origins gives, by setting, the block that a value was taken from; none for a default.
type Origins map[string]*Block

// Lay copies the settings that b has from the struct from to the struct to; both are pointers to the
// same type. b is the block that from belongs to.
func (o Origins) Lay(to, from any, b *Block) {
	o.lay(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem(), b, "")
}

func (o Origins) lay(to, from reflect.Value, b *Block, prefix string) {
	for f := range Fields(from) {
		target, _ := named(to, f.Name)
		switch name := prefix + f.Name; {
		case f.Kind == Single:
			o.lay(target.Value, f.Value, b, name+".")
		case b.Set(name), b.kept[name]:
			target.Value.Set(f.Value)
			o[name] = b
		}
	}
}

// Of gives the place where a setting was made, as Block.Origin does.
func (o Origins) Of(setting string) string {
	if b := o[setting]; b != nil {
		return b.Origin(setting)
	}
	return "default"
}

// Inherit gives the block that v points to those settings of a preset that it does not have.
func Inherit(v, preset any) {
	to, b := reflect.ValueOf(v).Elem(), BlockOf(reflect.ValueOf(v).Elem())
	have := BlockOf(reflect.ValueOf(preset).Elem())
	from := make(map[string]Field)
	for f := range leaves(reflect.ValueOf(preset).Elem(), "") {
		from[f.Name] = f
	}
	for f := range leaves(to, "") {
		if have.Set(f.Name) && !b.Set(f.Name) {
			f.Value.Set(from[f.Name].Value)
			b.note(f.Name, have.at[f.Name])
		}
	}
}

// Names lists the settings of the struct that v points to, those of inner blocks as "timeouts.connect".
func Names(v any) (all []string) {
	for f := range leaves(reflect.ValueOf(v).Elem(), "") {
		all = append(all, f.Name)
	}
	return all
}

// Value gives a setting of the struct that v points to as text, "" for one that Names does not list.
func Value(v any, setting string) string {
	for f := range leaves(reflect.ValueOf(v).Elem(), "") {
		if f.Name == setting {
			return show(f.Value)
		}
	}
	return ""
}

// Defaults puts the defaults of a block into the struct that root points to: those that its method SetDefaults sets, if
// it has one, and those of the tags default, also of the blocks in it that stand there once. A sparse block has no
// tags.
func Defaults(root any) {
	if with, ok := root.(interface{ SetDefaults() }); ok {
		with.SetDefaults()
	}
	v := reflect.ValueOf(root).Elem()
	if b := BlockOf(v); b != nil && b.sparse {
		return
	}
	for f := range Fields(v) {
		if f.Kind == Single {
			Defaults(f.Value.Addr().Interface())
		}
		if text, ok := f.Tag.Lookup("default"); ok {
			if err := setDefault(f.Value, text); err != nil {
				panic(fmt.Sprintf("the default of %s: %v", f.Name, err)) // a mistake of the program
			}
		}
	}
}

// setDefault reads a default: of a list, its elements with spaces between.
func setDefault(to reflect.Value, text string) error {
	if r, ok := to.Addr().Interface().(*Retry); ok {
		return setDefault(reflect.ValueOf(&r.First).Elem(), text)
	}
	if to.Kind() != reflect.Slice {
		return set(to, cty.StringVal(text))
	}
	for part := range strings.FieldsSeq(text) {
		e := reflect.New(to.Type().Elem()).Elem()
		if err := set(e, cty.StringVal(part)); err != nil {
			return err
		}
		to.Set(reflect.Append(to, e))
	}
	return nil
}

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
