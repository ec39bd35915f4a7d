// Package demo shows the whole relay at work on one machine: a DNS server, a dozen mailbox
// providers with the manners of real ones, the relay itself on a temporary data directory, and
// applications that hand it a mixed stream of mail. While it runs there is a picture of it; in
// the end every message is accounted for. Nothing beyond loopback is touched.
//
// Run is all of it. The parts in the order of the mail's way: letter.go and generator.go submit,
// relay.go runs the relay, provider.go and world.go are the far side; ledger.go and account.go
// keep the books, picture.go shows. aftermath.go has what comes back about delivered mail, hook.go the
// application that hears of all this.
//
// Long-lived goroutines: one for each submitting connection, owned by generator.run, which waits
// for them; the relay's Run; the servers of the world and of the hook; that of the aftermath. Run ends and waits for
// all of them.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"example.org/mta/mta/accounting"
)

// Options are what can be asked of a demo. The zero Options are a good demo, but for Out.
type Options struct {
	Out      io.Writer
	TTY      bool          // Out is a terminal: a picture redrawn in place, not a line each second
	Messages int           `flag:"messages" help:"<number> of messages to submit (default 20000)"`
	Over     time.Duration `flag:"over" help:"how long to submit, if the relay keeps up (default 12s)"`
	Limit    time.Duration `flag:"limit" help:"how long to wait for mail that is still queued then (default 28s)"`
	Dir      string        `flag:"dir" help:"the <directory> for the relay's data, kept afterwards (default: a temporary one)"`
	Seed     uint64        `flag:"seed" help:"random seed (<number>) of the mail and the providers' behavior"`
	Keep     bool          `flag:"keep" help:"leave everything running after the summary, until interrupted"`
}

const (
	defaultMessages = 20_000
	defaultOver     = 12 * time.Second
	defaultLimit    = 28 * time.Second
	submitters      = 32 // connections to the relay
)

// ErrUnaccounted is returned when the books don't balance; the summary says where.
var ErrUnaccounted = errors.New("not every message is accounted for")

// Run shows the demo. When ctx ends it stops, and accounts for what there is by then: that is
// no error.
func Run(ctx context.Context, o Options) error {
	o.setDefaults()
	dir, remove, err := o.folder()
	if err != nil {
		return err
	}
	defer remove()
	d, err := open(o, dir)
	if err != nil {
		return err
	}
	err = d.run(ctx)
	return errors.Join(err, d.close())
}

func (o *Options) setDefaults() {
	o.Messages = cmp.Or(o.Messages, defaultMessages)
	o.Over = cmp.Or(o.Over, defaultOver)
	o.Limit = cmp.Or(o.Limit, defaultLimit)
}

// folder gives the absolute folder of the demo, and what removes it.
func (o *Options) folder() (dir string, remove func(), err error) {
	if o.Dir == "" {
		if dir, err = os.MkdirTemp("", "mta-demo-"); err != nil {
			return "", nil, fmt.Errorf("making a folder for the demo: %w", err)
		}
		return dir, func() { os.RemoveAll(dir) }, nil
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("making the demo's folder: %w", err)
	}
	dir, err = filepath.Abs(o.Dir)
	return dir, func() {}, err
}

// demo is one run.
type demo struct {
	Options
	dir        string
	began      time.Time
	submitting time.Duration // how long it took; 0 while it goes on
	gaveUp     string        // the domain whose mail the operator bounced
	cutShort   bool          // Limit passed with mail in the queue
	world      *world
	after      *aftermath
	hook       *hook
	relay      *relay
	ledger     *ledger
	generator  *generator
	screen     *screen
	trend      trend
	habits     []habit // by provider
}

