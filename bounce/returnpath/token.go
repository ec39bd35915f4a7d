// Package returnpath makes the tokens that go out in the return path of mail, and reads them when they come
// back in bounces and complaints: b-TOKEN@b.example.com names the message and the recipient that a report is
// about, and nobody else can make one.
//
// A token has 43 characters of Crockford's base 32, in which letters may change their case on the way (RFC
// 5321, 2.4 forbids that, and hosts do it): the version, and then in 208 bits the key's number, the node, the
// message, the recipient, the day and 80 bits of HMAC-SHA-256. Its content is not secret: a message's
// id is in its Received fields too, and addresses are not in it.
//
// The same token stands in header fields. One of another purpose, u-TOKEN, is the address that unsubscribes the
// recipient: who has the one can't make the other of it.
//
// There are no goroutines here.
package returnpath

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
)

// Purpose is what a token is for. It begins the local part of the address; the token follows.
type Purpose string

const (
	Bounce      Purpose = "b-" // reports about the message: bounces and complaints
	Unsubscribe Purpose = "u-" // the recipient wants no more mail
)

// Length is that of a token in characters.
const Length = 1 + (payloadSize+macSize)*8/5 + 1

const (
	payloadSize = 1 + 3 + 8 + 2 + 2 // key, node, message, recipient, day
	macSize     = 10
	version     = '1' // the first character: a format that is not ours is seen as such
	minSecret   = 32

	// maxRecipient is the highest position that fits beside "none".
	maxRecipient = 1<<16 - 2
)

// NoRecipient is the Recipient of a token that names only the message.
const NoRecipient = -1

// Token is what a return path names.
type Token struct {
	Key     uint8 // the number of the key that it was made by; Make does not read it
	Node    Node  // which relay sent the message
	Message envelope.ID
	// Recipient is the position among the different addresses of the message's envelope, from 0. It is
	// NoRecipient when the transaction had several.
	Recipient int
	Day       time.Time // midnight UTC of the day when the message was accepted, or released where it was held
}

// Node is a relay's nodeid, shortened to 24 bits.
type Node uint32

// NodeOf shortens a nodeid.
func NodeOf(id string) Node {
	sum := sha256.Sum256([]byte(id))
	return Node(sum[0])<<16 | Node(sum[1])<<8 | Node(sum[2])
}

// String gives six hexadecimal digits.
func (n Node) String() string { return fmt.Sprintf("%06x", uint32(n)) }

var (
	// ErrForged is of what no key in force has made.
	ErrForged = errors.New("the token is forged or damaged")
	// ErrExpired is of a token that is genuine and too old.
	ErrExpired = errors.New("the token has expired")

	errLength  = fmt.Errorf("%w: a token has %d characters", ErrForged, Length)
	errVersion = fmt.Errorf("%w: its version is unknown here", ErrForged)
	errDigits  = fmt.Errorf("%w: it has characters that tokens do not have", ErrForged)
	errKey     = fmt.Errorf("%w: no key in force has its number", ErrForged)
	errMAC     = fmt.Errorf("%w: its signature does not fit", ErrForged)
)

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// Keys make and read tokens. They are safe for concurrent use.
type Keys struct {
	valid  time.Duration
	keys   []*key // the first makes tokens, all read them
	others *Others
}

// Others are keys by which other relays make tokens, and which this one reads, too. The zero Others has none. It is
// safe for concurrent use.
type Others struct{ keys atomic.Pointer[[]*key] }

// Set replaces the secrets of the others. Each has at least 32 octets.
func (o *Others) Set(secrets [][]byte) error {
	keys := make([]*key, len(secrets))
	for i, secret := range secrets {
		var err error
		if keys[i], err = newKey(secret); err != nil {
			return err
		}
	}
	o.keys.Store(&keys)
	return nil
}

// And has k, which is not in use yet, read the tokens of others, too.
func (k *Keys) And(o *Others) { k.others = o }

type key struct {
	number uint8
	macs   sync.Pool // of hash.Hash
}

// Valid is how long after its message a token counts: bounces that come later are rare, and forged ones cheap.
const Valid = 30 * 24 * time.Hour

// New makes keys from secrets of at least 32 octets: the first makes tokens, the others only read those that
// are under way. A token can be read for valid from its day on; 0 means for ever.
func New(valid time.Duration, secrets ...[]byte) (*Keys, error) {
	if len(secrets) == 0 {
		return nil, errors.New("there is no secret to make tokens by")
	}
	k := &Keys{valid: valid, keys: make([]*key, len(secrets)), others: new(Others)}
	numbers := make(map[uint8]bool)
	for i, secret := range secrets {
		if len(secret) < minSecret {
			return nil, fmt.Errorf(
				"secret %d has %d octets; make one of at least %d, for example with 'openssl rand -hex 32'", i+1,
				len(secret), minSecret)
		}
		key, err := newKey(secret)
		if err != nil {
			return nil, err
		}
		if numbers[key.number] {
			return nil, fmt.Errorf("secret %d is the same as one before it, or has the same number (%d): "+
				"make another one", i+1, key.number)
		}
		numbers[key.number], k.keys[i] = true, key
	}
	return k, nil
}

