package settings

import (
	"reflect"
	"time"
)

// Object gives the struct that root points to, every default included, for programs that read JSON:
// settings under their names, durations, sizes and rates as in the file, blocks with labels as lists of
// objects whose "name" is the label. Secrets are masked. What Print leaves out is left out here.
func Object(root any) map[string]any {
	v := reflect.ValueOf(root).Elem()
	return objectOfBody(v, BlockOf(v), "")
}

func objectOfBody(v reflect.Value, b *Block, prefix string) map[string]any {
	out := make(map[string]any)
	for f := range Fields(v) {
		switch f.Kind {
		case Setting:
			if b.Set(prefix+f.Name) || printed(f, b) {
				out[f.Name] = plainValue(f.Value, b.env[prefix+f.Name])
			}
		case Single:
			inner, sub := b, prefix+f.Name+"."
			if own := BlockOf(f.Value); own != nil {
				inner, sub = own, ""
			}
			if o := objectOfBody(f.Value, inner, sub); len(o) > 0 {
				out[f.Name] = o
			}
		case Many:
			list := make([]map[string]any, 0, f.Value.Len())
			for i := range f.Value.Len() {
				list = append(list, objectOfBlock(f.Value.Index(i).Elem()))
			}
			out[f.Name] = list
		}
	}
	return out
}

func objectOfBlock(v reflect.Value) map[string]any {
	o := objectOfBody(v, BlockOf(v), "")
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
		return FormatDuration(x.First)
	case time.Duration:
		return FormatDuration(x)
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
