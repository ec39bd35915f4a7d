package mta

import (
	"fmt"
	"sync/atomic"

	"example.org/mta/mta/config"
	"example.org/mta/submission/request"
	"example.org/mta/submission/template"
)

// templates are those in force: a reload replaces them all.
type templates struct {
	current atomic.Pointer[template.Store]
}

// Stored returns a tenant's stored template, false if it has none of that name.
func (t *templates) Stored(tenant, name string) (*template.Template, bool) {
	return t.current.Load().Stored(tenant, name)
}

// Compile compiles the templates of a tenant's request.
func (t *templates) Compile(tenant string, m template.Mail) (*template.Template, request.Faults) {
	return t.current.Load().Compile(tenant, m)
}

func (r *Relay) openTemplates(cfg *config.Config, _ *undoer) error {
	stored, err := template.Load(cfg.Templates.Path)
	r.templates.current.Store(stored)
	return err
}

// templateFaults returns which templates can't be read: the relay doesn't start with only some of them.
func templateFaults(cfg *config.Config) []string {
	if _, err := template.Load(cfg.Templates.Path); err != nil {
		return []string{fmt.Sprintf("%s: %v, and the relay can't start", place("templates", cfg.Templates.Origin("path")), err)}
	}
	return nil
}

// templateWarnings returns whose templates nobody can use.
func templateWarnings(cfg *config.Config) (out []string) {
	stored, err := template.Load(cfg.Templates.Path)
	if err != nil {
		return nil // a fault
	}
	for _, name := range stored.Tenants() {
		if cfg.Tenant(name) == nil {
			out = append(out, fmt.Sprintf("%s: the folder %q belongs to a tenant without a block, so that nobody can use its templates", place("templates", cfg.Templates.Origin("path")), name))
		}
	}
	return out
}
