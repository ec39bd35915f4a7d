package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"example.org/mta/internal/legible"
)

// decoder fills structs from the HCL tree and goes on after each problem.
type decoder struct {
	*Schema
	problems *Collector
	eval     *hcl.EvalContext
	root     reflect.Type // of the file's top
	taken    map[blockName]*Block
}

// blockName is the name of a block among those of its kind: list is a pointer to them.
type blockName struct {
	list  any
	label string
}

// body decodes what stands between braces into v. Positions go into b, under prefix. where
// names the place for messages.
func (d *decoder) body(body *hclsyntax.Body, v reflect.Value, b *Block, prefix, where string) {
	for _, a := range inOrder(body.Attributes) {
		f, ok := named(v, a.Name)
		switch {
		case !ok:
			d.unknown(a.NameRange, a.Name, "setting", v, where)
		case f.Kind != Setting:
			d.problems.Add(a.NameRange, fmt.Sprintf("write it as %s%s { ... }", a.Name, labelHint(f)),
				"%q is a block and not a setting", a.Name)
		case b.sparse && f.Tag.Get("only") != "":
			d.problems.Add(a.NameRange, fmt.Sprintf("write it in the %s block", f.Tag.Get("only")),
				"%s can't be different %s", a.Name, where)
		default:
			d.setting(a, f, b, prefix)
		}
	}
	for _, in := range body.Blocks {
		f, ok := named(v, in.Type)
		switch {
		case !ok:
			d.unknown(in.TypeRange, in.Type, "block", v, where)
		case f.Kind == Setting:
			d.problems.Add(in.TypeRange, fmt.Sprintf("write it as %s = ...", in.Type),
				"%q is a setting and not a block", in.Type)
		default:
			d.block(in, f, b, prefix)
		}
	}
}

func inOrder(as hclsyntax.Attributes) []*hclsyntax.Attribute {
	return slices.SortedFunc(maps.Values(as), func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.SrcRange.Start.Byte, b.SrcRange.Start.Byte)
	})
}

func labelHint(f Field) string {
	if f.Kind == Many && hasLabel(reflect.New(f.Value.Type().Elem().Elem()).Elem()) {
		return ` "name"`
	}
	return ""
}

func (d *decoder) unknown(at hcl.Range, name, what string, v reflect.Value, where string) {
	if instead := cmp.Or(d.Retired[v.Type().Name()+" "+name], d.Retired[name]); instead != "" {
		d.problems.Warnings = append(d.problems.Warnings,
			fmt.Sprintf("%s:%d: %s is not a setting any more and has no effect: remove it; %s", at.Filename,
				at.Start.Line, name, instead))
		return
	}
	hint := ""
	if remedy := d.Remedies[v.Type().Name()+" "+name]; remedy != "" {
		hint = remedy
	} else if home := homeOf(name, d.root); home != "" {
		hint = "it belongs " + home
	} else if guess := legible.Nearest(name, names(v)); guess != "" {
		hint = fmt.Sprintf("did you mean %q?", guess)
	} else {
		hint = "valid here: " + strings.Join(names(v), ", ")
	}
	d.problems.Add(at, hint, "unknown %s %q %s", what, name, where)
}

func (d *decoder) block(in *hclsyntax.Block, f Field, parent *Block, prefix string) {
	if f.Kind == Many {
		d.labelled(in, f)
		return
	}
	if len(in.Labels) > 0 {
		d.problems.Add(in.LabelRanges[0], fmt.Sprintf("write it as %s { ... }", in.Type),
			"block %s takes no name", in.Type)
		return
	}
	b, inner := parent, prefix+f.Name
	if own := BlockOf(f.Value); own != nil {
		b, inner = own, ""
	}
	key := cmp.Or(inner, f.Name)
	if first, dup := parent.at[key]; dup {
		d.problems.Add(in.DefRange(), "put all settings into one of them",
			"duplicate block %s; the first is in line %d", in.Type, first.Start.Line)
		return
	}
	parent.note(key, in.DefRange())
	if inner != "" {
		inner += "."
	} else {
		b.title, b.header = in.Type, in.DefRange()
	}
	d.body(in.Body, f.Value, b, inner, "in block "+in.Type)
}

// labelled decodes one of several blocks that have a name each.
func (d *decoder) labelled(in *hclsyntax.Block, f Field) {
	v := reflect.New(f.Value.Type().Elem().Elem())
	if !hasLabel(v.Elem()) {
		d.numbered(in, f, v)
		return
	}
	if len(in.Labels) != 1 {
		d.problems.Add(in.DefRange(), fmt.Sprintf(`write it as %s "name" { ... }`, in.Type),
			"a %s block has one name, and this one has %d", in.Type, len(in.Labels))
		return
	}
	Defaults(v.Interface())
	b := BlockOf(v.Elem())
	b.title, b.header = fmt.Sprintf("%s %q", in.Type, in.Labels[0]), in.DefRange()
	for part := range Fields(v.Elem()) {
		if part.Kind == Label && !d.label(in, part) {
			return
		}
	}
	name := blockName{f.Value.Addr().Interface(), labelOf(v.Elem())}
	if first := d.taken[name]; first != nil {
		d.problems.Add(in.DefRange(), "give it another name, or put all settings into one of them",
			"duplicate block %s %q; the first is in line %d", in.Type, in.Labels[0], first.header.Start.Line)
		return
	}
	d.taken[name] = b
	d.body(in.Body, v.Elem(), b, "", "in "+b.title)
	f.Value.Set(reflect.Append(f.Value, v))
}

