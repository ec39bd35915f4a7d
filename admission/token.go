package admission

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// MaxAge bounds the credit for waiting: an older first attempt counts as one so long ago. A token is
// taken for twice that.
const MaxAge = 30 * time.Minute

// Claim is what a token states.
type Claim struct {
	First  time.Time // of the first attempt, exact to the millisecond
	Tenant string
	Bound  [16]byte // of the submission: the start of a hash of its idempotency key, or of its body
}

// Key signs tokens. ID is part of the token, so that two keys can be valid at a time; it must have
// neither "." nor be empty.
type Key struct {
	ID     string
	Secret []byte
}

// Signer makes tokens with the first of its keys, and checks them with all. It may be used by many
// goroutines at once.
type Signer struct{ keys atomic.Pointer[[]Key] }

// NewSigner returns a signer with at least one key.
func NewSigner(keys ...Key) *Signer {
	s := new(Signer)
	s.Rotate(keys...)
	return s
}

// Rotate replaces the keys. The first signs from now on.
func (s *Signer) Rotate(keys ...Key) { s.keys.Store(&keys) }

// Daily returns the keys of a day, made from a secret: today's, and yesterday's for tokens that were made
// before midnight. A relay with the secret has the same keys, after a restart too.
func Daily(secret []byte, now time.Time) []Key {
	day := now.Unix() / int64(24*time.Hour/time.Second)
	keys := make([]Key, 2)
	for i := range keys {
		id := strconv.FormatInt(day-int64(i), 10)
		h := hmac.New(sha256.New, secret)
		h.Write([]byte("queue token " + id))
		keys[i] = Key{ID: id, Secret: h.Sum(nil)}
	}
	return keys
}

const version = "v1"

// mac returns the first 16 octets of the HMAC of a token's signed part.
func (k *Key) mac(signed string) []byte {
	h := hmac.New(sha256.New, k.Secret)
	h.Write([]byte(signed))
	return h.Sum(nil)[:16]
}

// Token returns the token of a claim: v1.KEY.PAYLOAD.MAC. The payload has the time, what it is bound
// to, and a hash of the tenant.
func (s *Signer) Token(c Claim) string {
	k := &(*s.keys.Load())[0]
	signed := version + "." + k.ID + "." + base64.RawURLEncoding.EncodeToString(c.payload())
	return signed + "." + base64.RawURLEncoding.EncodeToString(k.mac(signed))
}

func (c *Claim) payload() []byte {
	p := binary.BigEndian.AppendUint64(nil, uint64(c.First.UnixMilli()))
	p = append(p, c.Bound[:]...)
	tenant := sha256.Sum256([]byte(c.Tenant))
	return append(p, tenant[:16]...)
}

// First returns the time of the first attempt that a submission is judged by: that of its token if
// the token is genuine, recent, and this tenant's for this submission; else now. It never fails.
func (s *Signer) First(token, tenant string, bound [16]byte, now time.Time) time.Time {
	at, ok := s.check(token, tenant, bound)
	if !ok || at.After(now) || now.Sub(at) > 2*MaxAge {
		return now
	}
	if oldest := now.Add(-MaxAge); at.Before(oldest) {
		return oldest
	}
	return at
}

func (s *Signer) check(token, tenant string, bound [16]byte) (time.Time, bool) {
	const longest = 200
	last := strings.LastIndexByte(token, '.')
	parts := strings.Split(token, ".")
	if len(token) > longest || len(parts) != 4 || parts[0] != version {
		return time.Time{}, false
	}
	mac, err1 := base64.RawURLEncoding.Strict().DecodeString(parts[3])
	payload, err2 := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err1 != nil || err2 != nil || len(payload) != 8+16+16 {
		return time.Time{}, false
	}
	for _, k := range *s.keys.Load() {
		if k.ID != parts[1] || !hmac.Equal(mac, k.mac(token[:last])) {
			continue
		}
		at := time.UnixMilli(int64(binary.BigEndian.Uint64(payload)))
		claim := Claim{First: at, Tenant: tenant, Bound: bound}
		return at, hmac.Equal(payload, claim.payload())
	}
	return time.Time{}, false
}

// RetryAfter returns how long a refused client should wait, 5 to 15 s; chance is from 0 to 1. A longer wait, spread
// less, would let the threshold see only a part of those who wait.
func RetryAfter(chance float64) time.Duration {
	return 5*time.Second + time.Duration(chance*float64(10*time.Second))
}
