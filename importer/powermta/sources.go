package powermta

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/importer"
	"example.org/mta/internal/envelope"
)

// vmta is a virtual MTA: a source for each of its addresses, and a pool.
type vmta struct {
	*directive
	name    string
	sources []string
	at      []netip.Addr // of each source, invalid for none
	cold    string       // the virtual MTA that warms up in place of this one
	days    []coldDays
}

// coldDays is a list of days of one domain.
type coldDays struct {
	*directive
	domain string
	daily  []int
}

// pool is a virtual-mta-pool.
type pool struct {
	*directive
	name    string
	members []*directive
}

func (c *conversion) vmta(name string) *vmta { return c.vmtaOf[strings.ToLower(name)] }

func (c *conversion) addVMTA(v *vmta) {
	c.vmtas = append(c.vmtas, v)
	c.vmtaOf[v.name] = v
}

// addresses is how many sources there are.
func (c *conversion) addresses() int {
	n := 0
	for _, v := range c.vmtas {
		n += len(v.sources)
	}
	return max(n, 1)
}

// mostAddresses is how many sources a virtual MTA has at most.
func (c *conversion) mostAddresses() int {
	most := 1
	for _, v := range c.vmtas {
		most = max(most, len(v.sources))
	}
	return most
}

// collectVMTA notes a virtual MTA, and which sources it is.
func (c *conversion) collectVMTA(d *directive) error {
	name := strings.ToLower(unquote(d.value))
	if !d.scope || name == "" || strings.ContainsAny(name, " \t,") {
		return d.fault("write it as <virtual-mta name>")
	}
	v := c.vmta(name)
	if v == nil {
		v = &vmta{directive: d, name: name}
		c.addVMTA(v)
	}
	n := 0
	for _, in := range d.inner {
		switch in.name {
		case "smtp-source-host", "smtp-source-ip", "smtp-proxy-source-host":
			n++
		case "cold-virtual-mta":
			v.cold = strings.ToLower(unquote(in.value))
		case "auto-cold-virtual-mta":
			v.cold = name + "-cold"
			if c.vmta(v.cold) == nil {
				c.addVMTA(&vmta{directive: in, name: v.cold, sources: []string{v.cold}, at: make([]netip.Addr, 1)})
			}
		}
	}
	for i := range max(n, 1) {
		source := name
		if n > 1 {
			source += "-" + strconv.Itoa(i+1)
		}
		if !slices.Contains(v.sources, source) {
			v.sources, v.at = append(v.sources, source), append(v.at, netip.Addr{})
		}
	}
	return nil
}

func (c *conversion) collectPool(d *directive) error {
	name := strings.ToLower(unquote(d.value))
	if !d.scope || name == "" {
		return d.fault("write it as <virtual-mta-pool name>")
	}
	p := &pool{directive: d, name: name}
	for _, in := range d.inner {
		if in.name == "virtual-mta" {
			p.members = append(p.members, in)
		}
	}
	c.pools = append(c.pools, p)
	if c.poolOf[name] == nil {
		c.poolOf[name] = p
	}
	return nil
}

// vmtaScope carries a virtual MTA over.
func (c *conversion) vmtaScope(d *directive) error {
	v := c.vmta(unquote(d.value))
	if v == nil {
		return nil // its name has a fault
	}
	n := 0
	for _, source := range v.sources {
		c.draft.Inner("source", source).From(d.Origin)
	}
	first := c.draft.Inner("source", v.sources[0])
	for _, in := range d.inner {
		var err error
		switch in.name {
		case "smtp-source-host", "smtp-source-ip", "smtp-proxy-source-host":
			if n < len(v.sources) {
				err = c.sourceHost(v, n, in)
			}
			n++
		case "host-name":
			c.ehlo(first, in, in.value)
		case "domain":
			err = c.domainScope(in, v)
		case "domain-key":
			err = c.domainKey(in,
				fmt.Sprintf("the key signs the mail of its domain from all sources, not of %s alone", v.name))
		case "cold-virtual-mta":
			if v.cold == "" || c.vmta(v.cold) == nil {
				err = dangling{in.fault("cold-virtual-mta: there is no virtual MTA %s: define it, or correct the name",
					short(v.cold))}
			}
			first.From(in.Origin)
		case "auto-cold-virtual-mta":
			cold := c.vmta(v.cold)
			c.draft.Inner("source", v.cold).From(in.Origin)
			err = c.sourceHost(cold, 0, in)
		default:
			err = c.inVMTA(first, in, v)
		}
		c.faults.take(in, err)
	}
	return nil
}

