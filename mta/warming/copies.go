package warming

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/faultlog"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// A second copy of the warm-ups' states is written behind the ledger, into the file of what was learned
// of destinations. When the ledger is lost, warm-ups go on from there, or else on the stage that the
// accounting records prove.
//
// In a cluster a warm-up that its database does not know goes on from the ledger that this relay had alone. That file
// is kept up to date with what is shared, for a relay that leaves its cluster; since other nodes may send on, an hour
// and a day in which it is read again count as used up.

const (
	copyEvery   = 5 * time.Second
	provenSince = 7 * 24 * time.Hour // how far back records are read
	provenTime  = 10 * time.Second   // and for how long, at a start
	toldFor     = 24 * time.Hour     // how long the alarm stays
)

// Copies keeps values by name.
type Copies interface {
	Save(map[string][]byte) error
	Load() (map[string][]byte, error)
}

// secondCopy is the second copy, and the account of a ledger that was lost.
type secondCopy struct {
	store  Copies       // nil: there is no second copy
	shared warmup.Store // in a cluster: this relay's file; nil without one
	now    func() time.Time
	log    *slog.Logger
	report func(warmup.Event)

	lost   error             // what became of the ledger; nil: nothing
	found  map[string][]byte // the copies at the start, by address
	proven map[string]int64  // the most that records show of an address in a day
	owed   map[string]bool   // the addresses under plans when the ledger was found lost

	mu       sync.Mutex        // guards what follows
	saved    map[string]uint64 // versions, by address
	failing  bool
	since    time.Time         // when the ledger was found lost
	restored map[string]string // how warm-ups went on, by address
}

// openCopies looks whether the ledger was lost: it was damaged, or is new though copies or records show
// warm-ups.
func openCopies(
	cfg *config.Config, l Ledger, store Copies, shared bool, now func() time.Time, log *slog.Logger,
) (*secondCopy, error) {
	c := &secondCopy{store: store, now: now, log: log, report: func(warmup.Event) {}, saved: make(map[string]uint64),
		owed: make(map[string]bool), restored: make(map[string]string)}
	if shared {
		c.shared = l
	}
	known, ok := l.(interface {
		Damage() error
		Begun() bool
		Each(func(name string, value []byte) error) error
	})
	if !ok {
		return c, nil
	}
	var err error
	if c.found, err = store.Load(); err != nil {
		log.Error("second copy of the warm-up ledger can't be read", "error", err)
	}
	if shared {
		if err := c.take(known.Each); err != nil {
			return nil, fmt.Errorf("the warm-ups that this relay had alone can't be read: %w", err)
		}
	}
	if c.lost = known.Damage(); c.lost == nil && !known.Begun() {
		return c, nil
	}
	addresses := sourcesUnderPlans(cfg)
	missing := maps.Clone(addresses) // those without a copy
	maps.DeleteFunc(missing, func(_, address string) bool { return c.found[address] != nil })
	if len(missing) > 0 {
		c.proven = provenBy(cfg, missing, now())
	}
	if c.lost == nil && (len(missing) < len(addresses) || len(c.proven) > 0) {
		c.lost = errors.New("the file is missing")
	}
	if c.lost != nil {
		if !shared { // nothing is, if the database has it
			c.since = now()
		}
		for _, address := range addresses {
			c.owed[address] = true
		}
		log.Error("warm-up ledger was lost", "error", c.lost)
	}
	return c, nil
}

// take finds the copies in this relay's own ledger.
func (c *secondCopy) take(each func(func(name string, value []byte) error) error) error {
	c.found = maps.Clone(c.found)
	if c.found == nil {
		c.found = make(map[string][]byte)
	}
	return each(func(name string, value []byte) error {
		c.found[name] = bytes.Clone(value)
		return nil
	})
}

// sourcesUnderPlans gives the address of each source that warms up.
func sourcesUnderPlans(cfg *config.Config) map[string]string {
	addresses := make(map[string]string)
	for _, p := range cfg.Pools {
		for _, d := range p.Dedicated {
			if d.Plan != "" {
				addresses[d.Name] = wiring.WarmupKey(cfg, d)
			}
		}
	}
	return addresses
}

