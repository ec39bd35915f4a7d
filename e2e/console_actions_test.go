package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"example.org/mta/operator/api"
)

// client is the API of a relay, for the length of the test.
func (r *relay) client(t *testing.T) *api.Client {
	t.Helper()
	c := api.NewClient(r.dir + "/data/control.sock")
	t.Cleanup(c.Close)
	return c
}

// deed is an action carried out in the browser.
type deed struct {
	page   string
	action string
	form   []string // names and values
	then   []string // of the form that the action shows first, where it has one
	// effect is looked at by the API.
	effect func(ctx context.Context, c *api.Client) (bool, error)
}

// deeds undo each other in pairs. id is a message that is deferred.
func deeds(id string) []deed {
	recipient := func(is func(api.RecipientStatus) bool) func(context.Context, *api.Client) (bool, error) {
		return func(ctx context.Context, c *api.Client) (bool, error) {
			m, err := api.OpShow.Call(ctx, c, api.None{}, id)
			return err == nil && is(m.Recipients[0]), err
		}
	}
	held := func(want bool) func(context.Context, *api.Client) (bool, error) {
		return recipient(func(r api.RecipientStatus) bool { return (r.State == api.StateHeld) == want })
	}
	by := func(pool string) func(context.Context, *api.Client) (bool, error) {
		return recipient(func(r api.RecipientStatus) bool {
			return pool == "" && r.Rerouted == nil || r.Rerouted != nil && r.Rerouted.Pool == pool
		})
	}
	paused := func(mail api.Selection, want bool) func(context.Context, *api.Client) (bool, error) {
		return func(ctx context.Context, c *api.Client) (bool, error) {
			l, err := api.OpRules.Call(ctx, c, api.None{})
			return slices.ContainsFunc(l.Rules, func(r api.Rule) bool { return r.Selection == mail }) == want, err
		}
	}
	suspended := func(want bool) func(context.Context, *api.Client) (bool, error) {
		return func(ctx context.Context, c *api.Client) (bool, error) {
			l, err := api.OpSites.Call(ctx, c, api.SiteFilter{Suspended: true, Names: []string{"mx.bad.example"}, Paging: api.Paging{Limit: 1}})
			return (len(l.Sites) == 1) == want, err
		}
	}
	weighs := func(want int) func(context.Context, *api.Client) (bool, error) {
		return func(ctx context.Context, c *api.Client) (bool, error) {
			l, err := api.OpPools.Call(ctx, c, api.UnpooledFilter{BlockFilter: api.BlockFilter{Names: []string{"backup"}}})
			return len(l.Pools) == 1 && l.Pools[0].Weights["out-2"] == want, err
		}
	}
	suppressed := func(want bool) func(context.Context, *api.Client) (bool, error) {
		return func(ctx context.Context, c *api.Client) (bool, error) {
			l, err := api.OpCheckSuppressed.Call(ctx, c, api.SuppressedAddresses{Addresses: []string{"nobody@good.example"}})
			return (len(l.Suppressions) == 1) == want, err
		}
	}
	warming := func(want string) func(context.Context, *api.Client) (bool, error) {
		return func(ctx context.Context, c *api.Client) (bool, error) {
			w, err := api.OpWarmup.Call(ctx, c, api.None{}, "new-1")
			return w.State == want, err
		}
	}
	host := func(is func(api.Host) bool) func(context.Context, *api.Client) (bool, error) {
		return func(ctx context.Context, c *api.Client) (bool, error) {
			l, err := api.OpHosts.Call(ctx, c, api.HostFilter{Names: []string{"mx.bad.example"}, Paging: api.Paging{Limit: 2}})
			return len(l.Hosts) == 1 && is(l.Hosts[0]), err
		}
	}
	hostSuspended := func(want bool) func(context.Context, *api.Client) (bool, error) {
		return host(func(h api.Host) bool { return (len(h.Actions) > 0) == want })
	}
	message, site := "/messages/"+id, "/site?name=mx.bad.example"
	return []deed{
		{"/queue", "/queue/hold", []string{"id", id}, nil, held(true)},
		{message, "/queue/release", []string{"id", id}, nil, held(false)},
		{message, "/queue/reroute", []string{"id", id}, []string{"pool", "backup"}, by("backup")},
		{message, "/queue/reroute", []string{"id", id}, []string{"own", "true"}, by("")},
		{message, "/queue/retry", []string{"id", id}, nil, recipient(func(r api.RecipientStatus) bool { return r.Attempts > 1 })},
		{"/tenants", "/rules/pause", []string{"action", "suspend", "tenant", "acme"}, nil, paused(api.Selection{Tenant: "acme"}, true)},
		{"/tenants", "/rules/resume", []string{"action", "suspend", "tenant", "acme"}, nil, paused(api.Selection{Tenant: "acme"}, false)},
		{"/sources", "/rules/pause", []string{"action", "suspend", "source", "out-2"}, nil, paused(api.Selection{Source: "out-2"}, true)},
		{"/rules", "/rules/end", []string{"id", "4"}, nil, paused(api.Selection{Source: "out-2"}, false)},
		{"/pools", "/rules/pause", []string{"action", "suspend", "pool", "backup"}, nil, paused(api.Selection{Pool: "backup"}, true)},
		{"/pools", "/rules/resume", []string{"action", "suspend", "pool", "backup"}, nil, paused(api.Selection{Pool: "backup"}, false)},
		{"/pools", "/pools/weight", []string{"pool", "backup"}, []string{"source", "out-2", "weight", "3"}, weighs(3)},
		{"/rules", "/rules/add", []string{"action", "suspend", "domain", "bad.example", "for", "1h"}, nil, paused(api.Selection{Domain: "bad.example"}, true)},
		{"/rules", "/rules/end", []string{"id", "6"}, nil, paused(api.Selection{Domain: "bad.example"}, false)},
		{"/hosts", "/hosts/suspend", []string{"host", "127.82.0.2", "for", "1h"}, nil, hostSuspended(true)},
		{"/hosts", "/hosts/resume", []string{"host", "127.82.0.2"}, nil, hostSuspended(false)},
		{"/hosts", "/hosts/forget", []string{"host", "127.82.0.2"}, nil, host(func(h api.Host) bool { return h.Broken == nil })},
		{site, "/sites/suspend", []string{"site", "mx.bad.example", "source", "out-1", "for", "1h"}, nil, suspended(true)},
		{site, "/sites/resume", []string{"site", "mx.bad.example"}, nil, suspended(false)},
		{"/suppression", "/suppression/add", []string{"addresses", "nobody@good.example"}, nil, suppressed(true)},
		{"/suppression", "/suppression/remove", []string{"addresses", "nobody@good.example"}, nil, suppressed(false)},
		{"/warm-up?source=new-1", "/warm-up/pause", []string{"source", "new-1"}, nil, warming(api.WarmupPaused)},
		{"/warm-up?source=new-1", "/warm-up/resume", []string{"source", "new-1"}, nil, warming(api.WarmupNormal)},
	}
}

