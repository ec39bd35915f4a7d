package postgres

import (
	"context"
	"fmt"
	"time"
)

// WarmupKey names a warm-up to lock. A value whose version the caller has is not sent again.
type WarmupKey struct {
	Name []byte `json:"name"` // of 256 octets at most
	Have uint64 `json:"have"` // 0: none
}

// WarmupRow is a warm-up as it was locked.
type WarmupRow struct {
	Busy    bool   `json:"busy"` // another owner has it; the rest is zero
	Full    bool   `json:"full"` // there are 10,000 others; the rest is zero
	Fence   uint64 `json:"fence"`
	Version uint64 `json:"version"` // 0: nothing has been written
	Value   []byte `json:"value"`
}

// WarmupChange writes a warm-up, ends its lock, or both.
type WarmupChange struct {
	Name    []byte `json:"name"`
	Fence   uint64 `json:"fence"`
	Version uint64 `json:"version"` // that it was read at
	Value   []byte `json:"value"`   // of 128 KiB at most; nil: it stays
	Release bool   `json:"release"`
}

// ClaimWarmups locks the warm-ups that no other owner has, for ttl, and returns a row for each, in order. now is the
// time of all warm-ups, in milliseconds since 1970: the database's, and never before seen. After an error nothing is
// locked, or by this owner for ttl.
func (e *Engine) ClaimWarmups(ctx context.Context, owner string, ttl time.Duration, seen int64, keys []WarmupKey) (
	rows []WarmupRow, now int64, err error,
) {
	call := struct {
		Owner string      `json:"owner"`
		TTL   int64       `json:"ttl"`
		Seen  int64       `json:"seen"`
		Keys  []WarmupKey `json:"keys"`
	}{owner, ttl.Milliseconds(), seen, append([]WarmupKey{}, keys...)}
	var got struct {
		Now  int64
		Rows []WarmupRow
	}
	err = e.call(ctx, &got, "SELECT mta_cluster.warmups_claimed($1)", call)
	if err == nil && len(got.Rows) != len(keys) {
		err = fmt.Errorf("the database answers %d of %d warm-ups", len(got.Rows), len(keys))
	}
	if err != nil {
		err = fmt.Errorf("the warm-ups of the cluster: %w", err)
	}
	return got.Rows, got.Now, err
}

// WriteWarmups carries out each change that has the newest fence and version, and returns which, in order. To repeat
// the same call is harmless. After an error nothing was done, unless Unknown.
func (e *Engine) WriteWarmups(ctx context.Context, changes []WarmupChange) (done []bool, err error) {
	err = e.call(ctx, &done, "SELECT mta_cluster.warmups_written($1)", append([]WarmupChange{}, changes...))
	if err == nil && len(done) != len(changes) {
		err = fmt.Errorf("the database answers %d of %d changes", len(done), len(changes))
	}
	if err != nil {
		err = fmt.Errorf("the warm-ups of the cluster: %w", err)
	}
	return done, err
}
