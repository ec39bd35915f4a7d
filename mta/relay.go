// Package mta builds, starts, reloads, drains and stops the relay: what lives and dies. Mail is carried
// by package dispatch, settings come from package wiring, and operators are answered by the packages in operator/answer.
//
// The order of use: New opens everything or nothing, Run takes and delivers mail until its
// context ends and then stops in named steps, Reload brings another configuration into force.
//
// Long-lived goroutines, besides those of the parts:
//
//	Run         the caller's; waits for the end, then stops the others in order
//	dispatcher  carries mail, with goroutines of its own: see package dispatch; ended by Run, which waits
//	pauses      looks each second which pauses are over; ended by Run
//	rates       notes what was counted, each second; ended by Run
//	history     samples figures every 2 s, and saves them: see package history; ended by Run
//	sources     looks twice a minute which addresses this machine has; ended by Run
//	checks      asks the DNS once a day what receivers will think of our mail; ended by Run
//	MTA-STS     renews policies, and writes them down; ended by Run
//	warm-up     the controller; ended by Run
//	admission   computes twice a second what to refuse; ended by Run
//	pickup      looks every few seconds what sendmail left in the maildrop; ended by Run
//	alarms      looks at the queue once a minute, at its disk each second; ended by Run
//	upgrade     waits for the day after which an upgrade is finished; ended by Run
//	reporters   write reports to senders into the queue; ended by Run when all jobs are back
//	acme        gets certificates from a certificate authority, when it has names; ended by Run
//	streams     read the accounting log, send events, write cursors: see package events; ended by Run
//	http, control  answer over HTTP and on the unix socket; ended by Run
//	listeners   one for each address at which mail is taken; ended first
package mta

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/delivery"
	"example.org/mta/delivery/egress"
	"example.org/mta/delivery/tlspolicy/sts"
	"example.org/mta/delivery/tlspolicy/tlsrpt"
	"example.org/mta/destdb"
	"example.org/mta/destdb/file"
	"example.org/mta/dispatch"
	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/accounting/books"
	"example.org/mta/mta/admit"
	"example.org/mta/mta/alarm"
	"example.org/mta/mta/check"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/events"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/tally"
	"example.org/mta/mta/warming"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/answer/connections"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/operator/answer/submitted"
	"example.org/mta/operator/answer/trace"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/history"
	"example.org/mta/queue"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/router"
	"example.org/mta/router/resolver"
	"example.org/mta/submission"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/callout"
	submissionhttp "example.org/mta/submission/http"
	"example.org/mta/submission/idempotency"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/intruders"
	"example.org/mta/submission/keys"
	"example.org/mta/submission/maildrop"
	"example.org/mta/submission/quota"
	"example.org/mta/submission/unsubscribe"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
	"example.org/mta/suppression/feed"
)

// Options are what a relay is given apart from its configuration.
type Options struct {
	Log     *slog.Logger // nil: slog.Default
	Version string
	// ConfigFile is what Reload reads again; "" when the defaults are in force.
	ConfigFile string
	// Env gives the environment to a configuration that is read again. Nil: os.Getenv.
	Env func(string) string
	// Ready is called once when mail is taken. May be nil.
	Ready func(*Relay)
	// Announce is a directory besides data_dir in which the relay writes down where it is, if that
	// directory is there; "" for none.
	Announce string
	// Sockets are open already, for blocks of the configuration. Every one has to be used by its block.
	Sockets []listen.Socket
	// OnReload is called with a configuration that has come into force, for what is not the
	// relay's own, as the level of its log. May be nil.
	OnReload func(*config.Config)

	// openLedger opens the store of warm-ups at a path. Nil: boltstore.Open. For tests of one that is lost.
	openLedger func(path string) (warming.Ledger, error)
	// now is the time of day. Nil: time.Now. For tests of a clock that jumps. Delivery has time.Now in any
	// case: what it compares has a monotonic reading too.
	now func() time.Time
	// places lists the stores with the formats that the relay knows. Nil: those of this program. For tests of another
	// version.
	places func(*config.Config) []format.Place
	// Bind tries to use an address of a source. Nil: egress.Bind. For tests of one that moves.
	Bind func(netip.Addr) error
	// QueueFS is the file system that the queue stands on. Nil: the operating system's. For tests of a full disk, and
	// of a queue in memory.
	QueueFS vfs.FS
	// Dial connects to hosts and name servers ("tcp", "udp"). Nil: the operating system's network. For tests in memory.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Control is the open control socket. Nil: the one of the configuration is opened. For tests in memory.
	Control net.Listener
	// Chance, in [0, 1), spreads retries over time. Nil: math/rand. For tests that show times.
	Chance func() float64
	// Rand makes the source of a part's other choices. Nil: one with a random seed. For tests in which each run is the
	// same.
	Rand func() *rand.Rand
	// policyTransport gets MTA-STS policies. Nil: HTTPS. For tests of an authority of their own.
	policyTransport http.RoundTripper
}

