package mta

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
)

// pauses is what an operator lets nothing be sent of: a tenant's mail, what a source or a pool sends, a
// domain's mail, or everything. Such mail waits in the queue, in a line for each pause, and expires as
// always.
//
// They are kept in a file of their own in data_dir, written before they are in force: destdb has what the
// relay found out by itself, and may lose it; the configuration is the operator's text, which a command
// must not change.
//
// Its goroutine is run.
type pauses struct {
	path   string
	now    func() time.Time
	log    *slog.Logger
	policy func() *wiring.Policy
	// taken makes delivery give back what it has that is paused now; resumed takes up what waits in a
	// line of the queue.
	taken   func()
	resumed func(parking.Key)

	mu    sync.Mutex               // one change at a time
	inUse atomic.Pointer[pauseSet] // nil: none
}

// pauseSet is the pauses by key. It is not changed once it is in use.
type pauseSet map[parking.Key]control.Pause

// pauseKey is what the mail that a pause keeps waits for.
func pauseKey(what control.PauseWhat, name string) parking.Key {
	if what == control.PauseEverything {
		return parking.Key{Kind: parking.Pause, Name: string(what)}
	}
	return parking.Key{Kind: parking.Pause, Name: string(what) + " " + name}
}

// readPauses reads what was in force when the relay stopped. What can't be understood is refused: mail
// would be sent that an operator has stopped.
func readPauses(dir string, now func() time.Time, policy func() *wiring.Policy, log *slog.Logger) (*pauses, error) {
	p := &pauses{path: filepath.Join(dir, "pauses.json"), now: now, policy: policy, log: log, taken: func() {}, resumed: func(parking.Key) {}}
	text, err := os.ReadFile(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	var list control.PauseList
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pauses: %s: %w; repair the file, or remove it to end all pauses", p.path, err)
	}
	p.use(list.Pauses)
	return p, nil
}

func (p *pauses) use(list []control.Pause) {
	if len(list) == 0 {
		p.inUse.Store(nil)
		return
	}
	set := make(pauseSet, len(list))
	for _, x := range list {
		set[pauseKey(x.What, x.Name)] = x
	}
	p.inUse.Store(&set)
}

// current is the set in use, to see whether it has changed.
func (p *pauses) current() *pauseSet {
	if p == nil {
		return nil
	}
	return p.inUse.Load()
}

// get gives the pause of a key, if it is in force.
func (p *pauses) get(key parking.Key) (control.Pause, bool) {
	set := p.inUse.Load()
	if set == nil {
		return control.Pause{}, false
	}
	x, ok := (*set)[key]
	return x, ok && (x.Until.IsZero() || p.now().Before(x.Until))
}

func (p *pauses) has(key parking.Key) bool { _, ok := p.get(key); return ok }

// list gives those in force, the most far-reaching first.
func (p *pauses) list() []control.Pause { return slices.DeleteFunc(p.all(), p.over) }

// over reports whether a pause has ended by itself.
func (p *pauses) over(x control.Pause) bool { return !p.has(pauseKey(x.What, x.Name)) }

// all is list with those whose end has come and whose mail is yet to be taken up.
func (p *pauses) all() []control.Pause {
	out := []control.Pause{}
	set := p.inUse.Load()
	if set == nil {
		return out
	}
	for _, x := range *set {
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b control.Pause) int {
		return cmp.Or(slices.Index(control.PauseWhats, a.What)-slices.Index(control.PauseWhats, b.What), strings.Compare(a.Name, b.Name))
	})
	return out
}

// of gives the key of what keeps a tenant's mail to a domain, zero when nothing does. Sources are looked
// at when one is chosen.
func (p *pauses) of(pol *wiring.Policy, tenant, domain string) parking.Key {
	if p.current() == nil {
		return parking.Key{}
	}
	for _, key := range [...]parking.Key{
		pauseKey(control.PauseEverything, ""), pauseKey(control.PauseTenant, tenant),
		pauseKey(control.PausePool, pol.Config.PoolOf(tenant).Name), pauseKey(control.PauseDomain, domain),
	} {
		if p.has(key) {
			return key
		}
	}
	return parking.Key{}
}

// source reports whether a source is paused.
func (p *pauses) source(name string) bool {
	return p.current() != nil && p.has(pauseKey(control.PauseSource, name))
}

