package api_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/mta/operator/api"
)

func TestSuppressions(t *testing.T) {
	c, ctx := open(t), context.Background()
	sample := api.SuppressedAddresses{Addresses: []string{"former@acme.example", "lea@grey.example", "gone@big.example"}}
	if done, err := api.OpUnsuppress.Call(ctx, c.Client, api.Unsuppress{SuppressedAddresses: sample}); err != nil || done.Removed != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	if l, err := api.OpSuppressions.Call(ctx, c.Client, api.SuppressionQuery{}); err != nil || l.Suppressions == nil || len(l.Suppressions) != 0 {
		t.Errorf("an empty list: %+v, %v", l, err)
	}
	done, err := api.OpSuppress.Call(ctx, c.Client, api.Suppress{Suppressions: []api.Suppression{
		{Address: "a@box.example"},
		{Address: "b@box.example", Tenant: "acme", Reason: "asked us to", Source: api.SuppressedByImport, Added: now.Add(-time.Hour), Expires: now.Add(time.Hour)},
		{Address: "c@other.example", Tenant: "a:b&c", Source: api.SuppressedByBounce},
	}})
	if err != nil || !reflect.DeepEqual(done, api.Suppressed{Effect: api.Effect{Count: 3}, Added: 3, UnknownTenants: []string{"a:b&c"}}) {
		t.Fatalf("added %+v, %v", done, err)
	}
	l, err := api.OpSuppressions.Call(ctx, c.Client, api.SuppressionQuery{Paging: api.Paging{Limit: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if e := l.Suppressions[0]; e.Source != api.SuppressedByOperator || !e.Added.Equal(now) {
		t.Errorf("what was left out became %+v", e)
	}
	acme, nobody := "acme", ""
	for _, test := range []struct {
		f    api.SuppressionFilter
		want int
	}{
		{api.SuppressionFilter{}, 3}, {api.SuppressionFilter{Tenant: &acme}, 1}, {api.SuppressionFilter{Tenant: &nobody}, 1},
		{api.SuppressionFilter{Domain: "box.example"}, 2}, {api.SuppressionFilter{Source: api.SuppressedByBounce}, 1},
	} {
		n := 0
		for after := ""; ; {
			l, err := api.OpSuppressions.Call(ctx, c.Client, api.SuppressionQuery{SuppressionFilter: test.f, Paging: api.Paging{After: after, Limit: 1}})
			if err != nil {
				t.Fatal(err)
			}
			n += len(l.Suppressions)
			if after = l.Next; after == "" {
				break
			}
		}
		if n != test.want {
			t.Errorf("%+v: %d, want %d", test.f, n, test.want)
		}
	}
	if l, err := api.OpCheckSuppressed.Call(ctx, c.Client, api.SuppressedAddresses{Addresses: []string{"a@box.example", "b@box.example"}, Tenant: &acme}); err != nil || len(l.Suppressions) != 2 {
		t.Errorf("checked %+v, %v", l, err)
	}
	if done, err := api.OpUnsuppress.Call(ctx, c.Client, api.Unsuppress{SuppressedAddresses: api.SuppressedAddresses{Addresses: []string{"a@box.example", "c@other.example", "x@box.example"}}}); err != nil || done.Removed != 2 {
		t.Errorf("removed %+v, %v", done, err)
	}
	add := func(s api.Suppression) error {
		_, err := api.OpSuppress.Call(ctx, c.Client, api.Suppress{Suppressions: []api.Suppression{s}})
		return err
	}
	for want, err := range map[string]error{
		"address":    add(api.Suppression{Address: "nobody"}),
		"null":       add(api.Suppression{}),
		"can't be":   add(api.Suppression{Address: "PostMaster@box.example"}),
		"source":     add(api.Suppression{Address: "a@box.example", Source: "hearsay"}),
		"control":    add(api.Suppression{Address: "a@box.example", Reason: "x\ny"}),
		"has passed": add(api.Suppression{Address: "a@box.example", Expires: now}),
		"1 to 2000":  second(api.OpSuppress.Call(ctx, c.Client, api.Suppress{})),
		"want 1":     second(api.OpUnsuppress.Call(ctx, c.Client, api.Unsuppress{})),
		"\"b\"":      second(api.OpCheckSuppressed.Call(ctx, c.Client, api.SuppressedAddresses{Addresses: []string{"b"}})),
		"bounce, re": second(api.OpSuppressions.Call(ctx, c.Client, api.SuppressionQuery{SuppressionFilter: api.SuppressionFilter{Source: "hearsay"}})),
	} {
		refused := (*api.Error)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Message, want) && want != "null" {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestSelectedSuppressions(t *testing.T) {
	c, ctx := open(t), context.Background()
	big := api.SuppressionFilter{Provider: "big", Source: api.SuppressedByBounce}
	if l, err := api.OpSuppressions.Call(ctx, c.Client, api.SuppressionQuery{SuppressionFilter: api.SuppressionFilter{Since: now.Add(-30 * time.Hour)}}); err != nil || len(l.Suppressions) != 2 {
		t.Errorf("since: %+v, %v", l, err)
	}
	for _, dry := range []bool{true, false} {
		if done, err := api.OpUnsuppressMatching.Call(ctx, c.Client, api.SuppressionSelection{SuppressionFilter: big, Intent: api.Intent{DryRun: dry}}); err != nil || done.Removed != 1 {
			t.Errorf("dry run %v: removed %+v, %v", dry, done, err)
		}
	}
	if l, err := api.OpSuppressions.Call(ctx, c.Client, api.SuppressionQuery{SuppressionFilter: big}); err != nil || len(l.Suppressions) != 0 {
		t.Errorf("afterwards %+v, %v", l, err)
	}
	l, err := api.OpPendingSuppressions.Call(ctx, c.Client, api.SuppressionQuery{SuppressionFilter: api.SuppressionFilter{Provider: "huge"}})
	if err != nil || len(l.Suppressions) != 2 || len(l.Providers) != 0 {
		t.Errorf("pending: %+v, %v", l, err)
	}
	if l, err := api.OpPendingSuppressions.Call(ctx, c.Client, api.SuppressionQuery{SuppressionFilter: api.SuppressionFilter{Provider: "other"}}); err != nil || l.Suppressions == nil || l.Providers == nil || len(l.Suppressions) != 0 {
		t.Errorf("pending of another: %+v, %v", l, err)
	}
	acme := "acme"
	late := api.SuppressionSelection{SuppressionFilter: api.SuppressionFilter{Tenant: &acme, Since: now.Add(-150 * time.Minute)}}
	if done, err := api.OpAcceptPending.Call(ctx, c.Client, late); err != nil || done.Entries != 1 {
		t.Errorf("accepted %+v, %v", done, err)
	}
	if done, err := api.OpDropPending.Call(ctx, c.Client, api.SuppressionSelection{}); err != nil || done.Entries != 1 {
		t.Errorf("dropped %+v, %v", done, err)
	}
	for want, err := range map[string]error{
		"all entries": second(api.OpUnsuppressMatching.Call(ctx, c.Client, api.SuppressionSelection{SuppressionFilter: api.SuppressionFilter{Tenant: &acme}})),
		"bounce, re":  second(api.OpDropPending.Call(ctx, c.Client, api.SuppressionSelection{SuppressionFilter: api.SuppressionFilter{Source: "hearsay"}})),
	} {
		refused := (*api.Error)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Message, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
