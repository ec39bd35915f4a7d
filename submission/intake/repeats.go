package intake

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
)

// RequestKey names a request in the store: sums of the tenant and its Idempotency-Key, with a secret of the relay, so
// that nobody can tell from a disk which keys a tenant uses. It is never zero.
type RequestKey = envelope.RequestKey

// StoredRequest is what the store knows of a request.
type StoredRequest struct {
	Request [16]byte            // the sum of the request
	IDs     map[int]envelope.ID // of its messages that were accepted, by position
	Whole   bool                // it was answered, or about to be: Answer is there
	Answer  []byte
	Until   time.Time // when it is forgotten
}

// RepeatStore has the requests whose messages are durable.
type RepeatStore interface {
	// Keyed returns what became of a request; false when its key is not known. An error says that this can't be
	// known just now.
	Keyed(RequestKey) (StoredRequest, bool, error)
}

// Repeats recognise requests that are sent again. A client that got no answer sends its request once more with the same
// Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07), and gets an [Outcome]: take all of it, take the rest,
// or give the same answer again and take nothing.
//
// A [RepeatStore] keeps what is durable, with the messages; Repeats have only the requests that are under way. They are
// safe for concurrent use, and start no goroutines.
type Repeats struct {
	own   *secrets
	store RepeatStore

	peers  Peers // nil without a cluster
	shared *secrets
	now    func() time.Time

	mu       sync.Mutex
	moved    []*secrets              // of relays whose keys were moved here
	underWay map[RequestKey][16]byte // the sum of each request
}

// secrets are what the names and sums of a relay's requests are made with.
type secrets struct {
	of                      string // they are derived from it
	keys, requests, tenants []byte
}

// NewRepeats knows requests by sums made with a secret. It must be the same after a restart, or no key is known any
// more.
func NewRepeats(secret []byte, s RepeatStore) *Repeats {
	return &Repeats{own: derived(string(secret)), store: s, underWay: map[RequestKey][16]byte{}}
}

func derived(secret string) *secrets {
	derive := func(purpose string) []byte {
		h := hmac.New(sha256.New, []byte(secret))
		h.Write([]byte(purpose))
		return h.Sum(nil)
	}
	return &secrets{secret, derive("idempotency keys"), derive("requests"), derive("tenants")}
}

// Secret returns the secret that the sums are made with.
func (b *Repeats) Secret() string { return b.own.of }

// Moved makes the keys of other relays, whose secrets these are, known. The store has them under
// envelope.RequestKey.Moved. They replace the secrets of the call before.
func (b *Repeats) Moved(of []string) {
	var list []*secrets
	for _, secret := range of {
		list = append(list, derived(secret))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moved = list
}

// movedHere returns the secrets of the other relays. Nobody changes the list.
func (b *Repeats) movedHere() []*secrets {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moved
}

// Shares returns what stands for a tenant in its keys, those of other relays included.
func (b *Repeats) Shares(tenant string) [][4]byte {
	shares := [][4]byte{b.own.share(tenant)}
	for _, x := range b.movedHere() {
		shares = append(shares, x.share(tenant))
	}
	return shares
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
	Key     RequestKey // in the store
	Request [16]byte
	Stored  StoredRequest // of Replay and Continue

	name RequestKey // in Repeats.underWay
	book *Repeats
	once sync.Once
	note noted                                                // of a request that was claimed
	end  func(note string, keep time.Duration, accepted bool) // nil: it was not, so nobody must know how it ends
}

// names gives the name of a tenant's request in the store, and that which earlier versions of this program gave it.
func (x *secrets) names(tenant, key string) [2]RequestKey {
	h := hmac.New(sha256.New, x.keys)
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(tenant))))
	h.Write([]byte(tenant))
	h.Write([]byte(key))
	sum := h.Sum(nil)
	return [2]RequestKey{envelope.NewRequestKey(x.share(tenant), [10]byte(sum)), RequestKey(sum[:16])}
}

// share stands for a tenant. It need not withstand guesses, since messages have their tenants in clear.
func (x *secrets) share(tenant string) [4]byte {
	of := sha256.Sum256(append(append(make([]byte, 0, 128), x.tenants...), tenant...))
	return [4]byte(of[:])
}

