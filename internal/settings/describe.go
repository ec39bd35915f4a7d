package settings

import (
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// typeNames names the values of types that the kind of their Go type does not.
var typeNames = map[reflect.Type]string{
	reflect.TypeFor[time.Duration](): "duration",
	reflect.TypeFor[Size]():          "size",
	reflect.TypeFor[ByteRate]():      "data rate",
	reflect.TypeFor[Rate]():          "rate",
	reflect.TypeFor[Mode]():          "file mode",
	reflect.TypeFor[Secret]():        "secret string",
	reflect.TypeFor[Retry]():         "duration, or a list of durations",
	reflect.TypeFor[netip.Prefix]():  "network",
	reflect.TypeFor[netip.Addr]():    "address",
}

// Describe names the values that a setting can have, with their choices or bounds, for people: "size, from
// 1KiB to 1GiB".
func Describe(f Field) string {
	if f.Value.Kind() == reflect.Slice {
		f.Value = reflect.New(f.Value.Type().Elem()).Elem()
		one, more, _ := strings.Cut(Describe(f), ",")
		if !strings.HasPrefix(one, `"`) {
			one = plural(one)
		}
		return strings.TrimSuffix("list of "+one+","+more, ",")
	}
	if choices := strings.Fields(f.Tag.Get("oneof")); len(choices) > 0 {
		for i, c := range choices {
			choices[i] = quote(c)
		}
		return strings.Join(choices, " | ")
	}
	kind, low, high := typeName(f.Value.Type()), bound(f, "min"), bound(f, "max")
	switch {
	case low.IsValid() && high.IsValid():
		return kind + ", from " + show(low) + " to " + show(high)
	case low.IsValid():
		return kind + ", at least " + show(low)
	case high.IsValid():
		return kind + ", at most " + show(high)
	}
	return kind
}

func plural(noun string) string {
	if strings.HasSuffix(noun, "s") {
		return noun + "es"
	}
	return noun + "s"
}

func typeName(t reflect.Type) string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	switch t.Kind() {
	case reflect.Map:
		return "object of " + plural(typeName(t.Elem()))
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Float64:
		return "number"
	}
	return "string"
}
