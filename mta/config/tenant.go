package config

import (
	"net/netip"
	"slices"
)

// tenantNetworks finds the tenant of an address in as many steps as there are lengths of prefixes.
type tenantNetworks struct {
	bits   []int // the lengths that there are, the longest first
	tenant map[netip.Prefix]string
}

func indexNetworks(tenants []*Tenant) tenantNetworks {
	n := tenantNetworks{tenant: make(map[netip.Prefix]string)}
	for _, t := range tenants {
		for _, p := range t.Networks {
			n.tenant[p] = t.Name
			if !slices.Contains(n.bits, p.Bits()) {
				n.bits = append(n.bits, p.Bits())
			}
		}
	}
	slices.Sort(n.bits)
	slices.Reverse(n.bits)
	return n
}

// TenantAt gives the tenant whose network an address is in, the smallest network first; "" when it is in
// none.
func (c *Config) TenantAt(a netip.Addr) string {
	a = a.Unmap()
	for _, bits := range c.resolved.networks.bits {
		if p, err := a.Prefix(bits); err == nil {
			if name, ok := c.resolved.networks.tenant[p]; ok {
				return name
			}
		}
	}
	return ""
}

func (k checker) tenants() {
	whose := make(map[netip.Prefix]*Tenant)
	for _, t := range k.Tenants {
		if k.Pool(t.Pool) == nil {
			k.reference(&t.block, "pool", "pool", t.Pool, poolNames(k.Pools))
		}
		for _, p := range t.Networks {
			if other := whose[p]; other != nil && other != t {
				k.problem(&t.block, "networks", "assign it to one of them", "networks: %s already belongs to tenant %q", p, other.Name)
			}
			whose[p] = t
		}
	}
}
