package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Effective prints what is in force, every default included, as a configuration that loads to
// the same values. Settings that the file has are marked with their line, those of a preset as
// such, and those that wait for a restart as such and by what the file has. Secrets are masked, unless they are from the environment: then the print says from which variable.
func Effective(c *Config) []byte {
	var p printer
	p.waiting(c.waiting)
	p.body(reflect.ValueOf(c).Elem(), &c.block, "", 0)
	return hclwrite.Format(p.out.Bytes())
}

type printer struct{ out bytes.Buffer }

// waiting tells what the file has that is not in force.
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

func (p *printer) body(v reflect.Value, b *block, prefix string, depth int) {
	for f := range fields(v) {
		switch f.kind {
		case setting:
			p.setting(f, b, prefix, depth)
		case single:
			p.single(f, b, prefix, depth)
		case many:
			for i := range f.value.Len() {
				p.labelled(f.name, f.value.Index(i).Elem(), depth)
			}
		}
	}
}

func (p *printer) setting(f field, b *block, prefix string, depth int) {
	name := prefix + f.name
	if !b.set(name) && !printed(f, b) {
		return
	}
	fmt.Fprintf(&p.out, "%s%s = %s", strings.Repeat("  ", depth), f.name, literal(f.value, b.env[name]))
	switch {
	case b.kept[name]:
		p.out.WriteString(" # until a restart")
	case b.inFile(name):
		fmt.Fprintf(&p.out, " # line %d", b.at[name].Start.Line)
	case b.set(name):
		p.out.WriteString(" # preset")
	}
	p.out.WriteByte('\n')
}

// printed says whether a setting that the file doesn't have is shown. An override that is not
// there has no value, and neither have an absent certificate, list or address.
func printed(f field, b *block) bool {
	if b.overrides {
		return false
	}
	switch f.value.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return f.value.Len() > 0
	}
	a, ok := f.value.Interface().(netip.Addr)
	return !ok || a.IsValid()
}

func (p *printer) single(f field, b *block, prefix string, depth int) {
	inner, sub := b, prefix+f.name+"."
	if own := blockOf(f.value); own != nil {
		inner, sub = own, ""
	}
	var in printer
	in.body(f.value, inner, sub, depth+1)
	if in.out.Len() == 0 {
		return
	}
	indent := strings.Repeat("  ", depth)
	fmt.Fprintf(&p.out, "\n%s%s {\n%s%s}\n", indent, f.name, in.out.Bytes(), indent)
}

func (p *printer) labelled(name string, v reflect.Value, depth int) {
	indent := strings.Repeat("  ", depth)
	if hasLabel(v) {
		name += " " + quote(labelOf(v))
	}
	fmt.Fprintf(&p.out, "\n%s%s {\n", indent, name)
	p.body(v, blockOf(v), "", depth+1)
	fmt.Fprintf(&p.out, "%s}\n", indent)
}

// literal gives v as the file has it.
func literal(v reflect.Value, env string) string {
	if _, secret := v.Interface().(Secret); secret && env != "" {
		return "env(" + quote(env) + ")"
	}
	switch v.Kind() {
	case reflect.Int, reflect.Bool:
		return fmt.Sprint(v.Interface())
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	case reflect.Map:
		return objectOf(v.Interface().(Weights))
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = literal(v.Index(i), "")
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	if r, ok := v.Interface().(Retry); ok {
		if len(r.List) > 0 {
			return literal(reflect.ValueOf(r.List), "")
		}
		return quote(formatDuration(r.First))
	}
	return quote(show(v))
}

// objectOf gives weights as the file has them.
func objectOf(w Weights) string {
	parts := make([]string, 0, len(w))
	for _, name := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, quote(name)+" = "+literal(reflect.ValueOf(w[name]), ""))
	}
	if len(parts) == 0 {
		return "{}"
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// show gives v as text, without quotes.
func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return formatDuration(x)
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
