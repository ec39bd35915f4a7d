package settings

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
)

// set puts val into target, by the type of target.
func set(target reflect.Value, val cty.Value) error {
	if val.IsNull() {
		return Wrong("", "the value is missing")
	}
	switch target.Kind() {
	case reflect.Int:
		return setInt(target, val)
	case reflect.Float64:
		return setFloat(target, val)
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
			return "", Wrong(sizeRemedy, "must be a whole number of octets")
		}
		return strconv.FormatInt(n, 10), nil
	}
	if _, span := target.Interface().(time.Duration); span && val.Type() == cty.Number {
		return "", Wrong(durationRemedy, "the unit is missing")
	}
	return "", Wrong(`write a string in double quotes: "..."`, "must be a string, not %s", kindOf(val))
}

func kindOf(val cty.Value) string {
	switch t := val.Type(); {
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "a boolean"
	case t == cty.String:
		return "a string"
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
			return Wrong(remedy, "must be a whole number")
		}
		target.SetInt(n)
	case cty.String: // as env() gives it
		n, err := strconv.ParseInt(val.AsString(), 10, 64)
		if err != nil {
			return Wrong(remedy, "must be a whole number, not a string")
		}
		target.SetInt(n)
	default:
		return Wrong(remedy, "must be a whole number, not %s", kindOf(val))
	}
	return nil
}

func setFloat(target reflect.Value, val cty.Value) error {
	const remedy = "write a number without quotes, such as 0.5"
	switch val.Type() {
	case cty.Number:
		f, _ := val.AsBigFloat().Float64()
		target.SetFloat(f)
	case cty.String: // as env() gives it
		f, err := strconv.ParseFloat(val.AsString(), 64)
		if err != nil {
			return Wrong(remedy, "must be a number, not a string")
		}
		target.SetFloat(f)
	default:
		return Wrong(remedy, "must be a number, not %s", kindOf(val))
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
		return Wrong("write true or false, without quotes", "must be a boolean, not %s", kindOf(val))
	}
	return nil
}

// setText puts text into target, by the type of target.
func setText(target reflect.Value, text string) error {
	if strings.ContainsAny(text, "\x00\r\n") {
		return Wrong("", "must not contain a line break or a NUL")
	}
	switch to := target.Addr().Interface().(type) {
	case *time.Duration:
		d, err := ParseDuration(text)
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
		return Wrong(`write it as "192.0.2.1" or "2001:db8::1"`, "%s is not an IP address", Quoted(text))
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
		return Wrong(`write it as "192.0.2.0/24" or "2001:db8::/32"`, "%s is not a network", Quoted(text))
	}
	if p != p.Masked() {
		meant := p.Masked()
		if p.Bits() == 0 { // nobody who writes an address means all of them
			meant = netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		}
		return Wrong(fmt.Sprintf("did you mean %q?", meant), "%s has bits set after its prefix length", Quoted(text))
	}
	*to = p
	return nil
}
