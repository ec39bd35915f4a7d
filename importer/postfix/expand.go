package postfix

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/importer"
)

// parameter is the value of a parameter as it was written, and its place.
type parameter struct {
	raw string
	at  importer.Origin
}

// scope is where a parameter is looked up: the overrides of a service, main.cf, Postfix's defaults.
type scope struct {
	im  *importing
	own map[string]parameter // by -o
}

// find returns a parameter; set reports whether the configuration has it.
func (s scope) find(name string) (p parameter, set bool) {
	if p, ok := s.own[name]; ok {
		s.im.used[p.at] = true
		return p, true
	}
	if p, ok := s.im.main[name]; ok {
		s.im.used[p.at] = true
		return p, true
	}
	return parameter{defaultOf(name),
		importer.Origin{File: "Postfix's default", Directive: name + " = " + defaultOf(name)}}, false
}

// maxExpanded bounds an expanded value, and maxDepth how deep values refer to one another.
const (
	maxExpanded = 1 << 20
	maxDepth    = 100
)

// expander expands one value.
type expander struct {
	scope scope
	open  []string // the parameters that are being expanded
	size  int
}

// text expands a parameter. A fault is noted as an error of the import, and the value is empty.
func (s scope) text(name string) (value string, at importer.Origin, set bool) {
	p, set := s.find(name)
	for other, ok := strings.CutPrefix(p.raw, "$"); ok && !set && other != ""; other,
		ok = strings.CutPrefix(p.raw, "$") {
		if strings.ContainsFunc(other, func(c rune) bool { return c > 0x7f || !isName(byte(c)) }) {
			break
		}
		name = other // the default is another parameter: its place is of use
		p, set = s.find(name)
	}
	value, err := s.expand(name, p)
	if within := (*faultWithin)(nil); errors.As(err, &within) {
		s.im.fail(within.at, "%v", within.error)
		s.im.spoiled[p.at] = true
	} else if err != nil {
		s.im.spoil(p.at, "%v", err)
	}
	return value, p.at, set
}

// faultWithin is a fault in the value of another parameter, at its place.
type faultWithin struct {
	at importer.Origin
	error
}

func (s scope) expand(name string, p parameter) (string, error) {
	x := &expander{scope: s, open: []string{name}}
	value, err := x.expand(p.raw)
	return strings.TrimSpace(value), err
}

func (x *expander) expand(raw string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(raw); {
		if raw[i] != '$' {
			out.WriteByte(raw[i])
			i++
			continue
		}
		value, n, err := x.dollar(raw[i:])
		if err != nil {
			return "", err
		}
		if x.size += len(value); x.size > maxExpanded {
			return "", fmt.Errorf("the value of %s is longer than %d octets: shorten it", x.open[0], maxExpanded)
		}
		out.WriteString(value)
		i += n
	}
	return out.String(), nil
}

// dollar expands what begins with a $, and returns how long that is.
func (x *expander) dollar(s string) (value string, n int, err error) {
	if len(s) < 2 {
		return "", 0, fmt.Errorf("a lone $ at the end of a value: write $$")
	}
	switch c := s[1]; {
	case c == '$':
		return "$", 2, nil
	case c == '{' || c == '(':
		inside, ok := balanced(s[1:])
		if !ok {
			return "", 0, fmt.Errorf("%q has no closing %s: write it", importer.Short(s),
				map[byte]string{'{': "}", '(': ")"}[c])
		}
		value, err = x.braced(inside)
		return value, len(inside) + 3, err
	}
	end := 1
	for end < len(s) && isName(s[end]) {
		end++
	}
	if end == 1 {
		return "", 0, fmt.Errorf("%q has no name after the $: write $$ for a $", importer.Short(s))
	}
	value, err = x.named(s[1:end])
	return value, end, err
}

