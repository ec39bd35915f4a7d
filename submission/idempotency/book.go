// Package idempotency recognises requests that are sent again. A client that got no answer sends its request once
// more with the same Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07), and the Book says what to do: take
// all of it, take the rest, or give the same answer again and take nothing.
//
// What is durable is kept by a Store, with the messages; the Book has only the requests that are under way. It
// starts no goroutines.
package idempotency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
)

// Key names a request in the store: sums of the tenant and its Idempotency-Key, with a secret of the relay, so
// that nobody can tell from a disk which keys a tenant uses. It is never zero.
type Key = envelope.RequestKey

// Stored is what the store knows of a request.
type Stored struct {
	Request [16]byte            // the sum of the request
	IDs     map[int]envelope.ID // of its messages that were accepted, by position
	Whole   bool                // it was answered, or about to be: Answer is there
	Answer  []byte
	Until   time.Time // when it is forgotten
}

// Store has the requests whose messages are durable.
type Store interface {
	// Keyed returns what became of a request; false when its key is not known. An error says that this can't be
	// known just now.
	Keyed(Key) (Stored, bool, error)
}

// Book says what to do with requests that have a key. It is safe for concurrent use.
type Book struct {
	keys, requests, tenants []byte // secrets
	store                   Store

	mu       sync.Mutex
	underWay map[Key][16]byte // the sum of each request
}

// New makes a book. The secret must be the same after a restart, or no key is known any more.
func New(secret []byte, s Store) *Book {
	return &Book{keys: derive(secret, "idempotency keys"), requests: derive(secret, "requests"), tenants: derive(secret, "tenants"), store: s, underWay: map[Key][16]byte{}}
}

func derive(secret []byte, purpose string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(purpose))
	return h.Sum(nil)
}

// Outcome is what to do with a request.
type Outcome uint8

const (
	Fresh    Outcome = iota // take it
	Replay                  // it was answered: give the same answer, take nothing
	Continue                // it was cut off half way: take what is not there yet
	Other                   // the key was used for another request: 422
	UnderWay                // the same request is being taken just now: 409
)

var outcomeNames = [...]string{"fresh", "replay", "continue", "other", "under way"}

// String gives the word for a log.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// Claim is the right to take a request. Nobody else gets one for the same key until it is dropped.
type Claim struct {
	Key     Key // in the store
	Request [16]byte
	Stored  Stored // of Replay and Continue

	name Key // in Book.underWay
	book *Book
	once sync.Once
}

// names gives the name of a tenant's request in the store, and that which earlier versions of this program gave it.
func (b *Book) names(tenant, key string) [2]Key {
	h := hmac.New(sha256.New, b.keys)
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(tenant))))
	h.Write([]byte(tenant))
	h.Write([]byte(key))
	sum := h.Sum(nil)
	return [2]Key{envelope.NewRequestKey(b.share(tenant), [10]byte(sum)), Key(sum[:16])}
}

// share stands for a tenant. It need not withstand guesses, since messages have their tenants in clear.
func (b *Book) share(tenant string) [4]byte {
	of := sha256.Sum256(append(append(make([]byte, 0, 128), b.tenants...), tenant...))
	return [4]byte(of[:])
}

// find looks for a request in the store, and returns the name that it has there.
func (b *Book) find(names [2]Key) (name Key, s Stored, known bool, err error) {
	for _, name = range names {
		if s, known, err = b.store.Keyed(name); err != nil {
			return name, s, false, fmt.Errorf("looking up an idempotency key: %w", err)
		} else if known {
			return name, s, true, nil
		}
	}
	return names[0], s, false, nil
}

// Known returns what the store knows of a tenant's request, whatever it asked for; false when its key is not known.
func (b *Book) Known(tenant, key string) (Stored, bool, error) {
	_, s, known, err := b.find(b.names(tenant, key))
	return s, known, err
}

// Hash begins the sum of a request: write what makes it another one, and give it to Sum. Parts whose length isn't
// plain from what they are must be written with it.
func (b *Book) Hash() hash.Hash { return hmac.New(sha256.New, b.requests) }

// Sum ends the sum of a request.
func Sum(h hash.Hash) (sum [16]byte) {
	copy(sum[:], h.Sum(nil))
	return sum
}

// Begin looks whether a request was sent before. The claim is nil with Other and UnderWay; otherwise it must be
// dropped once the request is answered or given up. An error is the relay's own trouble: the request can't be
// taken now, since it may have been taken before.
func (b *Book) Begin(tenant, key string, request [16]byte) (*Claim, Outcome, error) {
	names := b.names(tenant, key)
	c := &Claim{Request: request, book: b, name: names[0]}
	if other, ok := b.claim(c); !ok {
		if other != request {
			return nil, Other, nil
		}
		return nil, UnderWay, nil
	}
	name, stored, known, err := b.find(names)
	c.Key = name
	switch {
	case err != nil:
		c.Drop()
		return nil, Fresh, err
	case !known:
		return c, Fresh, nil
	case stored.Request != request:
		c.Drop()
		return nil, Other, nil
	}
	if c.Stored = stored; stored.Whole {
		return c, Replay, nil
	}
	return c, Continue, nil
}

// claim notes that a request is under way. It returns the sum of the one that is, and false, where there is one.
func (b *Book) claim(c *Claim) (other [16]byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other, taken := b.underWay[c.name]; taken {
		return other, false
	}
	b.underWay[c.name] = c.Request
	return c.Request, true
}

// Drop ends a claim, whether its request was answered or given up: what is durable of it is in the store by now. It
// may be called on nil, and more than once.
func (c *Claim) Drop() {
	if c == nil {
		return
	}
	c.once.Do(func() {
		c.book.mu.Lock()
		defer c.book.mu.Unlock()
		delete(c.book.underWay, c.name)
	})
}

// Accepted gives the id of a message of the request that was accepted before; 0 when it was not.
func (c *Claim) Accepted(position int) envelope.ID { return c.Stored.IDs[position] }

// kept is how long a key is kept after its request, and after the last release of its mail.
const kept = 24 * time.Hour

// Until gives the time until which a key is kept: a day, or a day after the last of its messages is released.
func Until(now, released time.Time) time.Time {
	if released.After(now) {
		now = released
	}
	return now.Add(kept)
}
