package dispatch

import (
	"fmt"
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

// to is a route to hosts of some addresses.
func to(addresses ...string) *route.Route {
	var tier route.Tier
	for _, a := range addresses {
		tier = append(tier, route.Host{Name: "mx", Addr: netip.AddrPortFrom(netip.MustParseAddr(a), 25)})
	}
	return &route.Route{Domain: "x.example", Site: "x.example", Tiers: []route.Tier{tier}}
}

func dkimBlock(domain, more string) string {
	const key = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=" // RFC 8463, A.2
	return fmt.Sprintf("dkim %q {\n domain = %q\n %s\n key \"s\" { private_key = %q }\n}\n", domain, domain, more, key)
}
