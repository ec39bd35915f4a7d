package mta

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/format"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// TestReleasedFormats opens the data directory of each released format, as testdata/formats/make.sh has made it: all in it
// is known, its mail is delivered, the release can be put back, and after the end of the upgrade that is refused.
func TestReleasedFormats(t *testing.T) {
	releases, err := os.ReadDir("testdata/formats")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, release := range releases {
		if release.IsDir() {
			found++
			t.Run(release.Name(), func(t *testing.T) { opensRelease(t, filepath.Join("testdata/formats", release.Name())) })
		}
	}
	if found == 0 {
		t.Error("there is none")
	}
}

func opensRelease(t *testing.T, dir string) {
	w := newWorldWith(t, version("9.0.0", nil), sink.Config{}, `
		tenant "acme" { pool = "acme" }
		source "shared-1" { address = "127.0.0.1" }
		source "acme-1" { address = "127.0.0.2" }
		pool "acme" {
		  dedicated "acme-1" { plan = "fast" }
		}
		plan "fast" {
		  stage {
		    hourly = 1000000
		    daily  = 10000000
		  }
		  stage {
		    hourly = 2000000
		    daily  = 20000000
		  }
		}
		defaults {
		  max_age       = "36500d" # the mail is as old as the release
		  delay_warning = "0s"
		}
		domain "*" { route = ["smtp://127.0.0.1:PORT"] }
	`, func(cfg *config.Config) {
		if err := os.CopyFS(cfg.DataDir, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	})
	if s := w.queue.Stats(); s.Queued != 4 || s.DamagedRecords != 0 {
		t.Fatalf("%d recipients are queued, and %d records damaged", s.Queued, s.DamagedRecords)
	}
	for _, tenant := range []string{"acme", "other"} { // an entry of the tenant's, and one for all
		if _, listed := w.suppression.Match(tenant, "gone@box.example"); !listed {
			t.Errorf("the suppression of tenant %q is lost", tenant)
		}
	}
	rec := w.await("delivered@box.example", "Delivery")
	if rec.Tenant != "acme" {
		t.Errorf("the accounting record is %+v", rec)
	}
	if !w.rules.Has(rules.Key(api.Selection{Domain: "due.example"})) {
		t.Error("the pause is lost")
	}

	list, err := w.queue.List(queue.Filter{Domain: "box.example"}, queue.Page{Limit: 10})
	if err != nil || len(list.Items) != 1 || list.Items[0].Release.Year() < 2036 {
		t.Fatalf("%+v, %v", list.Items, err)
	}
	if n, err := w.queue.Change(queue.Selector{Filter: queue.Filter{States: []queue.State{queue.StateHeld}}}, queue.Unhold, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := w.queue.Change(queue.Selector{Filter: queue.Filter{Domain: "later.example"}}, queue.RetryNow, false); err != nil {
		t.Fatal(err)
	}
	w.arrived(2)
	if _, err := w.rules.End(1); err != nil {
		t.Fatal(err)
	}
	arrived := map[string]bool{}
	for _, m := range w.arrived(3) {
		arrived[m.Recipients[0]] = true
	}
	want := []string{"deferred@later.example", "due@due.example", "held@later.example"}
	if got := slices.Sorted(maps.Keys(arrived)); !slices.Equal(got, want) {
		t.Errorf("arrived for %v, want %v", got, want)
	}

	if s, known := w.warm.Controller().Status("127.0.0.2"); !known || s.Started.Sub(rec.Time).Abs() > time.Hour {
		t.Errorf("the warm-up is not known: %+v", s)
	}
	goesBack(w, list.Items[0].ID)
}

// goesBack puts the release back on its directory, and upgrades again.
func goesBack(w *world, kept envelope.ID) {
	w.t.Helper()
	has := func(program string) {
		w.t.Helper()
		if _, err := w.queue.Get(kept); err != nil || w.queue.Stats().Queued != 1 {
			w.t.Errorf("%s: %v, and %d recipients are queued", program, err, w.queue.Stats().Queued)
		}
	}
	if u, err := w.data.Upgrade(w.t.Context()); err != nil || u.Pending != (w.data.Formats().Pending() != "") {
		w.t.Errorf("%+v, %v", u, err)
	}
	w.restart(version("8.0.0", before))
	has("the release")
	w.restart(version("9.0.0", nil))
	if _, err := w.data.FinishUpgrade(w.t.Context(), api.FinishUpgrade{}); err != nil {
		w.t.Fatal(err)
	}
	w.restart(version("9.0.0", nil))
	has("the newest program")
	if err := w.stop(); err != nil {
		w.t.Fatal(err)
	}
	if _, err := New(w.cfg, version("8.0.0", before)); !errors.Is(err, format.ErrRefused) {
		w.t.Errorf("the release, after the upgrade: %v", err)
	}
}
