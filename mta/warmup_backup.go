package mta

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/trouble"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// A second copy of the warm-ups' states is written behind the ledger, into the file of what was learned
// of destinations. When the ledger is lost, warm-ups go on from there, or else on the stage that the
// accounting records prove.

const (
	copyEvery   = 5 * time.Second
	provenSince = 7 * 24 * time.Hour // how far back records are read
	provenTime  = 10 * time.Second   // and for how long, at a start
	toldFor     = 24 * time.Hour     // how long the alarm stays
)

// copies keeps values by name.
type copies interface {
	Save(map[string][]byte) error
	Load() (map[string][]byte, error)
}

// secondCopy is the second copy, and the account of a ledger that was lost.
type secondCopy struct {
	store  copies // nil: there is no second copy
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

// openBackup looks whether the ledger was lost: it was damaged, or is new though copies or records show
// warm-ups.
func openBackup(cfg *config.Config, l ledger, store copies, now func() time.Time, log *slog.Logger) *secondCopy {
	b := &secondCopy{store: store, now: now, log: log, report: func(warmup.Event) {}, saved: make(map[string]uint64), owed: make(map[string]bool), restored: make(map[string]string)}
	known, ok := l.(interface {
		Damage() error
		Begun() bool
	})
	if !ok {
		return b
	}
	var err error
	if b.found, err = store.Load(); err != nil {
		log.Error("second copy of the warm-up ledger can't be read", "error", err)
	}
	if b.lost = known.Damage(); b.lost == nil && !known.Begun() {
		return b
	}
	addresses := sourcesUnderPlans(cfg)
	missing := maps.Clone(addresses) // those without a copy
	maps.DeleteFunc(missing, func(_, address string) bool { return b.found[address] != nil })
	if len(missing) > 0 {
		b.proven = provenBy(cfg, missing, now())
	}
	if b.lost == nil && (len(missing) < len(addresses) || len(b.proven) > 0) {
		b.lost = errors.New("the file is missing")
	}
	if b.lost != nil {
		b.since = now()
		for _, address := range addresses {
			b.owed[address] = true
		}
		log.Error("warm-up ledger was lost", "error", b.lost)
	}
	return b
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
	q := accounting.Query{Types: []accounting.Type{accounting.Delivery, accounting.TransientFailure, accounting.Bounce}, Since: now.Add(-provenSince)}
	_ = accounting.Read(ctx, cfg.Accounting.Path, q, func(line []byte) error { // as far as it can be read
		var r struct {
			Source string    `json:"egress_source"`
			Time   time.Time `json:"event_time"`
		}
		if !bytes.Contains(line, []byte("egress_source")) || json.Unmarshal(line, &r) != nil || sources[r.Source] == "" {
			return nil
		}
		d := day{sources[r.Source], now.Sub(r.Time) / (24 * time.Hour)}
		sent[d]++
		most[d.address] = max(most[d.address], sent[d])
		return nil
	}, nil)
	return most
}

// recall is warmup.Config.Recall.
func (b *secondCopy) recall(ip string, p *warmup.Plan, now warmup.Instant) *warmup.State {
	if value := b.found[ip]; value != nil {
		s, err := warmup.Restored(value, now)
		if err == nil {
			b.account(ip, fmt.Sprintf("%s goes on at stage %d from its second copy", ip, s.Stage+1))
			return s
		}
		b.log.Error("second copy of a warm-up can't be used", "ip", ip, "error", err)
	}
	if !b.owed[ip] {
		return nil
	}
	s := warmup.Proven(p, now, b.proven[ip])
	b.account(ip, fmt.Sprintf("%s goes on at stage %d, which accounting records prove (%d in a day), and sends nothing today", ip, s.Stage+1, b.proven[ip]))
	return s
}

// account notes how a warm-up went on.
func (b *secondCopy) account(ip, how string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.restored[ip] != "" { // it could not be written the last time
		return
	}
	b.report(warmup.Event{Kind: warmup.EventLedgerRestored, IP: ip, Why: "goes on without its ledger: " + how})
	b.restored[ip] = how
	if b.since.IsZero() {
		b.since = b.now()
	}
}

// trouble returns in words that the ledger was lost and how warm-ups went on, "" when it was not, or a day ago.
func (b *secondCopy) trouble() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() || b.now().Sub(b.since) > toldFor {
		return ""
	}
	all := []string{fmt.Sprintf("the warm-up ledger was lost: %v", cmp.Or(b.lost, errors.New("it lacked records")))}
	for _, ip := range slices.Sorted(maps.Keys(b.restored)) {
		all = append(all, b.restored[ip])
	}
	return trouble.Few(all)
}

// save writes what has changed behind the ledger.
func (b *secondCopy) save(ctl *warmup.Controller) {
	if b.store == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	values, versions := make(map[string][]byte), make(map[string]uint64)
	for _, ip := range ctl.IPs() {
		if value, version := ctl.Copy(ip, b.saved[ip]); value != nil {
			values[ip], versions[ip] = value, version
		}
	}
	if len(values) == 0 {
		return
	}
	err := b.store.Save(values)
	if err != nil && !b.failing {
		b.log.Error("second copy of the warm-up ledger can't be written", "error", err)
	}
	if b.failing = err != nil; !b.failing {
		maps.Copy(b.saved, versions)
	}
}
