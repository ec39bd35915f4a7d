package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"mta/internal/envelope"
)

// decoder fills structs from the HCL tree and goes on after each problem.
type decoder struct {
	problems *collector
	eval     *hcl.EvalContext
}

// config decodes the whole file.
func (d *decoder) config(body *hclsyntax.Body, c *Config) {
	listeners := c.Listeners
	c.Listeners = nil
	d.body(body, reflect.ValueOf(c).Elem(), &c.block, "", "at the top of the file")
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
	if f.kind == many {
		return ` "name"`
	}
	return ""
}

func (d *decoder) unknown(at hcl.Range, name, what string, v reflect.Value, where string) {
	hint := ""
	if home := homeOf(name); home != "" {
		hint = "it belongs into " + home
	} else if guess := nearest(name, names(v)); guess != "" {
		hint = fmt.Sprintf("did you mean %q?", guess)
	} else {
		hint = "known here: " + strings.Join(names(v), ", ")
	}
	d.problems.add(at, hint, "unknown %s %q %s", what, name, where)
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
	if len(in.Labels) != 1 {
		d.problems.add(in.DefRange(), fmt.Sprintf(`write it as %s "name" { ... }`, in.Type), "a block %s has one name, this one has %d", in.Type, len(in.Labels))
		return
	}
	v := reflect.New(f.value.Type().Elem().Elem())
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
		d.problems.add(a.Expr.Range(), "leave the setting out for its default", "%s has no value", a.Name)
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
	if _, ok := f.value.Interface().(Retry); ok {
		d.retry(val, a, f)
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
		d.problems.add(a.Expr.Range(), `write one time span, which doubles with each attempt, or a list as ["5m", "30m", "2h"]`, "%s is empty", f.name)
	default:
		f.value.Set(reflect.ValueOf(Retry{List: spans}))
	}
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

// set puts val into target, by the type of target.
func set(target reflect.Value, val cty.Value) error {
	if val.IsNull() {
		return wrong("", "there is no value")
	}
	switch target.Kind() {
	case reflect.Int:
		return setInt(target, val)
	case reflect.Bool:
		return setBool(target, val)
	}
	text, err := textOf(target, val)
	if err != nil {
		return err
	}
	return setText(target, text)
}

// textOf gives a string as it is, and a number where octets are meant.
func textOf(target reflect.Value, val cty.Value) (string, error) {
	if val.Type() == cty.String {
		return val.AsString(), nil
	}
	if _, octets := target.Interface().(Size); octets && val.Type() == cty.Number {
		n, accuracy := val.AsBigFloat().Int64()
		if accuracy != 0 || n < 0 {
			return "", wrong(sizeRemedy, "it wants a whole number of octets")
		}
		return strconv.FormatInt(n, 10), nil
	}
	if _, span := target.Interface().(time.Duration); span && val.Type() == cty.Number {
		return "", wrong(durationRemedy, "it has no unit")
	}
	return "", wrong(`write text in double quotes, as "..."`, "it wants text and has %s", kindOf(val))
}

func kindOf(val cty.Value) string {
	switch t := val.Type(); {
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "true or false"
	case t == cty.String:
		return "text"
	case t.IsTupleType(), t.IsListType(), t.IsSetType():
		return "a list"
	}
	return "an object"
}

func setInt(target reflect.Value, val cty.Value) error {
	const remedy = "write a number without quotes and without a unit"
	switch val.Type() {
	case cty.Number:
		n, accuracy := val.AsBigFloat().Int64()
		if accuracy != 0 {
			return wrong(remedy, "it wants a whole number and has another")
		}
		target.SetInt(n)
	case cty.String: // as env() gives it
		n, err := strconv.ParseInt(val.AsString(), 10, 64)
		if err != nil {
			return wrong(remedy, "it wants a whole number and has text")
		}
		target.SetInt(n)
	default:
		return wrong(remedy, "it wants a whole number and has %s", kindOf(val))
	}
	return nil
}

func setBool(target reflect.Value, val cty.Value) error {
	switch {
	case val.Type() == cty.Bool:
		target.SetBool(val.True())
	case val.Type() == cty.String && val.AsString() == "true": // as env() gives it
		target.SetBool(true)
	case val.Type() == cty.String && val.AsString() == "false":
		target.SetBool(false)
	default:
		return wrong("write true or false, without quotes", "it wants true or false and has %s", kindOf(val))
	}
	return nil
}

// setText puts text into target, by the type of target.
func setText(target reflect.Value, text string) error {
	if strings.ContainsAny(text, "\x00\r\n") {
		return wrong("", "it has a line break or a NUL in it")
	}
	switch to := target.Addr().Interface().(type) {
	case *time.Duration:
		d, err := parseDuration(text)
		*to = d
		return err
	case *netip.Addr:
		return setAddr(to, text)
	case *netip.Prefix:
		return setPrefix(to, text)
	case encoding.TextUnmarshaler:
		return to.UnmarshalText([]byte(text))
	}
	target.SetString(text)
	return nil
}

// setAddr reads an IP address; "" leaves it to the system.
func setAddr(to *netip.Addr, text string) error {
	if text == "" {
		*to = netip.Addr{}
		return nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Is4In6() {
		return wrong(`write it as "192.0.2.1" or "2001:db8::1"`, "%s is not an IP address", quoted(text))
	}
	*to = a
	return nil
}

// setPrefix reads a network, or an address as a network of one.
func setPrefix(to *netip.Prefix, text string) error {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		*to = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return wrong(`write it as "192.0.2.0/24" or "2001:db8::/32"`, "%s is not a network", quoted(text))
	}
	if p != p.Masked() {
		return wrong(fmt.Sprintf("did you mean %q?", p.Masked()), "%s has bits set behind its length", quoted(text))
	}
	*to = p
	return nil
}

// bounded holds the value of f against the tags min, max, oneof and check.
func bounded(f field) error {
	if choices, ok := f.tag.Lookup("oneof"); ok {
		return oneOf(f.value.String(), strings.Fields(choices))
	}
	if check, ok := f.tag.Lookup("check"); ok {
		return checks[check](f.value)
	}
	low, high := bound(f, "min"), bound(f, "max")
	switch {
	case low.IsValid() && f.value.Int() < low.Int():
		return wrong(rangeHint(low, high), "%s is too small", show(f.value))
	case high.IsValid() && f.value.Int() > high.Int():
		return wrong(rangeHint(low, high), "%s is too large", show(f.value))
	}
	return nil
}

func rangeHint(low, high reflect.Value) string {
	if high.IsValid() {
		return "it must be from " + show(low) + " to " + show(high)
	}
	return "it must be at least " + show(low)
}

// bound reads the tag min or max as a value of the field's type.
func bound(f field, which string) reflect.Value {
	text, ok := f.tag.Lookup(which)
	if !ok {
		return reflect.Value{}
	}
	v := reflect.New(f.value.Type()).Elem()
	if err := set(v, cty.StringVal(text)); err != nil {
		panic(fmt.Sprintf("config: tag %s of %s: %v", which, f.name, err))
	}
	return v
}

func oneOf(got string, choices []string) error {
	if slices.Contains(choices, got) {
		return nil
	}
	hint := "choose one of " + strings.Join(choices, ", ")
	if guess := nearest(got, choices); guess != "" {
		hint = fmt.Sprintf("did you mean %q? (%s)", guess, hint)
	}
	return wrong(hint, "%s is not one of its values", quoted(got))
}

// checks are the tests that the tag check names.
var checks = map[string]func(reflect.Value) error{
	"listen": func(v reflect.Value) error { return checkListen(v.String()) },
	"listen or off": func(v reflect.Value) error {
		if v.String() == "" {
			return nil
		}
		return checkListen(v.String())
	},
	"server":   func(v reflect.Value) error { return checkServer(v.String()) },
	"hostname": func(v reflect.Value) error { return checkHostname(v.String()) },
}

func checkListen(s string) error {
	const remedy = `write it as "127.0.0.1:2525", "[::1]:2525", or ":2525" for all addresses of the machine`
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return wrong(remedy, "%s is not an address with a port", quoted(s))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return wrong(remedy, "%s has a port that can't be", quoted(s))
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		return wrong(remedy, "%s has no IP address before the port", quoted(s))
	}
	return nil
}

func checkServer(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if a, err := netip.ParseAddrPort(s); err == nil && a.Port() > 0 {
		return nil
	}
	return wrong(`write it as "192.0.2.53", "192.0.2.53:53" or "[2001:db8::53]:53"`, "%s is not the address of a name server", quoted(s))
}

func checkHostname(s string) error {
	if a, err := envelope.ToASCII(s); err != nil || a == "" || strings.HasPrefix(s, "[") && !isLiteral(s) {
		return wrong(`write a name that the DNS has, as "mta1.example.com"`, "%s is not a host name", quoted(s))
	}
	return nil
}
