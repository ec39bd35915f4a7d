package mta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"example.org/mta/mta/config"
)

// sourceWatch knows the sources whose address this machine does not have: one that moved to another
// machine, or whose interface is down. Their mail takes others of the pool meanwhile.
type sourceWatch struct {
	config func() *config.Config
	log    *slog.Logger

	checking sync.Mutex // one check at a time
	bind     func(netip.Addr) error

	mu      sync.Mutex // guards what follows
	missing map[string]netip.Addr
}

func newSourceWatch(cfg func() *config.Config, log *slog.Logger) *sourceWatch {
	return &sourceWatch{config: cfg, log: log, bind: bindTo}
}

// sourceCheckInterval is how often addresses are looked at. A bind costs microseconds.
const sourceCheckInterval = 30 * time.Second

// run looks at the addresses again and again until ctx ends.
func (w *sourceWatch) run(ctx context.Context) {
	tick := time.NewTicker(sourceCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.check()
		case <-ctx.Done():
			return
		}
	}
}

// check looks at all addresses, and logs what has changed.
func (w *sourceWatch) check() {
	w.checking.Lock()
	defer w.checking.Unlock()
	missing := missingSources(w.config(), w.bind)
	w.mu.Lock()
	before := w.missing
	w.missing = missing
	w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if before[name] != missing[name] {
			w.log.Warn("source is left out: this machine does not have its address", "source", name, "address", missing[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, still := missing[name]; !still {
			w.log.Info("source is no longer left out", "source", name, "address", before[name])
		}
	}
}

// missingSources gives, by source, the addresses that can't be used here.
func missingSources(cfg *config.Config, bind func(netip.Addr) error) map[string]netip.Addr {
	missing := make(map[string]netip.Addr)
	for _, s := range cfg.Sources {
		if a, local := s.Local(); local && isMissing(bind(a)) {
			missing[s.Name] = a
		}
	}
	return missing
}

// Warnings says, a sentence each, what is well written in a configuration and will not work on this
// machine as it is now, or is of no use.
func Warnings(cfg *config.Config, now time.Time) []string {
	out := slices.Concat(cfg.Warnings(), unused(cfg), neverRetried(cfg), cfg.Late(now), cfg.Unsigned(), usersWarnings(cfg), consoleWarnings(cfg), keysWarnings(cfg), unsubscribeWarnings(cfg), templateWarnings(cfg), certificateWarnings(cfg, now), tlsReportWarnings(cfg), asideWarnings(cfg))
	missing := missingSources(cfg, bindTo)
	for _, s := range cfg.Sources {
		if a, is := missing[s.Name]; is {
			out = append(out, fmt.Sprintf("%s: this machine does not have the address %s: mail takes other sources of the pool, or waits", s.Origin("address"), a))
		}
	}
	return out
}

// unused finds the blocks that mail never gets to, since nothing names them.
func unused(cfg *config.Config) (out []string) {
	pooled, owned, submitted := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	byHeader, poolByHeader := false, false
	for _, l := range cfg.Listeners {
		submitted[l.Tenant] = true
		byHeader = byHeader || len(l.TenantHeaderFrom) > 0
		poolByHeader = poolByHeader || l.PoolHeader != ""
	}
	for _, tenant := range slices.Concat(usersTenants(cfg), keysTenants(cfg)) {
		submitted[tenant] = true
	}
	for _, t := range cfg.Tenants {
		owned[t.Pool] = true
		if !submitted[t.Name] && len(t.Networks) == 0 && !byHeader {
			out = append(out, fmt.Sprintf("tenant %q: no listener, user or API key names it, and it has no networks, so that no mail is its own", t.Name))
		}
	}
	for _, d := range cfg.Domains {
		owned[d.Pool] = true
	}
	for _, d := range cfg.SenderDomainBlocks {
		owned[d.Pool] = true
	}
	for _, p := range cfg.Pools {
		for _, source := range p.Sources() {
			pooled[source] = true
		}
		if p.Name != config.DefaultPool && !owned[p.Name] && !poolByHeader {
			out = append(out, fmt.Sprintf("pool %q: no tenant, domain or sender's domain names it, so that no mail takes its sources", p.Name))
		}
	}
	for _, s := range cfg.Sources {
		if !pooled[s.Name] {
			out = append(out, fmt.Sprintf("source %q: no pool names it, so that no mail takes it", s.Name))
		}
	}
	return out
}

// bindTo tries to use an address. Addresses of interfaces are not all that can be used: a route can
// make a whole network local.
func bindTo(a netip.Addr) error {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		return err
	}
	return c.Close()
}

// isMissing tells a machine without the address, or without its family, from one in other trouble.
func isMissing(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// isMissing reports whether a source is left out.
func (w *sourceWatch) isMissing(source string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, missing := w.missing[source]
	return missing
}

// names lists the sources that are left out, sorted.
func (w *sourceWatch) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.missing))
}
