package mta

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/mta/listen"
	"example.org/mta/operator/api"
)

// TestDrainOfARelay: what is queued is delivered, new mail is refused at every listener, those of a reload included,
// and a restart ends the drain.
func TestDrainOfARelay(t *testing.T) {
	w := newWorld(t, sink.Config{}, strings.Replace(inboundConfig, "FORWARD", "", 1)+apiKeysFile(t)+`api "web" { address = "127.0.0.1:0" }`)
	client := api.NewLocalClient(w.ControlHandler())
	ctx := api.WithReason(context.Background(), "kernel update")
	w.send("ann@client.example", "Subject: one\r\n\r\nx\r\n", "bob@box.example")
	path := w.arrived(1)[0].Sender
	w.await("bob@box.example", "Delivery")

	banner := func() string {
		c, err := net.Dial("tcp", w.listeners.Addresses(listen.SMTP)[0])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(limit))
		b := make([]byte, 4)
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if done, err := api.OpDrain.Call(ctx, client, api.Intent{DryRun: true}); err != nil || done.Count != 1 || banner() != "220 " {
		t.Fatalf("a dry run: %+v, %v", done, err)
	}
	// What is queued leaves.
	if _, err := api.OpAddRule.Call(ctx, client, api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{All: true}}); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", "Subject: two\r\n\r\nx\r\n", "bob@box.example")
	done, err := api.OpDrain.Call(ctx, client, api.Intent{})
	if err != nil || done.Count != 1 || done.Status.State != api.Draining || done.Status.Queue.Queued != 1 || !strings.Contains(done.Status.Reason, ": kernel update; ") {
		t.Fatalf("%+v, %v", done, err)
	}
	if _, err := api.OpEndRule.Call(ctx, client, api.EndRule{Action: api.RuleSuspend, Selection: api.Selection{All: true}}); err != nil {
		t.Fatal(err)
	}
	w.arrived(2)
	if got := banner(); got != "421 " {
		t.Errorf("drained: %s", got)
	}
	w.mustBring(path, lateBounce("bob@box.example", "5.1.1", "user unknown"))
	if resp := dialHTTP(t, w.Status().HTTP[0]).ask(); resp.StatusCode != 404 || !resp.Close {
		t.Errorf("by HTTP: %d, close %v", resp.StatusCode, resp.Close)
	}
	if code, _ := ask(t, w.Relay, "/readyz"); code != 503 {
		t.Errorf("ready: %d", code)
	}
	p, err := api.OpActions.Call(ctx, client, api.ActionQuery{Limit: 10})
	if err != nil || len(p.Actions) != 3 || p.Actions[1].Action != "drain" || p.Actions[1].Reason != "kernel update" {
		t.Errorf("on record: %+v, %v", p.Actions, err)
	}

	w.rewrite("drain", `listener "smtp" {
		address         = "127.0.0.1:0"
		max_connections = 77
	}`)
	if _, err := w.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	if got := banner(); got != "421 " {
		t.Errorf("after a reload: %s", got)
	}
	w.restart(Options{})
	if got := banner(); got != "220 " || w.Status().State != api.Running {
		t.Errorf("after a restart: %s, %s", got, w.Status().State)
	}
}
