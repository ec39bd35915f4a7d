package kept

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

// What an operator asks of the list, tenant by tenant and page by page.
func TestSuppressionsForTheOperator(t *testing.T) {
	ctx := t.Context()
	store, err := boltstore.Open(filepath.Join(t.TempDir(), "suppression.db"), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := suppression.Open(ctx, suppression.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	cfg, err := config.Parse([]byte(`tenant "acme" {}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	o := Suppressions{List: list, Config: func() *config.Config { return cfg }, Now: time.Now,
		Behind: func(context.Context) string { return "" }}
	var add api.Suppress
	for _, tenant := range []string{"", "acme", "a:b %"} {
		for _, address := range []string{"a@box.example", "b@bücher.example"} {
			add.Suppressions = append(add.Suppressions, api.Suppression{Address: address, Tenant: tenant, Source: api.SuppressedByImport, Added: time.Now()})
		}
	}
	for _, want := range []api.Suppressed{{Effect: api.Effect{Count: 6}, Added: 6}, {Unchanged: 6}, {Effect: api.Effect{Count: 1}, Changed: 1, Unchanged: 5}} {
		if want.Changed == 1 {
			add.Suppressions[0].Reason = "another"
		}
		want.UnknownTenants = []string{"a:b %"}
		if done, err := o.Suppress(ctx, add); err != nil || !reflect.DeepEqual(done, want) {
			t.Fatalf("added %+v, %v, want %+v", done, err, want)
		}
	}
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)) // in UTC the year 10000
	for _, e := range []api.Suppression{{Address: "a@b.example", Expires: late}, {Address: "a@b.example", Added: late}} {
		if done, err := o.Suppress(ctx, api.Suppress{Suppressions: []api.Suppression{e}}); err == nil {
			t.Errorf("added %+v: %+v", e, done)
		}
	}
	for _, f := range []api.SuppressionFilter{{}, {Domain: "BÜCHER.example"}} {
		var got []string
		for after := ""; ; {
			l, err := o.Suppressions(ctx, api.SuppressionQuery{SuppressionFilter: f, Paging: api.Paging{After: after, Limit: 1}})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range l.Suppressions {
				got = append(got, e.Tenant+"\x00"+e.Address)
			}
			if after = l.Next; after == "" {
				break
			}
		}
		if want := map[bool]int{true: 6, false: 3}[f.Domain == ""]; len(got) != want || !slices.IsSorted(got) {
			t.Errorf("%+v: %q", f, got)
		}
	}
	if _, err := o.Suppressions(ctx, api.SuppressionQuery{Paging: api.Paging{After: "no cursor"}}); err == nil {
		t.Error("what is no cursor was taken for one")
	}
	acme, other := "acme", "other"
	for _, c := range []struct {
		tenant *string
		want   int
	}{{nil, 3}, {&acme, 1}, {&other, 1}} {
		if l, err := o.CheckSuppressed(ctx, api.SuppressedAddresses{Addresses: []string{"A@box.example", "x@box.example"}, Tenant: c.tenant}); err != nil || len(l.Suppressions) != c.want {
			t.Errorf("checked: %+v, %v, want %d", l, err, c.want)
		}
	}
	for _, c := range []struct {
		tenant *string
		want   int
	}{{&other, 0}, {&acme, 1}, {nil, 2}} {
		if done, err := o.Unsuppress(ctx, api.Unsuppress{SuppressedAddresses: api.SuppressedAddresses{Addresses: []string{"a@box.example"}, Tenant: c.tenant}}); err != nil || done.Removed != c.want {
			t.Errorf("removed %+v, %v, want %d", done, err, c.want)
		}
	}
}

// A change returns when the other nodes of a cluster know of it, or with those that don't; what only counts waits for
// nobody, nor does a part of an import.
func TestSuppressionsAreKnownElsewhere(t *testing.T) {
	ctx := t.Context()
	store, err := boltstore.Open(filepath.Join(t.TempDir(), "suppression.db"), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := suppression.Open(ctx, suppression.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	o := Suppressions{List: list, Config: func() *config.Config { return new(config.Config) }, Now: time.Now,
		Behind: func(context.Context) string { return "node 2" }}
	add := func(n int, in api.Intent) api.Effect {
		s := api.Suppress{Intent: in}
		for i := range n {
			s.Suppressions = append(s.Suppressions,
				api.Suppression{Address: fmt.Sprintf("a%d@box.example", i), Source: api.SuppressedByImport, Added: time.Now()})
		}
		done, err := o.Suppress(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		return done.Effect
	}
	all := api.SuppressionSelection{SuppressionFilter: api.SuppressionFilter{Domain: "box.example"}}
	for _, step := range []struct {
		name string
		do   func() api.Effect
		want api.Effect
	}{
		{"a dry run", func() api.Effect { return add(2, api.Intent{DryRun: true}) }, api.Effect{Count: 2}},
		{"two", func() api.Effect { return add(2, api.Intent{}) }, api.Effect{Count: 2, Behind: "node 2"}},
		{"the same", func() api.Effect { return add(2, api.Intent{}) }, api.Effect{}},
		{"a part of an import", func() api.Effect { return add(awaited+1, api.Intent{}) }, api.Effect{Count: awaited - 1}},
		{"a removal", func() api.Effect {
			done, err := o.Unsuppress(ctx, api.Unsuppress{SuppressedAddresses: api.SuppressedAddresses{Addresses: []string{"a1@box.example"}}})
			if err != nil {
				t.Fatal(err)
			}
			return done.Effect
		}, api.Effect{Count: 1, Behind: "node 2"}},
		{"a removal of all", func() api.Effect {
			done, err := o.UnsuppressMatching(ctx, all)
			if err != nil {
				t.Fatal(err)
			}
			return done.Effect
		}, api.Effect{Count: awaited, Behind: "node 2"}},
	} {
		if got := step.do(); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
}
