package wiring

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
)

const limited = `
source "s" {
  connection_limit    = 200
  max_message_rate    = "300/s"
  max_connection_rate = "400/min"
}
tenant "acme" {
  max_message_rate            = "20/h"
  max_message_rate_per_source = "21/h"
}
defaults {
  connection_limit               = 10
  connection_limit_per_host      = 4
  connection_limit_per_source    = 5
  max_message_rate               = "60/s"
  max_connection_rate            = "61/s"
  max_message_rate_per_source    = "62/s"
  max_connection_rate_per_source = "63/s"
  host_retry_interval            = "2m"
  max_host_retry_interval        = "30m"
}
provider "big" {
  mx               = ["*.big.example"]
  connection_limit = 8
  max_message_rate = "70/s"
}
`

func TestLimitsReachDelivery(t *testing.T) {
	cfg, err := config.Parse([]byte(limited), "test.conf", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	scope := func(connections, messages, begun int, per time.Duration) delivery.Scope {
		s := delivery.Scope{Connections: connections}
		if messages > 0 {
			s.MessageRate = gcra.Rate{Events: messages, Per: per}
		}
		if begun > 0 {
			s.ConnectionRate = gcra.Rate{Events: begun, Per: per}
		}
		return s
	}
	of := func(provider, source, tenant string) delivery.Limits {
		return New(cfg).Limits(&route.Route{Domain: "x.example", Provider: provider}, source, tenant)
	}
	plain, all := of("", "gone", ""), of("big", "s", "acme")
	if plain.Source != (delivery.Scope{}) || plain.Tenant != (delivery.Scope{}) || plain.Provider != (delivery.Scope{}) {
		t.Errorf("without source, tenant and provider: %+v, %+v, %+v", plain.Source, plain.Tenant, plain.Provider)
	}
	source := scope(200, 300, 0, time.Second)
	source.ConnectionRate = gcra.Rate{Events: 400, Per: time.Minute}
	for _, x := range []struct {
		what      string
		got, want delivery.Scope
	}{
		{"host", plain.Host, scope(4, 0, 0, 0)},
		{"site", plain.Site, scope(10, 60, 61, time.Second)},
		{"path", plain.Path, scope(5, 62, 63, time.Second)},
		{"source", all.Source, source},
		{"tenant", all.Tenant, scope(0, 20, 0, time.Hour)},
		{"tenant from a source to a site", all.TenantPath, scope(0, 21, 0, time.Hour)},
		{"site of a provider", all.Site, scope(8, 70, 61, time.Second)},
		{"provider", all.Provider, scope(8, 70, 0, time.Second)},
	} {
		if x.got != x.want {
			t.Errorf("%s: got %+v, want %+v", x.what, x.got, x.want)
		}
	}
	if plain.HostRetry != 2*time.Minute || plain.MaxHostRetry != 30*time.Minute {
		t.Errorf("broken hosts are tried after %v, at most %v", plain.HostRetry, plain.MaxHostRetry)
	}
}

// The smallest of a destination's limits, its source's and its pools' counts.
func TestOwnLimitsReachDelivery(t *testing.T) {
	cfg, err := config.Parse([]byte(`
provider "big" {
  mx                          = ["*.big.example"]
  connection_limit_per_source = 5
  max_message_rate_per_source = "60/min"
}
source "a" {
  provider "big" {
    connection_limit              = 7
    max_message_rate              = "10/min"
    max_deliveries_per_connection = 20
  }
}
source "b" {}
pool "p" {
  shared = ["a", "b"]
  domain "x.example" {
    connection_limit            = 9
    connection_limit_per_source = 2
  }
}
pool "q" {
  shared = ["b"]
  provider "big" { max_connection_rate = "3/s" }
}
`), "test.conf", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	perMinute := func(n int) gcra.Rate { return gcra.Rate{Events: n, Per: time.Minute} }
	rt := &route.Route{Domain: "x.example", Site: "mx", Provider: "big"}
	a, b := New(cfg).Limits(rt, "a", ""), New(cfg).Limits(rt, "b", "")
	if want := (delivery.Scope{Connections: 2, MessageRate: perMinute(10)}); a.Path != want {
		t.Errorf("from a: %+v, want %+v", a.Path, want)
	}
	if want := (delivery.Scope{Connections: 2, MessageRate: perMinute(60)}); b.Path != want {
		t.Errorf("from b: %+v, want %+v", b.Path, want)
	}
	if a.MaxDeliveriesPerConnection != 20 || b.MaxDeliveriesPerConnection != 100 {
		t.Errorf("messages of a connection: %d, %d", a.MaxDeliveriesPerConnection, b.MaxDeliveriesPerConnection)
	}
	pool := delivery.NamedScope{Name: "site mx from pool p", Scope: delivery.Scope{Connections: 9}}
	if want := []delivery.NamedScope{{Name: "provider big from source a",
		Scope: delivery.Scope{Connections: 7, MessageRate: perMinute(10)}}, pool}; !slices.Equal(a.Shared, want) {
		t.Errorf("a shares %+v, want %+v", a.Shared, want)
	}
	three := delivery.Scope{ConnectionRate: gcra.Rate{Events: 3, Per: time.Second}}
	if want := []delivery.NamedScope{pool, {Name: "site mx from pool q", Scope: three},
		{Name: "provider big from pool q", Scope: three}}; !slices.Equal(b.Shared, want) {
		t.Errorf("b shares %+v, want %+v", b.Shared, want)
	}
	if other := New(cfg).Limits(&route.Route{Domain: "y.example", Site: "my"}, "a", ""); other.Shared != nil {
		t.Errorf("elsewhere a shares %+v", other.Shared)
	}
}

// What blocks set is divided among relays; of the rest each has an equal part.
func TestLimitsOfSeveralRelays(t *testing.T) {
	cfg, err := config.Parse([]byte(`
defaults {
  connection_limit         = 10
  connection_limit_per_host = 3
  max_message_rate         = "60/s"
}
provider "big" {
  mx                          = ["*.big.example"]
  connection_limit            = 8
  max_connection_rate_per_source = "30/min"
}
domain "x.example" { max_message_rate = "5/s" }
source "a" {
  connection_limit = 20
  provider "big" { max_message_rate = "10/min" }
}
pool "p" {
  shared = ["a"]
  domain "x.example" {
    connection_limit            = 9
    connection_limit_per_source = 2
  }
}
tenant "acme" {
  max_message_rate            = "20/h"
  max_message_rate_per_source = "21/h"
}
`), "test.conf", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	p := New(cfg)
	rt := &route.Route{Domain: "x.example", Site: "mx", Provider: "big"}
	if l := p.Limits(rt, "a", ""); l.Divided != nil {
		t.Errorf("without other relays: %+v", l.Divided)
	}
	p.Relays = func() int { return 4 }
	rate := func(n int, per time.Duration) gcra.Rate { return gcra.Rate{Events: n, Per: per} }
	l := p.Limits(rt, "a", "")
	want := []delivery.NamedScope{
		{Name: "provider big", Scope: delivery.Scope{Connections: 8}},
		{Name: "provider big from source a", Scope: delivery.Scope{MessageRate: rate(10, time.Minute)}},
		{Name: "site mx", Scope: delivery.Scope{Connections: 8}},
		{Name: `site mx for domain "x.example"`, Scope: delivery.Scope{MessageRate: rate(5, time.Second)}},
		{Name: "site mx from pool p", Scope: delivery.Scope{Connections: 9}},
		{Name: "site mx from source a", Scope: delivery.Scope{MessageRate: rate(10, time.Minute), ConnectionRate: rate(30, time.Minute)}},
		{Name: "site mx from source a by pool p", Scope: delivery.Scope{Connections: 2}},
		{Name: "source a", Scope: delivery.Scope{Connections: 20}},
	}
	slices.SortFunc(l.Divided, func(a, b delivery.NamedScope) int { return cmp.Compare(a.Name, b.Name) })
	if !slices.Equal(l.Divided, want) {
		t.Errorf("got  %+v\nwant %+v", l.Divided, want)
	}
	if l.Site != (delivery.Scope{Connections: 8, MessageRate: rate(5, time.Second)}) || l.Host.Connections != 1 ||
		l.Path.MessageRate != rate(10, time.Minute) {
		t.Errorf("of this relay: site %+v, host %+v, path %+v", l.Site, l.Host, l.Path)
	}
	other := p.Limits(&route.Route{Domain: "y.example", Site: "y"}, "b", "")
	if other.Divided != nil || other.Site.Connections != 2 || math.Abs(other.Site.MessageRate.PerSecond()-15) > 0.001 || other.Site.MessageRate.Depth() != 15 {
		t.Errorf("a site by the defaults: %+v, divided %+v", other.Site, other.Divided)
	}
	tenant := p.Limits(rt, "a", "acme")
	if want := []delivery.NamedScope{{Name: "tenant acme", Scope: delivery.Scope{MessageRate: rate(20, time.Hour)}}}; !slices.Equal(tenant.Divided, want) {
		t.Errorf("a tenant: %+v, want %+v", tenant.Divided, want)
	}
	if r := tenant.TenantPath.MessageRate; math.Abs(r.PerSecond()*3600-21./4) > 0.001 || r.Depth() != 1 {
		t.Errorf("a tenant from a source: %+v", r)
	}
}

// A block with limits_per_node has them for each relay in full, and shares none.
func TestLimitsOfEachRelay(t *testing.T) {
	const text = `
provider "big" {
  mx               = ["*.big.example"]
  connection_limit = 8
}
domain "x.example" {
  max_message_rate = "5/s"
}
source "a" {
  connection_limit = 20
  provider "big" { max_message_rate = "10/min" }
}
pool "p" {
  shared = ["a"]
  domain "x.example" {
    connection_limit            = 9
    connection_limit_per_source = 2
  }
}
tenant "acme" {
  max_message_rate            = "20/h"
  max_message_rate_per_source = "21/h"
  max_queued_messages         = 7
  max_request_rate            = "3/s"
}
`
	rt := &route.Route{Domain: "x.example", Site: "mx", Provider: "big"}
	names := func(l delivery.Limits) (all []string) {
		for _, x := range l.Divided {
			all = append(all, x.Name)
		}
		slices.Sort(all)
		return all
	}
	with := func(block string) *Policy {
		p := parse(t, strings.Replace(text, block+" {\n", block+" {\n  limits_per_node = true\n", 1))
		p.Relays = func() int { return 4 }
		return p
	}
	all := []string{"provider big", "provider big from source a", "site mx", `site mx for domain "x.example"`,
		"site mx from pool p", "site mx from source a", "site mx from source a by pool p", "source a"}
	for block, gone := range map[string][]string{
		`provider "big"`:     {"provider big", "site mx"},
		`domain "x.example"`: {`site mx for domain "x.example"`},
		`source "a"`:         {"provider big from source a", "site mx from source a", "source a"},
		`pool "p"`:           {"site mx from pool p", "site mx from source a by pool p"},
		`tenant "acme"`:      nil,
	} {
		p := with(block)
		want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(gone, name) })
		l := p.Limits(rt, "a", "")
		if got := names(l); !slices.Equal(got, want) {
			t.Errorf("%s: shared are\n%q, want\n%q", block, got, want)
		}
		if l.Site != (delivery.Scope{Connections: 8, MessageRate: gcra.Rate{Events: 5, Per: time.Second}}) {
			t.Errorf("%s: of this relay %+v", block, l.Site)
		}
		tenant := p.Limits(rt, "a", "acme")
		own := block == `tenant "acme"`
		if own != (tenant.Divided == nil) || own != (tenant.TenantPath.MessageRate == gcra.Rate{Events: 21, Per: time.Hour}) {
			t.Errorf("%s: of the tenant %+v", block, tenant)
		}
		in := Tenants(func() *config.Config { return p.Config })
		if q, _ := in.Quota("acme"); q.PerRelay != own || in.Rates("acme").PerRelay != own {
			t.Errorf("%s: the tenant's quotas are %+v", block, q)
		}
		if maps.Equal(p.Config.Sums(), parse(t, text).Config.Sums()) {
			t.Errorf("%s: nodes without it are not told apart", block)
		}
	}
}
