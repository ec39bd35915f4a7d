package mta

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/dsn"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/httpclient"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accept"
	"example.org/mta/mta/admit"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/answer/connections"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/operator/answer/submitted"
	"example.org/mta/operator/answer/waits"
	"example.org/mta/queue"
	"example.org/mta/submission"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/callout"
	submissionhttp "example.org/mta/submission/http"
	"example.org/mta/submission/intake"
	"example.org/mta/submission/maildrop"
	"example.org/mta/submission/milter"
	"example.org/mta/submission/request"
)

// mailIn is the third stage: mail comes in.
type mailIn struct {
	*mailOut

	reports      reports                      // about the relay's own mail, that come in
	admission    *admit.Gate                  // asked for what is submitted
	servers      map[string]submissionServer  // by listener; New's, then guarded by reload
	apis         map[string]apiServer         // by api block; likewise
	clients      listen.Counts                // connections of clients
	requests     *submissionhttp.Memory       // for requests under way of all api blocks
	limits       *submissionhttp.Limits       // of keys' and tenants' requests
	repeats      *intake.Repeats              // of requests with an Idempotency-Key
	tokens       *submissionhttp.Tokens       // that prove first attempts
	incoming     *intake.Memory               // for messages of all servers that are coming in
	quotas       *intake.Quotas               // of tenants
	callouts     *callout.Checker             // of recipients' mailboxes
	milters      *milter.Milters              // asked about complete messages
	intruders    *intake.Intruders            // clients that are refused, for fail2ban
	acme         *certificates.ACME           // nil without names
	logins       atomic.Pointer[auth.Service] // nil without users
	salts        atomic.Pointer[[]byte]       // the secret that makes those of users that don't exist
	keys         atomic.Pointer[auth.Keys]    // nil without a keys file
	shared       wiring.Shared                // keys and users of the nodes of a cluster
	unsubscribes accept.Unsubscribes
	templates    *request.Stored
	sessions     envelope.IDs // names sessions, whatever the listener
	pickup       *maildrop.Pickup
	warmups      *blocks.Warmups
	queued       messages.Messages    // for those who ask about mail in the queue
	submitted    *submitted.Submitted // for tenants, by HTTP
	everywhere   *submitted.Everywhere
	puller       *events.Puller // of tenants, by HTTP; nil without an accounting log
	// tenantsIgnored counts X-MTA-Tenant fields of clients that may not name a tenant.
	tenantsIgnored atomic.Int64
}

// tenants are those of the configuration in force.
func (r *mailIn) tenants() wiring.Tenants { return r.inForce }

func openMailIn(cfg *config.Config, out *mailOut, undo *undoer) (*mailIn, error) {
	r := &mailIn{
		mailOut: out,
		servers: make(map[string]submissionServer), apis: make(map[string]apiServer),
		incoming: intake.NewMemory(int64(cfg.Queue.IncomingMemory)),
		requests: submissionhttp.NewMemory(requestMemory(cfg)),
		limits:   submissionhttp.NewLimits(out.now), intruders: intake.NewIntruders(out.log, out.now),
	}
	hosts := &dispatch.Mailboxes{
		Router: r.router, Delivery: r.delivery, Policy: r.policy.Load, Missing: r.sources.Missing, Rules: r.rules,
		Classes: r.classes,
		Now:     r.now,
	}
	r.quotas, r.callouts = intake.NewQuotas(r.tenants().Quota, r.queuedOf, r.now), callout.New(hosts.Ask, r.now)
	wiring.ShareLimits(r.uses, r.quotas, r.limits, r.inForce)
	r.warmups = r.warmupAnswers()
	r.queued = messages.Messages{
		Policy: r.policy.Load, Now: r.now, Log: r.log, Queue: r.queue, Delivery: r.delivery, Dispatcher: r.dispatcher,
		Router: r.router, Rules: r.rules, Warmups: r.warmups, Providers: &r.sites,
		Waits: &waits.Waits{Queue: r.queue, Delivery: r.delivery, Providers: &r.sites, Now: r.now},
	}
	r.submitted, r.pickup = r.answersTenants(), r.newPickup()
	r.everywhere = r.answersEverywhere()
	return r, openAll(cfg, undo, []step{
		{"events of tenants", r.openPuller},
		{"idempotency keys", r.openIdempotency},
		{"queue tokens", r.openTokens},
		{"unsubscribe links", r.openUnsubscribe},
		{"", r.openShared}, // its errors name the part
		{"users", r.openUsers},
		{"API keys", r.openKeys},
		{"", r.openTemplates},
		{"acme", r.openACME},
		{"", r.openAdmission},
		{"inbound mail", r.openInbound},
		{"", r.openMilters},
		{"listeners", r.openServers},
	})
}

