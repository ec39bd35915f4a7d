package settings

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

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
