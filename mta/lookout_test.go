package mta

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
)

// deaf is a host that takes connections and mail, and never answers the content.
func deaf(t *testing.T) (port string) {
	t.Helper()
	host := sink.New(sink.Config{Swallow: map[sink.Phase]float64{sink.Kept: 1}})
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go host.Serve(socket)
	t.Cleanup(host.Close)
	return socket.Addr().String()[len("127.0.0.1:"):]
}

// statesOf is a relay with mail that waits for all that mail can wait for, by recipient's domain.
func statesOf(t *testing.T) *world {
	far := deaf(t)
	w := newWorld(t, sink.Config{Refusals: []sink.Refusal{{Phase: sink.Rcpt, Prefix: "grey", Reply: "451 4.7.1 come back later"}}}, strings.ReplaceAll(`
		defaults { smtp_port = PORT }
		shutdown { drain = "100ms" }
		source "out" {}
		source "other" {}
		source "narrow" { connection_limit = 1 }
		pool "default" { shared = ["out"] }
		pool "other" { shared = ["other"] }
		pool "narrow" { shared = ["narrow"] }
		tenant "other" { pool = "other" }
		tenant "narrow" { pool = "narrow" }
		domain "rate.example" { max_message_rate = "1/h" }
		domain "deaf.example" { route = ["smtp://127.0.0.1:FAR"] }
		domain "down.example" { route = ["smtp://127.0.0.1:1"] }
	`, "FAR", far))
	for _, d := range []string{"retry", "held", "suspended", "source", "rate", "limit"} {
		if err := w.zone.Add(fmt.Sprintf("%s.example. MX 10 mx.%s.example.\nmx.%s.example. A 127.0.0.1\n", d, d, d)); err != nil {
			t.Fatal(err)
		}
	}
	w.zone.Fault("*.silent.example", sink.DNSFault{Drop: true})
	client, hour := w.api.Destinations, api.Age(time.Hour)
	for _, s := range []api.Suspend{
		{Site: "suspended.example", For: hour, Reason: "a test"}, {Site: "held.example", For: hour}, {Site: "source.example", Source: "other", For: hour, Reason: "a test"},
	} {
		if _, err := client.Suspend(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	w.accepted("", "bob@rate.example", time.Time{})
	w.arrived(1)
	w.accepted("", "bob@down.example", time.Time{})
	w.await("bob@down.example", "TransientFailure")
	return w
}

// accepted puts a tenant's message into the queue, and gives its id.
func (w *world) accepted(tenant, to string, release time.Time) envelope.ID {
	w.t.Helper()
	m := &envelope.Message{
		Sender: "ann@client.example", Tenant: tenant, Received: time.Now(), Release: release,
		Recipients: []envelope.Recipient{{Address: envelope.Address(to)}},
	}
	d := w.queue.Begin()
	fmt.Fprintf(d, "Message-ID: <%d@client.example>\r\n%s", acceptedSoFar.Add(1), letter)
	if err := d.Commit(m); err != nil {
		w.t.Fatal(err)
	}
	return m.ID
}

// TestEachViewSaysWhereMailIs: state, reason and next try of mail in each state, in every view.
func TestEachViewSaysWhereMailIs(t *testing.T) {
	w := statesOf(t)
	for _, x := range []struct {
		tenant, to string
		release    time.Duration
		state      api.State
		why, site  string
		next       time.Duration // at most; 0: not known
	}{
		{"", "bob@later.example", 2 * time.Hour, api.StateDeferred, "", "", 2 * time.Hour},
		{"", "grey@retry.example", 0, api.StateDeferred, "", "mx.retry.example", 24 * time.Hour},
		{"", "bob@a.silent.example", 0, api.StateWaiting, "the route of a.silent.example is being looked up", "a.silent.example", 0},
		{"", "bob@suspended.example", 0, api.StateWaiting, "waits for mx.suspended.example: suspended: a test", "mx.suspended.example", time.Hour},
		{"other", "bob@source.example", 0, api.StateWaiting, "waits for mx.source.example: suspended: a test", "mx.source.example", time.Hour},
		{"", "bob@rate.example", 0, api.StateWaiting, "waits for mx.rate.example: max_message_rate 1/h of site mx.rate.example", "mx.rate.example", time.Hour},
		{"", "bob@down.example", 0, api.StateWaiting, "waits for 127.0.0.1:1: ", "127.0.0.1:1", time.Hour},
		{"narrow", "bob@deaf.example", 0, api.StateActive, "in transit to 127.0.0.1", "", 0},
		{"narrow", "bob@limit.example", 0, api.StateWaiting, "waits for mx.limit.example: connection_limit of source narrow", "mx.limit.example", 0},
	} {
		release := time.Time{}
		if x.release > 0 {
			release = time.Now().Add(x.release)
		}
		id := w.accepted(x.tenant, x.to, release)
		var rc api.RecipientStatus
		fits := func() bool {
			it, err := w.api.Queue.Get(t.Context(), id.String())
			if err != nil {
				t.Fatalf("%s: %v", x.to, err)
			}
			rc = it.Recipients[0]
			return rc.State == x.state && strings.HasPrefix(rc.Doing, x.why) && (x.site == "" || rc.Site == x.site)
		}
		for give := time.Now().Add(limit); !fits(); time.Sleep(time.Millisecond) {
			if time.Now().After(give) {
				t.Errorf("%s is %s at %q: %s, want %s: %s", x.to, rc.State, rc.Site, rc.Doing, x.state, x.why)
				break
			}
		}
		if left := time.Until(rc.Next); x.next == 0 && !rc.Next.IsZero() || x.next > 0 && (left <= 0 || left > x.next+2*time.Second) {
			t.Errorf("%s is tried next in %v, want at most %v", x.to, left, x.next)
		}
		w.checkViews(id, x.state, &rc)
	}
}

// checkViews compares list, filters, summaries and explanation with what is shown of a message.
func (w *world) checkViews(id envelope.ID, state api.State, rc *api.RecipientStatus) {
	w.t.Helper()
	ctx, o := w.t.Context(), w.api.Queue
	for _, s := range api.States {
		list, err := o.List(ctx, api.ListQuery{Filter: api.Filter{State: s}, Page: api.Page{Limit: 100}})
		if err != nil {
			w.t.Fatal(err)
		}
		at := slices.IndexFunc(list.Messages, func(m api.Item) bool { return m.ID == id.String() })
		if (at >= 0) != (s == state) {
			w.t.Errorf("%s, which is %s: listed among what is %s: %v", rc.Address, state, s, at >= 0)
		}
		n := 0
		for _, m := range list.Messages {
			n += len(m.Recipients)
		}
		if sum, err := o.Summary(ctx, api.SummaryQuery{By: api.BySite, Filter: api.Filter{State: s}}); err != nil || sum.Total.Total != n {
			w.t.Errorf("%d recipients are %s in the summary, and %d in the list (%v)", sum.Total.Total, s, n, err)
		}
	}
	byState, err := o.Summary(ctx, api.SummaryQuery{By: api.ByState})
	if err != nil || !slices.ContainsFunc(byState.Rows, func(row api.SummaryRow) bool { return row.Key == string(state) && row.Total > 0 }) {
		w.t.Errorf("%s, which is %s, is not in the summary by state: %+v, %v", rc.Address, state, byState.Rows, err)
	}
	if sum, err := o.Summary(ctx, api.SummaryQuery{By: api.ByState, Filter: api.Filter{Recipient: rc.Address}}); err != nil || !slices.ContainsFunc(sum.Rows, func(row api.SummaryRow) bool { return row.Key == string(state) && row.Total > 0 }) {
		w.t.Errorf("%s, which is %s, is not in its summary by state: %+v, %v", rc.Address, state, sum.Rows, err)
	}
	for _, by := range api.SummaryBys {
		if sum, err := o.Summary(ctx, api.SummaryQuery{By: by}); err != nil || sum.Total.Total != byState.Total.Total || !sum.Exact || !sum.Complete {
			w.t.Errorf("by %s: %+v, %v, want %d in all", by, sum.Total, err, byState.Total.Total)
		}
	}
	if rc.Site != "" {
		list, err := o.List(ctx, api.ListQuery{Filter: api.Filter{Site: rc.Site}, Page: api.Page{Limit: 100}})
		if err != nil || !slices.ContainsFunc(list.Messages, func(m api.Item) bool { return m.ID == id.String() }) {
			w.t.Errorf("%s is not listed among the mail of %s (%v)", rc.Address, rc.Site, err)
		}
	}
	if strings.HasSuffix(rc.Address, ".silent.example") {
		return // the explanation looks it up, too, which takes its time
	}
	ex, err := w.api.Destinations.Explain(ctx, api.ExplainQuery{ID: id.String()})
	if err != nil || ex.Message.Recipients[0].Status.State != state {
		w.t.Errorf("%s is %s, and explained as %+v (%v)", rc.Address, state, ex.Message, err)
	}
}

// TestHeldAndGivenUp: an operator holds mail that delivery has taken up, and what is given up is no more
// active than that.
func TestHeldAndGivenUp(t *testing.T) {
	w := statesOf(t)
	o := w.api.Queue
	id := w.accepted("", "bob@held.example", time.Time{})
	w.until("with delivery", func() bool { return w.queue.Stats().Leased > 0 })
	if n, err := o.Change(t.Context(), api.Change{Action: api.Hold, Filter: api.Filter{IDs: []string{id.String()}}}); err != nil || n.Recipients != 1 {
		t.Fatalf("held %+v, %v", n, err)
	}
	w.until("held", func() bool {
		it, err := o.Get(t.Context(), id.String())
		return err == nil && it.Recipients[0].State == api.StateHeld
	})
}

// Mail that was deferred is not tried again before its site's suspension ends.
func TestDeferredMailOfASuspendedSite(t *testing.T) {
	w := statesOf(t)
	id := w.accepted("", "grey@retry.example", time.Time{})
	var rc api.RecipientStatus
	get := func() api.RecipientStatus {
		it, err := w.api.Queue.Get(t.Context(), id.String())
		if err != nil {
			t.Fatal(err)
		}
		return it.Recipients[0]
	}
	w.until("it is deferred", func() bool { rc = get(); return rc.State == api.StateDeferred })
	for _, x := range []struct {
		until time.Time
		next  time.Time
		doing string
	}{
		{rc.Next.Add(-time.Minute), rc.Next, ""},
		{rc.Next.Add(time.Hour), rc.Next.Add(time.Hour), "suspended: a test"},
	} {
		w.delivery.Suspend("mx.retry.example", "", "a test", x.until)
		if got := get(); got.State != api.StateDeferred || !got.Next.Equal(x.next) || got.Doing != x.doing {
			t.Errorf("%s: %q until %v, want %q until %v", got.State, got.Doing, got.Next, x.doing, x.next)
		}
	}
}
