package config

import (
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
)

const ways = `
	source "a" { address = "192.0.2.1" }
	source "b" { address = "192.0.2.2" }
	source "c" { address = "192.0.2.3" }
	pool "default" { shared = ["a"] }
	pool "slow" { shared = ["b"] }
	pool "brand" { shared = ["c"] }
	pool "acme" { shared = ["a", "b"] }
	tenant "acme" { pool = "acme" }
	domain "*" { route = ["smtp://hub.example"] }
	domain "*.slow.example" { pool = "slow" }
	domain "direct.example" { route = [] }
	domain "partner.example" {
		route = ["smtp://partner.example"]
		pool  = "slow"
	}
	sender_domain "brand.example" {
		pool  = "brand"
		route = ["smtp://brandhub.example"]
	}
	sender_domain "*.brand.example" { pool = "slow" }
	sender_domain "*" { return_path = "b.example.com" }`

func TestWays(t *testing.T) {
	cfg, err := Parse([]byte(ways), "mta.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		way         Way
		pool, route string
	}{
		{Way{Domain: "any.example"}, "default", "any.example"},
		{Way{Domain: "any.example", Tenant: "acme"}, "acme", "any.example"},
		{Way{Domain: "x.slow.example", Tenant: "acme"}, "slow", "x.slow.example"},
		{Way{Domain: "any.example", Sender: "ann@brand.example", Tenant: "acme"}, "brand", "brand.example.sender-route.invalid"},
		{Way{Domain: "x.slow.example", Sender: "ann@brand.example"}, "slow", "brand.example.sender-route.invalid"},
		{Way{Domain: "direct.example", Sender: "ann@brand.example"}, "brand", "direct.example"},
		{Way{Domain: "partner.example", Sender: "ann@brand.example"}, "slow", "partner.example"},
		{Way{Domain: "any.example", Sender: "ann@x.brand.example"}, "slow", "any.example"},
		{Way{Domain: "any.example", Sender: ""}, "default", "any.example"},
		{Way{Domain: "partner.example", Detour: envelope.Detour{Pool: "acme", Route: "any.example"}}, "acme", "any.example"},
		{Way{Domain: "partner.example", Detour: envelope.Detour{Pool: "gone", Route: "direct.example"}}, "slow", "partner.example"},
	} {
		if got := cfg.PoolBy(c.way).Name; got != c.pool {
			t.Errorf("%+v: pool %s, want %s", c.way, got, c.pool)
		}
		if got := cfg.RouteBy(c.way); got != c.route {
			t.Errorf("%+v: route of %s, want %s", c.way, got, c.route)
		}
	}
}

func TestWaysThatLeadNowhere(t *testing.T) {
	for text, want := range map[string]string{
		`domain "a.example" { pool = "gone" }`:                                                        `"gone"`,
		`sender_domain "a.example" { pool = "gone" }`:                                                 `"gone"`,
		`sender_domain "a.example" {}`:                                                                "neither return_path nor pool nor route",
		`sender_domain "a.example" { route = [] }`:                                                    "empty route",
		`sender_domain "a.example" { route = ["smtp://127.0.0.1:2525"] }`:                             "mail would loop",
		"sender_domain \"a.example\" {\n pool = \"default\"\n username = \"u\"\n password = \"p\"\n}": `sender_domain "a.example" has a username but no route`,
	} {
		if _, err := Parse([]byte(text), "mta.conf", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v, want %q", text, err, want)
		}
	}
}

// TestShared: a source is a tenant's alone if no other's mail can come to it, by its pool, by name, or by a domain.
func TestShared(t *testing.T) {
	cfg, err := Parse([]byte(`
		source "a" { address = "192.0.2.1" }
		source "b" { address = "192.0.2.2" }
		source "c" { address = "192.0.2.3" }
		source "d" { address = "192.0.2.4" }
		source "e" { address = "192.0.2.5" }
		pool "default" { shared = ["a"] }
		pool "own"     { shared = ["b", "c"] }
		pool "other"   { shared = ["c"] }
		pool "free"    { shared = ["d"] }
		pool "brand"   { shared = ["e"] }
		tenant "acme"  { pool = "own" }
		tenant "beta"  { pool = "other" }
		tenant "gamma" { pool = "brand" }
		sender_domain "brand.example" { pool = "brand" }`), "mta.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true, "e": true} {
		if got := cfg.Shared(source); got != want {
			t.Errorf("source %s: %v", source, got)
		}
	}
}
