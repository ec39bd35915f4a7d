package delivery

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// AddressWatch knows the sources whose address this machine does not have: one that moved to another machine, or whose
// interface is down. Their mail takes others of the pool meanwhile.
type AddressWatch struct {
	addresses func() map[string]netip.Addr
	bind      func(netip.Addr) error
	log       *slog.Logger

	checking sync.Mutex // one check at a time

	mu      sync.Mutex // guards what follows
	missing map[string]netip.Addr
}

// NewAddressWatch watches the addresses of sources, by their names. Nobody has to Run it. bind tries to use an address;
// nil: Bind.
func NewAddressWatch(addresses func() map[string]netip.Addr, bind func(netip.Addr) error,
	log *slog.Logger) *AddressWatch {
	if bind == nil {
		bind = Bind
	}
	w := &AddressWatch{addresses: addresses, bind: bind, log: log}
	w.Check()
	return w
}

// watchInterval is how often addresses are looked at. A bind costs microseconds.
const watchInterval = 30 * time.Second

// Run looks at the addresses again and again until ctx ends.
func (w *AddressWatch) Run(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.Check()
		case <-ctx.Done():
			return
		}
	}
}

// Check looks at all addresses, and logs the changes.
func (w *AddressWatch) Check() {
	w.checking.Lock()
	defer w.checking.Unlock()
	missing := absent(w.addresses(), w.bind)
	w.mu.Lock()
	before := w.missing
	w.missing = missing
	w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if before[name] != missing[name] {
			w.log.Warn("source is left out: this machine does not have its address", "source", name,
				"address", missing[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, still := missing[name]; !still {
			w.log.Info("source is no longer left out", "source", name, "address", before[name])
		}
	}
}

// Missing reports whether a source is left out.
func (w *AddressWatch) Missing(source string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, missing := w.missing[source]
	return missing
}

// Names lists the sources that are left out, sorted.
func (w *AddressWatch) Names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.missing))
}

// AbsentAddresses gives those of the addresses, by source, that this machine does not have.
func AbsentAddresses(addresses map[string]netip.Addr) map[string]netip.Addr {
	return absent(addresses, Bind)
}

func absent(addresses map[string]netip.Addr, bind func(netip.Addr) error) map[string]netip.Addr {
	missing := maps.Clone(addresses)
	maps.DeleteFunc(missing, func(_ string, a netip.Addr) bool { return !lacking(bind(a)) })
	return missing
}

// Bind tries to use an address. Addresses of interfaces are not all that can be used: a route can make a whole network
// local.
func Bind(a netip.Addr) error {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		return err
	}
	return c.Close()
}

// MachineLacks reports whether this machine does not have an address.
func MachineLacks(a netip.Addr) bool { return lacking(Bind(a)) }

// lacking tells a machine without the address, or without its family, from one with another fault.
func lacking(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}