// inVMTA reads what can stand in a virtual MTA for all of its domains.
func (c *conversion) inVMTA(b *importer.Block, d *directive, v *vmta) error {
	_, limit := carried[d.name]
	if _, other := c.readers[d.name]; !limit && !other {
		c.lose(b, d)
		return nil
	}
	return c.domainScope(&directive{Origin: d.Origin, name: "domain", value: "*", scope: true, inner: []*directive{d}},
		v)
}

// sourceHost gives a source its address and its name: smtp-source-host has them in either order.
func (c *conversion) sourceHost(v *vmta, i int, d *directive) error {
	b, words := c.draft.Inner("source", v.sources[i]), strings.Fields(d.value)
	if d.name == "smtp-proxy-source-host" {
		return c.proxied(v, i, d, words)
	}
	var address netip.Addr
	name := ""
	for _, w := range words {
		if a, err := netip.ParseAddr(strings.Trim(w, "[]")); err == nil && a.Zone() == "" {
			address = a
		} else if name == "" {
			name = w
		}
	}
	if !address.IsValid() || address.IsUnspecified() || address.IsMulticast() {
		return d.fault("%s: %s has no address of this machine: write one, and a name, such as 192.0.2.1 "+
			"mta1.example.com", d.name, short(d.value))
	}
	v.at[i] = address
	b.Set("address", address.String(), d.Origin)
	if name != "" {
		c.ehlo(b, d, name)
	}
	return nil
}

func (c *conversion) ehlo(b *importer.Block, d *directive, name string) {
	ascii, err := envelope.ToASCII(strings.ToLower(unquote(name)))
	if err != nil || ascii == "" || strings.HasPrefix(ascii, "[") {
		b.Lost(d.Origin, "the name for EHLO is not a host name", false)
		return
	}
	b.Set("ehlo", ascii, d.Origin)
}

// proxied gives a source the address that it has at a proxy.
func (c *conversion) proxied(v *vmta, i int, d *directive, words []string) error {
	if len(words) < 3 {
		return d.fault("%s: write the local address, the proxy's address and port, and the address at the proxy",
			d.name)
	}
	proxy, err := netip.ParseAddrPort(words[1])
	at, err2 := netip.ParseAddr(host(words[2]))
	if err != nil || err2 != nil || proxy.Port() == 0 || at.Zone() != "" || proxy.Addr().Zone() != "" ||
		at.IsUnspecified() || at.IsMulticast() {
		return d.fault("%s: %s has no address and port of a proxy: write one such as 192.0.2.1:5000",
			d.name, short(d.value))
	}
	b := c.draft.Inner("source", v.sources[i])
	v.at[i] = at
	b.Set("address", at.String(), d.Origin)
	b.Set("proxy", "haproxy://"+proxy.String(), d.Origin)
	b.Noted(d.Origin, "connections are made by way of the proxy with a header of the PROXY protocol, version 2")
	if len(words) > 3 {
		c.ehlo(b, d, words[3])
	}
	return nil
}

func host(s string) string {
	if h, _, err := net.SplitHostPort(s); err == nil {
		return h
	}
	return strings.Trim(s, "[]")
}

// poolScope notes what is in a pool beside its members.
func (c *conversion) poolScope(d *directive) error {
	if c.poolOf[strings.ToLower(unquote(d.value))] == nil {
		return nil // its name has a fault
	}
	b := c.draft.Inner("pool", strings.ToLower(unquote(d.value)))
	b.From(d.Origin)
	first, others := c.virtualMTAs(d)
	c.alike = others
	defer func() { c.alike = nil }()
	for _, in := range d.inner {
		var err error
		switch in.name {
		case "virtual-mta":
			name, more := cutWord(in.value)
			if c.vmta(unquote(name)) == nil {
				err = dangling{in.fault("virtual-mta: there is no virtual MTA %s: define it, or correct the name",
					short(name))}
				break
			}
			b.From(in.Origin)
			_, err = poolWeight(in, more)
		case "domain":
			err = c.domainScope(in, first)
		case "domain-key":
			err = c.domainKey(in, "the key signs the mail of its domain from all sources, not of this pool alone")
		default:
			err = c.inVMTA(b, in, first)
		}
		c.faults.take(in, err)
	}
	return nil
}

