package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
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

// Block is embedded in the struct of a block. It knows where the block and its settings stand in the
// file; it is empty for a block that the file does not have.
type Block struct {
	title  string               // as `provider "google"`
	header hcl.Range            // where title stands
	at     map[string]hcl.Range // by setting ("tls.key" in an inner block): where its value stands
	env    map[string]string    // by setting: the environment variable that its value is from

	kept   map[string]bool // settings that keep their old value until a restart
	failed []string        // settings with an invalid value

	sparse bool // see Sparse
}

// presetsFile is the file name in the places of settings that come from a preset.
const presetsFile = "presets"

// Title names the block as the file does: `provider "google"`. It is "" for a block that the file does
// not have.
func (b *Block) Title() string { return b.title }

// Line is the line of the file where the block begins, 0 for one that the file does not have.
func (b *Block) Line() int { return b.header.Start.Line }

// Set reports whether the file or a preset has the setting.
func (b *Block) Set(setting string) bool { _, ok := b.at[setting]; return ok }

// Sets reports whether the file itself has the setting, rather than a preset.
func (b *Block) Sets(setting string) bool {
	at, ok := b.at[setting]
	return ok && at.Filename != presetsFile
}

// Failed reports whether the value that the file has for the setting was invalid.
func (b *Block) Failed(setting string) bool { return slices.Contains(b.failed, setting) }

// Sparse marks a block as one that overrides others: a setting that it does not have has no value here,
// rather than a default.
func (b *Block) Sparse() { b.sparse = true }

// Preset marks a setting as taken from a preset.
func (b *Block) Preset(setting string) { b.note(setting, hcl.Range{Filename: presetsFile}) }

// Inside gives a block that a preset adds to b; problems with it point at b.
func (b *Block) Inside(title string) Block { return Block{title: title, header: b.header} }

// Where gives the place of a setting, or of the block when the file does not have the setting.
func (b *Block) Where(setting string) hcl.Range {
	if b.Sets(setting) {
		return b.at[setting]
	}
	return b.header
}

// Origin gives the place where a setting was made, as `source "a" (mta.conf:31)`, or "default".
func (b *Block) Origin(setting string) string {
	at, ok := b.at[setting]
	switch {
	case b.kept[setting]:
		return "kept until a restart"
	case !ok:
		return "default"
	}
	return fmt.Sprintf("%s (%s:%d)", b.title, at.Filename, at.Start.Line)
}

func (b *Block) note(setting string, at hcl.Range) {
	if b.at == nil {
		b.at = make(map[string]hcl.Range)
	}
	b.at[setting] = at
}

func (b *Block) positions() *Block { return b }

// BlockOf gives the Block that the struct v embeds, nil when it embeds none.
func BlockOf(v reflect.Value) *Block {
	if b, ok := v.Addr().Interface().(interface{ positions() *Block }); ok {
		return b.positions()
	}
	return nil
}
