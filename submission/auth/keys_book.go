package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"example.org/mta/internal/faultlog"
	"example.org/mta/internal/network"
	"example.org/mta/internal/smallfile"
)

// How requests without a good key are slowed, by network.
const (
	freeRefusals = 10 // which cost nothing but the wait for a whole second
	longestWait  = 8 * time.Second
	keyPatience  = 30 * time.Second
	maxWaiting   = 32 // of one network: the others are answered at once that they are too many
)

// KeyConfig is what a Keys is made from.
type KeyConfig struct {
	File string // of keys
	Use  string // the file with the last uses; "": not kept over restarts
	// Tenant reports whether the configuration has a tenant.
	Tenant func(name string) bool
	Shared *SharedKeys      // count before the file; nil: none
	Now    func() time.Time // nil: time.Now
	Log    *slog.Logger     // nil: none
}

// Keys is the keys in force. It is safe for concurrent use, and shared by all listeners.
type Keys struct {
	cfg     KeyConfig
	file    *smallfile.Follower[byKey]
	uses    *uses
	guesses *Pace[netip.Prefix]
	putOff  *faultlog.Kind
	orphans *faultlog.Kind

	accepted, refused, tooMany atomic.Int64
}

// byKey is the keys of a file.
type byKey struct{ of map[KeySum]*keyInForce }

// keyInForce is a key, with what is answered when it is used.
type keyInForce struct {
	*Key
	identity Identity
	used     *lastUse
}

// OpenKeys makes a book. A keys file that can't be read is no error: no key is good until it can.
func OpenKeys(cfg KeyConfig) *Keys {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	b := &Keys{
		cfg: cfg, uses: openUses(cfg.Use, cfg.Log),
		guesses: NewPace[netip.Prefix](PaceConfig{Free: freeRefusals, Longest: longestWait,
			Waiting: maxWaiting, Now: cfg.Now}),
		putOff: faultlog.New(cfg.Log, cfg.Now, slog.LevelWarn,
			"requests without a valid API key are put off: their network sends too many",
			"no more requests without a valid API key are put off"),
	}
	b.orphans = faultlog.New(cfg.Log, cfg.Now, slog.LevelWarn,
		"an API key is of a tenant without a block: write the block, or remove the key",
		"API keys of unknown tenants are no longer used")
	reading := faultlog.New(cfg.Log, cfg.Now, slog.LevelError,
		"the keys file can't be read; API keys that were read before stay in force", "the keys file is read again")
	b.file = smallfile.Follow(cfg.File, b.load, b.taken, reading)
	return b
}

// load reads the keys file.
func (b *Keys) load(path string) (*byKey, error) {
	t, err := LoadKeys(path)
	if err != nil {
		return nil, err
	}
	of := make(map[KeySum]*keyInForce, len(t.keys))
	for _, k := range t.keys {
		of[k.Sum] = &keyInForce{k, k.identity(), b.uses.of(k.ID())}
	}
	return &byKey{of}, nil
}

func (b *Keys) taken(was, is *byKey) {
	var keys []*Key
	for _, k := range is.of {
		keys = append(keys, k.Key)
	}
	b.cfg.Shared.Take(b.cfg.File, keys)
	b.uses.keep(b.cfg.Shared.Over(keys))
	if was != nil {
		b.cfg.Log.Info("keys file read", "file", b.cfg.File, "keys", len(is.of))
	}
}

// Close writes the last uses.
func (b *Keys) Close() {
	if b != nil {
		b.uses.soon.close()
	}
}

// fresh bounds the age of what is known of the keys file when a key is used: a stat for each request took 6 us,
// more than all else about the key. A key that was added is good at once; one that was removed is refused after
// this time, or at once after Reread.
const fresh = 10 * time.Millisecond

// Reread looks at the keys file at once. Whoever has changed the file calls it.
func (b *Keys) Reread() { b.file.Get(0) }

