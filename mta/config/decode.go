package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// decoder fills structs from the HCL tree and goes on after each problem.
type decoder struct {
	problems *collector
	eval     *hcl.EvalContext
	warnings []string
}

// config decodes the whole file.
func (d *decoder) config(body *hclsyntax.Body, c *Config) {
	listeners := c.Listeners
	c.Listeners = nil
	d.body(body, reflect.ValueOf(c).Elem(), &c.block, "", "at the top of the file")
	c.warnings = d.warnings
	if len(c.Listeners) == 0 {
		c.Listeners = listeners
	}
}

// body decodes what stands between braces into v. Positions go into b, under prefix. where
// names the place for messages.
func (d *decoder) body(body *hclsyntax.Body, v reflect.Value, b *block, prefix, where string) {
	for _, a := range inOrder(body.Attributes) {
		f, ok := named(v, a.Name)
		switch {
		case !ok:
			d.unknown(a.NameRange, a.Name, "setting", v, where)
		case f.kind != setting:
			d.problems.add(a.NameRange, fmt.Sprintf("write it as %s%s { ... }", a.Name, labelHint(f)), "%q is a block and not a setting", a.Name)
		case b.overrides && f.tag.Get("only") == "defaults":
			d.problems.add(a.NameRange, "it belongs into the defaults block", "%s can't be different %s", a.Name, where)
		default:
			d.setting(a, f, b, prefix)
		}
	}
	for _, in := range body.Blocks {
		f, ok := named(v, in.Type)
		switch {
		case !ok:
			d.unknown(in.TypeRange, in.Type, "block", v, where)
		case f.kind == setting:
			d.problems.add(in.TypeRange, fmt.Sprintf("write it as %s = ...", in.Type), "%q is a setting and not a block", in.Type)
		default:
			d.block(in, f, b, prefix)
		}
	}
}

func inOrder(as hclsyntax.Attributes) []*hclsyntax.Attribute {
	list := make([]*hclsyntax.Attribute, 0, len(as))
	for _, a := range as {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.SrcRange.Start.Byte, b.SrcRange.Start.Byte)
	})
	return list
}

func labelHint(f field) string {
	if f.kind == many && hasLabel(reflect.New(f.value.Type().Elem().Elem()).Elem()) {
		return ` "name"`
	}
	return ""
}

func (d *decoder) unknown(at hcl.Range, name, what string, v reflect.Value, where string) {
	hint := ""
	if said := cmp.Or(elsewhere[v.Type().Name()+" "+name], gone[name]); said != "" {
		hint = said
	} else if home := homeOf(name); home != "" {
		hint = "it belongs into " + home
	} else if guess := Nearest(name, names(v)); guess != "" {
		hint = fmt.Sprintf("did you mean %q?", guess)
	} else {
		hint = "known here: " + strings.Join(names(v), ", ")
	}
	d.problems.add(at, hint, "unknown %s %q %s", what, name, where)
}

// elsewhere says how to write what is not where it is looked for, by struct and name.
var elsewhere = map[string]string{
	"Plan mode": `what becomes of mail that doesn't fit is for the pool to say, by overflow = "shared" or "hold"`,
}

// gone says what has taken the place of settings that there were, by name.
var gone = map[string]string{
	"backlog_threshold": "remove the line: the setting is gone, since another connection is made when mail would wait for longer than a round trip of the host",
}

func (d *decoder) block(in *hclsyntax.Block, f field, parent *block, prefix string) {
	if f.kind == many {
		d.labelled(in, f)
		return
	}
	if len(in.Labels) > 0 {
		d.problems.add(in.LabelRanges[0], fmt.Sprintf("write it as %s { ... }", in.Type), "a block %s has no name", in.Type)
		return
	}
	b, inner := parent, prefix+f.name
	if own := blockOf(f.value); own != nil {
		b, inner = own, ""
	}
	key := cmp.Or(inner, f.name)
	if first, dup := parent.at[key]; dup {
		d.problems.add(in.DefRange(), "put all settings into one of them", "a second block %s; the first is in line %d", in.Type, first.Start.Line)
		return
	}
	parent.note(key, in.DefRange())
	if inner != "" {
		inner += "."
	} else {
		b.title, b.header = in.Type, in.DefRange()
	}
	d.body(in.Body, f.value, b, inner, "in block "+in.Type)
}