// sourceOf gives the key of a paused source of a tenant's pool, zero when none is.
func (p *pauses) sourceOf(pol *wiring.Policy, tenant string) parking.Key {
	if p.current() == nil {
		return parking.Key{}
	}
	for _, name := range pol.Config.PoolOf(tenant).Sources() {
		if p.source(name) {
			return pauseKey(control.PauseSource, name)
		}
	}
	return parking.Key{}
}

// keeps gives the key of what keeps a tenant's mail to a domain whichever source it takes, zero when nothing does.
func (p *pauses) keeps(pol *wiring.Policy, tenant, domain string) parking.Key {
	if p.current() == nil {
		return parking.Key{}
	}
	return cmp.Or(p.of(pol, tenant, domain), p.keepsPool(pol.Config.PoolOf(tenant)))
}

// keepsPool is keeps for all mail that takes a pool.
func (p *pauses) keepsPool(pool *config.Pool) parking.Key {
	if p.current() == nil || pool == nil {
		return parking.Key{}
	}
	keys := []parking.Key{pauseKey(control.PauseEverything, ""), pauseKey(control.PausePool, pool.Name)}
	sources := pool.Sources()
	if len(sources) > 0 && !slices.ContainsFunc(sources, func(name string) bool { return !p.source(name) }) {
		keys = append(keys, pauseKey(control.PauseSource, sources[0]))
	}
	for _, key := range keys {
		if p.has(key) {
			return key
		}
	}
	return parking.Key{}
}

// why says why mail under a key waits. It reports false for a key that is none of a pause.
func (p *pauses) why(key parking.Key) (why string, until time.Time, ok bool) {
	if key.Kind != parking.Pause {
		return "", until, false
	}
	x, in := p.get(key)
	if !in {
		return "the pause has ended: it is taken up now", until, true
	}
	return inWords(&x), x.Until, true
}

// first says why the first of some keys is paused, "" when none is.
func (p *pauses) first(keys ...parking.Key) string {
	for _, key := range keys {
		if x, on := p.get(key); on {
			return inWords(&x)
		}
	}
	return ""
}

// inWords says what is paused, by whom and why.
func inWords(x *control.Pause) string {
	what := string(x.What)
	if x.Name != "" {
		what += " " + x.Name
	}
	if x.What == control.PauseEverything {
		what = "all delivery"
	}
	text := fmt.Sprintf("%s is paused by %s", what, x.By)
	if x.Reason != "" {
		text += ": " + x.Reason
	}
	return text
}

// change puts another list in force. It is durable first. Those whose end has come leave by expire only, which
// takes up their mail.
func (p *pauses) change(list []control.Pause) error {
	text, err := json.MarshalIndent(control.PauseList{Pauses: list}, "", "  ")
	if err == nil {
		err = replaceFile(p.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing down what is paused: %w", err)
	}
	p.use(list)
	return nil
}

// replaceFile writes a file anew, durably: it is the old one or the new one, whatever happens.
func replaceFile(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// begin pauses something, or gives a pause another reason and end.
func (p *pauses) begin(x control.Pause) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := pauseKey(x.What, x.Name)
	err := p.change(append(without(p.all(), key), x))
	if err == nil {
		p.taken()
	}
	return err
}

// end ends a pause; false when there is none.
func (p *pauses) end(key parking.Key) (x control.Pause, found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, found = p.get(key); !found {
		return x, false, nil
	}
	if err := p.change(without(p.all(), key)); err != nil {
		return x, true, err
	}
	p.takeUp(key, &x)
	return x, true, nil
}

// takeUp takes up the mail of a pause that has ended. A pool's mail waits for the first of its sources
// that was paused, and any other will do.
func (p *pauses) takeUp(key parking.Key, x *control.Pause) {
	p.resumed(key)
	if x.What == control.PauseSource {
		for _, s := range p.policy().Config.Sources {
			p.resumed(pauseKey(control.PauseSource, s.Name))
		}
	}
}

func without(list []control.Pause, key parking.Key) []control.Pause {
	return slices.DeleteFunc(slices.Clone(list), func(x control.Pause) bool { return pauseKey(x.What, x.Name) == key })
}

// run ends what has an end, until ctx does.
func (p *pauses) run(ctx context.Context) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
			p.expire()
		}
	}
}