// carryOut does each deed as an operator does: from the page through the count to the confirmation.
func (w *walk) carryOut(t *testing.T, r *relay) {
	t.Helper()
	c := r.client(t)
	list, err := api.OpList.Call(t.Context(), c, api.ListQuery{Filter: api.Filter{Recipient: "third@bad.example"}})
	if err != nil || len(list.Messages) != 1 {
		t.Fatalf("the message of the deeds: %+v, %v", list, err)
	}
	for _, d := range deeds(list.Messages[0].ID) {
		where := d.page + " " + d.action
		w.open(w.home + d.page)
		w.submit(d.action, d.form...)
		if d.then != nil {
			w.accessible(where + ", its form")
			w.submit(d.action, d.then...)
		}
		w.shows("Reason, for the audit")
		w.accessible(where + ", its confirmation")
		w.submit(d.action, "reason", "the walk")
		w.shows("Done")
		w.sound(where)
		eventually(t, patience, func() error {
			ok, err := d.effect(t.Context(), c)
			if err == nil && !ok {
				err = fmt.Errorf("%s %v has no effect", where, d.form)
			}
			return err
		})
	}
}

// submit presses the button of an action that is about what the form says: it fills in what can be, ticks what has the
// value, and finds by the rest the one among several buttons.
func (b *browser) submit(action string, form ...string) {
	b.t.Helper()
	fields, err := json.Marshal(form)
	if err != nil {
		b.t.Fatal(err)
	}
	status := b.leads(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
		const action = %q, form = %s, wanted = [];
		for (let i = 0; i < form.length; i += 2) wanted.push([form[i], form[i + 1]]);
		const fixed = (e) => e.type === "hidden" || e.type === "checkbox" || e.type === "submit";
		const found = [...document.querySelectorAll('main form[method="post"] button')].map((button) => ({button, fields: wanted.map(([name, value]) =>
			[...button.form.elements].find((e) => e.name === name && (fixed(e) ? e.value === value : true)))}))
			.find(({button, fields}) => new URL(button.getAttribute("formaction") || button.form.getAttribute("action"), location).pathname === action
				&& fields.every((e) => e) && fields.every((e) => e.type !== "submit" || e === button));
		if (!found) throw new Error("no button of " + action + " for " + form);
		found.fields.forEach((e, i) => {
			if (e.type === "checkbox") e.checked || e.click();
			else if (!fixed(e)) e.value = wanted[i][1];
		});
		found.button.form.requestSubmit(found.button);
	}`, action, fields)))
	if status != 200 {
		b.t.Errorf("%s %v: %d\n%s", action, form, status, b.text())
	}
}
