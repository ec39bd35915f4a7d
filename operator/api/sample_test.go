package api_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

var now = relaytest.Now

// sample is the sample relay with more in it: streams without a receiver, and entries of the suppression list that were
// set aside.
type sample struct {
	*relaytest.Outside
	*api.Client
	connection string // the id of one, after prepared
}

func open(t *testing.T) sample {
	return openWith(t, `
		stream "app" { to = "https://127.0.0.1:1/app" }
		stream "idle" { to = "https://127.0.0.1:1/idle" }`)
}

func openWith(t *testing.T, more string) sample {
	t.Helper()
	o := relaytest.Serve(t, func(t *testing.T) *relaytest.Sample {
		return relaytest.NewSample(t, more, doubt)
	})
	t.Cleanup(o.Close)
	return sample{Outside: o, Client: api.NewLocalClient(o)}
}

// doubt sets entries of the suppression list aside.
func doubt(s *relaytest.Sample) {
	store, err := boltstore.Open(filepath.Join(s.Dir, "suppression.db"), nil, nil, nil)
	if err != nil {
		panic(err)
	}
	var all []suppression.Change
	for address, ago := range map[string]time.Duration{"carol@huge.example": 3 * time.Hour, "dave@huge.example": 2 * time.Hour} {
		all = append(all, suppression.Change{Entry: suppression.Entry{
			Key: suppression.Key{Tenant: "acme", Address: address}, Source: suppression.Bounce, Provider: "huge", Added: now.Add(-ago),
		}})
	}
	if err := errors.Join(store.Pending().Apply(context.Background(), all), store.Close()); err != nil {
		panic(err)
	}
}

// serve runs a server on a socket until the test ends.
func serve(t *testing.T, cfg api.Config) *api.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := api.Listen(socket, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Events = slog.New(slog.DiscardHandler)
	s := api.NewServer(cfg)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c := api.NewClient(socket)
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return c
}

// records is a log that gives all of them to each query.
type records struct {
	api.Log
	all    []string
	damage error
	more   chan string // for those who follow
}

func (r records) Read(ctx context.Context, q api.LogQuery, each func([]byte) error, flush func()) error {
	for _, record := range r.all {
		if err := each([]byte(record)); err != nil {
			return err
		}
	}
	for q.Follow {
		flush()
		select {
		case record := <-r.more:
			if err := each([]byte(record)); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return r.damage
}

// conversation is a tracer that gives each watcher the same lines.
type conversation []api.TraceLine

func (c conversation) Trace(ctx context.Context, _ api.TraceQuery, each func(api.TraceLine) error, flush func()) error {
	flush()
	for _, l := range c {
		if err := each(l); err != nil {
			return err
		}
	}
	flush()
	<-ctx.Done()
	return ctx.Err()
}

// pausing begins each pause that it is asked for.
type pausing struct{ anyRules }

type anyRules interface{ api.Rules } // embedded, it has another name than its method

func (pausing) AddRule(ctx context.Context, b api.AddRule) (api.RuleChanged, error) {
	return api.RuleChanged{Rule: api.Rule{Action: b.Action, By: api.ActorOf(ctx).Name()}}, nil
}

// relay answers for the relay as a whole.
type relay struct {
	api.Relay
	state  api.Status
	reload func() (api.Reload, error)
}

func (r relay) Status() api.Status                                { return r.state }
func (r relay) Config() string                                    { return "hostname = \"relay.example\"\n" }
func (r relay) Reload(context.Context) (api.Reload, error)        { return r.reload() }
func (r relay) PreviewReload(context.Context) (api.Reload, error) { return r.reload() }
