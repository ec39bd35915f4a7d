package blocks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/dispatch/weights"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// A page goes on where the one before has ended, in both orders, and all come once.
func TestCutTakesAllRowsOnce(t *testing.T) {
	var rows []row[string]
	for i := range 25 {
		name := fmt.Sprintf("b%02d", i)
		rows = append(rows, row[string]{name, name, i % 4})
	}
	rows = append(rows, row[string]{"", "", 2}) // of nobody in particular
	for _, order := range api.SiteOrders {
		var all []string
		for after, first := "", true; after != "" || first; first = false {
			var page []string
			page, after = cut(rows, &api.BlockFilter{Order: order, Paging: api.Paging{After: after, Limit: 4}})
			all = append(all, page...)
		}
		if len(all) != len(rows) {
			t.Errorf("by %s %d rows come, want %d", order, len(all), len(rows))
		}
		if order == api.BySize && (rows[0].size != 3 || rows[len(rows)-1].size != 0) {
			t.Errorf("by size the first has %d, the last %d", rows[0].size, rows[len(rows)-1].size)
		}
		if order == api.ByName && !slices.IsSorted(all) {
			t.Errorf("by name they come as %q", all)
		}
	}
}

// TestTwoNodesTakeOutAPool: commands at two nodes that cross leave a pool without a source, which the later one reports.
func TestTwoNodesTakeOutAPool(t *testing.T) {
	w, err := weights.Read(t.TempDir(), time.Now(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.Where = " at node 1"
	cfg, err := config.Parse([]byte(`
		source "a" { ehlo = "a.example" }
		source "b" { ehlo = "b.example" }
		pool "p" { shared = ["a", "b"] }`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	other, behind := "", ""
	b := Blocks{Config: func() *config.Config { return cfg }, Now: time.Now, Weights: w,
		Missing: func(string) bool { return false },
		Behind: func(context.Context) string {
			if other != "" {
				if err := w.Set(api.Weight{Pool: "p", Source: other}); err != nil {
					t.Error(err)
				}
			}
			return behind
		}}
	set := func(source string, n int) api.WeightChanged {
		t.Helper()
		done, err := b.SetWeight(t.Context(), "p", api.SetWeight{Source: source, Weight: n})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if done := set("a", 0); done.Behind != "" || !strings.HasSuffix(done.By, " at node 1") {
		t.Errorf("%+v", done)
	}
	other, behind = "b", "node 2 is behind"
	if done := set("a", 0); done.Behind != behind {
		t.Errorf("%+v", done)
	}
	if err := w.End("p", "b"); err != nil {
		t.Fatal(err)
	}
	behind = ""
	if done := set("a", 0); !strings.Contains(done.Behind, "no source for new mail") {
		t.Errorf("%+v", done)
	}
}