// numbered decodes one of several blocks that count in their order.
func (d *decoder) numbered(in *hclsyntax.Block, f Field, v reflect.Value) {
	if len(in.Labels) > 0 {
		d.problems.Add(in.LabelRanges[0], fmt.Sprintf("write it as %s { ... }; they count in their order", in.Type),
			"block %s takes no name", in.Type)
		return
	}
	b := BlockOf(v.Elem())
	b.title, b.header = fmt.Sprintf("%s %d", in.Type, f.Value.Len()+1), in.DefRange()
	d.body(in.Body, v.Elem(), b, "", "in "+b.title)
	f.Value.Set(reflect.Append(f.Value, v))
}

func (d *decoder) label(in *hclsyntax.Block, f Field) bool {
	at, text := in.LabelRanges[0], in.Labels[0]
	if text == "" {
		d.problems.Add(at, "", "the name of this %s block is empty", in.Type)
		return false
	}
	err := setText(f.Value, text)
	if err != nil {
		d.malformed(at, in.Type, err)
	}
	return err == nil
}

// labelOf gives the name that the block v has.
func labelOf(v reflect.Value) string {
	for f := range Fields(v) {
		if f.Kind == Label {
			return f.Value.String()
		}
	}
	return ""
}

// setting decodes one name = value, and notes when that failed.
func (d *decoder) setting(a *hclsyntax.Attribute, f Field, b *Block, prefix string) {
	if _, twice := b.at[prefix+f.Name]; twice {
		d.problems.Add(a.NameRange, "remove one of the two lines",
			"%s appears twice, once under its former name", f.Name)
		return
	}
	if a.Name != f.Name {
		d.problems.Warnings = append(d.problems.Warnings,
			fmt.Sprintf("%s:%d: %s is called %s now: the old name will be refused by the next version",
				a.NameRange.Filename, a.NameRange.Start.Line, a.Name, f.Name))
	}
	b.note(prefix+f.Name, a.Expr.Range())
	before := len(d.problems.found)
	defer func() {
		if len(d.problems.found) > before {
			b.failed = append(b.failed, prefix+f.Name)
		}
	}()
	if name := envOnly(a.Expr); name != "" {
		if b.env == nil {
			b.env = make(map[string]string)
		}
		b.env[prefix+f.Name] = name
	}
	val, diags := a.Expr.Value(d.eval)
	if diags.HasErrors() {
		d.problems.syntax(diags, a.SrcRange.Filename, d.root)
		return
	}
	if val.IsNull() || !val.IsWhollyKnown() {
		d.problems.Add(a.Expr.Range(), "remove the setting to use its default", "%s has no value", a.Name)
		return
	}
	val, _ = val.UnmarkDeep()
	d.value(val, a, f)
}

// value puts val into f, and checks it against the bounds of f.
func (d *decoder) value(val cty.Value, a *hclsyntax.Attribute, f Field) {
	if f.Value.Kind() == reflect.Slice {
		list := reflect.MakeSlice(f.Value.Type(), 0, 0)
		d.each(val, a, f.Name, func(v cty.Value, at hcl.Range) {
			e := reflect.New(f.Value.Type().Elem()).Elem()
			if d.scalar(v, at, Field{Name: f.Name, Tag: f.Tag, Value: e}) {
				list = reflect.Append(list, e)
			}
		})
		f.Value.Set(list)
		return
	}
	if _, retry := f.Value.Interface().(Retry); retry {
		d.retry(val, a, f)
	} else if f.Value.Kind() == reflect.Map {
		d.numbers(val, a, f)
	} else {
		d.scalar(val, a.Expr.Range(), f)
	}
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

// retry takes one duration, which doubles, or a list.
func (d *decoder) retry(val cty.Value, a *hclsyntax.Attribute, f Field) {
	var spans []time.Duration
	good := true
	d.each(val, a, f.Name, func(v cty.Value, at hcl.Range) {
		var span time.Duration
		ok := d.scalar(v, at, Field{Name: f.Name, Tag: `min:"1s"`, Value: reflect.ValueOf(&span).Elem()})
		spans, good = append(spans, span), good && ok
	})
	switch {
	case !good:
	case val.Type() == cty.String || val.Type() == cty.Number:
		f.Value.Set(reflect.ValueOf(Retry{First: spans[0]}))
	case len(spans) == 0:
		d.problems.Add(a.Expr.Range(),
			`write a duration, which doubles with each attempt, or a list such as ["5m", "30m", "2h"]`,
			"%s is empty", f.Name)
	default:
		f.Value.Set(reflect.ValueOf(Retry{List: spans}))
	}
}

// numbers takes an object of numbers.
func (d *decoder) numbers(val cty.Value, a *hclsyntax.Attribute, f Field) {
	if t := val.Type(); !t.IsObjectType() && !t.IsMapType() {
		d.problems.Add(a.Expr.Range(), "write it as "+f.Tag.Get("example"), "%s: must be an object of numbers, not %s",
			f.Name, kindOf(val))
		return
	}
	all := make(map[string]float64)
	for name, v := range val.AsValueMap() {
		var w float64
		if d.scalar(v, a.Expr.Range(), Field{Name: f.Name, Value: reflect.ValueOf(&w).Elem()}) {
			all[name] = w
		}
	}
	f.Value.Set(reflect.ValueOf(all).Convert(f.Value.Type()))
}

// scalar puts one value into f and reports whether that went well.
func (d *decoder) scalar(val cty.Value, at hcl.Range, f Field) bool {
	err := set(f.Value, val)
	if err == nil {
		err = d.Bounded(f)
	}
	if err != nil {
		d.malformed(at, f.Name, err)
	}
	return err == nil
}

func (d *decoder) malformed(at hcl.Range, name string, err error) {
	hint := ""
	var m *malformed
	if errors.As(err, &m) {
		hint = m.remedy
	}
	d.problems.Add(at, hint, "%s: %s", name, err)
}