// labelled decodes one of several blocks that have a name each.
func (d *decoder) labelled(in *hclsyntax.Block, f field) {
	v := reflect.New(f.value.Type().Elem().Elem())
	if !hasLabel(v.Elem()) {
		d.numbered(in, f, v)
		return
	}
	if len(in.Labels) != 1 {
		d.problems.add(in.DefRange(), fmt.Sprintf(`write it as %s "name" { ... }`, in.Type), "a block %s has one name, this one has %d", in.Type, len(in.Labels))
		return
	}
	if with, ok := v.Interface().(interface{ setDefaults() }); ok {
		with.setDefaults()
	}
	b := blockOf(v.Elem())
	b.title, b.header = fmt.Sprintf("%s %q", in.Type, in.Labels[0]), in.DefRange()
	for part := range fields(v.Elem()) {
		if part.kind == label && !d.label(in, part) {
			return
		}
	}
	for i := range f.value.Len() {
		first := f.value.Index(i).Elem()
		if labelOf(first) == labelOf(v.Elem()) {
			d.problems.add(in.DefRange(), "give it another name, or put all settings into one of them",
				"a second block %s %q; the first is in line %d", in.Type, in.Labels[0], blockOf(first).header.Start.Line)
			return
		}
	}
	d.body(in.Body, v.Elem(), b, "", "in "+b.title)
	f.value.Set(reflect.Append(f.value, v))
}

// numbered decodes one of several blocks that are told from one another by their order.
func (d *decoder) numbered(in *hclsyntax.Block, f field, v reflect.Value) {
	if len(in.Labels) > 0 {
		d.problems.add(in.LabelRanges[0], fmt.Sprintf("write it as %s { ... }; they count in their order", in.Type), "a block %s has no name", in.Type)
		return
	}
	b := blockOf(v.Elem())
	b.title, b.header = fmt.Sprintf("%s %d", in.Type, f.value.Len()+1), in.DefRange()
	d.body(in.Body, v.Elem(), b, "", "in "+b.title)
	f.value.Set(reflect.Append(f.value, v))
}

func (d *decoder) label(in *hclsyntax.Block, f field) bool {
	at, text := in.LabelRanges[0], in.Labels[0]
	if text == "" {
		d.problems.add(at, "", "the name of a block %s is empty", in.Type)
		return false
	}
	err := setText(f.value, text)
	if err != nil {
		d.malformed(at, in.Type, err)
	}
	return err == nil
}

// labelOf gives the name that the block v has.
func labelOf(v reflect.Value) string {
	for f := range fields(v) {
		if f.kind == label {
			return f.value.String()
		}
	}
	return ""
}

func (b *block) note(name string, at hcl.Range) {
	if b.at == nil {
		b.at = make(map[string]hcl.Range)
	}
	b.at[name] = at
}

// setting decodes one name = value, and notes when that failed.
func (d *decoder) setting(a *hclsyntax.Attribute, f field, b *block, prefix string) {
	if _, twice := b.at[prefix+f.name]; twice {
		d.problems.add(a.NameRange, "remove one of the two lines", "%s is there twice, once under the name that it had before", f.name)
		return
	}
	if a.Name != f.name {
		d.warnings = append(d.warnings, fmt.Sprintf("%s:%d: %s is called %s now: the old name will be refused by the next version",
			a.NameRange.Filename, a.NameRange.Start.Line, a.Name, f.name))
	}
	b.note(prefix+f.name, a.Expr.Range())
	before := len(d.problems.found)
	defer func() {
		if len(d.problems.found) > before {
			b.failed = append(b.failed, prefix+f.name)
		}
	}()
	if name := envOnly(a.Expr); name != "" {
		if b.env == nil {
			b.env = make(map[string]string)
		}
		b.env[prefix+f.name] = name
	}
	val, diags := a.Expr.Value(d.eval)
	if diags.HasErrors() {
		d.problems.syntax(diags, a.SrcRange.Filename)
		return
	}
	if val.IsNull() || !val.IsWhollyKnown() {
		d.problems.add(a.Expr.Range(), "remove the setting to get its default", "%s has no value", a.Name)
		return
	}
	val, _ = val.UnmarkDeep()
	d.value(val, a, f)
}

