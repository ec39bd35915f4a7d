package mta

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/request"
	"example.org/mta/warmup"
)

// Hangup answers a SIGHUP with a reload, which is put on record as one by the control API is. The system does not give
// the sender of a signal.
func (r *operators) Hangup(ctx context.Context) (api.Reload, error) {
	ctx = api.WithActor(ctx, api.Actor{Kind: api.BySignal})
	return api.OpReload.Call(ctx, api.NewLocalClient(r.control.Handler()), api.Intent{})
}

// Reload reads the configuration file again and brings it into force: all of it or, after an
// error, nothing.
func (r *operators) Reload(context.Context) (api.Reload, error) {
	r.reload.Lock()
	defer r.reload.Unlock()
	before := r.policy.Load()
	old := before.Config
	cfg, err := r.readAgain(old)
	if err != nil {
		return api.Reload{}, err
	}
	next, err := r.prepare(cfg, false)
	if err != nil {
		return api.Reload{}, err
	}
	if err := r.setStreams(cfg); err != nil {
		next.undo()
		return api.Reload{}, err
	}
	pol := r.newPolicy(cfg)
	if err := r.reloadRouting(before, pol, next.listeners); err != nil {
		next.undo()
		return api.Reload{}, errors.Join(err, r.setStreams(old))
	}
	done := r.changes(old, cfg, next.templates)
	next.keys = r.newKeys(cfg)
	r.apply(before, pol, next)
	r.announce()
	if r.opts.OnReload != nil {
		r.opts.OnReload(cfg)
	}
	r.logChanges(&done)
	return done, nil
}

// prepare opens and reads what a configuration needs and the relay does not have yet: all of it or, after an error,
// nothing. A trial disturbs nothing that is in force, and is undone.
func (r *operators) prepare(cfg *config.Config, trial bool) (p prepared, err error) {
	servers, apis := maps.Clone(r.servers), maps.Clone(r.apis)
	p.undo = func() {
		if p.listeners != nil {
			p.listeners.Undo()
		}
		if p.logins != nil && p.logins != r.logins.Load() {
			p.logins.Close()
		}
		if p.console != nil && p.console != r.console.logins.Load() {
			p.console.Close()
		}
		r.servers, r.apis = servers, apis
		r.certs.Keep(r.policy.Load().Config.Pairs())
	}
	defer func() {
		if err != nil {
			p.undo()
		}
	}()
	if p.logins, err = r.newLogins(cfg); err != nil {
		return p, err
	}
	if r.console != nil {
		if p.console, err = r.newConsoleLogins(cfg); err != nil {
			return p, err
		}
	}
	entrances, err := r.entrances(cfg, p.logins)
	if err != nil {
		return p, err
	}
	if p.templates, err = request.ReadFolder(cfg.Templates.Path, r.shared.Templates); err != nil {
		return p, err
	}
	readKeys := r.returnPathKeys
	if trial {
		readKeys = wiring.ReturnPathKeys
	}
	if p.tokens, err = readKeys(cfg); err != nil {
		return p, err
	}
	p.listeners, err = r.listeners.Prepare(entrances, trial)
	return p, err
}

// readAgain reads the configuration file again, for a reload of the old one.
func (r *operators) readAgain(old *config.Config) (*config.Config, error) {
	if r.life.Stopping() {
		return nil, api.Unavailable("", "the relay is shutting down")
	}
	if r.opts.ConfigFile == "" {
		return nil, api.Invalid("start the relay with 'mta serve --config FILE'",
			"the relay runs on its defaults: there is no file to read again")
	}
	cfg, err := config.Load(r.opts.ConfigFile, r.opts.Env)
	if err != nil {
		return nil, err
	}
	cfg.Keep(old)
	return cfg, nil
}

// ConfigChanges returns the differences between the file and the configuration in force. It only reads files, and so
// does not find all for which a reload would be refused.
func (r *operators) ConfigChanges(context.Context) (api.Reload, error) {
	old := r.policy.Load().Config
	cfg, err := r.readAgain(old)
	if err != nil {
		return api.Reload{}, err
	}
	return r.changes(old, cfg, nil), nil
}

// compared is what became of the last comparison of the file with the configuration in force.
type compared struct {
	sync.Mutex
	policy   *wiring.Policy
	modified time.Time
	size     int64
	pending  string
}

// pending returns how the file differs from what is in force. The file is read when either has changed, since status
// is asked for each second.
func (r *operators) pending() string {
	info, err := os.Stat(r.opts.ConfigFile)
	if r.opts.ConfigFile == "" || r.life.Stopping() {
		return ""
	}
	c, pol := &r.compared, r.policy.Load()
	c.Lock()
	defer c.Unlock()
	if err == nil && c.policy == pol && c.modified.Equal(info.ModTime()) && c.size == info.Size() {
		return c.pending
	}
	changes, wrong := r.ConfigChanges(context.Background())
	if c.policy = nil; err != nil || wrong != nil {
		return "the configuration file can't be loaded, and a reload would fail: mta check"
	}
	c.policy, c.modified, c.size, c.pending = pol, info.ModTime(), info.Size(), changes.Pending()
	return c.pending
}