// Relay is a whole relay. Several can run in one process, on different addresses and data
// directories.
type Relay struct {
	opts    Options
	log     *slog.Logger
	started time.Time
	now     func() time.Time

	alarms     *alarm.Alarms
	store      *queueStore // of what submission takes
	admission  *admit.Gate // asked for what is submitted
	sources    *egress.Watch
	checks     *check.Daily
	policy     atomic.Pointer[wiring.Policy]
	classes    *bounce.Classifier          // of replies
	unknown    bounce.Unknown              // replies
	servers    map[string]submissionServer // by listener; New's, then guarded by reload
	apis       map[string]apiServer        // by api block; likewise
	clients    listen.Counts               // connections of clients
	reports    reports                     // about the relay's own mail, that come in
	requests   *submissionhttp.Memory      // for requests under way of all api blocks
	limits     *submissionhttp.Limits      // of keys' and tenants' requests
	repeats    *idempotency.Book           // of requests with an Idempotency-Key
	tokens     *submissionhttp.Tokens      // that prove first attempts
	incoming   *intake.Memory              // for messages of all servers that are coming in
	quotas     *quota.Book                 // of tenants
	callouts   *callout.Checker            // of recipients' mailboxes
	intruders  *intruders.Log              // clients that are refused, for fail2ban
	certs      *certificates.Store
	tlsReports *tlsrpt.Reporter             // nil when none are sent
	acme       *certificates.ACME           // nil without names
	logins     atomic.Pointer[auth.Service] // nil without users
	console    *console                     // nil without a console block
	keys       atomic.Pointer[keys.Book]    // nil without a keys file
	links      *unsubscribe.Links
	templates  templates
	files      int // that the process may have open
	sites      dispatch.Sites
	sessions   envelope.IDs // names sessions, whatever the listener
	// tenantsIgnored counts X-MTA-Tenant fields of clients that may not name a tenant.
	tenantsIgnored atomic.Int64
	reload         sync.Mutex // one reload at a time
	draining       atomic.Bool
	serving        atomic.Bool // the listeners take mail, or have
	failed         atomic.Bool // the dispatcher has ended by a fault

	queue        *queue.Queue
	resolver     *resolver.Resolver
	sts          *sts.Policies
	router       *router.Router
	delivery     *delivery.Scheduler
	destinations *file.Store
	learned      *destdb.DB // guarded by delivery
	tracer       *trace.Tracer
	warm         *warming.Warming
	dispatcher   *dispatch.Dispatcher
	pauses       *pauses.Pauses
	reporter     *dispatch.Reporter
	pickup       *maildrop.Pickup
	suppression  *suppression.List
	listed       *boltstore.Store // of the suppression list
	feeder       *feed.Feeder     // of the list
	events       *books.Accountant
	meter        *tally.Meter
	tally        *tally.Tallies
	rates        blocks.Rates
	history      *history.History
	queued       messages.Messages
	submitted    *submitted.Submitted // for tenants, by HTTP
	api          api.Config
	returnPaths  atomic.Pointer[returnpath.Keys]
	node         returnpath.Node
	data         *datadir.Dir
	accounting   *accounting.Writer // nil when switched off
	streams      *events.Streams    // of the accounting log; nil without one
	puller       *events.Puller     // of tenants, by HTTP; nil without an accounting log
	streamParts  *wiring.StreamParts
	listeners    *listen.Listeners
	http         *httpServer // nil without an address
	audit        *audit.Log
	control      *api.Server
	socket       net.Listener
}

