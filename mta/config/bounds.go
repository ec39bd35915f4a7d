package config

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"example.org/mta/internal/envelope"
	"example.org/mta/warmup"
)

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
		return "must be from " + show(low) + " to " + show(high)
	}
	return "must be at least " + show(low)
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
	if guess := Nearest(got, choices); guess != "" {
		hint = fmt.Sprintf("did you mean %q? (%s)", guess, hint)
	}
	return wrong(hint, "%s is not a valid value", quoted(got))
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
	"server": func(v reflect.Value) error { return checkServer(v.String()) },
	"plan preset": func(v reflect.Value) error {
		if v.String() == "" {
			return nil
		}
		return oneOf(v.String(), warmup.PresetNames())
	},
	"hostname":       func(v reflect.Value) error { return checkHostname(v.String()) },
	"failure status": func(v reflect.Value) error { return checkFailure(v.String()) },
}

func checkListen(s string) error {
	const remedy = `write it as "127.0.0.1:2525", "[::1]:2525", or ":2525" for all addresses of the machine`
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return wrong(remedy, "%s is not an address with a port", quoted(s))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return wrong(remedy, "%s has an invalid port", quoted(s))
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

// checkFailure demands the enhanced status of a permanent failure (RFC 3463, 2).
func checkFailure(s string) error {
	class, rest, _ := strings.Cut(s, ".")
	subject, detail, ok := strings.Cut(rest, ".")
	if ok && class == "5" && isStatusNumber(subject) && isStatusNumber(detail) {
		return nil
	}
	return wrong(`write it as "5.1.1"`, "%s is not the enhanced status code of a permanent failure", quoted(s))
}

func isStatusNumber(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n < 1000 && strconv.FormatUint(n, 10) == s
}

func checkHostname(s string) error {
	if a, err := envelope.ToASCII(s); err != nil || a == "" || strings.HasPrefix(s, "[") && !isLiteral(s) {
		return wrong(`write a name that exists in the DNS, such as "mta1.example.com"`, "%s is not a host name", quoted(s))
	}
	return nil
}
