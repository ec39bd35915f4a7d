package settings

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/zclconf/go-cty/cty"

	"example.org/mta/internal/legible"
)

// Kind is what the field of a struct is in the file.
type Kind uint8

const (
	Setting Kind = 1 + iota // name = value
	Single                  // name { ... }, at most once
	Many                    // name "label" { ... }, or name { ... } for a struct without a label, any number
	Label                   // the label of the block that the struct stands for
)

func (k Kind) isBlock() bool { return k == Single || k == Many }

// Field is a field of a struct together with its value.
type Field struct {
	Name  string // as in the file, "" for a label
	Kind  Kind
	Tag   reflect.StructTag
	Value reflect.Value
}

// Fields gives what may stand in the block of the struct v, in the order of the struct; fields of
// inlined structs as if they stood in v.
func Fields(v reflect.Value) iter.Seq[Field] {
	return func(yield func(Field) bool) { eachField(v, yield) }
}

func eachField(v reflect.Value, yield func(Field) bool) bool {
	for _, d := range described(v.Type()) {
		f := d.Field
		f.Value = v.Field(d.index)
		if d.inline {
			if !eachField(f.Value, yield) {
				return false
			}
			continue
		}
		if !yield(f) {
			return false
		}
	}
	return true
}

// description is a field of a type of structs.
type description struct {
	Field // without its value
	was   string
	index int
	// inline: the fields of its struct stand in its place.
	inline bool
}

// descriptions of types. To ask the type each time takes most of the time of reading a configuration.
var descriptions sync.Map // of []description by reflect.Type

func described(t reflect.Type) []description {
	if all, ok := descriptions.Load(t); ok {
		return all.([]description)
	}
	var all []description
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("conf")
		if !ok {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		d := description{Field: Field{Name: name, Kind: Setting, Tag: f.Tag}, was: f.Tag.Get("was"), index: i}
		switch {
		case option == "inline":
			d.inline = true
		case option == "label":
			d.Kind = Label
		case option == "block" && f.Type.Kind() == reflect.Slice:
			d.Kind = Many
		case option == "block":
			d.Kind = Single
		}
		all = append(all, d)
	}
	descriptions.Store(t, all)
	return all
}

// leaves gives the settings below v, inner blocks that have no name included, each under its
// full name as "tls.key".
func leaves(v reflect.Value, prefix string) iter.Seq[Field] {
	return func(yield func(Field) bool) { eachLeaf(v, prefix, yield) }
}

func eachLeaf(v reflect.Value, prefix string, yield func(Field) bool) bool {
	for f := range Fields(v) {
		f.Name = prefix + f.Name
		switch f.Kind {
		case Setting:
			if !yield(f) {
				return false
			}
		case Single:
			if !eachLeaf(f.Value, f.Name+".", yield) {
				return false
			}
		}
	}
	return true
}

// hasLabel reports whether blocks like v have a name each; otherwise they count in their order.
func hasLabel(v reflect.Value) bool {
	for f := range Fields(v) {
		if f.Kind == Label {
			return true
		}
	}
	return false
}

// named finds the field of v that stands for name in the file, or did before it was renamed.
func named(v reflect.Value, name string) (Field, bool) {
	if name == "" {
		return Field{}, false
	}
	for _, d := range described(v.Type()) {
		switch {
		case d.inline:
			if f, ok := named(v.Field(d.index), name); ok {
				return f, true
			}
		case (d.Name == name || d.was == name) && d.Kind != Label:
			f := d.Field
			f.Value = v.Field(d.index)
			return f, true
		}
	}
	return Field{}, false
}

// names lists what may stand in the block that v is for.
func names(v reflect.Value) []string {
	var all []string
	for f := range Fields(v) {
		if f.Kind != Label {
			all = append(all, f.Name)
		}
	}
	return all
}

// homeOf gives the block in which a name may stand in a file whose top is root, "" for none.
func homeOf(name string, of reflect.Type) string {
	root := reflect.New(of).Elem()
	if f, ok := named(root, name); ok && f.Kind == Setting {
		return "at the top of the file, outside all blocks"
	}
	var blocks []string
	for f := range Fields(root) {
		if f.Kind == Setting {
			continue
		}
		v := f.Value
		if f.Kind == Many {
			v = reflect.New(v.Type().Elem().Elem()).Elem()
		}
		if _, ok := named(v, name); ok {
			blocks = append(blocks, f.Name)
		}
	}
	if len(blocks) == 0 {
		return ""
	}
	return "in a " + list(blocks, " or ") + " block"
}

// list joins names as people do: "a, b or c".
func list(names []string, last string) string {
	n := len(names) - 1
	if n < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:n], ", ") + last + names[n]
}

// homes gives what each name stands for at the top of a file.
func homes(root reflect.Type) map[string]Kind {
	top := make(map[string]Kind)
	for f := range Fields(reflect.New(root).Elem()) {
		top[f.Name] = f.Kind
	}
	return top
}

// Bounded holds the value of f against the tags min, max, oneof and check.
func (s *Schema) Bounded(f Field) error {
	if choices, ok := f.Tag.Lookup("oneof"); ok {
		return OneOf(f.Value.String(), strings.Fields(choices))
	}
	if check, ok := f.Tag.Lookup("check"); ok {
		return s.Checks[check](f.Value.String())
	}
	low, high := bound(f, "min"), bound(f, "max")
	switch {
	case low.IsValid() && f.Value.Int() < low.Int():
		return Wrong(rangeHint(low, high), "%s is too small", show(f.Value))
	case high.IsValid() && f.Value.Int() > high.Int():
		return Wrong(rangeHint(low, high), "%s is too large", show(f.Value))
	}
	return nil
}

func rangeHint(low, high reflect.Value) string {
	if high.IsValid() {
		return "must be from " + show(low) + " to " + show(high)
	}
	return "must be at least " + show(low)
}

// bound reads the tag min or max as a value of the field's type.
func bound(f Field, which string) reflect.Value {
	text, ok := f.Tag.Lookup(which)
	if !ok {
		return reflect.Value{}
	}
	v := reflect.New(f.Value.Type()).Elem()
	if err := set(v, cty.StringVal(text)); err != nil {
		panic(fmt.Sprintf("settings: tag %s of %s: %v", which, f.Name, err))
	}
	return v
}

// OneOf returns an error with the choices unless got is one of them.
func OneOf(got string, choices []string) error {
	if slices.Contains(choices, got) {
		return nil
	}
	hint := "choose one of " + strings.Join(choices, ", ")
	if guess := legible.Nearest(got, choices); guess != "" {
		hint = fmt.Sprintf("did you mean %q? (%s)", guess, hint)
	}
	return Wrong(hint, "%s is not a valid value", Quoted(got))
}
