package warmup

import (
	"context"
	"errors"
	"time"
)

// Errors of a Store. Any other error means that the store could not be reached and nothing was
// changed.
var (
	// ErrUnknownOutcome: the call may have been carried out or not. The caller repeats the very
	// same Write, which is harmless if it was.
	ErrUnknownOutcome = errors.New("outcome of the store's write is unknown")
)

// Store keeps one record for each warming IP, for all nodes. A node locks records, computes,
// writes them and lets go, all in batches: one Claim and one Write carry all IPs of a round.
//
// It must hold that
//   - each successful lock of a key gets a fencing token (Fence) larger than all before it, also
//     after a restart of the store;
//   - a Write succeeds only under the key's newest fence and with the version that it was read
//     at, so that a node that slept through its lock can't undo what others did since;
//   - when Write returns success, its records survive a crash;
//   - Now never goes back, also not over a restart.
//
// Methods may be called by many goroutines. checkStore in store_test.go checks an implementation.
type Store interface {
	// Claim locks the keys for owner until ttl has passed or the lock is released, and appends
	// a Record to dst for each, in order. A key that another owner holds has Busy set; one's own
	// lock is renewed under a new fence. now is the store's clock after locking.
	Claim(ctx context.Context, owner string, ttl time.Duration, keys []Key, dst []Record) (records []Record,
		now Instant, err error)

	// Write carries out each change on its own and appends to dst whether it was, in order.
	// Values may be used again by the caller when it returns.
	Write(ctx context.Context, changes []Change, dst []bool) (written []bool, err error)

	// Keys lists all records, sorted.
	Keys(ctx context.Context) ([]string, error)
}

// Key names a record to lock. A value whose version the caller has already is not sent again.
type Key struct {
	Name string
	Have uint64 // 0: none
}

// Record is a locked record.
type Record struct {
	Name    string
	Busy    bool   // locked by another owner; the rest is zero
	Fence   uint64 // the lock's token
	Version uint64 // 0: there is no such record yet
	Value   []byte // nil when the caller has this version; the caller's to keep
}

// Change writes a record, releases its lock, or both.
type Change struct {
	Name    string
	Fence   uint64
	Version uint64 // that it was read at; the written one is one above
	Value   []byte // nil: keep the value, only release
	Release bool   // ends the lock if the change is carried out
}
