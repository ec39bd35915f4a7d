package mta

import (
	"log/slog"
	"math"
	"syscall"

	"example.org/mta/mta/config"
)

// descriptors is how many connections the process can have open, given the files it may have.
type descriptors struct {
	in, out int // 0: as configured
	asked   int // by all listeners
	limit   int
	need    int // for all that is configured
}

// of is how many connections a listener may have at a time for which so many are configured.
func (d descriptors) of(configured int) int {
	if d.in == 0 {
		return configured
	}
	return max(1, int(int64(d.in)*int64(configured)/int64(d.asked)))
}

// keptFiles is how many descriptors are kept from connections: for the journal, contents of their
// own, the databases, look-ups and logs.
func keptFiles(limit int) int { return 128 + min(limit/8, 4096) }

// shareDescriptors bounds connections of clients and to hosts so that files are left, in
// proportion to what is configured.
func shareDescriptors(limit int, cfg *config.Config) descriptors {
	in, out := 0, cfg.Delivery.MaxConnections
	for _, l := range cfg.Listeners {
		in += l.MaxConnections
	}
	for _, a := range cfg.APIs {
		in += a.MaxConnections
	}
	d := descriptors{asked: in, limit: limit, need: in + out + keptFiles(limit)}
	if d.need <= limit {
		return d
	}
	left := max(limit-keptFiles(limit), 2)
	d.out = max(1, int(int64(left)*int64(out)/int64(in+out)))
	d.in = max(1, left-d.out)
	return d
}

// fileLimit is how many files this process may have open. Go raises the soft limit to the hard
// one when the program starts.
func fileLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return math.MaxInt32
	}
	return int(min(l.Cur, math.MaxInt32))
}

// warn logs that the configuration asks for more than the process may have.
func (d descriptors) warn(log *slog.Logger) {
	if d.in == 0 {
		return
	}
	log.Warn("max_connections of listeners and delivery need more open files than this process may have: fewer connections are made",
		"needed", d.need, "limit", d.limit, "clients", d.in, "hosts", d.out,
		"remedy", "raise the limit (LimitNOFILE= in the systemd unit, or ulimit -n before the start), or lower max_connections")
}
