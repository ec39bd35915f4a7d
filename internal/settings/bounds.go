package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"example.org/mta/internal/legible"
)

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
