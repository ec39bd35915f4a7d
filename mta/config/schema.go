package config

import (
	"iter"
	"reflect"
	"strings"
)

// kind is what a field of a configuration struct is in the file.
type kind uint8

const (
	setting kind = iota // name = value
	single              // name { ... }, at most once
	many                // name "label" { ... }, or name { ... } for a struct without a label, any number
	label               // the label of the block that the struct stands for
)

// field is a field of a configuration struct together with its value.
type field struct {
	name  string // as in the file, "" for a label
	kind  kind
	tag   reflect.StructTag
	value reflect.Value
}

// fields gives what the struct v says of the file, in its order; inlined structs as if their
// fields stood in v.
func fields(v reflect.Value) iter.Seq[field] {
	return func(yield func(field) bool) { eachField(v, yield) }
}

func eachField(v reflect.Value, yield func(field) bool) bool {
	t := v.Type()
	for i := range t.NumField() {
		tag, ok := t.Field(i).Tag.Lookup("conf")
		if !ok {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		f := field{name: name, tag: t.Field(i).Tag, value: v.Field(i)}
		switch {
		case option == "inline":
			if !eachField(f.value, yield) {
				return false
			}
			continue
		case option == "label":
			f.kind = label
		case option == "block" && f.value.Kind() == reflect.Slice:
			f.kind = many
		case option == "block":
			f.kind = single
		}
		if !yield(f) {
			return false
		}
	}
	return true
}

// leaves gives the settings below v, inner blocks that have no name included, each under its
// full name as "tls.key".
func leaves(v reflect.Value, prefix string) iter.Seq[field] {
	return func(yield func(field) bool) { eachLeaf(v, prefix, yield) }
}

func eachLeaf(v reflect.Value, prefix string, yield func(field) bool) bool {
	for f := range fields(v) {
		f.name = prefix + f.name
		switch f.kind {
		case setting:
			if !yield(f) {
				return false
			}
		case single:
			if !eachLeaf(f.value, f.name+".", yield) {
				return false
			}
		}
	}
	return true
}

// blockOf gives the positions that the struct v keeps, nil when it keeps none.
func blockOf(v reflect.Value) *block {
	if b, ok := v.Addr().Interface().(interface{ positions() *block }); ok {
		return b.positions()
	}
	return nil
}

func (b *block) positions() *block { return b }

// hasLabel tells blocks that have a name from those that count in their order.
func hasLabel(v reflect.Value) bool {
	for f := range fields(v) {
		if f.kind == label {
			return true
		}
	}
	return false
}

// named finds the field of v that stands for name in the file, or did before it was renamed.
func named(v reflect.Value, name string) (field, bool) {
	for f := range fields(v) {
		if (f.name == name || f.tag.Get("was") == name) && f.kind != label && name != "" {
			return f, true
		}
	}
	return field{}, false
}

// names lists what may stand in the block that v is for.
func names(v reflect.Value) []string {
	var all []string
	for f := range fields(v) {
		if f.kind != label {
			all = append(all, f.name)
		}
	}
	return all
}

// homeOf says in which block a name may stand, "" when it may nowhere.
func homeOf(name string) string {
	root := reflect.ValueOf(new(Config)).Elem()
	if f, ok := named(root, name); ok && f.kind == setting {
		return "the top of the file, outside of all blocks"
	}
	var blocks []string
	for f := range fields(root) {
		if f.kind == setting {
			continue
		}
		v := f.value
		if f.kind == many {
			v = reflect.New(v.Type().Elem().Elem()).Elem()
		}
		if _, ok := named(v, name); ok {
			blocks = append(blocks, f.name)
		}
	}
	if len(blocks) == 0 {
		return ""
	}
	return "a " + list(blocks, " or ") + " block"
}

// list joins names as people do: "a, b or c".
func list(names []string, last string) string {
	n := len(names) - 1
	if n < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:n], ", ") + last + names[n]
}

// Nearest gives the one of the candidates that given most likely means, "" when none is close. Words
// of one or two letters are like too many others.
func Nearest(given string, candidates []string) string {
	best, bound := "", 1+len(given)/3
	if len(given) < 3 {
		bound = 0
	}
	for _, c := range candidates {
		if d := distance(given, c); d <= bound {
			best, bound = c, d-1
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a
// into b (restricted Damerau-Levenshtein distance, by octets).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// What a name at the top of a file stands for.
const (
	isSetting = 1 + iota
	isBlock
)

// homes says what each name at the top of a file stands for.
func homes() map[string]int {
	top := make(map[string]int)
	for f := range fields(reflect.ValueOf(new(Config)).Elem()) {
		if top[f.name] = isBlock; f.kind == setting {
			top[f.name] = isSetting
		}
	}
	return top
}
