package control_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/control"
	"example.org/mta/mta/control/controltest"
)

func TestSuppressions(t *testing.T) {
	r := controltest.Sample(now)
	r.Suppressed = nil
	c, ctx := serve(t, r), context.Background()
	if l, err := c.Suppressions(ctx, control.SuppressionFilter{}, "", 0); err != nil || l.Suppressions == nil || len(l.Suppressions) != 0 {
		t.Errorf("an empty list: %+v, %v", l, err)
	}
	done, err := c.Suppress(ctx, control.Suppress{Suppressions: []control.Suppression{
		{Address: "a@box.example"},
		{Address: "b@box.example", Tenant: "acme", Reason: "asked us to", Source: control.SuppressedByImport, Added: now.Add(-time.Hour), Expires: now.Add(time.Hour)},
		{Address: "c@other.example", Tenant: "a:b&c", Source: control.SuppressedByBounce},
	}})
	if err != nil || !reflect.DeepEqual(done, control.Suppressed{Effect: control.Effect{Count: 3}, Added: 3}) {
		t.Fatalf("added %+v, %v", done, err)
	}
	if e := r.Suppressed[0]; e.Source != control.SuppressedByOperator || !e.Added.Equal(now) {
		t.Errorf("what was left out became %+v", e)
	}
	acme, nobody := "acme", ""
	for _, test := range []struct {
		f    control.SuppressionFilter
		want int
	}{
		{control.SuppressionFilter{}, 3}, {control.SuppressionFilter{Tenant: &acme}, 1}, {control.SuppressionFilter{Tenant: &nobody}, 1},
		{control.SuppressionFilter{Domain: "box.example"}, 2}, {control.SuppressionFilter{Source: control.SuppressedByBounce}, 1},
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
	if l, err := c.CheckSuppressed(ctx, control.SuppressedAddresses{Addresses: []string{"a@box.example", "b@box.example"}, Tenant: &acme}); err != nil || len(l.Suppressions) != 2 {
		t.Errorf("checked %+v, %v", l, err)
	}
	if done, err := c.Unsuppress(ctx, control.Unsuppress{SuppressedAddresses: control.SuppressedAddresses{Addresses: []string{"a@box.example", "c@other.example", "x@box.example"}}}); err != nil || done.Removed != 2 {
		t.Errorf("removed %+v, %v", done, err)
	}
	add := func(s control.Suppression) error {
		_, err := c.Suppress(ctx, control.Suppress{Suppressions: []control.Suppression{s}})
		return err
	}
	for want, err := range map[string]error{
		"address":    add(control.Suppression{Address: "nobody"}),
		"null":       add(control.Suppression{}),
		"can't be":   add(control.Suppression{Address: "PostMaster@box.example"}),
		"source":     add(control.Suppression{Address: "a@box.example", Source: "hearsay"}),
		"control":    add(control.Suppression{Address: "a@box.example", Reason: "x\ny"}),
		"has passed": add(control.Suppression{Address: "a@box.example", Expires: now}),
		"1 to 2000":  second(c.Suppress(ctx, control.Suppress{})),
		"want 1":     second(c.Unsuppress(ctx, control.Unsuppress{})),
		"\"b\"":      second(c.CheckSuppressed(ctx, control.SuppressedAddresses{Addresses: []string{"b"}})),
		"bounce, re": second(c.Suppressions(ctx, control.SuppressionFilter{Source: "hearsay"}, "", 0)),
	} {
		refused := (*control.Error)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Message, want) && want != "null" {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestSelectedSuppressions(t *testing.T) {
	r := controltest.Sample(now)
	c, ctx := serve(t, r), context.Background()
	big := control.SuppressionFilter{Provider: "big", Source: control.SuppressedByBounce}
	if l, err := c.Suppressions(ctx, control.SuppressionFilter{Since: now.Add(-30 * time.Hour)}, "", 0); err != nil || len(l.Suppressions) != 2 {
		t.Errorf("since: %+v, %v", l, err)
	}
	for _, dry := range []bool{true, false} {
		if done, err := c.UnsuppressMatching(ctx, control.SuppressionSelection{SuppressionFilter: big, Intent: control.Intent{DryRun: dry}}); err != nil || done.Removed != 1 {
			t.Errorf("dry run %v: removed %+v, %v", dry, done, err)
		}
	}
	if l, err := c.Suppressions(ctx, big, "", 0); err != nil || len(l.Suppressions) != 0 {
		t.Errorf("afterwards %+v, %v", l, err)
	}
	l, err := c.PendingSuppressions(ctx, control.SuppressionFilter{Provider: "huge"}, "", 0)
	if err != nil || len(l.Suppressions) != 2 || len(l.Providers) != 1 || l.Providers[0].Unknown != 480 {
		t.Errorf("pending: %+v, %v", l, err)
	}
	if l, err := c.PendingSuppressions(ctx, control.SuppressionFilter{Provider: "other"}, "", 0); err != nil || l.Suppressions == nil || l.Providers == nil || len(l.Suppressions) != 0 {
		t.Errorf("pending of another: %+v, %v", l, err)
	}
	acme := "acme"
	late := control.SuppressionSelection{SuppressionFilter: control.SuppressionFilter{Tenant: &acme, Since: now.Add(-150 * time.Minute)}}
	if done, err := c.AcceptPending(ctx, late); err != nil || done.Entries != 1 {
		t.Errorf("accepted %+v, %v", done, err)
	}
	if done, err := c.DropPending(ctx, control.SuppressionSelection{}); err != nil || done.Entries != 1 {
		t.Errorf("dropped %+v, %v", done, err)
	}
	for want, err := range map[string]error{
		"all entries": second(c.UnsuppressMatching(ctx, control.SuppressionSelection{SuppressionFilter: control.SuppressionFilter{Tenant: &acme}})),
		"bounce, re":  second(c.DropPending(ctx, control.SuppressionSelection{SuppressionFilter: control.SuppressionFilter{Source: "hearsay"}})),
	} {
		refused := (*control.Error)(nil)
		if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(refused.Message, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
