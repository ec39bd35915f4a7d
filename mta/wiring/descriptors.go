package wiring

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"syscall"

	"example.org/mta/mta/config"
)

// Descriptors is how many connections the process can have open, given the files it may have.
type Descriptors struct {
	most  int // connections of each listener, each API and delivery; 0: as configured
	limit int
	need  int // for all that is configured
}

// Of is how many connections may be open at a time of a listener, an API or delivery, for which so many are configured.
func (d Descriptors) Of(configured int) int {
	if d.most == 0 {
		return configured
	}
	return min(configured, d.most)
}

const ofDelivery = "delivery"

// Lowered is a max_connections of the configuration with the limit in force.
type Lowered struct {
	Name       string // listener NAME, api NAME or delivery
	Limit      int
	Configured int
}

// keptFiles is how many descriptors are kept from connections: for the journal, contents of their
// own, the databases, look-ups and logs.
func keptFiles(limit int) int { return 128 + min(limit/8, 4096) }

// configuredConnections lists max_connections of the configuration.
func configuredConnections(cfg *config.Config) (all []Lowered) {
	for _, l := range cfg.Listeners {
		all = append(all, Lowered{Name: "listener " + l.Name, Configured: l.MaxConnections})
	}
	for _, a := range cfg.APIs {
		all = append(all, Lowered{Name: "api " + a.Name, Configured: a.MaxConnections})
	}
	return append(all, Lowered{Name: ofDelivery, Configured: cfg.Delivery.MaxConnections})
}

// ShareDescriptors bounds connections of clients and to hosts so that files are left. The largest bounds are lowered
// to the same number; what is configured to have fewer has them.
func ShareDescriptors(limit int, cfg *config.Config) Descriptors {
	all := configuredConnections(cfg)
	d := Descriptors{limit: limit, need: keptFiles(limit)}
	for _, c := range all {
		d.need += c.Configured
	}
	if d.need <= limit {
		return d
	}
	slices.SortFunc(all, func(a, b Lowered) int { return a.Configured - b.Configured })
	left := limit - keptFiles(limit)
	for i, c := range all {
		if part := left / (len(all) - i); part < c.Configured {
			d.most = max(1, part)
			break
		}
		left -= c.Configured
	}
	return d
}

// Lowered lists what may have fewer connections than are configured.
func (d Descriptors) Lowered(cfg *config.Config) (all []Lowered) {
	for _, c := range configuredConnections(cfg) {
		if c.Limit = d.Of(c.Configured); c.Limit < c.Configured {
			all = append(all, c)
		}
	}
	return all
}

// FileLimit is how many files this process may have open. Go raises the soft limit to the hard
// one when the program starts.
func FileLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return math.MaxInt32
	}
	return int(min(l.Cur, math.MaxInt32))
}

// TakenFromDelivery returns which limits in force are lower than configured, if that of delivery is one; "": it is not.
func (d Descriptors) TakenFromDelivery(cfg *config.Config) string {
	all := d.Lowered(cfg)
	if len(all) == 0 || all[len(all)-1].Name != ofDelivery {
		return ""
	}
	c := all[len(all)-1]
	return fmt.Sprintf("delivery gets %d connections in place of %d, since max_connections of listeners and delivery "+
		"take %d open files, and a process has %d here", c.Limit, c.Configured, d.need, d.limit)
}

// Warn logs that the configuration asks for more than the process may have, and what is in force.
func (d Descriptors) Warn(log *slog.Logger, cfg *config.Config) {
	var words []string
	for _, c := range d.Lowered(cfg) {
		words = append(words, fmt.Sprintf("%s %d of %d", c.Name, c.Limit, c.Configured))
	}
	if len(words) == 0 {
		return
	}
	log.Warn("max_connections of listeners and delivery need more open files than this process may have: lower "+
		"limits are in force",
		"in_force", strings.Join(words, ", "), "needed", d.need, "limit", d.limit,
		"remedy", "raise the limit (LimitNOFILE= in the systemd unit, or ulimit -n before the start), or lower "+
			"max_connections")
}