// Check gives the identity of a token that a client at an address shows. The error is one of this package's:
// ErrRefused and ErrTooManyWrongKeys come late, so that guesses are slow; a good token never waits.
func (b *Keys) Check(ctx context.Context, token string, from netip.Addr) (Identity, error) {
	keys, sum := b.file.Get(fresh), KeySumOf(token)
	k := b.find(keys, sum)
	if k == nil {
		keys = b.file.Get(0) // it may just have been added
		k = b.find(keys, sum)
	}
	if keys == nil && k == nil {
		return Identity{}, ErrNoKeys
	}
	now := b.cfg.Now()
	if why := refusal(k, from, now); why != "" {
		err := b.refuse(ctx, k, token, from, why)
		if k != nil && k.Expired(now) {
			err = fmt.Errorf("%w: %w", err, ErrExpired)
		}
		return Identity{}, err
	}
	if b.cfg.Tenant != nil && !b.cfg.Tenant(k.Tenant) {
		b.orphans.Failed(k.Tenant, "tenant", k.Tenant, "name", k.Name, "key", k.identity.ID, "client", from)
		return Identity{}, ErrNoTenant
	}
	b.orphans.Well()
	b.uses.note(k.used, now)
	b.accepted.Add(1)
	return k.identity, nil
}

// find returns a key in force, nil without one.
func (b *Keys) find(keys *byKey, sum KeySum) *keyInForce {
	if k, is := b.cfg.Shared.Find(sum); k != nil {
		return &keyInForce{k, k.identity(), b.uses.of(k.ID())}
	} else if is || keys == nil {
		return nil
	}
	return keys.of[sum]
}

// Shared are the keys that are shared in a cluster; nil without any.
func (b *Keys) Shared() *SharedKeys { return b.cfg.Shared }

// refusal returns why a key is not good, "" when it is.
func refusal(k *keyInForce, from netip.Addr, now time.Time) string {
	switch {
	case k == nil:
		return "unknown key"
	case k.Expired(now):
		return "expired key"
	case !k.allows(from):
		return "key not allowed from this address"
	}
	return ""
}

// refuse logs and counts a refusal, and answers it late.
func (b *Keys) refuse(ctx context.Context, k *keyInForce, token string, from netip.Addr, why string) error {
	began := b.cfg.Now()
	client := network.Of(from)
	patient, cancel := context.WithTimeout(ctx, keyPatience)
	defer cancel()
	turn, err := b.guesses.Take(patient, client)
	if err != nil {
		b.tooMany.Add(1)
		b.putOff.Failed("", "network", client)
		return ErrTooManyWrongKeys
	}
	b.refused.Add(1)
	args := []any{"client", from, "reason", why}
	switch {
	case k != nil:
		args = append(args, "key", k.identity.ID, "name", k.Name, "tenant", k.Tenant)
	case wellFormed(token):
		args = append(args, "key", KeySumOf(token).ID())
	}
	b.cfg.Log.Warn("API key refused", args...)
	b.guesses.Done(client, turn, true)
	Late(ctx, b.cfg.Now().Sub(began))
	return ErrRefused
}

// LastUse gives when a key was used last, by its id, to the minute; the zero time when it never was.
func (b *Keys) LastUse(id string) time.Time { return b.uses.last(id) }

// Problem returns what an operator should look at, "" when there is nothing.
func (b *Keys) Problem() string {
	if !b.putOff.Lately(time.Minute) {
		b.putOff.Well()
	}
	if err := b.file.Broken(); err != nil {
		return fmt.Sprintf("the keys file can't be read; API keys that were read before stay in force: %v", err)
	}
	if network, n := b.guesses.Worst(); n > 0 {
		return fmt.Sprintf(
			"%d requests from %s had no valid API key, and it goes on: they are slowed down; the log has 'API key "+
				"refused' with the reason of each", n, network)
	}
	return ""
}

// KeyStats counts checks since the start.
type KeyStats struct {
	Accepted int64
	Refused  int64
	TooMany  int64 // put off, without an answer about the key
}

// KeyStats gives the counts.
func (b *Keys) Stats() KeyStats {
	return KeyStats{b.accepted.Load(), b.refused.Load(), b.tooMany.Load()}
}

// KeyRefused reports whether an error of Check means that the client has no good key.
func KeyRefused(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrTooManyWrongKeys)
}
