package mta

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// smarthost is a sink beside the world's, with its port.
func smarthost(t *testing.T) (*sink.Server, string) {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := sink.New(sink.Config{})
	go s.Serve(socket)
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(socket.Addr().String())
	return s, port
}

const rerouteWorld = `
	defaults { smtp_port = PORT }
	source "out" { address = "127.0.0.1" }
	source "spare" { address = "127.0.0.2" }
	pool "default" { shared = ["out"] }
	BACKUP
	domain "smart.internal" { route = ["smtp://127.0.0.1:SMART"] }
	domain "down.example" { route = ["smtp://127.0.0.1:1"] }`

const backupPool = `pool "backup" { shared = ["spare"] }
	tenant "other" { pool = "backup" }`

// TestRerouteByPoolAndRoute: what a suspended source keeps leaves from another pool, though its tenant may not name it;
// what has a route that leads nowhere leaves by a smarthost. Lists and explanations say so.
func TestRerouteByPoolAndRoute(t *testing.T) {
	smart, port := smarthost(t)
	w := newWorld(t, sink.Config{}, strings.NewReplacer("BACKUP", backupPool, "SMART", port).Replace(rerouteWorld))
	client := w.api.Queue
	change := func(c api.Change) (api.Changed, error) {
		c.Action = api.Reroute
		return client.Change(t.Context(), c)
	}
	w.delivery.Suspend("mx.box.example", "out", "they refuse us", time.Now().Add(time.Hour))
	id := w.accepted("", "bob@box.example", time.Time{}).String()
	w.until("it waits", func() bool {
		it, err := client.Get(t.Context(), id)
		return err == nil && it.Recipients[0].State == api.StateWaiting
	})
	if _, err := change(api.Change{Filter: api.Filter{Domain: "box.example"}, Reroutes: api.Reroutes{Pool: "bakcup"}}); !api.IsNotFound(err) || api.Hint(err) != `did you mean "backup"?` {
		t.Errorf("a pool that is none: %v, %q", err, api.Hint(err))
	}
	if _, err := change(api.Change{Filter: api.Filter{Domain: "box.example"}, Reroutes: api.Reroutes{Route: "box.example"}}); !api.IsNotFound(err) {
		t.Errorf("a domain without a route: %v", err)
	}
	byPool := api.Change{Filter: api.Filter{Domain: "box.example"}, Reroutes: api.Reroutes{Pool: "backup"}, Intent: api.Intent{DryRun: true}}
	if done, err := change(byPool); err != nil || done.Recipients != 1 {
		t.Fatalf("dry run: %+v, %v", done, err)
	}
	byPool.DryRun = false
	if done, err := change(byPool); err != nil || done.Recipients != 1 || done.Later != 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	if rec := w.await("bob@box.example", "Delivery"); rec.EgressPool != "backup" || rec.EgressSource != "spare" {
		t.Errorf("left from %s of %s", rec.EgressSource, rec.EgressPool)
	}
	down := w.accepted("", "carl@down.example", time.Time{}).String()
	w.await("carl@down.example", "TransientFailure")
	if done, err := change(api.Change{Filter: api.Filter{IDs: []string{down}}, Reroutes: api.Reroutes{Route: "Smart.internal"}}); err != nil || done.Recipients != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if rec := w.await("carl@down.example", "Delivery"); rec.EgressPool != "default" || rec.EgressSource != "out" {
		t.Errorf("left from %s of %s", rec.EgressSource, rec.EgressPool)
	}
	if n := smart.Stats().Messages; n != 1 {
		t.Errorf("the smarthost took %d messages, want 1", n)
	}
}

// TestRerouteAfterAReload: a pool that the configuration has no more is no obstacle: mail leaves from its own again, and
// the explanation says why.
func TestRerouteAfterAReload(t *testing.T) {
	w := newWorld(t, sink.Config{}, strings.NewReplacer("BACKUP", backupPool, "SMART", "1").Replace(rerouteWorld))
	for _, source := range []string{"out", "spare"} {
		w.delivery.Suspend("mx.box.example", source, "a test", time.Now().Add(time.Hour))
	}
	id := w.accepted("", "bob@box.example", time.Time{}).String()
	c := api.Change{Action: api.Reroute, Filter: api.Filter{IDs: []string{id}}, Reroutes: api.Reroutes{Pool: "backup"}}
	if done, err := w.api.Queue.Change(t.Context(), c); err != nil || done.Recipients != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	explained := func() (api.ExplainedRecipient, string) {
		ex, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return ex.Message.Recipients[0], ex.Destinations[0].Pool
	}
	if rc, pool := explained(); rc.Status.Rerouted == nil || rc.Status.Rerouted.Note != "" || pool != "backup" || !strings.HasSuffix(rc.Why, "; it is rerouted by pool backup") {
		t.Errorf("%+v from %s: %s", rc.Status.Rerouted, pool, rc.Why)
	}
	w.rewrite("other", fmt.Sprintf("resolver { servers = [%q] }\n", w.cfg.Resolver.Servers[0])+strings.NewReplacer("BACKUP", "", "SMART", "1", "PORT", w.port).Replace(rerouteWorld))
	if _, err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rc, pool := explained(); rc.Status.Rerouted == nil || pool != "default" || !strings.Contains(rc.Why, "the configuration has no pool backup any more: it leaves from its own") {
		t.Errorf("%+v from %s: %s", rc.Status.Rerouted, pool, rc.Why)
	}
	w.delivery.Resume("mx.box.example")
	if rec := w.await("bob@box.example", "Delivery"); rec.EgressPool != "default" || rec.EgressSource != "out" {
		t.Errorf("left from %s of %s", rec.EgressSource, rec.EgressPool)
	}
}