// value puts val into f, and checks it against the bounds of f.
func (d *decoder) value(val cty.Value, a *hclsyntax.Attribute, f field) {
	if f.value.Kind() == reflect.Slice {
		list := reflect.MakeSlice(f.value.Type(), 0, 0)
		d.each(val, a, f.name, func(v cty.Value, at hcl.Range) {
			e := reflect.New(f.value.Type().Elem()).Elem()
			if d.scalar(v, at, field{name: f.name, tag: f.tag, value: e}) {
				list = reflect.Append(list, e)
			}
		})
		f.value.Set(list)
		return
	}
	switch f.value.Interface().(type) {
	case Retry:
		d.retry(val, a, f)
		return
	case Weights:
		d.weights(val, a, f)
		return
	}
	d.scalar(val, a.Expr.Range(), f)
}

// each calls use for each element of a list, or for a lone value.
func (d *decoder) each(val cty.Value, a *hclsyntax.Attribute, name string, use func(cty.Value, hcl.Range)) {
	t := val.Type()
	if !t.IsTupleType() && !t.IsListType() && !t.IsSetType() {
		use(val, a.Expr.Range())
		return
	}
	var exprs []hclsyntax.Expression
	if tuple, ok := a.Expr.(*hclsyntax.TupleConsExpr); ok {
		exprs = tuple.Exprs
	}
	i := 0
	for _, v := range val.Elements() {
		at := a.Expr.Range()
		if i < len(exprs) {
			at = exprs[i].Range()
		}
		use(v, at)
		i++
	}
}

// retry takes one time span, which doubles, or a list.
func (d *decoder) retry(val cty.Value, a *hclsyntax.Attribute, f field) {
	var spans []time.Duration
	good := true
	d.each(val, a, f.name, func(v cty.Value, at hcl.Range) {
		var span time.Duration
		ok := d.scalar(v, at, field{name: f.name, tag: `min:"1s"`, value: reflect.ValueOf(&span).Elem()})
		spans, good = append(spans, span), good && ok
	})
	switch {
	case !good:
	case val.Type() == cty.String || val.Type() == cty.Number:
		f.value.Set(reflect.ValueOf(Retry{First: spans[0]}))
	case len(spans) == 0:
		d.problems.add(a.Expr.Range(), `write a duration, which doubles with each attempt, or a list such as ["5m", "30m", "2h"]`, "%s is empty", f.name)
	default:
		f.value.Set(reflect.ValueOf(Retry{List: spans}))
	}
}

// weights takes an object of numbers.
func (d *decoder) weights(val cty.Value, a *hclsyntax.Attribute, f field) {
	if t := val.Type(); !t.IsObjectType() && !t.IsMapType() {
		d.problems.add(a.Expr.Range(), "write it as { google = 2, yahoo = 1 }", "%s: must have a number for each provider, not %s", f.name, kindOf(val))
		return
	}
	all := make(Weights)
	for name, v := range val.AsValueMap() {
		var w float64
		if d.scalar(v, a.Expr.Range(), field{name: f.name, value: reflect.ValueOf(&w).Elem()}) {
			all[name] = w
		}
	}
	f.value.Set(reflect.ValueOf(all))
}

// scalar puts one value into f and reports whether that went well.
func (d *decoder) scalar(val cty.Value, at hcl.Range, f field) bool {
	err := set(f.value, val)
	if err == nil {
		err = bounded(f)
	}
	if err != nil {
		d.malformed(at, f.name, err)
	}
	return err == nil
}

func (d *decoder) malformed(at hcl.Range, name string, err error) {
	hint := ""
	var m *malformed
	if errors.As(err, &m) {
		hint = m.remedy
	}
	d.problems.add(at, hint, "%s: %s", name, err)
}
