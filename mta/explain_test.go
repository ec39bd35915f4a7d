package mta

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// acceptedSoFar numbers messages, as the recorder wants it.
var acceptedSoFar atomic.Int64

// enqueue puts n messages into the queue, past the listeners, and gives the id of the last.
func enqueue(t *testing.T, r *Relay, to string, n int) string {
	t.Helper()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		last envelope.ID
	)
	const writers = 50
	for w := range min(n, writers) {
		wg.Go(func() {
			for i := w; i < n; i += writers {
				m := &envelope.Message{Sender: "ann@client.example", Received: time.Now(), Recipients: []envelope.Recipient{{Address: envelope.Address(to)}}}
				d := r.queue.Begin()
				fmt.Fprintf(d, "Message-ID: <%d@client.example>\r\n%s", acceptedSoFar.Add(1), letter)
				if err := d.Commit(m); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				last = max(last, m.ID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return last.String()
}

// explained asks about a message again and again until fits says that it is as the test wants it.
func explained(t *testing.T, r *Relay, id string, fits func(*api.ExplainedRecipient) bool) api.Explanation {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for before := false; ; {
		e, err := r.api.Destinations.Explain(ctx, api.ExplainQuery{ID: id})
		now := err == nil && len(e.Message.Recipients) == 1 && fits(&e.Message.Recipients[0])
		if now && before {
			return e // where it goes is asked first, and could be a moment older the first time
		}
		before = now
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("message %s is not as it should be: %+v, %v", id, e.Message, err)
		}
	}
}

// says wants a state and words of the reason.
func says(state api.State, words string) func(*api.ExplainedRecipient) bool {
	return func(r *api.ExplainedRecipient) bool {
		return r.Status.State == state && strings.Contains(r.Why, words)
	}
}

func (w *world) explainDomain(domain string) api.Destination {
	w.t.Helper()
	e, err := w.api.Destinations.Explain(context.Background(), api.ExplainQuery{Domain: domain})
	if err != nil {
		w.t.Fatal(err)
	}
	return e.Destinations[0]
}

func TestExplainDue(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	r, err := New(w.cfg, Options{Log: slog.New(slog.DiscardHandler)}) // nobody takes from the queue before Run
	if err != nil {
		t.Fatal(err)
	}
	id := enqueue(t, r, "bob@box.example", 1)
	e := explained(t, r, id, says(api.StateDue, "it is due"))
	if d := e.Destinations[0]; d.Queued.Due != 1 || d.Queued.Unsorted != 0 || d.Site != "mx.box.example" || d.Now != "mail is sent without delay" {
		t.Errorf("destination %+v", d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestExplainParkedForABrokenHost: what waits for a host that is down is in the queue, and is no
// attempt; the reason is that host's, or that it is suspended.
func TestExplainParkedForABrokenHost(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = 1 }`) // where nobody listens
	enqueue(t, w.Relay, "bob@box.example", 1)
	w.await("bob@box.example", "TransientFailure")
	id := enqueue(t, w.Relay, "jim@box.example", 1)
	e := explained(t, w.Relay, id, says(api.StateWaiting, "no host of mx.box.example can be tried now: mx.box.example"))
	r := e.Message.Recipients[0]
	if r.Status.Attempts != 0 || !strings.Contains(r.Why, "connection refused") || time.Until(r.Until) < time.Second {
		t.Errorf("%+v", r)
	}
	d := w.api.Destinations
	if _, err := d.SuspendHosts(context.Background(), api.SuspendHosts{Hosts: []string{"mx.box.example"}, For: api.Age(time.Hour), Reason: "it loses mail"}); err != nil {
		t.Fatal(err)
	}
	e = explained(t, w.Relay, id, says(api.StateWaiting, "suspended: it loses mail"))
	if v := e.Destinations[0].Now; v != "no mail is sent: no host can be tried before its retry time: mx.box.example [127.0.0.1:1] is suspended: it loses mail" {
		t.Errorf("verdict %q", v)
	}
	list, err := w.api.Queue.List(context.Background(), api.ListQuery{Filter: api.Filter{State: api.StateWaiting}})
	if err != nil || len(list.Messages) != 1 || list.Messages[0].Recipients[0].Doing != "waits for mx.box.example: mx.box.example[127.0.0.1]:1: suspended: it loses mail" {
		t.Errorf("listed as %+v, %v", list, err)
	}
	if left := time.Until(e.Message.Recipients[0].Until); left < 59*time.Minute {
		t.Errorf("it is to wait for %v", left)
	}
	if hosts, err := d.Hosts(context.Background(), api.HostFilter{}); err != nil || len(hosts.Hosts) != 1 || len(hosts.Hosts[0].Actions) != 1 {
		t.Errorf("hosts %+v, %v", hosts, err)
	}
	sites, err := d.Sites(context.Background(), api.SiteFilter{})
	if err != nil || len(sites.Sites) != 1 || sites.Sites[0].Parked != 1 || !strings.Contains(sites.Sites[0].Why, "suspended") {
		t.Errorf("sites %+v, %v", sites, err)
	}
	if resumed, err := d.ResumeHosts(context.Background(), api.ResumeHosts{Hosts: []string{"127.0.0.1"}}); err != nil || resumed.Ended != 1 {
		t.Errorf("%+v, %v", resumed, err)
	}
}

// TestExplainThrottledAndParked: what delivery holds waits for the rate, and what it has no room for
// is parked behind that.
func TestExplainThrottledAndParked(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }
		domain "box.example" { max_message_rate = "1/h" }`)
	first := enqueue(t, w.Relay, "bob@box.example", 1)
	w.arrived(1)
	w.until("the first message is settled", func() bool { return w.queue.Stats().Queued == 0 }) // else it counts as waiting
	second := enqueue(t, w.Relay, "bob@box.example", 1)
	if first == second {
		t.Fatal("one id for two messages")
	}
	e := explained(t, w.Relay, second, says(api.StateWaiting, "waits in delivery for its turn at mx.box.example from source default: max_message_rate 1/h"))
	r := e.Message.Recipients[0]
	if left := time.Until(r.Until); left < time.Minute || left > time.Hour {
		t.Errorf("it waits until %v, want the rest of an hour", r.Until)
	}
	d := e.Destinations[0]
	if !strings.Contains(d.Now, "waits: max_message_rate 1/h of site mx.box.example") {
		t.Errorf("verdict %q", d.Now)
	}
	if got, want := d.Ceiling.PerSecond, 1./3600; got < want*.99 || got > want*1.01 || !strings.Contains(d.Ceiling.Binds, "max_message_rate 1/h of site mx.box.example") {
		t.Errorf("ceiling %+v, want one in an hour", d.Ceiling)
	}
	if l := limitNamed(d, "max_message_rate"); l.Value != "1/h" || !strings.HasPrefix(l.Origin, `domain "box.example" (test.conf:`) {
		t.Errorf("limit %+v, want the domain's block", l)
	}
	if l := limitNamed(d, "connection_limit"); l.Value != "10" || l.Origin != "default" {
		t.Errorf("limit %+v", l)
	}

	last := enqueue(t, w.Relay, "bob@box.example", 2500) // delivery holds 2,000
	e = explained(t, w.Relay, mostRecent(t, w.Relay, last), says(api.StateWaiting, "delivery already has as much mail as it takes for mx.box.example from default: max_message_rate"))
	d = e.Destinations[0]
	if len(d.Lanes) != 1 || d.Lanes[0].Waiting != 2000 {
		t.Errorf("lanes %+v, want 2000 waiting", d.Lanes)
	}
	sites, err := w.api.Destinations.Sites(context.Background(), api.SiteFilter{Busy: true})
	if err != nil || len(sites.Sites) != 1 || sites.Sites[0].Waiting != 2000 || sites.Sites[0].Parked == 0 || !strings.HasPrefix(sites.Sites[0].Why, "max_message_rate") {
		t.Errorf("sites %+v, %v", sites, err)
	}
}

// mostRecent waits until something is parked, and gives the id of one message that is.
func mostRecent(t *testing.T, r *Relay, id string) string {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(limit)
	for {
		l, err := r.queue.List(queue.Filter{States: []queue.State{queue.StateParked}}, queue.Page{Limit: 1, Order: queue.NewestFirst})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Items) == 1 {
			return l.Items[0].ID.String()
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("nothing is parked; the last message is %s", id)
		}
	}
}

func limitNamed(d api.Destination, name string) api.Limit {
	for _, l := range d.Limits {
		if l.Setting == name {
			return l
		}
	}
	return api.Limit{}
}

func TestExplainOnConnection(t *testing.T) {
	w := newWorld(t, sink.Config{Swallow: map[sink.Phase]float64{sink.Kept: 1}}, `defaults { smtp_port = PORT }
		shutdown { drain = "100ms" }`)
	id := enqueue(t, w.Relay, "bob@box.example", 1)
	onConnection := says(api.StateActive, "an attempt is in progress on a connection to mx.box.example[127.0.0.1]:")
	explained(t, w.Relay, id, onConnection)
	// Hosts are asked before messages, and the attempt can begin in between: ask once more.
	d := explained(t, w.Relay, id, onConnection).Destinations[0]
	if h := d.Hosts[0].Host; h.State != api.HostActive || h.Connections != 1 || h.Backlog != 1 || d.Connections != 1 {
		t.Errorf("host %+v, site has %d connections", h, d.Connections)
	}
	if d.Now != "mail is sent without delay" {
		t.Errorf("verdict %q", d.Now)
	}
}

func TestExplainDeferredAndHeld(t *testing.T) {
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{{Phase: sink.Rcpt, Reply: "450 4.2.1 not now"}}}, `defaults { smtp_port = PORT }`)
	id := enqueue(t, w.Relay, "bob@box.example", 1)
	e := explained(t, w.Relay, id, says(api.StateDeferred, "one attempt has failed"))
	r := e.Message.Recipients[0]
	if !r.Until.Equal(r.Status.Next) || time.Until(r.Until) < time.Minute || r.Status.Reply == nil || r.Status.Reply.Text != "not now" || r.Status.Attempts != 1 {
		t.Errorf("recipient %+v, reply %+v", r, r.Status.Reply)
	}
	if d := w.explainDomain("box.example"); d.Queued.Deferred != 1 {
		t.Errorf("queued %+v", d.Queued)
	}
	if _, err := w.api.Queue.Change(context.Background(), api.Change{Action: api.Hold, All: true}); err != nil {
		t.Fatal(err)
	}
	explained(t, w.Relay, id, says(api.StateHeld, "it is held"))
}

func TestExplainBrokenHosts(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = 1 }`) // nobody listens there
	id := enqueue(t, w.Relay, "bob@box.example", 1)
	explained(t, w.Relay, id, says(api.StateDeferred, "failed"))
	d := w.explainDomain("box.example")
	h := d.Hosts[0].Host
	if h.State != api.HostRetry || h.Broken == nil || !strings.Contains(h.Broken.Reply.Text, "refused") {
		t.Errorf("host %+v", h)
	}
	if !strings.HasPrefix(d.Now, "no mail is sent: no host can be tried before its retry time: mx.box.example [127.0.0.1:1] has failed: connect: ") || !d.Until.Equal(h.Broken.RetryAt) || d.Ceiling.PerSecond != 0 || d.Ceiling.Binds == "" {
		t.Errorf("verdict %q until %v, ceiling %+v", d.Now, d.Until, d.Ceiling)
	}
	hosts, err := w.api.Destinations.Hosts(context.Background(), api.HostFilter{State: api.HostRetry})
	if err != nil || len(hosts.Hosts) != 1 {
		t.Fatalf("hosts %+v, %v", hosts, err)
	}
	if done, err := w.api.Destinations.Forget(context.Background(), api.Forget{Hosts: []string{"127.0.0.1"}}); err != nil || done.Hosts != 1 {
		t.Errorf("forgot %+v, %v", done, err)
	}
	if d := w.explainDomain("box.example"); d.Now != "mail is sent without delay" {
		t.Errorf("after the host was forgotten: %q", d.Now)
	}
	if _, err := w.api.Destinations.Forget(context.Background(), api.Forget{Hosts: []string{"nobody.example"}}); !api.IsNotFound(err) {
		t.Errorf("forgetting nobody: %v", err)
	}
}

func TestExplainNoRoute(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	d := w.explainDomain("null.example")
	if d.Failure == nil || d.Failure.Code != 556 || !strings.HasPrefix(d.Now, "mail bounces") || d.Site != "" {
		t.Errorf("null MX: %+v", d)
	}
}

func TestSuspendedMailWaitsAndResumes(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	ctx, client := context.Background(), w.api.Destinations
	// By the name of a domain, before the site is known.
	done, err := client.Suspend(ctx, api.Suspend{Site: "box.example", For: api.Age(time.Hour), Reason: "they asked us to"})
	if err != nil || done.Site != "mx.box.example" {
		t.Fatalf("suspended %+v, %v", done, err)
	}
	id := enqueue(t, w.Relay, "bob@box.example", 1)
	e := explained(t, w.Relay, id, says(api.StateWaiting, "suspended: they asked us to"))
	if list, err := w.api.Queue.List(ctx, api.ListQuery{}); err != nil || !strings.HasSuffix(list.Messages[0].Recipients[0].Doing, ": suspended: they asked us to") {
		t.Errorf("listed as %+v, %v", list, err)
	}
	if r := e.Message.Recipients[0]; !r.Until.Equal(done.Until) {
		t.Errorf("until %v, want %v", r.Until, done.Until)
	}
	if d := e.Destinations[0]; d.Now != "no mail is sent: suspended (they asked us to)" || !d.Until.Equal(done.Until) || len(d.Actions) != 1 || d.Ceiling.Binds == "" {
		t.Errorf("destination %+v", d)
	}
	resumed, err := client.Resume(ctx, api.Resume{Site: "mx.box.example"})
	if err != nil || resumed.Ended != 1 {
		t.Fatalf("resumed %+v, %v", resumed, err)
	}
	w.arrived(1)
	if _, err := client.Suspend(ctx, api.Suspend{Site: "nobody.example", For: api.Age(time.Hour)}); !api.IsNotFound(err) {
		t.Errorf("suspending nobody: %v", err)
	}
	if _, err := client.Suspend(ctx, api.Suspend{Site: "box.example", Source: "nobody", For: api.Age(time.Hour)}); !api.IsNotFound(err) {
		t.Errorf("suspending from an unknown source: %v", err)
	}
}

// TestExplainKeepsToTheTenantsMail: what keeps another tenant's mail, or mail from sources that this one
// never takes, is not what is said of this one's.
func TestExplainKeepsToTheTenantsMail(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "shared" { ehlo = "shared.example" }
		source "own" { ehlo = "own.example" }
		pool "default" { shared = ["shared"] }
		pool "own" { shared = ["own"] }
		tenant "slow" { max_message_rate = "1/h" }
		tenant "fast" {}
		tenant "apart" { pool = "own" }`)
	w.cfg.Listeners[0].Tenant = "slow"
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	for range 2 {
		w.send("ann@client.example", letter, "bob@box.example")
	}
	w.until("one waits for the tenant's rate", func() bool {
		info, _ := w.delivery.Site("mx.box.example")
		settled := w.queue.Stats().Queued == 1 // the other one's record is synced first
		return settled && len(info.Lanes) == 1 && info.Lanes[0].Waiting == 1 && info.Lanes[0].Why != ""
	})
	for tenant, want := range map[string]string{
		"slow": "mail from source shared waits: max_message_rate 1/h of tenant slow", "fast": "mail is sent without delay", "apart": "mail is sent without delay",
	} {
		e, err := w.api.Destinations.Explain(t.Context(), api.ExplainQuery{Domain: "box.example", Tenant: tenant})
		if err != nil || !strings.HasPrefix(e.Destinations[0].Now, want) {
			t.Errorf("tenant %s: %q, want %q, %v", tenant, e.Destinations[0].Now, want, err)
		}
	}
	sites, err := w.api.Destinations.Sites(t.Context(), api.SiteFilter{Names: []string{"mx.box.example"}})
	if err != nil || len(sites.Sites) != 1 || sites.Sites[0].Waiting != 1 || sites.Sites[0].Queued != 1 {
		t.Errorf("sites %+v, %v", sites, err)
	}
}

// After a restart nothing may be known of a site any more; its mail is counted all the same.
func TestSitesAfterARestart(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = 1 }`) // nobody listens there
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	w.start()
	for _, f := range []api.SiteFilter{{}, {Busy: true}, {Names: []string{"mx.box.example"}}, {Names: []string{".example"}}} {
		l, err := w.api.Destinations.Sites(t.Context(), f)
		if err != nil || len(l.Sites) != 1 || l.Sites[0].Name != "mx.box.example" || l.Sites[0].Deferred != 1 {
			t.Errorf("%+v: %+v, %v", f, l.Sites, err)
		}
	}
	if l, err := w.api.Destinations.Sites(t.Context(), api.SiteFilter{Paging: api.Paging{After: "mx.box.example"}}); err != nil || len(l.Sites) != 0 {
		t.Errorf("behind it: %+v, %v", l.Sites, err)
	}
}