// warn logs what the file should say otherwise.
func (r *Relay) warn(cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		r.log.Warn("configuration should be changed", "what", w)
	}
}

// complete sets what was left out.
func (o *Options) complete() {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.Rand == nil {
		o.Rand = func() *rand.Rand { return nil } // of which each part makes its own
	}
	if o.Env == nil {
		o.Env = os.Getenv
	}
}

// New opens the queue, the sockets and all else that a relay needs. Nothing is taken or
// delivered before Run. After an error nothing stays open.
func New(cfg *config.Config, opts Options) (*Relay, error) {
	opts.complete()
	r := &Relay{opts: opts, log: opts.Log, now: opts.now, started: time.Now(), classes: new(bounce.Classifier), servers: make(map[string]submissionServer), apis: make(map[string]apiServer)}
	r.alarms = alarm.New(opts.Log)
	r.certs = certificates.New(r.now, opts.Log)
	r.warn(cfg)
	r.classes.SetRules(wiring.Classify(cfg))
	r.tracer = trace.New(r.now, func() { r.delivery.Retrace() })
	r.policy.Store(wiring.New(cfg))
	local := func() map[string]netip.Addr { return r.policy.Load().Config.LocalAddresses() }
	r.sources = egress.NewWatch(local, opts.Bind, opts.Log)
	r.submitted = r.answersTenants()
	var undo undoer
	for _, step := range []struct {
		what string
		open func(*config.Config, *undoer) error
	}{
		{"", r.openData},
		{"accounting log", r.openAccounting},
		{"http", r.openHTTP},
		{"", r.openQueue}, // its errors say so themselves, as those of the suppression list and the socket
		{"streams", r.openStreams},
		{"idempotency keys", r.openIdempotency},
		{"queue tokens", r.openTokens},
		{"destinations", r.openDestinations},
		{"warm-up", r.openWarmup},
		{"", r.openSuppression},
		{"unsubscribe links", r.openUnsubscribe},
		{"return paths", r.openReturnPaths},
		{"users", r.openUsers},
		{"API keys", r.openKeys},
		{"", r.openTemplates},
		{"acme", r.openACME},
		{"", r.openAdmission},
		{"inbound mail", r.openInbound},
		{"listeners", r.openListeners},
		{"router", r.openRouter},
		{"", r.openSTS},
		{"", r.openTLSReports},
		{"", r.openPauses},
		{"delivery", r.openDelivery},
		{"", r.openControl},
		{"console", r.openConsole},
		{"metrics", r.openMetrics},
	} {
		if err := step.open(cfg, &undo); err != nil {
			undo.all()
			if step.what != "" {
				err = fmt.Errorf("%s: %w", step.what, err)
			}
			return nil, err
		}
	}
	r.alarms.Set(r.now(), alarm.Damage, r.data.Damaged())
	return r, nil
}

// undoer closes what was opened, the last first, when a later step fails.
type undoer []func()

func (u *undoer) add(f func()) { *u = append(*u, f) }

func (u *undoer) all() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
}

func (r *Relay) openData(cfg *config.Config, _ *undoer) (err error) {
	r.data, err = datadir.Open(cfg, datadir.Config{
		Version: r.opts.Version, Places: r.opts.places, InForce: r.inForce, Now: r.now, Log: r.log,
	})
	return err
}

