package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Print prints the struct that root points to, every default included, as a file that reads to the same
// values. Settings that the file has are marked with their line, and those of a preset and those kept
// until a restart as such; waiting, which lists what the file has instead, stands on top. Secrets are
// masked, except that the name of the variable is printed for one from the environment.
func Print(root any, waiting []Change) []byte {
	var p printer
	p.waiting(waiting)
	v := reflect.ValueOf(root).Elem()
	p.body(v, BlockOf(v), "", 0)
	return hclwrite.Format(p.out.Bytes())
}

type printer struct{ out bytes.Buffer }

// waiting lists what the file has that is not in force.
func (p *printer) waiting(changes []Change) {
	if len(changes) == 0 {
		return
	}
	p.out.WriteString("# The file has changed since the relay was started:\n")
	for _, c := range changes {
		fmt.Fprintf(&p.out, "#   %s\n", c)
	}
	p.out.WriteByte('\n')
}

func (p *printer) body(v reflect.Value, b *Block, prefix string, depth int) {
	for f := range Fields(v) {
		switch f.Kind {
		case Setting:
			p.setting(f, b, prefix, depth)
		case Single:
			p.single(f, b, prefix, depth)
		case Many:
			for i := range f.Value.Len() {
				p.labelled(f.Name, f.Value.Index(i).Elem(), depth)
			}
		}
	}
}

func (p *printer) setting(f Field, b *Block, prefix string, depth int) {
	name := prefix + f.Name
	if !b.Set(name) && !printed(f, b) {
		return
	}
	fmt.Fprintf(&p.out, "%s%s = %s", strings.Repeat("  ", depth), f.Name, Literal(f.Value, b.env[name]))
	switch {
	case b.kept[name]:
		p.out.WriteString(" # until a restart")
	case b.Sets(name):
		fmt.Fprintf(&p.out, " # line %d", b.at[name].Start.Line)
	case b.Set(name):
		p.out.WriteString(" # preset")
	}
	p.out.WriteByte('\n')
}

// printed reports whether a setting that the file does not have is shown. An override that is not
// there has no value, and neither have an absent certificate, list or address.
func printed(f Field, b *Block) bool {
	if b.sparse {
		return false
	}
	switch f.Value.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return f.Value.Len() > 0
	}
	a, ok := f.Value.Interface().(netip.Addr)
	return !ok || a.IsValid()
}

func (p *printer) single(f Field, b *Block, prefix string, depth int) {
	inner, sub := b, prefix+f.Name+"."
	if own := BlockOf(f.Value); own != nil {
		inner, sub = own, ""
	}
	var in printer
	in.body(f.Value, inner, sub, depth+1)
	if in.out.Len() == 0 {
		return
	}
	indent := strings.Repeat("  ", depth)
	fmt.Fprintf(&p.out, "\n%s%s {\n%s%s}\n", indent, f.Name, in.out.Bytes(), indent)
}

func (p *printer) labelled(name string, v reflect.Value, depth int) {
	indent := strings.Repeat("  ", depth)
	if hasLabel(v) {
		name += " " + quote(labelOf(v))
	}
	fmt.Fprintf(&p.out, "\n%s%s {\n", indent, name)
	p.body(v, BlockOf(v), "", depth+1)
	fmt.Fprintf(&p.out, "%s}\n", indent)
}

// Literal gives v as the file has it; env is the variable that a secret is from.
func Literal(v reflect.Value, env string) string {
	if _, secret := v.Interface().(Secret); secret && env != "" {
		return "env(" + quote(env) + ")"
	}
	switch v.Kind() {
	case reflect.Int, reflect.Bool:
		return fmt.Sprint(v.Interface())
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	case reflect.Map:
		return objectOf(v)
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = Literal(v.Index(i), "")
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	if r, ok := v.Interface().(Retry); ok {
		if len(r.List) > 0 {
			return Literal(reflect.ValueOf(r.List), "")
		}
		return quote(FormatDuration(r.First))
	}
	return quote(show(v))
}

// objectOf gives a map as the file has it.
func objectOf(m reflect.Value) string {
	parts := make([]string, 0, m.Len())
	for name, value := range m.Seq2() {
		parts = append(parts, quote(name.String())+" = "+Literal(value, ""))
	}
	if len(parts) == 0 {
		return "{}"
	}
	slices.Sort(parts)
	return "{ " + strings.Join(parts, ", ") + " }"
}

// show gives v as text, without quotes.
func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return FormatDuration(x)
	case netip.Addr:
		if !x.IsValid() {
			return ""
		}
		return x.String()
	case fmt.Stringer:
		return x.String()
	}
	return fmt.Sprint(v.Interface())
}

// quote gives s as an HCL string: its escapes are JSON's, and ${ and %{ begin templates.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // strings always encode
	out := strings.TrimSuffix(b.String(), "\n")
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(out)
}

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
