package request

import (
	"context"
	"fmt"
	"strings"

	"github.com/cbroglie/mustache"
)

// findMissing reports the first variable that would be rendered and that data lack. The library can only do
// so for the whole program (AllowMissingVariables).
func (p *piece) findMissing(ctx context.Context, data []Data) error {
	chain := make([]any, 0, len(data))
	for i := len(data) - 1; i >= 0; i-- {
		chain = append(chain, data[i].values)
	}
	s := search{ctx: ctx, partials: p.partials, steps: maxSteps}
	return s.tags(p.parsed.Tags(), chain)
}

// search goes through the tags that are rendered. A chain ends with the innermost value.
type search struct {
	ctx      context.Context
	partials map[string]*mustache.Template
	steps    int
}

func (s *search) tags(tags []mustache.Tag, chain []any) error {
	for _, tag := range tags {
		if s.steps--; s.steps < 0 {
			return errSteps
		}
		if s.steps%stepsPerLook == 0 && s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if err := s.tag(tag, chain); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) tag(tag mustache.Tag, chain []any) error {
	switch tag.Type() {
	case mustache.Variable:
		return checkVariable(tag.Name(), chain)
	case mustache.Partial:
		return s.tags(s.partials[tag.Name()].Tags(), chain)
	case mustache.InvertedSection:
		if v, _ := find(tag.Name(), chain); !isTrue(v) {
			return s.tags(tag.Tags(), chain)
		}
	case mustache.Section:
		v, _ := find(tag.Name(), chain)
		if !isTrue(v) {
			return nil
		}
		rounds, ok := v.([]any)
		if !ok {
			rounds = []any{v}
		}
		for _, round := range rounds {
			if s.steps--; s.steps < 0 {
				return errSteps
			}
			if err := s.tags(tag.Tags(), append(chain[:len(chain):len(chain)], round)); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkVariable(name string, chain []any) error {
	v, ok := find(name, chain)
	if !ok {
		return fmt.Errorf("the variable %q is missing", name)
	}
	switch v.(type) {
	case []any, map[string]any:
		return fmt.Errorf("the variable %q is a list or an object, and no text", name)
	}
	return nil
}

// find looks a name up as the library does: its first part in the innermost value that has it, the rest
// in what was found.
func find(name string, chain []any) (any, bool) {
	if name == "." {
		return chain[len(chain)-1], true
	}
	first, rest, dotted := strings.Cut(name, ".")
	for i := len(chain) - 1; i >= 0; i-- {
		values, _ := chain[i].(map[string]any)
		v, ok := values[first]
		if ok && dotted {
			return find(rest, []any{v})
		}
		if ok {
			return v, true
		}
	}
	return nil, false
}

func isTrue(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return strings.TrimSpace(v) != ""
	case bool:
		return v
	case int:
		return v != 0
	case []any:
		return len(v) > 0
	}
	return true
}