// openServers makes the servers behind the sockets.
func (r *mailIn) openServers(cfg *config.Config, _ *undoer) error {
	entrances, err := r.entrances(cfg, r.logins.Load())
	if err != nil {
		return err
	}
	r.listeners.Attach(entrances)
	return nil
}

// openPuller makes what gives tenants their events.
func (r *mailIn) openPuller(cfg *config.Config, undo *undoer) error {
	if r.accounting == nil {
		return nil
	}
	r.puller = events.NewPuller(r.accounting, cfg.NodeID, r.submitted.Searches)
	r.everywhere.Events = submitted.Events{Puller: r.puller}
	undo.add(r.puller.Close)
	return nil
}

// entrances makes the servers of a configuration, or gives those that there are.
func (r *mailIn) entrances(cfg *config.Config, logins *auth.Service) (all []listen.Entrance, err error) {
	all = entrancesOf(cfg)
	for i := range all {
		if at := i - len(cfg.Listeners); at < 0 {
			all[i].Server, err = r.newSubmission(cfg, cfg.Listeners[i], logins)
		} else {
			all[i].Server, err = r.newAPI(cfg, cfg.APIs[at])
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w", &all[i], err)
		}
	}
	return all, nil
}

// newSubmission makes the server of a listener, or gives the one that there is when all that it
// was made from is the same: a reload that changes other things disturbs no client.
func (r *mailIn) newSubmission(cfg *config.Config, l *config.Listener,
	logins *auth.Service) (_ *submission.Server, err error) {
	made := submissionServer{settings: wiring.Submission(cfg, l)}
	made.settings.Limits.Connections = wiring.ShareDescriptors(r.files, cfg).Of(l.MaxConnections)
	sc := r.joined(made.settings, l.Name)
	sc.Open = r.clients.Of(l.Name)
	made.tls, made.inbound = l.TLS, l.Inbound
	sc.Inbound, sc.InboundMemory, sc.Draining = r.inboundOf(l), r.reports.memory, r.life.Refuses
	if sc.TLS, err = r.tlsOf(l.TLS.Certificates); err != nil {
		return nil, err
	}
	if len(l.TLS.Pairs()) == 0 && l.TLS.ACME {
		sc.Certified = r.acme.Any
	}
	if err := r.loginsOf(l, logins, &sc); err != nil {
		return nil, err
	}
	made.logins, made.clientCAs = sc.Auth, sc.ClientCAs
	old := r.servers[l.Name]
	if old.server != nil && old.logins == made.logins && old.clientCAs.Equal(made.clientCAs) &&
		reflect.DeepEqual(old.settings, made.settings) && reflect.DeepEqual(old.tls, made.tls) &&
		reflect.DeepEqual(old.inbound, made.inbound) {
		return old.server, nil
	}
	made.server = submission.New(sc)
	r.servers[l.Name] = made
	return made.server, nil
}

// joined gives the settings of a listener with what they need of the relay.
func (r *mailIn) joined(sc submission.Config, listener string) submission.Config {
	sc.Intake = r.joinedIntake(sc.Intake, listener)
	sc.Intake.Repeats = r.repeats
	sc.IDs, sc.Watcher, sc.Refused = &r.sessions, r.tracer.Listener(listener), r.intruders.Listener(listener)
	return sc
}

