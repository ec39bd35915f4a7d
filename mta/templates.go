package mta

import (
	"sync/atomic"

	"example.org/mta/mta/config"
	"example.org/mta/submission/request"
)

// templates are those in force: a reload replaces them all.
type templates struct {
	current atomic.Pointer[request.Templates]
}

// Stored returns a tenant's stored template, false if it has none of that name.
func (t *templates) Stored(tenant, name string) (*request.Template, bool) {
	return t.current.Load().Stored(tenant, name)
}

// Compile compiles the templates of a tenant's request.
func (t *templates) Compile(tenant string, m request.Mail) (*request.Template, request.Faults) {
	return t.current.Load().Compile(tenant, m)
}

func (r *mailIn) openTemplates(cfg *config.Config, _ *undoer) error {
	stored, err := request.LoadTemplates(cfg.Templates.Path)
	r.templates.current.Store(stored)
	return err
}