func newKey(secret []byte) (*key, error) {
	derived, err := hkdf.Key(sha256.New, secret, nil, "mta return path", sha256.Size+1)
	if err != nil {
		return nil, err
	}
	k := &key{number: derived[sha256.Size]}
	k.macs.New = func() any { return hmac.New(sha256.New, derived[:sha256.Size]) }
	return k, nil
}

// Make gives the token of t for a purpose, in lower case.
func (k *Keys) Make(p Purpose, t Token) string {
	key := k.keys[0]
	var raw [payloadSize + macSize]byte
	raw[0] = key.number
	raw[1], raw[2], raw[3] = byte(t.Node>>16), byte(t.Node>>8), byte(t.Node)
	binary.BigEndian.PutUint64(raw[4:], uint64(t.Message))
	if 0 <= t.Recipient && t.Recipient <= maxRecipient {
		binary.BigEndian.PutUint16(raw[12:], uint16(t.Recipient+1))
	}
	binary.BigEndian.PutUint16(raw[14:], uint16(t.Day.Unix()/(24*60*60)))
	mac := key.sign(p, raw[:payloadSize])
	copy(raw[payloadSize:], mac[:])
	var text [Length]byte
	text[0] = version
	encoding.Encode(text[1:], raw[:])
	return string(text[:])
}

// Read gives what a token for a purpose, in any case, was made of. The error wraps ErrForged, or is ErrExpired: the
// Token is good in this case too.
func (k *Keys) Read(p Purpose, token string, now time.Time) (Token, error) {
	raw, err := decode(token)
	if err != nil {
		return Token{}, err
	}
	if err := k.genuine(p, &raw); err != nil {
		return Token{}, err
	}
	t := Token{
		Key:       raw[0],
		Node:      Node(raw[1])<<16 | Node(raw[2])<<8 | Node(raw[3]),
		Message:   envelope.ID(binary.BigEndian.Uint64(raw[4:])),
		Recipient: int(binary.BigEndian.Uint16(raw[12:])) - 1,
		Day:       time.Unix(int64(binary.BigEndian.Uint16(raw[14:]))*24*60*60, 0).UTC(),
	}
	if end := k.Until(t); !end.IsZero() && !now.Before(end) {
		return t, ErrExpired
	}
	return t, nil
}

// Until is when a token expires: it is good for the whole day before. Zero: never.
func (k *Keys) Until(t Token) time.Time {
	if k.valid == 0 {
		return time.Time{}
	}
	return t.Day.Add(k.valid + 24*time.Hour)
}

// Number is that of the key that makes tokens.
func (k *Keys) Number() uint8 { return k.keys[0].number }

func decode(token string) (raw [payloadSize + macSize]byte, err error) {
	if len(token) != Length {
		return raw, errLength
	}
	if token[0] != version {
		return raw, errVersion
	}
	var lower, again [Length - 1]byte
	for i := range lower {
		c := token[i+1]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	// The package skips line ends and ignores the spare bits: each token has one spelling.
	if n, err := encoding.Decode(raw[:], lower[:]); err != nil || n != len(raw) {
		return raw, errDigits
	}
	if encoding.Encode(again[:], raw[:]); again != lower {
		return raw, errDigits
	}
	return raw, nil
}

// genuine returns why no key in force has made a token. Keys of different relays can have the same number.
func (k *Keys) genuine(p Purpose, raw *[payloadSize + macSize]byte) error {
	all := k.keys
	if others := k.others.keys.Load(); others != nil {
		all = slices.Concat(all, *others)
	}
	why := errKey
	for _, key := range all {
		if key.number != raw[0] {
			continue
		}
		if mac := key.sign(p, raw[:payloadSize]); hmac.Equal(mac[:], raw[payloadSize:]) {
			return nil
		}
		why = errMAC
	}
	return why
}

// sign gives the HMAC of the purpose, the version and the payload, cut to its first octets (RFC 2104, 5).
func (k *key) sign(p Purpose, payload []byte) (mac [macSize]byte) {
	h := k.macs.Get().(hash.Hash)
	defer k.macs.Put(h)
	h.Reset()
	signed := make([]byte, 0, 2+1+payloadSize)
	h.Write(append(append(append(signed, p...), version), payload...))
	var sum [sha256.Size]byte
	copy(mac[:], h.Sum(sum[:0]))
	return mac
}

// Cut takes a local part apart into the purpose and the token; false for one without a purpose's prefix.
func Cut(local string) (p Purpose, token string, ok bool) {
	for _, p := range []Purpose{Bounce, Unsubscribe} {
		if n := len(p); len(local) >= n && strings.EqualFold(local[:n], string(p)) {
			return p, local[n:], true
		}
	}
	return "", "", false
}