func open(o Options, dir string) (*demo, error) {
	d := &demo{Options: o, dir: dir, ledger: newLedger(len(providers())), after: newAftermath()}
	var err error
	if d.world, err = startWorld(o.Seed, int64(o.Messages)*3, d.after, d.ledger.report); err != nil {
		return nil, err
	}
	if d.hook, err = startHook(); err != nil {
		return nil, errors.Join(err, d.world.close())
	}
	if d.relay, err = startRelay(dir, d.world.dnsAddr, d.world.port, d.hook); err != nil {
		d.hook.die()
		return nil, errors.Join(err, d.world.close())
	}
	d.habits = make([]habit, len(d.world.providers))
	d.generator = &generator{
		addr: d.relay.addr, web: d.relay.web, writer: newWriter(providers(), o.Seed), ledger: d.ledger,
		messages: o.Messages, connections: submitters,
		pace:     rate.NewLimiter(rate.Limit(float64(o.Messages)/o.Over.Seconds()), submitters),
		patience: 200 * time.Millisecond,
	}
	return d, nil
}

// close stops the relay before those it talks to.
func (d *demo) close() error {
	err := d.relay.close()
	d.hook.die()
	return errors.Join(err, d.world.close())
}

func (d *demo) run(ctx context.Context) error {
	d.screen = newScreen(d.Out, d.TTY)
	defer d.screen.close()
	d.began = time.Now()
	submitting, stop := context.WithCancel(ctx)
	defer stop()
	submitted := make(chan error, 1)
	go func() { submitted <- d.generator.run(submitting) }()
	reacting, calm := context.WithCancel(ctx)
	var reactions sync.WaitGroup
	reactions.Go(func() { d.after.run(reacting, d.relay.back) })
	defer reactions.Wait()
	defer calm()

	err := d.watch(ctx, submitted)
	stop()
	if err != nil {
		return err
	}
	balanced, err := d.conclude(ctx.Err() != nil)
	if err != nil {
		return err
	}
	if d.Keep && ctx.Err() == nil {
		fmt.Fprintf(d.Out, "\n  The relay goes on, until Ctrl-C.\n")
		select {
		case <-ctx.Done():
		case <-d.relay.done:
			return fmt.Errorf("the relay has ended: %w", d.relay.err)
		}
	}
	if !balanced {
		return ErrUnaccounted
	}
	return nil
}