// find looks for a request in the store, and returns the name that it has there.
func (b *Repeats) find(names ...RequestKey) (name RequestKey, s StoredRequest, known bool, err error) {
	for _, name = range names {
		if s, known, err = b.store.Keyed(name); err != nil {
			return name, s, false, fmt.Errorf("looking up an idempotency key: %w", err)
		} else if known {
			return name, s, true, nil
		}
	}
	return names[0], s, false, nil
}

// Taken returns what this relay has taken of a tenant's request, whatever it asked for; false when its key is not
// known.
func (b *Repeats) Taken(tenant, key string) (StoredRequest, bool, error) {
	names := b.own.names(tenant, key)
	_, s, known, err := b.find(names[:]...)
	return s, known, err
}

// Answered reports whether a request with the key was answered, here or by a relay whose keys were moved here,
// whatever it asked for.
func (b *Repeats) Answered(tenant, key string) (bool, error) {
	s, _, err := b.Taken(tenant, key)
	for _, x := range b.movedHere() {
		if err != nil || s.Whole {
			break
		}
		_, s, _, err = b.find(x.names(tenant, key)[0].Moved())
	}
	return s.Whole, err
}

// Known reports whether a request with the key is under way, or some of it was taken, whatever it asked for.
func (b *Repeats) Known(tenant, key string) (bool, error) {
	b.mu.Lock()
	_, known := b.underWay[b.own.names(tenant, key)[0]]
	b.mu.Unlock()
	if known {
		return true, nil
	}
	if _, known, err := b.Taken(tenant, key); known || err != nil {
		return known, err
	}
	return b.Answered(tenant, key)
}

// RequestSum is the sum of a request: write what makes it another one. Parts whose length isn't plain from what they
// are must be written with it.
type RequestSum struct {
	own   hash.Hash
	moved []movedSum
}

// movedSum is the sum that the request has at another relay, or in a cluster.
type movedSum struct {
	secret string
	sum    hash.Hash
}

// Sum begins the sum of a request.
func (b *Repeats) Sum() *RequestSum {
	s := &RequestSum{own: hmac.New(sha256.New, b.own.requests)}
	others := b.movedHere()
	if b.peers != nil {
		others = append(slices.Clone(others), b.shared)
	}
	for _, x := range others {
		s.moved = append(s.moved, movedSum{x.of, hmac.New(sha256.New, x.requests)})
	}
	return s
}

// Write implements io.Writer. It never fails.
func (s *RequestSum) Write(p []byte) (int, error) {
	for _, m := range s.moved {
		m.sum.Write(p)
	}
	return s.own.Write(p)
}

// Own returns the sum that is stored with requests which this relay takes.
func (s *RequestSum) Own() [16]byte { return [16]byte(s.own.Sum(nil)) }

// at returns the sum that the request has at another relay; false when that was not known at its beginning.
func (s *RequestSum) at(x *secrets) (sum [16]byte, ok bool) {
	for _, m := range s.moved {
		if m.secret == x.of {
			return [16]byte(m.sum.Sum(nil)), true
		}
	}
	return sum, false
}

// Begin looks whether a request was sent before. The claim is nil with Other and UnderWay; otherwise it must be
// dropped once the request is answered or given up. An error is an Elsewhere or the relay's own trouble: the request
// can't be taken now, since it may have been taken before.
func (b *Repeats) Begin(ctx context.Context, tenant, key string, request *RequestSum) (*Claim, Outcome, error) {
	names := b.own.names(tenant, key)
	c := &Claim{Request: request.Own(), book: b, name: names[0]}
	if other, ok := b.claim(c); !ok {
		if other != c.Request {
			return nil, Other, nil
		}
		return nil, UnderWay, nil
	}
	outcome, err := c.look(tenant, key, names, request)
	if b.peers != nil && err == nil && (outcome == Fresh || outcome == Continue) {
		outcome, err = c.agree(ctx, tenant, key, request, outcome)
	}
	if err != nil || outcome == Other || outcome == UnderWay {
		c.Drop()
		return nil, outcome, err
	}
	return c, outcome, nil
}

