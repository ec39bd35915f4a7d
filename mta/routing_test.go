package mta

import (
	"net/netip"
	"testing"
	"time"

	"mta/internal/route"
	"mta/mta/config"
)

func TestSettingsOfADestinationShapeItsRoute(t *testing.T) {
	cfg, err := config.Parse([]byte(`
		domain "plain.example" { tls = "off" }`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	rt := &route.Route{Site: "mx.example", Tiers: []route.Tier{{
		{Name: "mx.example", Addr: netip.MustParseAddrPort("192.0.2.1:25")},
		{Name: "mx.example", Addr: netip.MustParseAddrPort("[2001:db8::1]:25")},
	}}}
	get := func(domain string) *route.Route { return withTLS(rt, cfg.Traffic(domain, "")) }

	if get("other.example") != rt {
		t.Error("a route without settings of its own was copied")
	}
	if got := get("plain.example"); got.TLS != route.TLSOff || got.Site != rt.Site {
		t.Errorf("tls = off gave %+v", got)
	}
	if rt.TLS != route.TLSOpportunistic {
		t.Error("the shared route was changed")
	}
}

func TestRouterSettingsOfTheFile(t *testing.T) {
	cfg, err := config.Parse([]byte(`router {
		refuse_private = true
		timeout        = "7s"
		max_route_age  = "3m"
	}`), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := routerSettings(cfg, nil)
	if err != nil || !s.RefusePrivate || s.Timeout != 7*time.Second || s.MaxRouteAge != 3*time.Minute {
		t.Errorf("the router has %+v, %v", s, err)
	}
}