// inForce is the configuration in force.
func (r *Relay) inForce() *config.Config { return r.policy.Load().Config }

func (r *Relay) openAccounting(cfg *config.Config, undo *undoer) error {
	if cfg.Accounting.Enabled {
		w, err := accounting.Open(accounting.Config{
			Dir: cfg.Accounting.Path, NodeID: cfg.NodeID, Limits: wiring.Accounting(cfg), Log: r.log,
			AwaitKeep: true, // openStreams calls it
		})
		if err != nil {
			return err
		}
		r.accounting = w
	}
	r.meter = tally.NewMeter()
	r.tally = tally.New(func() *config.Config { return r.policy.Load().Config })
	r.events = books.New(books.Config{
		Log: r.accounting, Meter: r.meter, Tally: r.tally, Policy: r.policy.Load, Classes: r.classes, Unknown: &r.unknown,
		Now: r.now,
	})
	undo.add(func() { r.closeAccounting() })
	return nil
}

func (r *Relay) accountingStats() accounting.Stats {
	if r.accounting == nil {
		return accounting.Stats{}
	}
	return r.accounting.Stats()
}

// completeReceptions writes the Receptions that a crash has taken along.
func (r *Relay) completeReceptions(cfg *config.Config) {
	if r.accounting == nil {
		return
	}
	began := time.Now()
	latest, err := accounting.LatestReceptions(context.Background(), cfg.Accounting.Path, r.now())
	if err != nil {
		r.log.Warn("it is not known which messages have no Reception in the accounting log", "error", err)
		return
	}
	if n := r.events.Complete(r.queue, latest); n > 0 {
		r.log.Info("accounting records that a crash took along are written",
			"receptions", n, "took", time.Since(began).Round(time.Millisecond))
	}
}

// recordsTrouble returns why accounting records are not written, "" when they are.
func (r *Relay) recordsTrouble() string {
	s := r.accountingStats()
	if !s.Failing {
		return ""
	}
	return fmt.Sprintf("accounting records can't be written, and are lost when memory for them is full: %d so far; the log says why", s.Lost)
}

// flushRecords waits for the outcomes that wait for their records. If those can't be written, that is reported
// when the accounting log is closed.
func (r *Relay) flushRecords() error {
	if r.accounting == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	_ = r.accounting.Flush(ctx)
	return nil
}

// flushPatience is longer than the accounting log holds up any outcome.
const flushPatience = 10 * time.Second

func (r *Relay) closeAccounting() error {
	if r.accounting == nil {
		return nil
	}
	return r.accounting.Close()
}

func (r *Relay) openQueue(cfg *config.Config, undo *undoer) error {
	began := time.Now()
	q, err := queue.Open(queue.Config{
		Dir:         datadir.Queue(cfg),
		FS:          r.opts.QueueFS,
		Log:         r.log,
		Format:      r.data.Number(store.Format),
		SegmentSize: int64(cfg.Queue.SegmentSize),
		LargeBody:   int64(cfg.Queue.LargeBody),
		CacheBytes:  int64(cfg.Queue.Cache),
		MinFree:     int64(cfg.Queue.MinFree),

		IdempotencyKeys: cfg.Queue.IdempotencyKeys,
		// The queue knows no domains: the dispatcher gives up what must be given up sooner.
		MaxAge:     func() time.Duration { return r.policy.Load().LongestAge },
		Now:        r.now,
		DelayAfter: cfg.Defaults.Traffic.DelayWarning,
		OnRemoved:  r.events.Removed,

		OnUnreadable: r.events.Unreadable,
	})
	if err != nil {
		return err
	}
	r.queue, r.store = q, newQueueStore(q, r.events, r.meter, r.now, r.log)
	undo.add(func() { q.Close() })
	r.log.Info("queue is open", "recipients", q.Stats().Queued, "took", time.Since(began).Round(time.Millisecond))
	r.completeReceptions(cfg)
	reports := &dispatch.ReportWriter{
		Queue: q, Events: r.events, Policy: r.policy.Load, Sites: &r.sites, Ids: new(envelope.IDs), Now: r.now, Log: r.log,
	}
	r.reporter = dispatch.StartReporter(reports.Write)
	r.pickup = r.newPickup(reports)
	undo.add(r.reporter.Close)
	return nil
}