func (p *pauses) expire() {
	if p.current() == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var ended []control.Pause
	for _, x := range p.all() {
		if p.over(x) {
			ended = append(ended, x)
		}
	}
	if len(ended) == 0 {
		return
	}
	if err := p.change(p.list()); err != nil {
		p.log.Error("writing down that a pause has ended", "error", err)
		p.use(p.list()) // it has, whatever the file says: its time is in there
	}
	for i := range ended {
		p.log.Info("a pause has ended", "what", ended[i].What, "name", ended[i].Name)
		p.takeUp(pauseKey(ended[i].What, ended[i].Name), &ended[i])
	}
}

// stays reports whether a job that waits in delivery may leave.
func (p *pauses) stays(j *delivery.Job) bool {
	pol := p.policy()
	for _, i := range j.Recipients {
		if p.of(pol, j.Message.Tenant, j.Message.Recipients[i].Address.Domain()) != (parking.Key{}) {
			return false
		}
	}
	return !p.source(j.Source)
}

// trouble is the alarm while everything is paused.
func (p *pauses) trouble() string {
	x, on := p.get(pauseKey(control.PauseEverything, ""))
	if !on {
		return ""
	}
	return inWords(&x) + "; to go on: mta resume everything"
}

// withoutPaused parks the recipients of a message that are paused, and gives the others.
func (d *dispatcher) withoutPaused(m *envelope.Message, pol *wiring.Policy, recipients []queue.Pending) []queue.Pending {
	if d.pauses.current() == nil {
		return recipients
	}
	var rest []queue.Pending
	paused := make(map[parking.Key][]queue.Pending)
	for _, r := range recipients {
		if key := d.pauses.of(pol, m.Tenant, m.Recipients[r.Index].Address.Domain()); key != (parking.Key{}) {
			paused[key] = append(paused[key], r)
		} else {
			rest = append(rest, r)
		}
	}
	for key, some := range paused {
		d.parkPaused(m, some, key)
	}
	return rest
}

// parkPaused lets recipients wait for the end of a pause.
func (d *dispatcher) parkPaused(m *envelope.Message, recipients []queue.Pending, key parking.Key) {
	d.queue.Park(m.ID, indexes(recipients), parking.Line{Key: key})
	if !d.pauses.has(key) { // it has ended meanwhile, and nobody would say so again
		d.pauses.resumed(key)
	}
}

// unparkPaused takes up some of the mail that waited for the end of a pause. It reports whether there may
// be more.
func (d *dispatcher) unparkPaused(key parking.Key) (more bool) {
	if d.pauses.has(key) {
		return false
	}
	leases := d.queue.Take(parking.Line{Key: key}, heldBatch)
	for _, l := range leases {
		d.handle(l)
	}
	return len(leases) > 0
}

// operatorPauses answers the control API.
type operatorPauses struct{ r *Relay }

// Pauses lists what is paused.
func (o operatorPauses) Pauses(context.Context) (control.PauseList, error) {
	return control.PauseList{Pauses: o.r.pauses.list()}, nil
}

// BeginPause sends nothing of something from now on.
func (o operatorPauses) BeginPause(_ context.Context, b control.BeginPause) (control.Pause, error) {
	name, err := o.named(b.What, b.Name, true)
	if err != nil {
		return control.Pause{}, err
	}
	x := control.Pause{What: b.What, Name: name, Reason: b.Reason, By: cmp.Or(b.By, "an operator"), Since: o.r.now()}
	if b.For > 0 {
		x.Until = x.Since.Add(time.Duration(b.For))
	}
	return x, o.r.pauses.begin(x)
}

// EndPause sends it again.
func (o operatorPauses) EndPause(_ context.Context, e control.EndPause) (control.Pause, error) {
	name, err := o.named(e.What, e.Name, false)
	if err != nil {
		return control.Pause{}, err
	}
	x, found, err := o.r.pauses.end(pauseKey(e.What, name))
	if err == nil && !found {
		err = control.NotFound("what is paused: mta pause", "%s is not paused", strings.TrimSpace(string(e.What)+" "+name))
	}
	return x, err
}

// named gives the name as the configuration has it. Only what exists can be paused; a pause can be ended
// of what is there no longer.
func (o operatorPauses) named(what control.PauseWhat, name string, mustBe bool) (string, error) {
	cfg := o.r.policy.Load().Config
	switch what {
	case control.PauseTenant, control.PauseSource, control.PausePool:
		if mustBe {
			return name, checkNamed(cfg, string(what), name)
		}
	case control.PauseDomain:
		domain, err := envelope.ToASCII(strings.ToLower(name))
		if err != nil {
			return "", control.Invalid("", "domain %s: %v", name, err)
		}
		name = domain
	}
	return name, nil
}
