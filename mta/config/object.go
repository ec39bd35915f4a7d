package config

import (
	"reflect"
	"time"
)

// Object gives what is in force, every default included, for programs that read JSON: settings under
// their names, durations, sizes and rates as in the file, blocks with labels as lists of objects whose
// "name" is the label. Secrets are masked. What Effective leaves out is left out here.
func Object(c *Config) map[string]any {
	return objectOfBody(reflect.ValueOf(c).Elem(), &c.block, "")
}

func objectOfBody(v reflect.Value, b *block, prefix string) map[string]any {
	out := make(map[string]any)
	for f := range fields(v) {
		switch f.kind {
		case setting:
			if b.set(prefix+f.name) || printed(f, b) {
				out[f.name] = plainValue(f.value, b.env[prefix+f.name])
			}
		case single:
			inner, sub := b, prefix+f.name+"."
			if own := blockOf(f.value); own != nil {
				inner, sub = own, ""
			}
			if o := objectOfBody(f.value, inner, sub); len(o) > 0 {
				out[f.name] = o
			}
		case many:
			list := make([]map[string]any, 0, f.value.Len())
			for i := range f.value.Len() {
				list = append(list, objectOfBlock(f.value.Index(i).Elem()))
			}
			out[f.name] = list
		}
	}
	return out
}

func objectOfBlock(v reflect.Value) map[string]any {
	o := objectOfBody(v, blockOf(v), "")
	if hasLabel(v) {
		o["name"] = labelOf(v)
	}
	return o
}

// plainValue gives v as JSON has it.
func plainValue(v reflect.Value, env string) any {
	if _, secret := v.Interface().(Secret); secret && env != "" {
		return "env(" + quote(env) + ")"
	}
	switch x := v.Interface().(type) {
	case Retry:
		if len(x.List) > 0 {
			return plainValue(reflect.ValueOf(x.List), "")
		}
		return formatDuration(x.First)
	case time.Duration:
		return formatDuration(x)
	}
	switch v.Kind() {
	case reflect.Int, reflect.Bool, reflect.Float64, reflect.Map:
		return v.Interface()
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plainValue(v.Index(i), "")
		}
		return list
	}
	return show(v)
}
