package router

import (
	"errors"
	"strings"

	"example.org/mta/internal/envelope"
)

// patterns finds what was configured for a name: "mail.example.com" is that name, "*.example.com"
// all names below, "*" all names. The most exact one wins.
type patterns[V any] struct {
	exact map[string]V
	below map[string]V // by the part after "*."
	rest  *V
}

// CheckPattern returns what is wrong with a pattern of a route or a provider, and gives it in the
// form in which it is compared: lower case, A-labels.
func CheckPattern(pattern string) (string, error) {
	switch {
	case pattern == "*":
		return pattern, nil
	case pattern == "":
		return "", errors.New("pattern is empty, use \"*\" for all names")
	case strings.HasPrefix(pattern, "["):
		addr, err := parseLiteral(pattern)
		if err != nil {
			return "", err
		}
		return literalName(addr), nil
	}
	name, wild := strings.CutPrefix(pattern, "*.")
	if strings.Contains(name, "*") {
		return "", errors.New("a * can only stand alone or before the first dot, as in *.example.com")
	}
	name, err := envelope.ToASCII(name)
	if err != nil {
		return "", err
	}
	if wild {
		name = "*." + name
	}
	return name, nil
}

// add puts v under a checked pattern, and says false when one is there already.
func (p *patterns[V]) add(pattern string, v V) bool {
	if pattern == "*" {
		if p.rest != nil {
			return false
		}
		p.rest = &v
		return true
	}
	m := &p.exact
	name, wild := strings.CutPrefix(pattern, "*.")
	if wild {
		m = &p.below
	}
	if _, ok := (*m)[name]; ok {
		return false
	}
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[name] = v
	return true
}

// find gives what is configured for a name.
func (p *patterns[V]) find(name string) (v V, ok bool) {
	if v, ok = p.exact[name]; ok {
		return v, true
	}
	if len(p.below) > 0 && !strings.HasPrefix(name, "[") {
		for rest := name; ; {
			i := strings.IndexByte(rest, '.')
			if i < 0 {
				break
			}
			rest = rest[i+1:]
			if v, ok = p.below[rest]; ok {
				return v, true
			}
		}
	}
	if p.rest != nil {
		return *p.rest, true
	}
	return v, false
}