func (r *Relay) openListeners(cfg *config.Config, undo *undoer) (err error) {
	r.files, r.incoming = wiring.FileLimit(), intake.NewMemory(int64(cfg.Queue.IncomingMemory))
	r.requests, r.limits = submissionhttp.NewMemory(requestMemory(cfg)), submissionhttp.NewLimits(r.now)
	r.quotas = quota.New(r.limitsOf, r.queuedOf, r.now)
	r.callouts = callout.New(r.askForMailbox, r.now)
	r.intruders = intruders.New(r.log, r.now)
	wiring.ShareDescriptors(r.files, cfg).Warn(r.log, cfg)
	entrances, err := r.entrances(cfg, r.logins.Load())
	if err != nil {
		return err
	}
	r.listeners, err = listen.Open(entrances, r.opts.Sockets, r.log)
	if err == nil {
		undo.add(r.listeners.Close)
	}
	return err
}

// entrances makes the servers of a configuration, or gives those that there are.
func (r *Relay) entrances(cfg *config.Config, logins *auth.Service) (all []listen.Entrance, err error) {
	for _, l := range cfg.Listeners {
		e := listen.Entrance{Kind: listen.SMTP, Name: l.Name, Address: l.Address, Ended: submission.ErrServerClosed}
		if e.Server, err = r.newSubmission(cfg, l, logins); err != nil {
			return nil, fmt.Errorf("%v: %w", &e, err)
		}
		all = append(all, e)
	}
	for _, a := range cfg.APIs {
		e := listen.Entrance{Kind: listen.HTTP, Name: a.Name, Address: a.Address, Ended: submissionhttp.ErrServerClosed}
		if e.Server, err = r.newAPI(cfg, a); err != nil {
			return nil, fmt.Errorf("%v: %w", &e, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// newSubmission makes the server of a listener, or gives the one that there is when all that it
// was made from is the same: a reload that changes other things disturbs no client.
func (r *Relay) newSubmission(cfg *config.Config, l *config.Listener, logins *auth.Service) (_ *submission.Server, err error) {
	made := submissionServer{settings: wiring.Submission(cfg, l)}
	made.settings.Limits.Connections = wiring.ShareDescriptors(r.files, cfg).Of(l.MaxConnections)
	sc := r.joined(made.settings, l.Name)
	sc.Open = r.clients.Of(l.Name)
	made.tls, made.inbound = l.TLS, l.Inbound
	sc.Inbound, sc.InboundMemory = r.inboundOf(l), r.reports.memory
	if sc.TLS, err = r.tlsOf(l.TLS.Certificates); err != nil {
		return nil, err
	}
	if err := r.loginsOf(l, logins, &sc); err != nil {
		return nil, err
	}
	made.logins, made.clientCAs = sc.Auth, sc.ClientCAs
	old := r.servers[l.Name]
	if old.server != nil && old.logins == made.logins && old.clientCAs.Equal(made.clientCAs) &&
		reflect.DeepEqual(old.settings, made.settings) && reflect.DeepEqual(old.tls, made.tls) && reflect.DeepEqual(old.inbound, made.inbound) {
		return old.server, nil
	}
	made.server = submission.New(sc)
	r.servers[l.Name] = made
	return made.server, nil
}

// joined gives the settings of a listener with what they need of the relay.
func (r *Relay) joined(sc submission.Config, listener string) submission.Config {
	sc.Intake = r.joinedIntake(sc.Intake, listener)
	sc.Intake.Repeats = r.repeats
	sc.IDs, sc.Watcher, sc.Refused = &r.sessions, r.tracer.Listener(listener), r.intruders.Listener(listener)
	return sc
}

// joinedIntake gives what a listener's messages are held to with what it needs of the relay.
func (r *Relay) joinedIntake(ic intake.Config, listener string) intake.Config {
	ic.Now, ic.Log, ic.Memory = r.now, r.log.With("listener", listener), r.incoming
	ic.Store, ic.Batches, ic.Ready, ic.Events = r.store, r.store, r.store.Ready, r.events.Listener(listener)
	ic.Admission = r.admission
	ic.Verifier, ic.Suppressed, ic.Unsubscribe = domainVerifier{r}, r.suppressed, r.unsubscribeLink
	ic.Quotas, ic.AsksMailboxes, ic.MissingMailbox = r.quotas, r.asksMailboxes, r.missingMailbox
	ic.Foreign.MayUsePool = r.mayUsePool
	ic.Unsignable = r.unsignable
	ic.TenantOf, ic.TenantAt, ic.Ignored = r.tenantOf, r.tenantAt, &r.tenantsIgnored
	return ic
}

// submissionServer is a listener's server and what it was made from.
type submissionServer struct {
	server   *submission.Server
	settings submission.Config // as the configuration says, nothing of the relay's own
	tls      config.TLS
	inbound  config.Inbound

	logins    *auth.Service
	clientCAs *x509.CertPool
}

// openEntrances gives the servers that clients have sessions with.
func (r *Relay) openEntrances() (list []connections.Entrance) {
	for _, e := range r.listeners.WithSessions() {
		switch s := e.Server.(type) {
		case *submission.Server:
			list = append(list, connections.Entrance{Listener: e.Name, SMTP: s})
		case *submissionhttp.Server:
			list = append(list, connections.Entrance{Listener: e.Name, HTTP: s})
		}
	}
	return list
}

// addressesOf returns the addresses of a listener block.
func (r *Relay) addressesOf(l *config.Listener) []string {
	return r.listeners.AddressesOf(listen.SMTP, l.Name)
}

// addrPorts returns addresses for the router.
func addrPorts(addresses []string) (all []netip.AddrPort) {
	for _, a := range addresses {
		if ap, err := netip.ParseAddrPort(a); err == nil {
			all = append(all, ap)
		}
	}
	return all
}

// drainShare is the part of the time for shutting down that open submissions may use; the rest is for deliveries.
func drainShare(total time.Duration) time.Duration { return total / 3 }

// Run takes and delivers mail until ctx ends, and then stops: what is under way may end within
// the configured time. The relay can't be used again.
func (r *Relay) Run(ctx context.Context) error {
	r.announce()
	dispatching, stopDispatching := context.WithCancel(context.Background())
	defer stopDispatching()
	var running sync.WaitGroup
	failed := make(chan error, 1)
	running.Go(func() {
		if err := r.dispatcher.Run(dispatching); err != nil {
			failed <- fmt.Errorf("taking mail from the queue: %w", err)
		}
	})
	running.Go(func() { r.pauses.Run(dispatching) })
	running.Go(func() {
		r.alarms.Run(dispatching, alarm.Sight{
			Queue: r.queue.Stats, Refusing: r.refusing, Sources: r.sources.Names, Records: r.recordsTrouble,
			Audit: r.audit.Trouble, DNS: r.resolver.Stats, Warmups: r.warm.Trouble, Health: r.warm.Health,
			Maildrop: r.pickup.Trouble, Paused: r.pauses.Trouble, Logins: r.loginTrouble, Certificates: r.certificateTrouble,
			Overload: r.admission.Trouble, Checks: r.checks.Trouble, Flood: r.flood, Damaged: r.data.Damaged,
			Streams: r.streamTroubles, Signing: r.dispatcher.SigningTrouble,
		})
	})
	if r.acme != nil {
		running.Go(func() { r.acme.Run(dispatching) })
	}
	if r.tlsReports != nil {
		running.Go(func() { r.tlsReports.Run(dispatching) })
	}
	running.Go(func() { r.admission.Run(dispatching) })
	running.Go(func() { r.sources.Run(dispatching) })
	running.Go(func() { r.checks.Run(dispatching) })
	running.Go(func() { r.pickup.Run(dispatching) })
	running.Go(func() { r.data.Run(dispatching) })
	running.Go(func() { r.rates.Run(dispatching, r.now, r.tally) })
	running.Go(func() { r.history.Run(dispatching) })
	running.Go(func() { r.warm.Run(dispatching) })
	running.Go(func() { r.sts.Run(dispatching) })
	running.Go(func() { r.control.Serve(r.socket) })
	if r.console != nil {
		running.Go(r.serveConsole)
	}
	r.startStreams()
	r.listeners.Serve()
	r.serving.Store(true)
	if r.opts.Ready != nil {
		r.opts.Ready(r)
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		r.failed.Store(true)
		r.log.Error("stopping", "error", err)
	}
	return errors.Join(err, r.shutdown(stopDispatching, &running))
}

// shutdown stops the relay in steps; what one waits for is logged when that takes long. The order
// follows the way of a message, so that nothing is handed to a part that has stopped.
func (r *Relay) shutdown(stopDispatching func(), running *sync.WaitGroup) error {
	total, start := r.policy.Load().Config.Shutdown.Drain, time.Now()
	r.reload.Lock() // one that is under way would start servers behind the back of those that end them
	r.draining.Store(true)
	r.reload.Unlock()
	r.log.Info("shutting down", "within", total, "queued", r.queue.Stats().Queued)
	drained, cancel := context.WithTimeout(context.Background(), total)
	defer cancel()

	submitted, cancelSubmitted := context.WithTimeout(drained, drainShare(total))
	defer cancelSubmitted()
	var errs []error
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"submissions under way", func() error { return r.listeners.Shutdown(submitted) }},
		{"call-outs", func() error { r.callouts.Close(); return nil }},
		{"the dispatcher", func() error { r.dispatcher.Stop(); stopDispatching(); return nil }},
		{"deliveries under way", func() error { return r.delivery.Drain(drained) }},
		{"connections", func() error { r.delivery.Close(); return nil }},
		{"look-ups", func() error { r.router.Close(); return nil }},
		{"records of outcomes", r.flushRecords}, // some of which are reported to senders
		{"reports to senders", func() error { r.reporter.Close(); return nil }},
		{"http", func() error { return r.closeHTTP(drained) }},
		{"console", func() error { return r.closeConsole(drained) }},
		{"control socket", func() error { return r.control.Shutdown(drained) }},
		{"the dispatcher and the servers", func() error { running.Wait(); return nil }},
		{"signatures", r.dispatcher.Close},
		{"what feeds the suppression list", r.feeder.Close},
		{"warm-up", r.warm.Close},
		{"MTA-STS policies", r.closeSTS},
		{"destination database", r.destinations.Close},
		{"suppression list", r.suppression.Close},
		{"users file", r.closeUsers},
		{"API keys", r.closeKeys},
		{"records of outcomes", r.flushRecords}, // those of reports
		{"queue", r.queue.Close},
		{"streams", r.closeStreams},
		{"accounting log", r.closeAccounting},
		{"audit log", r.audit.Close},
	} {
		began := time.Now()
		slow := time.AfterFunc(time.Second, func() { r.log.Info("waiting for " + step.what) })
		err := step.do()
		slow.Stop()
		if took := time.Since(began); took > time.Second {
			r.log.Info("waited for "+step.what, "took", took.Round(time.Millisecond))
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			// Cut off, as said at the start: what was cut stays queued.
			r.log.Warn(step.what+" did not end in time and were cut", "error", err)
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
		}
	}
	r.log.Info("stopped", "took", time.Since(start).Round(time.Millisecond))
	return errors.Join(errs...)
}