func isName(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// named gives the value of a parameter.
func (x *expander) named(name string) (string, error) {
	if i := slices.Index(x.open, name); i >= 0 {
		return "", x.loop(x.open[i:])
	}
	if len(x.open) > maxDepth {
		return "", fmt.Errorf("values refer to one another more than %d deep: write one of them out", maxDepth)
	}
	p, _ := x.scope.find(name)
	x.open = append(x.open, name)
	value, err := x.expand(p.raw)
	x.open = x.open[:len(x.open)-1]
	if within := (*faultWithin)(nil); err != nil && p.at.Line > 0 && !errors.As(err, &within) {
		err = &faultWithin{p.at, err}
	}
	return value, err
}

// loop is the fault of parameters that refer to one another, at the place of the first of them in the files: all that
// refer to one of them have this one fault.
func (x *expander) loop(names []string) error {
	first, at := 0, importer.Origin{}
	for i, name := range names {
		p, _ := x.scope.find(name)
		if before := at.Line == 0 ||
			cmp.Or(cmp.Compare(p.at.File, at.File), cmp.Compare(p.at.Line, at.Line)) < 0; p.at.Line > 0 && before {
			first, at = i, p.at
		}
	}
	around := slices.Concat(names[first:], names[:first], names[first:first+1])
	return &faultWithin{at, fmt.Errorf("$%s refers to itself: %s: write one of the values out", around[0],
		strings.Join(around, " -> "))}
}

// braced expands what stands within ${...}: a name or a comparison, and what depends on it.
func (x *expander) braced(s string) (string, error) {
	s = strings.TrimSpace(s)
	var holds bool
	var value, rest string
	if strings.HasPrefix(s, "{") {
		var err error
		if holds, rest, err = x.compare(s); err != nil {
			return "", err
		}
	} else {
		end := 0
		for end < len(s) && isName(s[end]) {
			end++
		}
		if end == 0 {
			return "", fmt.Errorf("${%s} has no name: write that of a parameter", importer.Short(s))
		}
		var err error
		if value, err = x.named(s[:end]); err != nil {
			return "", err
		}
		holds, rest = value != "", strings.TrimLeft(s[end:], " \t")
	}
	if rest == "" {
		return value, nil
	}
	yes, no, err := choices(rest)
	if err != nil {
		return "", err
	}
	if holds {
		return x.expand(yes)
	}
	return x.expand(no)
}

// choices takes "?yes", "?{yes}:{no}" or ":no" apart.
func choices(s string) (yes, no string, err error) {
	switch s[0] {
	case ':':
		return "", unbrace(s[1:]), nil
	case '?':
		rest := strings.TrimLeft(s[1:], " \t")
		if !strings.HasPrefix(rest, "{") {
			return rest, "", nil
		}
		yes, ok := balanced(rest)
		if !ok {
			return "", "", fmt.Errorf("%q has no closing }: write it", importer.Short(s))
		}
		rest = strings.TrimLeft(rest[len(yes)+2:], " \t")
		if rest == "" {
			return strings.TrimSpace(yes), "", nil
		}
		if rest[0] == ':' {
			return strings.TrimSpace(yes), unbrace(rest[1:]), nil
		}
	}
	return "", "", fmt.Errorf("%q is neither ?value nor :value: write one of these", importer.Short(s))
}

func unbrace(s string) string {
	s = strings.TrimSpace(s)
	if in, ok := balanced(s); ok && len(in)+2 == len(s) && s[0] == '{' {
		return strings.TrimSpace(in)
	}
	return s
}

// balanced returns what stands between the bracket that s begins with and its partner.
func balanced(s string) (string, bool) {
	if s == "" || s[0] != '{' && s[0] != '(' {
		return "", false
	}
	opening, closing := s[0], map[byte]byte{'{': '}', '(': ')'}[s[0]]
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case opening:
			depth++
		case closing:
			if depth--; depth == 0 {
				return s[1:i], true
			}
		}
	}
	return "", false
}

// compare evaluates "{a} == {b}" at the beginning of s.
func (x *expander) compare(s string) (holds bool, rest string, err error) {
	left, ok := balanced(s)
	if !ok {
		return false, "", fmt.Errorf("%q has no closing }: write it", importer.Short(s))
	}
	rest = strings.TrimLeft(s[len(left)+2:], " \t")
	brace := strings.IndexByte(rest, '{')
	if brace < 0 {
		return false, "", fmt.Errorf("%q compares with nothing: write {value} == {other}", importer.Short(s))
	}
	op := strings.TrimSpace(rest[:brace])
	right, ok := balanced(rest[brace:])
	if !ok {
		return false, "", fmt.Errorf("%q has no closing }: write it", importer.Short(s))
	}
	rest = strings.TrimLeft(rest[brace+len(right)+2:], " \t")
	a, err := x.expand(strings.TrimSpace(left))
	if err != nil {
		return false, "", err
	}
	b, err := x.expand(strings.TrimSpace(right))
	if err != nil {
		return false, "", err
	}
	sign := strings.Compare(a, b)
	if op, ok = strings.CutSuffix(op, "level"); ok {
		sign = compareLevels(a, b)
	} else if n, err := strconv.ParseInt(a, 10, 64); err == nil {
		if m, err := strconv.ParseInt(b, 10, 64); err == nil {
			sign = int(min(max(n-m, -1), 1))
		}
	}
	switch strings.TrimSpace(op) {
	case "==":
		return sign == 0, rest, nil
	case "!=":
		return sign != 0, rest, nil
	case "<":
		return sign < 0, rest, nil
	case "<=":
		return sign <= 0, rest, nil
	case ">":
		return sign > 0, rest, nil
	case ">=":
		return sign >= 0, rest, nil
	}
	return false, "", fmt.Errorf("%q is not a comparison: write ==, !=, <, <=, > or >=", importer.Short(op))
}

// compareLevels compares compatibility levels such as 3.6.
func compareLevels(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var n, m int
		if i < len(as) {
			n, _ = strconv.Atoi(as[i])
		}
		if i < len(bs) {
			m, _ = strconv.Atoi(bs[i])
		}
		if n != m {
			return n - m
		}
	}
	return 0
}