// PreviewReload returns what a reload would change, or the error with which it would be refused.
func (r *operators) PreviewReload(context.Context) (api.Reload, error) {
	r.reload.Lock()
	defer r.reload.Unlock()
	old := r.policy.Load().Config
	cfg, err := r.readAgain(old)
	if err != nil {
		return api.Reload{}, err
	}
	next, err := r.prepare(cfg, true)
	if err != nil {
		return api.Reload{}, err
	}
	defer next.undo()
	if err := r.streams.Check(wiring.Streams(cfg, r.streamParts)); err != nil {
		return api.Reload{}, err
	}
	pol := wiring.New(cfg)
	settings, err := wiring.Router(cfg, next.listeners.Addresses(listen.SMTP))
	if err == nil {
		err = settings.Validate()
	}
	if err == nil {
		err = warmup.CheckPlans(pol.Plans())
	}
	if err != nil {
		return api.Reload{}, err
	}
	return r.changes(old, cfg, next.templates), nil
}

// prepared is what a reload has opened and read, and is not in force yet.
type prepared struct {
	listeners *listen.Change
	logins    *auth.Service
	console   *auth.Service // of the console's users; nil without a console
	keys      *auth.Keys
	templates *request.Folder
	tokens    *returnpath.Keys
	undo      func()
}

// apply brings a configuration into force that was prepared. Nothing of it can fail.
func (r *operators) apply(before, pol *wiring.Policy, p prepared) {
	cfg := pol.Config
	r.warn(cfg)
	r.returnPaths.Store(p.tokens)
	r.policy.Store(pol)
	r.router.ForgetAll() // whether a route has an MTA-STS policy was decided by the configuration before
	r.sources.Check()
	r.classes.SetRules(wiring.Classify(cfg))
	if !pol.SameRoutes(before) {
		r.callouts.Forget()
	}
	r.delivery.SetBackoff(wiring.Backoff(cfg))
	r.delivery.Reload(pol.Stays(before))
	r.warm.Reload(pol)
	r.dispatcher.Reload()
	r.rules.SourceFree()
	if !pol.SameAges(before) || !pol.SameWays(before) {
		r.queue.Unpark()
	}
	r.admission.Set(admissionSettings(cfg))
	r.milters.Set(wiring.Milters(cfg))
	r.accounting.SetLimits(wiring.Accounting(cfg))
	p.listeners.Commit()
	r.certs.Keep(cfg.Pairs())
	swap(&r.keys, p.keys)
	r.templates.Set(p.templates)
	swap(&r.logins, p.logins)
	r.reloadConsole(cfg, p.console)
	r.cluster.Describe(r.sums, r.sharedSums)
	r.forgetAPIs(cfg)
	r.requests.Resize(requestMemory(cfg))
	maps.DeleteFunc(r.servers, func(name string, _ submissionServer) bool {
		return !slices.ContainsFunc(cfg.Listeners, func(l *config.Listener) bool { return l.Name == name })
	})
}

// swap brings a part into force, and closes the one before.
func swap[T any, P interface {
	*T
	Close()
}](at *atomic.Pointer[T], next P) {
	if was := P(at.Swap(next)); was != next {
		was.Close()
	}
}

// reloadRouting brings into force what can be refused: warm-ups and routes.
func (r *operators) reloadRouting(old, pol *wiring.Policy, change *listen.Change) error {
	settings, err := wiring.Router(pol.Config, change.Addresses(listen.SMTP))
	if err != nil {
		return err
	}
	if err := r.warm.Prepare(pol); err != nil {
		return err
	}
	if err := r.router.Reload(settings); err != nil {
		return errors.Join(err, r.warm.Assign(old))
	}
	return nil
}

// changes lists what a reload does.
func (r *operators) changes(old, cfg *config.Config, templates *request.Folder) api.Reload {
	out := api.Reload{Changes: []string{}}
	for _, c := range cfg.Waiting() {
		out.Restart = append(out.Restart, c.String())
	}
	for _, c := range settings.Diff(old, cfg) {
		out.Changes = append(out.Changes, c.String())
	}
	var others []string
	if templates != nil {
		var some []string
		some, others = r.templates.Changes(templates)
		out.Changes = append(out.Changes, some...)
	}
	out.Count = len(out.Changes)
	out.Changes = append(out.Changes, others...)
	for _, p := range cfg.Pools {
		if was := old.Pool(p.Name); was != nil && !slices.Equal(was.Weights, p.Weights) {
			out.Changes = append(out.Changes, r.weights.Kept(p)...)
		}
	}
	return out
}

func (r *operators) logChanges(done *api.Reload) {
	for _, line := range done.Restart {
		r.log.Warn("configuration: takes a restart to come into force", "change", line)
	}
	for _, line := range done.Changes {
		r.log.Info("configuration: changed", "change", line)
	}
}