// look finds out what became of the request here, and at other relays whose keys were moved here: what is there of it
// is what any of them has taken.
func (c *Claim) look(tenant, key string, names [2]RequestKey, request *RequestSum) (Outcome, error) {
	name, stored, known, err := c.book.find(names[:]...)
	if err != nil {
		return Fresh, err
	}
	if c.Key, c.Stored = name, stored; known && stored.Request != c.Request {
		return Other, nil
	}
	for _, x := range c.book.movedHere() {
		_, there, ok, err := c.book.find(x.names(tenant, key)[0].Moved())
		if err != nil {
			return Fresh, err
		}
		if !ok {
			continue
		}
		sum, ok := request.at(x)
		if !ok { // the key came after the beginning of the request
			return UnderWay, nil
		}
		if there.Request != sum {
			return Other, nil
		}
		known = true
		c.Stored.add(&there)
	}
	switch {
	case !known:
		return Fresh, nil
	case c.Stored.Whole:
		return Replay, nil
	}
	return Continue, nil
}

// add adds what another relay has taken of the request.
func (s *StoredRequest) add(other *StoredRequest) {
	if s.IDs == nil {
		s.IDs = make(map[int]envelope.ID)
	}
	for position, id := range other.IDs {
		if s.IDs[position] == 0 {
			s.IDs[position] = id
		}
	}
	if !s.Whole {
		s.Whole, s.Answer = other.Whole, other.Answer
	}
}

// claim notes that a request is under way. It returns the sum of the one that is, and false, where there is one.
func (b *Repeats) claim(c *Claim) (other [16]byte, ok bool) {
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
		if c.end != nil {
			c.end(c.book.settled(c.note, c.Stored))
		}
		c.book.mu.Lock()
		defer c.book.mu.Unlock()
		delete(c.book.underWay, c.name)
	})
}

// Accepted gives the id of a message of the request that was accepted before; 0 when it was not.
func (c *Claim) Accepted(position int) envelope.ID { return c.Stored.IDs[position] }

// kept is how long a key is kept after its request, and after the last release of its mail.
const kept = 24 * time.Hour

// KeptUntil gives the time until which a key is kept: a day, or a day after the last of its messages is released.
func KeptUntil(now, released time.Time) time.Time {
	if released.After(now) {
		now = released
	}
	return now.Add(kept)
}

// maxKey is the longest key, in characters.
const maxKey = 255

var (
	errString = errors.New(
		`the key is not a well-formed string: write "..." with printable ASCII, and \" and \\ for a quote ` +
			"and a backslash (RFC 9651, section 3.3.3)")
	errBare = errors.New(`the key has a character that needs quotes: write it as a string, "..."`)
)

// ParseKey reads the value of an Idempotency-Key field: a string as structured fields have it, or, as most
// clients send it, the key alone. Both ways name the same key. It has 1 to 255 characters.
func ParseKey(field string) (string, error) {
	field = strings.Trim(field, " \t")
	key, err := field, error(nil)
	if strings.HasPrefix(field, `"`) {
		key, err = unquote(field)
	} else if strings.ContainsFunc(field, func(r rune) bool {
		return r < ' ' || r >= 0x7f || r == '"'
	}) || strings.Contains(field, ", ") {
		err = errBare // a comma and a space may join two fields (RFC 9110, 5.3)
	}
	if err != nil {
		return "", err
	}
	if n := len(key); n == 0 || n > maxKey {
		return "", fmt.Errorf("the key has %d characters: send 1 to %d, such as a UUID", n, maxKey)
	}
	return key, nil
}

// unquote reads a string of RFC 9651. An Idempotency-Key has no parameters, so nothing may follow.
func unquote(s string) (string, error) {
	var key strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if i != len(s)-1 {
				return "", errString
			}
			return key.String(), nil
		case c == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", errString
			}
			key.WriteByte(s[i])
		case c < ' ' || c >= 0x7f:
			return "", errString
		default:
			key.WriteByte(c)
		}
	}
	return "", errString
}
