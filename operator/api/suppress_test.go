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
	if done, err := c.Unsuppress(ctx, api.Unsuppress{SuppressedAddresses: sample}); err != nil || done.Removed != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	if l, err := c.Suppressions(ctx, api.SuppressionFilter{}, "", 0); err != nil || l.Suppressions == nil || len(l.Suppressions) != 0 {
		t.Errorf("an empty list: %+v, %v", l, err)
	}
	done, err := c.Suppress(ctx, api.Suppress{Suppressions: []api.Suppression{
		{Address: "a@box.example"},
		{Address: "b@box.example", Tenant: "acme", Reason: "asked us to", Source: api.SuppressedByImport, Added: now.Add(-time.Hour), Expires: now.Add(time.Hour)},
		{Address: "c@other.example", Tenant: "a:b&c", Source: api.SuppressedByBounce},
	}})
	if err != nil || !reflect.DeepEqual(done, api.Suppressed{Effect: api.Effect{Count: 3}, Added: 3, UnknownTenants: []string{"a:b&c"}}) {
		t.Fatalf("added %+v, %v", done, err)
	}
	l, err := c.Suppressions(ctx, api.SuppressionFilter{}, "", 1)
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
			l, err := c.Suppressions(ctx, test.f, after, 1)
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
	if l, err := c.CheckSuppressed(ctx, api.SuppressedAddresses{Addresses: []string{"a@box.example", "b@box.example"}, Tenant: &acme}); err != nil || len(l.Suppressions) != 2 {
		t.Errorf("checked %+v, %v", l, err)
	}
	if done, err := c.Unsuppress(ctx, api.Unsuppress{SuppressedAddresses: api.SuppressedAddresses{Addresses: []string{"a@box.example", "c@other.example", "x@box.example"}}}); err != nil || done.Removed != 2 {
		t.Errorf("removed %+v, %v", done, err)
	}
	add := func(s api.Suppression) error {
		_, err := c.Suppress(ctx, api.Suppress{Suppressions: []api.Suppression{s}})
		return err
	}
	for want, err := range map[string]error{
		"address":    add(api.Suppression{Address: "nobody"}),
		"null":       add(api.Suppression{}),
		"can't be":   add(api.Suppression{Address: "PostMaster@box.example"}),
		"source":     add(api.Suppression{Address: "a@box.example", Source: "hearsay"}),
		"control":    add(api.Suppression{Address: "a@box.example", Reason: "x\ny"}),
		"has passed": add(api.Suppression{Address: "a@box.example", Expires: now}),
		"1 to 2000":  second(c.Suppress(ctx, api.Suppress{})),
		"want 1":     second(c.Unsuppress(ctx, api.Unsuppress{})),
		"\"b\"":      second(c.CheckSuppressed(ctx, api.SuppressedAddresses{Addresses: []string{"b"}})),
		"bounce, re": second(c.Suppressions(ctx, api.SuppressionFilter{Source: "hearsay"}, "", 0)),
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
	if l, err := c.Suppressions(ctx, api.SuppressionFilter{Since: now.Add(-30 * time.Hour)}, "", 0); err != nil || len(l.Suppressions) != 2 {
		t.Errorf("since: %+v, %v", l, err)
	}
	for _, dry := range []bool{true, false} {
		if done, err := c.UnsuppressMatching(ctx, api.SuppressionSelection{SuppressionFilter: big, Intent: api.Intent{DryRun: dry}}); err != nil || done.Removed != 1 {
			t.Errorf("dry run %v: removed %+v, %v", dry, done, err)
		}
	}
	if l, err := c.Suppressions(ctx, big, "", 0); err != nil || len(l.Suppressions) != 0 {
		t.Errorf("afterwards %+v, %v", l, err)
	}
	l, err := c.PendingSuppressions(ctx, api.SuppressionFilter{Provider: "huge"}, "", 0)
	if err != nil || len(l.Suppressions) != 2 || len(l.Providers) != 0 {
		t.Errorf("pending: %+v, %v", l, err)
	}
	if l, err := c.PendingSuppressions(ctx, api.SuppressionFilter{Provider: "other"}, "", 0); err != nil || l.Suppressions == nil || l.Providers == nil || len(l.Suppressions) != 0 {
		t.Errorf("pending of another: %+v, %v", l, err)
	}
	acme := "acme"
	late := api.SuppressionSelection{SuppressionFilter: api.SuppressionFilter{Tenant: &acme, Since: now.Add(-150 * time.Minute)}}
	if done, err := c.AcceptPending(ctx, late); err != nil || done.Entries != 1 {
		t.Errorf("accepted %+v, %v", done, err)
	}
	if done, err := c.DropPending(ctx, api.SuppressionSelection{}); err != nil || done.Entries != 1 {
		t.Errorf("dropped %+v, %v", done, err)
	}
	for want, err := range map[string]error{
		"all entries": second(c.UnsuppressMatching(ctx, api.SuppressionSelection{SuppressionFilter: api.SuppressionFilter{Tenant: &acme}})),
		"bounce, re":  second(c.DropPending(ctx, api.SuppressionSelection{SuppressionFilter: api.SuppressionFilter{Source: "hearsay"}})),
	} {
		refused := (*api.Error)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Message, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
