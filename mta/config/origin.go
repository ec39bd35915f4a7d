package config

import (
	"fmt"
	"reflect"
)

// Origin says where a setting of the block was made, as `source "a" (mta.conf:31)`, or "default".
// For what applies to a destination ask Traffic.Origin.
func (b *block) Origin(setting string) string {
	at, ok := b.at[setting]
	switch {
	case b.kept[setting]:
		return "kept until a restart"
	case !ok:
		return "default"
	}
	return fmt.Sprintf("%s (%s:%d)", b.title, at.Filename, at.Start.Line)
}

// Value gives a setting as the file has it, "" for one that Settings doesn't list.
func (t *Traffic) Value(setting string) string {
	for f := range leaves(reflect.ValueOf(t).Elem(), "") {
		if f.name != setting {
			continue
		}
		if r, ok := f.value.Interface().(Retry); ok {
			return r.String()
		}
		return show(f.value)
	}
	return ""
}
