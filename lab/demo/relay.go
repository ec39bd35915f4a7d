package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	webclient "example.org/mta/client"
	"example.org/mta/mta"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// relay is the one that is shown: all of it, in this process, on a data directory of its own.
// It is asked by its control socket, as an operator would.
type relay struct {
	*api.Client
	socket string
	addr   string            // where it takes mail by SMTP
	back   string            // where it takes reports about mail that it has sent
	web    *webclient.Client // sends mail by HTTP, each request once
	log    *os.File
	stop   context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // why it ended; read it after done

	counted          time.Time // when the following were; only stats uses them
	active, deferred int64     // recipients
}

// startRelay runs a relay in dir that asks the name server at dns and delivers to port.
func startRelay(dir, dns, port string, events *hook) (*relay, error) {
	file := filepath.Join(dir, "mta.conf")
	if err := os.WriteFile(file, []byte(configuration(dir, dns, port, events)), 0o600); err != nil {
		return nil, fmt.Errorf("writing the demo's configuration: %w", err)
	}
	key, _, err := auth.AddKey(filepath.Join(dir, "keys"),
		auth.Key{Tenant: tenant, Name: "demo", Scopes: auth.MaySend}, time.Now())
	if err != nil {
		return nil, fmt.Errorf("making an API key: %w", err)
	}
	cfg, err := config.Load(file, os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("reading the demo's configuration: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "relay.log"))
	if err != nil {
		return nil, fmt.Errorf("opening the relay's log: %w", err)
	}
	ready := make(chan struct{})
	server, err := mta.New(cfg, mta.Options{
		Log:        slog.New(slog.NewTextHandler(log, nil)),
		Version:    "demo",
		ConfigFile: file,
		Ready:      func(*mta.Relay) { close(ready) },
	})
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("building the relay: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &relay{Client: api.NewClient(cfg.Control.Socket), socket: cfg.Control.Socket, log: log, stop: stop,
		done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = server.Run(ctx)
	}()
	select {
	case <-ready:
	case <-r.done:
	}
	status, err := api.OpStatus.Call(ctx, r.Client, api.None{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the relay: %w", err), r.close())
	}
	r.addr, r.back = status.SMTP[0], status.SMTP[1]
	r.web = &webclient.Client{URL: "http://" + status.HTTP[0], Key: key, Patience: -1}
	return r, nil
}

// tenant is whose mail it is.
const tenant = "acme"

// What comes back about the mail is for these.
const (
	bounceDomain      = "b.acme.example"
	complaintsAddress = "fbl@" + bounceDomain
)

// configuration is the demo's mta.conf. Times are shorter than anybody would have them.
func configuration(dir, dns, port string, events *hook) string {
	return fmt.Sprintf(`# The configuration of 'mta demo'.
hostname = "relay.acme.example"
data_dir = %[1]q

listener "smtp" {
  address    = ["127.0.0.1:0"]
  relay_from = ["127.0.0.0/8"]
  tenant     = %[4]q
}
listener "reports" {
  address = ["127.0.0.1:0"]
  inbound {
    domains    = [%[7]q]
    complaints = [%[8]q]
  }
}
tenant %[4]q {
  senders     = [%[5]q]
  return_path = %[7]q
}
stream "application" {
  to      = "http://%[9]s/events"
  secrets = [%[10]q]
  linger  = "100ms"
}
keys { file = %[6]q }
api "web" { address = "127.0.0.1:0" }
http { address = "127.0.0.1:0" }
resolver { servers = [%[2]q] }
router { allow_loopback = true }

defaults {
  smtp_port                     = %[3]s
  connection_limit              = 20
  max_deliveries_per_connection = 500
  retry_interval                = "1s"
  max_retry_interval            = "3s"
}
shutdown { drain = "5s" }
`, filepath.Join(dir, "data"), dns, port, tenant, home().domain, filepath.Join(dir, "keys"),
		bounceDomain, complaintsAddress, events.addr, events.secret)
}

// stats asks the relay for its sums.
func (r *relay) stats(ctx context.Context) (relayStats, error) {
	status, err := api.OpStatus.Call(ctx, r.Client, api.None{})
	if err != nil {
		return relayStats{}, err
	}
	q := status.Queue
	s := relayStats{accepted: q.Recovered + q.Accepted, delivered: q.Delivered,
		bounced: q.Bounced + q.Expired + q.Removed + q.Moved, queued: q.Queued}
	if s.queued == 0 {
		return s, nil
	}
	if time.Since(r.counted) > countEvery {
		r.counted = time.Now()
		if r.active, err = r.count(ctx, api.StateActive); err != nil {
			return relayStats{}, err
		}
		if r.deferred, err = r.count(ctx, api.StateDeferred); err != nil {
			return relayStats{}, err
		}
	}
	// The counts are a little older than the sum.
	s.deferred = min(r.deferred, s.queued)
	s.active = min(r.active, s.queued-s.deferred)
	s.due = s.queued - s.deferred - s.active
	return s, nil
}

// countEvery is how often the recipients are counted by state: the relay looks through its queue
// for that.
const countEvery = 500 * time.Millisecond

// count gives the number of recipients in a state.
func (r *relay) count(ctx context.Context, state api.State) (int64, error) {
	sum, err := r.WholeSummary(ctx, api.BySite, api.Filter{State: state}, 1)
	return int64(sum.Total.Total), err
}

// queued lists the recipients in the queue.
func (r *relay) queued(ctx context.Context) (map[string]bool, error) {
	all := make(map[string]bool)
	page := api.Page{Limit: api.MaxLimit}
	for {
		list, err := api.OpList.Call(ctx, r.Client, api.ListQuery{Page: page})
		if err != nil {
			return nil, fmt.Errorf("listing the relay's queue: %w", err)
		}
		for _, m := range list.Messages {
			for _, rcpt := range m.Recipients {
				all[rcpt.Address] = true
			}
		}
		if page.After = list.Next; page.After == "" {
			return all, nil
		}
	}
}

// bounce gives up on all mail for a domain, as 'mta queue bounce' does.
func (r *relay) bounce(ctx context.Context, domain string) error {
	_, err := api.OpChange.Call(ctx, r.Client, api.Change{Action: api.Bounce, Filter: api.Filter{Domain: domain}})
	return err
}

// close stops the relay, which drains, and waits for its end.
func (r *relay) close() error {
	r.stop()
	<-r.done
	r.Client.Close()
	return errors.Join(r.err, r.log.Close())
}
