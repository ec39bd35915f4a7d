package mta

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/smallfile"
	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// TestPauses: of each kind, mail that is paused waits with its reason, over a restart too, other mail
// leaves, and the end of the pause lets it go.
func TestPauses(t *testing.T) {
	for _, test := range []struct {
		what       api.PauseWhat
		name       string
		paused     string // a recipient whose mail waits
		free       string // and one whose mail leaves, "" for none
		everything bool
	}{
		{api.PauseDomain, "box.example", "bob@box.example", "carl@client.example", false},
		{api.PauseTenant, "acme", "bob@box.example", "", false},
		{api.PausePool, "default", "bob@box.example", "", false},
		{api.PauseSource, "only", "bob@box.example", "", false},
		{api.PauseEverything, "", "bob@box.example", "", true},
	} {
		t.Run(string(test.what), func(t *testing.T) {
			w := newWorld(t, sink.Config{}, `
				defaults { smtp_port = PORT }
				source "only" { ehlo = "only.example" }
				tenant "acme" { tier = 1 }`)
			w.cfg.Listeners[0].Tenant = "acme"
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			w.start()
			ctx := t.Context()
			o := w.api.Pauses
			if _, err := o.BeginPause(ctx, api.BeginPause{What: test.what, Name: test.name, Reason: "for the test", By: "ann"}); err != nil {
				t.Fatal(err)
			}
			w.send("ann@sender.example", letter, test.paused)
			delivered := int64(0)
			if test.free != "" {
				w.send("ann@sender.example", letter, test.free)
				delivered = 1
				w.arrived(delivered)
			}
			w.saysPaused(test.paused)
			if err := w.stop(); err != nil {
				t.Fatal(err)
			}
			w.start()
			w.saysPaused(test.paused)
			var last api.Explanation
			w.until("explain counts it", func() bool { // which is on its way there for a moment after the start
				e, err := w.api.Destinations.Explain(ctx, api.ExplainQuery{Domain: "box.example", Tenant: "acme"})
				if err != nil || len(e.Destinations) == 0 {
					return false
				}
				last = e
				return e.Destinations[0].Queued.Paused == 1
			})
			if got := last.Destinations[0].Now; !strings.Contains(got, "paused by ann: for the test") {
				t.Errorf("explained as %q", got)
			}
			if q := last.Destinations[0].Queued; q.PausedBy != strings.TrimSpace(string(test.what)+" "+test.name) {
				t.Errorf("explained as %+v", q)
			}
			w.listsPaused(test.what)
			if p := w.Status().Paused; len(p) != 1 || p[0].What != test.what {
				t.Errorf("status %+v", p)
			}
			if on := w.pauses.Trouble() != ""; on != test.everything {
				t.Errorf("alarm %q", w.pauses.Trouble())
			}
			if n := len(w.recorder.Messages()); int64(n) != delivered {
				t.Fatalf("%d messages have left, want %d", n, delivered)
			}
			if _, err := w.api.Pauses.EndPause(ctx, api.EndPause{What: test.what, Name: test.name}); err != nil {
				t.Fatal(err)
			}
			w.arrived(delivered + 1)
		})
	}
}

// listsPaused checks that sources, pools and tenants say what is paused.
func (w *world) listsPaused(what api.PauseWhat) {
	w.t.Helper()
	ctx, b := w.t.Context(), w.api.Blocks
	sources, _ := b.Sources(ctx, api.BlockFilter{})
	pools, _ := b.Pools(ctx, api.UnpooledFilter{BlockFilter: api.BlockFilter{Names: []string{"default"}}})
	tenants, _ := b.Tenants(ctx, api.TenantFilter{BlockFilter: api.BlockFilter{Names: []string{"acme"}}})
	const reason = "paused by ann: for the test"
	for _, x := range []struct {
		name, why string
		want      bool
	}{
		{"source", sources.Sources[0].Reason, what == api.PauseSource || what == api.PauseEverything},
		{"pool", pools.Pools[0].Paused, what == api.PausePool || what == api.PauseEverything},
		{"tenant", tenants.Tenants[0].Paused, what == api.PauseTenant || what == api.PausePool || what == api.PauseEverything},
	} {
		if strings.HasSuffix(x.why, reason) != x.want {
			w.t.Errorf("pause of %s: the %s says %q", what, x.name, x.why)
		}
	}
	if state := sources.Sources[0].State; (state == api.SourcePaused) != (what == api.PauseSource || what == api.PauseEverything) {
		w.t.Errorf("pause of %s: the source is %s", what, state)
	}
}