// watch shows how things go until all is settled, ctx ends, or it takes too long. The generator
// has ended when it returns.
func (d *demo) watch(ctx context.Context, submitted <-chan error) error {
	every := time.Second
	if d.TTY {
		every = 100 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var limit <-chan time.Time
	for {
		select {
		case <-tick.C:
		case err := <-submitted:
			if err != nil {
				return fmt.Errorf("submitting: %w", err)
			}
			d.submitting, submitted, limit = time.Since(d.began), nil, time.After(d.Limit)
		case <-limit:
			d.cutShort = true
			return nil
		case <-d.relay.done:
			return fmt.Errorf("the relay has ended: %w", d.relay.err)
		case <-ctx.Done():
			if submitted != nil {
				<-submitted
				d.submitting = time.Since(d.began)
			}
			return nil
		}
		if err := d.interruptHook(submitted == nil); err != nil {
			return err
		}
		snap, err := d.look(context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("asking the relay how it is: %w", err)
		}
		d.screen.show(snap)
		if submitted != nil {
			continue
		}
		switch hopeless := d.hopeless(snap); {
		case snap.relay.queued == 0, d.Keep && hopeless == snap.relay.queued:
			if len(d.after.reactions)+len(d.unheard()) == 0 {
				return nil
			}
		case d.gaveUp == "" && hopeless == snap.relay.queued:
			if err := d.giveUp(ctx); err != nil {
				return err
			}
		}
	}
}

// interruptHook has the web hook die for the second third of the submitting, while mail goes on.
func (d *demo) interruptHook(submitted bool) error {
	part := time.Since(d.began) * 3 / d.Over
	switch alive := d.hook.alive(); {
	case alive && d.hook.outages == 0 && part >= 1:
		d.hook.die()
	case !alive && (part >= 2 || submitted):
		return d.hook.open()
	}
	return nil
}

// happening is what the web hook must hear of.
type happening struct {
	kind      accounting.Type
	recipient string
}

// unheard lists what the web hook has not heard of yet: deliveries, late bounces and complaints.
func (d *demo) unheard() (all []happening) {
	for _, side := range d.world.providers {
		for _, x := range side.recorder.Deliveries() {
			all = append(all, happening{accounting.Delivery, x.Recipient})
		}
	}
	return d.hook.missing(append(all, d.after.happened()...))
}

// hearAll waits until the web hook has heard of all that has happened by now, and counts what it has not heard of in
// hearPatience. Mail may go on meanwhile.
func (d *demo) hearAll(ctx context.Context) int64 {
	left := d.unheard()
	for end := time.Now().Add(hearPatience); len(left) > 0 && time.Now().Before(end) &&
		pause(ctx, 50*time.Millisecond); {
		left = d.hook.missing(left)
	}
	return int64(len(left))
}

// hearPatience is longer than a stream waits for a hook that has just come back.
const hearPatience = 10 * time.Second

// hopeless counts the recipients whose mail would wait for days.
func (d *demo) hopeless(s snapshot) (n int64) {
	for i, side := range d.world.providers {
		if side.giveUp {
			n += s.rows[i].waiting
		}
	}
	return n
}

// giveUp has the operator bounce what is hopeless, once there is nothing else. A demo that is
// kept leaves it, to be looked at.
func (d *demo) giveUp(ctx context.Context) error {
	for _, side := range d.world.providers {
		if !side.giveUp {
			continue
		}
		if err := d.relay.bounce(ctx, side.domain); err != nil {
			return fmt.Errorf("giving up on %s: %w", side.domain, err)
		}
		d.gaveUp = side.domain
	}
	return nil
}

// look takes a snapshot.
func (d *demo) look(ctx context.Context) (snapshot, error) {
	stats, err := d.relay.stats(ctx)
	if err != nil {
		return snapshot{}, err
	}
	letters, recipients, bounced, byProvider := d.ledger.sums()
	s := snapshot{elapsed: time.Since(d.began), total: d.Messages, submitted: letters, recipients: recipients,
		bounced: bounced, relay: stats, hint: d.command("queue summary")}
	s.late, s.complaints = d.after.sums()
	s.events, _ = d.hook.sums()
	s.hookDown = !d.hook.alive()
	for i, side := range d.world.providers {
		t := side.recorder.Tally()
		s.delivered += t.Unique
		d.habits[i].learn(side, d.ledger)
		s.rows = append(s.rows,
			row{domain: side.domain, does: side.does, to: byProvider[i].accepted, delivered: t.Unique,
				bounced: byProvider[i].bounced, waiting: max(0, byProvider[i].accepted-byProvider[i].bounced-t.Unique),
				typical: d.habits[i].typical(), refusal: d.habits[i].refusal})
	}
	s.submitRate, s.settleRate = d.trend.add(s.elapsed, int64(letters), s.settled())
	s.doing = d.doing(stats)
	return s, nil
}

// doing returns what goes on, in a line.
func (d *demo) doing(stats relayStats) string {
	switch {
	case d.submitting == 0:
		return fmt.Sprintf("%d applications submit; a 250 means that the message is on the disk", submitters)
	case stats.queued == 0:
		return "done"
	case d.gaveUp != "":
		return "the operator gives up: mta queue bounce --domain " + d.gaveUp
	}
	return "all mail is submitted; deferred mail is being retried"
}

// command is how to ask this relay something.
func (d *demo) command(what string) string { return "mta " + what + " --socket " + d.relay.socket }

// conclude shows the account and what to look at next. It reports whether the books balance.
func (d *demo) conclude(interrupted bool) (balanced bool, err error) {
	ctx := context.Background()
	elapsed := time.Since(d.began)
	switch {
	case interrupted:
		fmt.Fprintf(d.Out, "\n  Interrupted: this is how things stand.\n")
	case d.cutShort:
		fmt.Fprintf(d.Out, "\n  This machine is busy: %s after the last message the demo ends, and its relay leaves "+
			"what still waits in the queue, to be retried.\n", d.Limit)
	}
	a, err := d.account(ctx, interrupted || d.cutShort)
	if err != nil {
		return false, err
	}
	p := d.screen.palette()
	for _, l := range a.summary(d.submitting, elapsed, p) {
		fmt.Fprintln(d.Out, l)
	}
	for _, l := range d.further() {
		fmt.Fprintln(d.Out, l)
	}
	return len(a.faults()) == 0, nil
}

// account closes the books. Mail may be on its way while it looks, so it looks again at what
// seems to be nowhere.
func (d *demo) account(ctx context.Context, interrupted bool) (account, error) {
	for try := 0; ; try++ {
		queued, err := d.relay.queued(ctx)
		if err != nil {
			return account{}, err
		}
		stats, err := d.relay.stats(ctx)
		if err != nil {
			return account{}, err
		}
		a := settle(d.world, d.ledger, stats, func(_, recipient string) bool { return queued[recipient] })
		if a.lost == 0 || try == 20 {
			a.byHTTP = d.generator.byHTTP.Load()
			if !interrupted {
				a.unheard = d.hearAll(ctx)
			}
			a.late, a.complaints = d.after.sums()
			a.events, a.again = d.hook.sums()
			a.unsigned = d.hook.refused()
			return a, nil
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// further returns what to look at.
func (d *demo) further() []string {
	if d.Keep {
		return []string{"", "  Look further, in another terminal:",
			"    " + d.command("queue list"), "    " + d.command("queue summary"), "    " + d.command("log --last 20"),
			"    less " + filepath.Join(d.dir, "relay.log")}
	}
	if d.Dir != "" {
		return []string{"", "  The relay's data, its configuration and its log are in " + d.dir + "."}
	}
	return []string{"", "  'mta demo --keep' leaves it running, to try 'mta queue list' and 'mta log'.",
		"  'mta serve' runs the relay for real: on 127.0.0.1:2525, data in ./mta-data."}
}

// trend gives rates over the last two seconds, or since the begin.
type trend struct{ points []point }

type point struct {
	at                 time.Duration
	submitted, settled int64
}

const trendSpan = 2 * time.Second

func (t *trend) add(at time.Duration, submitted, settled int64) (submitRate, settleRate float64) {
	if t.points == nil {
		t.points = []point{{}}
	}
	t.points = append(t.points, point{at, submitted, settled})
	for len(t.points) > 2 && at-t.points[0].at > trendSpan {
		t.points = t.points[1:]
	}
	first := t.points[0]
	seconds := (at - first.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	return float64(submitted-first.submitted) / seconds, float64(settled-first.settled) / seconds
}

// habit is what was seen of a provider lately.
type habit struct {
	seen    int // deliveries looked at
	took    []time.Duration
	refusal string // most frequent
}

const habitSpan = 500 // deliveries

func (h *habit) learn(s *side, g *ledger) {
	fresh := s.recorder.DeliveriesFrom(h.seen)
	h.seen += len(fresh)
	if len(fresh) > habitSpan {
		fresh = fresh[len(fresh)-habitSpan:]
	}
	g.mu.Lock()
	for _, d := range fresh {
		if t, ok := g.took(d); ok {
			h.took = append(h.took, t)
		}
	}
	g.mu.Unlock()
	h.took = h.took[max(0, len(h.took)-habitSpan):]
	refusals := s.refusals()
	most := int64(0)
	for _, what := range slices.Sorted(maps.Keys(refusals)) {
		// 503 and 554 5.5.1 only follow from a refusal of what was pipelined before.
		if refusals[what] > most && !strings.Contains(what, " 5.5.1") && !strings.Contains(what, " 503") {
			most, h.refusal = refusals[what], what
		}
	}
}

// typical is the median of the last deliveries, 0 without any.
func (h *habit) typical() time.Duration {
	if len(h.took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(h.took))
	return sorted[len(sorted)/2]
}
