package mta

import (
	"net/netip"
	"testing"

	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
)

func parsePolicy(t *testing.T, text string) *wiring.Policy {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return wiring.New(cfg)
}

func to(addresses ...string) *route.Route {
	var tier route.Tier
	for _, a := range addresses {
		tier = append(tier, route.Host{Name: "mx", Addr: netip.AddrPortFrom(netip.MustParseAddr(a), 25)})
	}
	return &route.Route{Domain: "x.example", Site: "x.example", Tiers: []route.Tier{tier}}
}
