package wiring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/postgres"
	"example.org/mta/mta/config"
	"example.org/mta/warmup"
)

// Warmups is the store of the warm-ups that all nodes of a cluster share.
type Warmups struct {
	engine *postgres.Engine
	part   func() error // why this relay takes no part in the cluster, nil when it does

	mu   sync.Mutex // guards last
	last warmup.Instant
}

var _ warmup.Store = (*Warmups)(nil)

// SharedWarmups opens the store of the cluster that a relay is in.
func SharedWarmups(cfg *config.Config, m *membership.Membership) (*Warmups, error) {
	k := &cfg.Cluster
	// The second connection is for when the first gets no answer.
	e, err := postgres.Open(postgres.Config{Database: string(k.Database), Replicated: k.Replicated, Most: 2})
	if err != nil {
		return nil, err
	}
	return NewWarmups(e, func() error {
		n := m.Node()
		if n == nil {
			return errors.New("this relay takes no part in the cluster")
		}
		return n.Lost()
	}), nil
}

// NewWarmups makes a store, which closes e when it is closed.
func NewWarmups(e *postgres.Engine, part func() error) *Warmups {
	return &Warmups{engine: e, part: part}
}

// Close closes the connections.
func (w *Warmups) Close() error {
	w.engine.Close()
	return nil
}

// Claim implements warmup.Store.
func (w *Warmups) Claim(ctx context.Context, node string, ttl time.Duration, keys []warmup.Key, dst []warmup.Record) (
	[]warmup.Record, warmup.Instant, error,
) {
	if err := w.part(); err != nil {
		return dst, 0, err
	}
	asked := make([]postgres.WarmupKey, len(keys))
	for i, k := range keys {
		asked[i] = postgres.WarmupKey{Name: []byte(k.Name), Have: k.Have}
	}
	w.mu.Lock()
	seen := w.last
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, owner.Patience)
	defer cancel()
	rows, now, err := w.engine.ClaimWarmups(ctx, node, ttl, int64(seen), asked)
	if err != nil {
		return dst, 0, err
	}
	for i, r := range rows {
		record := warmup.Record{Name: keys[i].Name, Busy: r.Busy || r.Full, Fence: r.Fence, Version: r.Version,
			Value: r.Value}
		if r.Full {
			record.Why = "the cluster has 10,000 warm-ups, the most it can have: delete those that no node has " +
				"under a plan from mta_cluster.warmups"
		}
		dst = append(dst, record)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = max(w.last, warmup.Instant(now))
	return dst, warmup.Instant(now), nil
}

// Write implements warmup.Store.
func (w *Warmups) Write(ctx context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	asked := make([]postgres.WarmupChange, len(changes))
	for i, c := range changes {
		asked[i] = postgres.WarmupChange{Name: []byte(c.Name), Fence: c.Fence, Version: c.Version, Value: c.Value,
			Release: c.Release}
	}
	ctx, cancel := context.WithTimeout(ctx, owner.Patience)
	defer cancel()
	done, err := w.engine.WriteWarmups(ctx, asked)
	if postgres.Unknown(err) {
		err = fmt.Errorf("%w: %w", warmup.ErrUnknownOutcome, err)
	}
	if err != nil {
		return dst, err
	}
	return append(dst, done...), nil
}