// saysPaused waits until a recipient is listed as waiting, with the reason.
func (w *world) saysPaused(recipient string) {
	w.t.Helper()
	w.until(recipient+" waits for the pause", func() bool {
		l, err := w.api.Queue.List(w.t.Context(), api.ListQuery{Filter: api.Filter{Recipient: recipient}})
		if err != nil || len(l.Messages) != 1 {
			return false
		}
		r := l.Messages[0].Recipients[0]
		if r.State != api.StateWaiting || !strings.Contains(r.Doing, "paused by ann: for the test") || r.Site != "" {
			return false
		}
		for _, key := range w.queue.Summary(queue.Filter{}) { // it is shown as paused while its route is looked up, too
			if key.States[queue.StateParked] > 0 {
				return true
			}
		}
		return false
	})
}

// TestAPauseTakesWhatDeliveryHas, and ends by itself.
func TestAPauseTakesWhatDeliveryHas(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	w.delivery.Suspend("mx.box.example", "", "keeps it in delivery", time.Now().Add(time.Hour))
	w.send("ann@sender.example", letter, "bob@box.example")
	w.until("it is in delivery", func() bool {
		info, _ := w.delivery.Site("mx.box.example")
		return len(info.Lanes) > 0 && info.Lanes[0].Waiting == 1
	})
	pause := func(d time.Duration) {
		if err := w.pauses.Begin(api.Pause{What: api.PauseDomain, Name: "box.example", By: "ann", Reason: "for the test", Since: time.Now(), Until: time.Now().Add(d)}); err != nil {
			t.Fatal(err)
		}
	}
	pause(time.Hour)
	w.saysPaused("bob@box.example")
	w.delivery.Resume("mx.box.example")
	if n := len(w.recorder.Messages()); n != 0 {
		t.Fatal("it has left")
	}
	pause(time.Second)
	w.arrived(1)
	if p := w.pauses.List(); len(p) != 0 {
		t.Errorf("still paused: %+v", p)
	}
}

// TestPausedSourceLeavesTheOthers: mail takes another source of the pool.
func TestPausedSourceLeavesTheOthers(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "one" { ehlo = "one.example" }
		source "two" { ehlo = "two.example" }`)
	o := w.api.Pauses
	if _, err := o.BeginPause(t.Context(), api.BeginPause{What: api.PauseSource, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		w.send("ann@sender.example", letter, "bob@box.example")
	}
	for _, m := range w.arrived(8) {
		if m.Helo != "two.example" {
			t.Errorf("sent as %s", m.Helo)
		}
	}
	for _, b := range []api.BeginPause{{What: api.PauseSource, Name: "three"}, {What: api.PauseTenant, Name: "nobody"}, {What: api.PausePool, Name: "x"}, {What: api.PauseDomain, Name: "a b"}} {
		if _, err := o.BeginPause(t.Context(), b); err == nil {
			t.Errorf("%s %s was paused", b.What, b.Name)
		}
	}
}

// TestPausesThatCantBeRead: a second copy takes the place of the file. Without one everything is paused, since mail would
// be sent that somebody has stopped.
func TestPausesThatCantBeRead(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "pauses.json"), time.Unix(1e9, 0)
	read := func() []api.Pause {
		t.Helper()
		now = now.Add(time.Second)
		p, err := pauses.Read(filepath.Dir(path), func() time.Time { return now }, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return p.List()
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(); len(got) != 0 {
		t.Errorf("without a file: %+v", got)
	}
	write(path, `{"pauses": [{"what": "domain", "name": "box.example", "by": "ann"}]}`) // of a program without sums
	const domain, everything = api.PauseDomain, api.PauseEverything
	want := func(what api.PauseWhat, alarms int) {
		t.Helper()
		if got := read(); len(got) != 1 || got[0].What != what {
			t.Fatalf("in force: %+v, want %s", got, what)
		}
		if aside, _ := smallfile.Aside(filepath.Dir(path)); len(aside) != alarms {
			t.Fatalf("set aside: %v, want %d", aside, alarms)
		}
	}
	want(domain, 0)
	for i, text := range []string{"{", "{}", "null", `{"pauses": null}`, `{"pauses": [], "sum": "0"}`} {
		write(path, text)
		want(domain, i+1)
	}
	write(path+".copy", "{")
	want(domain, 6)
	os.Remove(path + ".copy") // as after a restore
	want(domain, 6)
	os.Remove(path)
	want(domain, 7)
	write(path+".copy", "{}")
	write(path, "{}")
	want(everything, 8)
	write(path, `{"pauses": []}`) // all ended by a program without sums
	if got := read(); len(got) != 0 {
		t.Errorf("in force: %+v", got)
	}
}
