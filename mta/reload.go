package mta

import (
	"context"
	"errors"
	"maps"
	"slices"

	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/mta/wiring"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/keys"
	"example.org/mta/submission/template"
)

// Reload reads the configuration file again and brings it into force: all of it or, after an
// error, nothing.
func (r *Relay) Reload(context.Context) (control.Reload, error) {
	r.reload.Lock()
	defer r.reload.Unlock()
	if r.draining.Load() {
		return control.Reload{}, control.Unavailable("", "the relay is shutting down")
	}
	if r.opts.ConfigFile == "" {
		return control.Reload{}, control.Invalid("start the relay with 'mta serve --config FILE'",
			"the relay runs on its defaults: there is no file to read again")
	}
	cfg, err := config.Load(r.opts.ConfigFile, r.opts.Env)
	if err != nil {
		return control.Reload{}, err
	}
	before := r.policy.Load()
	old := before.Config
	cfg.Keep(old)
	logins, err := r.newLogins(cfg)
	if err != nil {
		return control.Reload{}, err
	}
	entrances, err := r.entrances(cfg, logins)
	if err != nil {
		return control.Reload{}, err
	}
	stored, err := template.Load(cfg.Templates.Path)
	if err != nil {
		return control.Reload{}, err
	}
	change, err := r.listeners.prepare(entrances)
	if err != nil {
		return control.Reload{}, err
	}
	pol := wiring.New(cfg)
	apiKeys := r.newKeys(cfg)
	if err := r.reloadRouting(before, pol, change); err != nil {
		change.undo()
		return control.Reload{}, err
	}
	r.apply(before, pol, prepared{change, logins, apiKeys, stored})
	r.announce()
	if r.opts.OnReload != nil {
		r.opts.OnReload(cfg)
	}
	return r.changes(old, cfg), nil
}

// prepared is what a reload has opened and read, and is not in force yet.
type prepared struct {
	listeners *listenersChange
	logins    *auth.Service
	keys      *keys.Book
	templates *template.Store
}

// apply brings a configuration into force that was prepared. Nothing of it can fail.
func (r *Relay) apply(before, pol *wiring.Policy, p prepared) {
	cfg := pol.Config
	r.warn(cfg)
	r.policy.Store(pol)
	r.sources.check()
	r.delivery.SetBackoff(wiring.Backoff(cfg))
	r.delivery.Reload(pol.Stays(before))
	r.warm.reload(pol)
	r.dispatcher.Reload()
	r.admission.Set(admissionSettings(cfg))
	if r.accounting != nil {
		r.accounting.SetLimits(wiring.Accounting(cfg))
	}
	p.listeners.commit()
	r.keepCertificates(cfg)
	r.swapKeys(p.keys)
	r.templates.current.Store(p.templates)
	if was := r.logins.Swap(p.logins); was != nil && was != p.logins {
		was.Close()
	}
	r.forgetAPIs(cfg)
	r.requests.SetLimit(requestMemory(cfg))
	maps.DeleteFunc(r.servers, func(name string, _ submissionServer) bool {
		return !slices.ContainsFunc(cfg.Listeners, func(l *config.Listener) bool { return l.Name == name })
	})
}

// reloadRouting brings into force what can be refused: warm-ups and routes.
func (r *Relay) reloadRouting(old, pol *wiring.Policy, change *listenersChange) error {
	settings, err := wiring.Router(pol.Config, addrPorts(change.groups))
	if err != nil {
		return err
	}
	if err := r.warm.prepare(pol); err != nil {
		return err
	}
	if err := r.router.Reload(settings); err != nil {
		return errors.Join(err, r.warm.assign(old))
	}
	return nil
}

// changes tells, and logs, what a reload did.
func (r *Relay) changes(old, cfg *config.Config) control.Reload {
	out := control.Reload{Changes: []string{}}
	for _, c := range cfg.Waiting() {
		line := c.String()
		out.Restart = append(out.Restart, line)
		r.log.Warn("configuration: takes a restart to come into force", "change", line)
	}
	for _, c := range settings.Diff(old, cfg) {
		line := c.String()
		out.Changes = append(out.Changes, line)
		r.log.Info("configuration: changed", "change", line)
	}
	return out
}