// joinedIntake gives what a listener's messages are held to with what it needs of the relay.
func (r *mailIn) joinedIntake(ic intake.Config, listener string) intake.Config {
	ic.Now, ic.Log, ic.Memory = r.now, r.log.With("listener", listener), r.incoming
	ic.Store, ic.Batches, ic.Ready, ic.Events = r.store, r.store, r.store.Ready, r.events.Listener(listener)
	ic.Admission = r.admission
	to := &ic.Recipients
	to.Verifier, to.AsksMailboxes, to.MissingMailbox, to.Suppressed = domainVerifier{r}, r.tenants().AsksMailboxes,
		r.missingMailbox, r.suppressed
	ic.Quotas, ic.Unsubscribe = r.quotas, r.unsubscribeLink
	ic.Foreign.MayUsePool = r.tenants().MayUsePool
	ic.Unsignable = r.tenants().Unsignable
	ic.Filtering = intake.Filtering{Filter: r.milters.Of(listener), Discard: r.discard}
	ic.TenantOf, ic.TenantAt, ic.Ignored = r.tenants().Tenant, r.tenants().At, &r.tenantsIgnored
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
func (r *mailIn) openEntrances() (list []connections.Entrance) {
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

// openIdempotency makes the book of requests that have a key. Its secret is in the data directory, beside the
// journal that has the keys.
func (r *mailIn) openIdempotency(cfg *config.Config, _ *undoer) error {
	secret, err := r.data.Secret("idempotency.key",
		"requests that are sent again with their Idempotency-Key are taken twice").Secret()
	if err != nil {
		return err
	}
	store := messages.KeyStore{Queue: r.queue}
	r.repeats = intake.NewRepeats(secret, store)
	moved, err := store.Secrets()
	r.repeats.Moved(moved)
	wiring.Agree(r.repeats, r.cluster, r.now)
	return errors.Join(err, r.copy.ShareSecret(secret, r.secrets.Join))
}

// openMilters makes what asks milters. A milter that is not there is no reason not to start.
func (r *mailIn) openMilters(cfg *config.Config, _ *undoer) error {
	tcp := httpclient.Config{Addresses: r.serverAddresses}.Dialer()
	r.milters = milter.New(func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == "unix" {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		return tcp(ctx, network, address)
	}, r.now, r.log)
	r.milters.Set(wiring.Milters(cfg))
	return nil
}

// discard removes a message that a milter has discarded. If that fails it stays held, with the reason.
func (r *mailIn) discard(id envelope.ID) {
	sel := queue.Selector{}
	sel.IDs = []envelope.ID{id}
	if _, err := r.queue.Change(sel, queue.Remove, false); err != nil {
		r.log.Error("a message that a milter discarded stays held", "id", id.String(), "error", err)
	}
}

func (r *mailIn) openTemplates(cfg *config.Config, _ *undoer) error {
	stored, err := request.OpenStored(cfg.Templates.Path, r.shared.Templates, r.log)
	r.templates = stored
	return err
}

// missingMailbox lets submission ask whether a recipient's mailbox exists.
func (r *mailIn) missingMailbox(ctx context.Context, rcpt envelope.Address) (words string, missing bool) {
	a := r.callouts.Check(ctx, rcpt)
	if !a.Missing() {
		return "", false
	}
	return a.Refusal.String(), true
}

// domainVerifier lets submission ask the router about recipients' domains. What the router doesn't
// know in time, or knows to be trouble that may pass, is accepted: delivery sorts it out later.
type domainVerifier struct{ r *mailIn }

// Verify is what submission asks.
func (v domainVerifier) Verify(ctx context.Context, domain string) *reply.Reply {
	route := cmp.Or(v.r.rules.RouteOf(rules.Mail{Domain: domain}), domain)
	if refused, known := v.r.router.Verify(ctx, route); known && refused != nil && refused.Permanent() {
		return refused
	}
	return nil
}

// newPickup makes what takes sendmail's letters in. Their sessions have the settings, limits and records of the first
// listener, and need no login.
func (r *mailIn) newPickup() *maildrop.Pickup {
	return maildrop.NewPickup(maildrop.Config{
		Dir: maildropOf(r.inForce()),
		Session: func() (net.Conn, func()) {
			cfg := r.inForce()
			first := cfg.Listeners[0]
			return maildrop.Session(
				submission.New(r.joined(wiring.WithoutLogin(wiring.Submission(cfg, first)), first.Name)))
		},
		Hostname: func() string { return r.inForce().Hostname },
		MaxAge:   func() time.Duration { return r.inForce().Defaults.Traffic.MaxAge },
		Report: func(m *envelope.Message, refused []maildrop.Refusal, content io.Reader) error {
			n := dispatch.Notification{Kind: dsn.Failed, Message: m}
			for _, one := range refused {
				result := delivery.Result{Recipient: one.Index, Reply: one.Reply}
				n.Attempts = append(n.Attempts,
					dispatch.Attempt{Pending: queue.Pending{Index: one.Index}, Result: result})
			}
			if wanted := n.Wanted(); len(wanted) > 0 {
				return r.writer.Commit(n, wanted, content)
			}
			return nil
		},
		Now: r.now, Trusted: r.queue.NothingExpiresBefore, Log: r.log,
	})
}

// maildropOf is where sendmail leaves letters.
func maildropOf(cfg *config.Config) maildrop.Dir {
	return maildrop.Dir(filepath.Join(cfg.DataDir, config.Maildrop))
}
