package check

import (
	"fmt"

	"example.org/mta/mta/config"
	"example.org/mta/submission/request"
)

// templateFaults returns which templates can't be read: the relay doesn't start with only some of them.
func templateFaults(cfg *config.Config) []string {
	if _, err := request.LoadTemplates(cfg.Templates.Path); err != nil {
		return []string{fmt.Sprintf("%s: %v, and the relay can't start",
			place("templates", cfg.Templates.Origin("path")), err)}
	}
	return nil
}

// templateWarnings returns whose templates nobody can use.
func templateWarnings(cfg *config.Config) (out []string) {
	stored, err := request.LoadTemplates(cfg.Templates.Path)
	if err != nil {
		return nil // a fault
	}
	for _, name := range stored.Tenants() {
		if cfg.Tenant(name) == nil {
			out = append(out,
				fmt.Sprintf("%s: the folder %q belongs to a tenant without a block, so that nobody can use its "+
					"templates", place("templates", cfg.Templates.Origin("path")), name))
		}
	}
	return out
}