// provenBy reads in the accounting log how much sources sent, and gives the most in a day by address.
func provenBy(cfg *config.Config, sources map[string]string, now time.Time) map[string]int64 {
	ctx, cancel := context.WithTimeout(context.Background(), provenTime)
	defer cancel()
	type day struct {
		address string
		ago     time.Duration
	}
	sent, most := make(map[day]int64), make(map[string]int64)
	q := accounting.Query{Types: []accounting.Type{accounting.Delivery, accounting.TransientFailure, accounting.Bounce},
		Since: now.Add(-provenSince)}
	_ = accounting.Read(ctx, cfg.Accounting.Path, q, func(line []byte) error { // as far as it can be read
		r, err := accounting.Parse(line)
		if err != nil || sources[r.EgressSource] == "" {
			return nil
		}
		d := day{sources[r.EgressSource], now.Sub(r.Time) / (24 * time.Hour)}
		sent[d]++
		most[d.address] = max(most[d.address], sent[d])
		return nil
	}, nil)
	return most
}

// recall is warmup.Config.Recall.
func (c *secondCopy) recall(ip string, p *warmup.Plan, now warmup.Instant) *warmup.State {
	if value := c.found[ip]; value != nil {
		s, err := warmup.Restored(value, now)
		if err == nil && c.joins() {
			c.account(ip, fmt.Sprintf("goes on at stage %d in the cluster", s.Stage+1))
			return s
		} else if err == nil {
			c.account(ip, fmt.Sprintf("%s goes on at stage %d from its second copy", ip, s.Stage+1))
			return s
		}
		c.log.Error("second copy of a warm-up can't be used", "ip", ip, "error", err)
	}
	if !c.owed[ip] {
		return nil
	}
	s := warmup.Proven(p, now, c.proven[ip])
	c.account(ip, fmt.Sprintf(
		"%s goes on at stage %d, which accounting records prove (%d in a day), and sends nothing today", ip,
		s.Stage+1, c.proven[ip]))
	return s
}

// joins reports whether a warm-up that the ledger lacks is one that this relay brings into a cluster.
func (c *secondCopy) joins() bool { return c.shared != nil && c.lost == nil }

// account notes how a warm-up went on.
func (c *secondCopy) account(ip, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restored[ip] != "" { // it could not be written the last time
		return
	}
	c.restored[ip] = how
	why := how
	if !c.joins() {
		why = "goes on without its ledger: " + how
		if c.since.IsZero() {
			c.since = c.now()
		}
	}
	c.report(warmup.Event{Kind: warmup.EventLedgerRestored, IP: ip, Why: why})
}

// trouble returns in words that the ledger was lost and how warm-ups went on, "" when it was not, or a day ago.
func (c *secondCopy) trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || c.now().Sub(c.since) > toldFor {
		return ""
	}
	all := []string{fmt.Sprintf("the warm-up ledger was lost: %v", cmp.Or(c.lost, errors.New("it lacked records")))}
	for _, ip := range slices.Sorted(maps.Keys(c.restored)) {
		all = append(all, c.restored[ip])
	}
	return faultlog.Few(all)
}

// save writes what has changed behind the ledger.
func (c *secondCopy) save(ctl *warmup.Controller) {
	if c.store == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	values, versions := make(map[string][]byte), make(map[string]uint64)
	for _, ip := range ctl.IPs() {
		value, version := ctl.Copy(ip, c.saved[ip])
		if value != nil && c.shared != nil { // others may send on
			value, _ = warmup.UsedUp(value)
		}
		if value != nil {
			values[ip], versions[ip] = value, version
		}
	}
	if len(values) == 0 {
		return
	}
	err := c.store.Save(values)
	if c.shared != nil {
		err = errors.Join(err, keep(c.shared, values))
	}
	if err != nil && !c.failing {
		c.log.Error("second copy of the warm-up ledger can't be written", "error", err)
	}
	if c.failing = err != nil; !c.failing {
		maps.Copy(c.saved, versions)
	}
}

// keep writes what all nodes share into this relay's own ledger.
func keep(own warmup.Store, values map[string][]byte) error {
	var keys []warmup.Key
	for _, ip := range slices.Sorted(maps.Keys(values)) {
		keys = append(keys, warmup.Key{Name: ip})
	}
	records, _, err := own.Claim(context.Background(), "", time.Second, keys, nil)
	if err != nil {
		return err
	}
	var changes []warmup.Change
	for _, r := range records {
		changes = append(changes,
			warmup.Change{Name: r.Name, Fence: r.Fence, Version: r.Version, Value: values[r.Name]})
	}
	_, err = own.Write(context.Background(), changes, nil)
	return err
}