// virtualMTAs gives those of a pool, nil without any.
func (c *conversion) virtualMTAs(d *directive) (first *vmta, others []*vmta) {
	for _, in := range d.inner {
		if in.name != "virtual-mta" {
			continue
		}
		name, _ := cutWord(in.value)
		switch v := c.vmta(unquote(name)); {
		case v == nil || v == first || slices.Contains(others, v):
		case first == nil:
			first = v
		default:
			others = append(others, v)
		}
	}
	return first, others
}

// writePools makes a pool of each virtual MTA, so that mail can name it, and gives all pools their sources.
func (c *conversion) writePools() {
	plans := c.writePlans()
	for _, v := range c.vmtas {
		if c.poolOf[v.name] == nil {
			c.members(c.draft.Inner("pool", v.name), []*vmta{v}, plans)
		}
	}
	for _, p := range c.pools {
		b := c.draft.Inner("pool", p.name)
		var all []*vmta
		for _, m := range p.members {
			name, _ := cutWord(m.value)
			if v := c.vmta(unquote(name)); v != nil && !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
		if len(p.members) == 0 {
			c.faults.take(p.directive,
				p.fault("virtual-mta-pool: %s has no virtual MTA: name one, or remove the pool", short(p.name)))
		}
		c.members(b, all, plans)
		c.weights(b, p.members)
	}
	c.writeTenants(plans)
}

// maxWeight is the largest that mta.conf has.
const maxWeight = 1000

// poolWeight reads what follows the name of a pool's member: nothing, "3" or "weight=3".
func poolWeight(d *directive, text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(strings.TrimLeft(strings.TrimPrefix(strings.ToLower(text), "weight"), " ="))
	if err != nil || n < 0 || n > maxWeight {
		return 0, d.fault("virtual-mta: %s is not a weight: write a whole number from 0 to %d", short(text), maxWeight)
	}
	return n, nil
}

// weights gives the sources of a pool the weights of their virtual MTAs, whose addresses share them.
func (c *conversion) weights(b *importer.Block, members []*directive) {
	var given *directive
	addresses, of := 1, make(map[*vmta]int) // the least common multiple of their numbers
	for _, m := range members {
		name, more := cutWord(m.value)
		v := c.vmta(unquote(name))
		n, err := poolWeight(m, more)
		if _, twice := of[v]; twice || v == nil || err != nil || len(v.sources) == 0 {
			continue
		}
		if of[v] = n; more != "" {
			given = m
		}
		addresses *= len(v.sources) / gcd(addresses, len(v.sources))
	}
	var weights []string
	for _, v := range c.vmtas {
		for _, s := range v.sources {
			if n, ok := of[v]; ok {
				weights = append(weights, fmt.Sprintf("%s=%d", s, n*addresses/len(v.sources)))
			}
			if given != nil && of[v]*addresses/len(v.sources) > maxWeight {
				b.Lost(given.Origin, "the virtual MTAs have too many addresses to share their weights exactly", false)
				return
			}
		}
	}
	switch {
	case given == nil:
	case !slices.ContainsFunc(weights, func(w string) bool { return !strings.HasSuffix(w, "=0") }):
		c.faults.take(given, given.fault("virtual-mta: no virtual MTA of the pool has a weight above 0: change one"))
	default:
		b.Set("weights", weights, importer.Origin{})
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// members puts the sources of virtual MTAs into a pool: those that warm up under their plan.
func (c *conversion) members(b *importer.Block, all []*vmta, plans map[string]string) {
	var shared, warming []string
	for _, v := range all {
		for _, s := range v.sources {
			if plans[s] != "" {
				warming = append(warming, s)
			} else {
				shared = append(shared, s)
			}
		}
		if cold := c.vmta(v.cold); cold != nil {
			for _, s := range cold.sources {
				if plans[s] != "" {
					warming = append(warming, s)
				}
			}
		}
	}
	slices.Sort(warming)
	warming = slices.Compact(warming)
	if len(shared) > 0 {
		b.Set("shared", shared, importer.Origin{})
	} else {
		b.Set("overflow", "hold", importer.Origin{})
	}
	for _, s := range warming {
		b.Inner("dedicated", s).Set("plan", plans[s], importer.Origin{})
	}
}
