package request

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cbroglie/mustache"
)

// partials are the templates that others can include, of one tenant.
type partials struct{ text, html map[string]string }

// add gives a piece the partial of a name with all that this one includes. path are the partials that
// lead here: one that includes itself would be rendered without end.
func (of partials) add(p *piece, to *mustache.StaticProvider, name string, html bool, path []string) error {
	if slices.Contains(path, name) {
		return fmt.Errorf("the partial %q includes itself: %s", name, strings.Join(append(path, name), " > "))
	}
	if len(path) == maxInclusions {
		return fmt.Errorf("partials are nested deeper than %d: %s", maxInclusions, strings.Join(path, " > "))
	}
	if p.partials[name] != nil {
		return nil // with all that it includes
	}
	sources := of.text
	if html {
		sources = of.html
	}
	source, ok := sources[name]
	if !ok {
		return fmt.Errorf("there is no partial %q: partials are the stored templates of the tenant", name)
	}
	if len(source) > maxPartial {
		return fmt.Errorf("the partial %q is longer than %d octets", name, maxPartial)
	}
	scanned, err := scan(source)
	if err != nil {
		return fmt.Errorf("partial %q: %w", name, err)
	}
	path = append(slices.Clone(path), name)
	for _, inner := range scanned.partials {
		if err := of.add(p, to, inner, html, path); err != nil {
			return err
		}
	}
	if !html {
		source = scanned.raw
	}
	to.Partials[name] = source
	if p.partials[name], err = mustache.ParseStringPartials(source, to); err != nil {
		return fmt.Errorf("partial %q: %w", name, err)
	}
	return nil
}
