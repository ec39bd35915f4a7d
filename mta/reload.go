package mta

import (
	"context"
	"errors"
	"maps"
	"slices"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/mta/wiring"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/keys"
	"example.org/mta/submission/template"
)

// Hangup answers a SIGHUP with a reload, which is put on record as one by the control API is. The system does not give the
// sender of a signal.
func (r *Relay) Hangup(ctx context.Context) (control.Reload, error) {
	ctx = control.WithActor(ctx, control.Actor{Kind: control.BySignal})
	return control.NewLocalClient(r.control.Handler()).Reload(ctx, control.Intent{})
}

// Reload reads the configuration file again and brings it into force: all of it or, after an
// error, nothing.
func (r *Relay) Reload(context.Context) (control.Reload, error) {
	r.reload.Lock()
	defer r.reload.Unlock()
	before := r.policy.Load()
	old := before.Config
	cfg, err := r.readAgain(old)
	if err != nil {
		return control.Reload{}, err
	}
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
	tokens, err := returnPathKeys(cfg)
	if err != nil {
		return control.Reload{}, err
	}
	change, err := r.listeners.prepare(entrances)
	if err != nil {
		return control.Reload{}, err
	}
	if err := r.setStreams(cfg); err != nil {
		change.undo()
		return control.Reload{}, err
	}
	pol := wiring.New(cfg)
	apiKeys := r.newKeys(cfg)
	if err := r.reloadRouting(before, pol, change); err != nil {
		change.undo()
		return control.Reload{}, errors.Join(err, r.setStreams(old))
	}
	r.apply(before, pol, prepared{change, logins, apiKeys, stored, tokens})
	r.announce()
	if r.opts.OnReload != nil {
		r.opts.OnReload(cfg)
	}
	done := changes(old, cfg)
	r.logChanges(&done)
	return done, nil
}

// readAgain reads the configuration file again, for a reload of the old one.
func (r *Relay) readAgain(old *config.Config) (*config.Config, error) {
	if r.draining.Load() {
		return nil, control.Unavailable("", "the relay is shutting down")
	}
	if r.opts.ConfigFile == "" {
		return nil, control.Invalid("start the relay with 'mta serve --config FILE'",
			"the relay runs on its defaults: there is no file to read again")
	}
	cfg, err := config.Load(r.opts.ConfigFile, r.opts.Env)
	if err != nil {
		return nil, err
	}
	cfg.Keep(old)
	return cfg, nil
}

// PreviewReload reads and checks the configuration file, with the files that it names, and returns what a reload would
// change. That a port is taken only the reload itself finds out.
func (r *Relay) PreviewReload(context.Context) (control.Reload, error) {
	r.reload.Lock()
	defer r.reload.Unlock()
	old := r.policy.Load().Config
	cfg, err := r.readAgain(old)
	if err != nil {
		return control.Reload{}, err
	}
	if _, err := template.Load(cfg.Templates.Path); err != nil {
		return control.Reload{}, err
	}
	if _, err := ReturnPathKeys(cfg); err != nil {
		return control.Reload{}, err
	}
	return changes(old, cfg), nil
}

// prepared is what a reload has opened and read, and is not in force yet.
type prepared struct {
	listeners *listenersChange
	logins    *auth.Service
	keys      *keys.Book
	templates *template.Store
	tokens    *returnpath.Keys
}

// apply brings a configuration into force that was prepared. Nothing of it can fail.
func (r *Relay) apply(before, pol *wiring.Policy, p prepared) {
	cfg := pol.Config
	r.warn(cfg)
	r.returnPaths.Store(p.tokens)
	r.policy.Store(pol)
	r.sources.check()
	r.classes.SetRules(wiring.Classify(cfg))
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

// changes says what a reload does.
func changes(old, cfg *config.Config) control.Reload {
	out := control.Reload{Changes: []string{}}
	for _, c := range cfg.Waiting() {
		out.Restart = append(out.Restart, c.String())
	}
	for _, c := range settings.Diff(old, cfg) {
		out.Changes = append(out.Changes, c.String())
	}
	return out
}

func (r *Relay) logChanges(done *control.Reload) {
	for _, line := range done.Restart {
		r.log.Warn("configuration: takes a restart to come into force", "change", line)
	}
	for _, line := range done.Changes {
		r.log.Info("configuration: changed", "change", line)
	}
}
