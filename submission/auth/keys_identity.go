package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of a check.
var (
	// ErrRefused is of a token that is unknown or wrong, has expired, or comes from a network that its key
	// does not allow.
	ErrRefused = errors.New("the API key is not valid")
	// ErrExpired is wrapped, beside ErrRefused or ErrTooManyWrongKeys, for a key that was valid once: its holder does
	// not guess.
	ErrExpired = errors.New("the API key has expired")
	// ErrTooManyWrongKeys is of a token that was not looked at further, since its network sends many that are refused.
	ErrTooManyWrongKeys = errors.New("too many requests without a valid API key")
	// ErrNoKeys is of any token while the keys file could never be read.
	ErrNoKeys = errors.New("the keys file can't be read")
	// ErrNoTenant is of a good token whose tenant the configuration does not have.
	ErrNoTenant = errors.New("the tenant of the API key has no block in the relay's configuration")
)

// Scopes are what the holder of a key may do: any of the bits.
type Scopes uint8

// The scopes.
const (
	MaySend       Scopes = 1 << iota // submit messages
	MayRead                          // see messages and their state
	MayCancel                        // cancel and move scheduled messages
	MayReadEvents                    // read what became of messages
	MaySuppress                      // read and change the tenant's suppression list

	MayAll = MaySend | MayRead | MayCancel | MayReadEvents | MaySuppress
)

var scopeNames = []string{"send", "read", "cancel", "events", "suppress"} // by bit

// Has reports whether s has all of some scopes.
func (s Scopes) Has(some Scopes) bool { return s&some == some }

// Names lists the scopes in their fixed order.
func (s Scopes) Names() []string {
	names := []string{}
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String lists the scopes with commas between.
func (s Scopes) String() string { return strings.Join(s.Names(), ",") }

// ParseScopes reads names of scopes. No name, or one twice, is an error.
func ParseScopes(names []string) (s Scopes, err error) {
next:
	for _, name := range names {
		for i, known := range scopeNames {
			if name != known {
				continue
			}
			if s&(1<<i) != 0 {
				return 0, fmt.Errorf("scope %q is there twice", name)
			}
			s |= 1 << i
			continue next
		}
		return 0, fmt.Errorf("unknown scope %q: there are %s", name, strings.Join(scopeNames, ", "))
	}
	if s == 0 {
		return 0, fmt.Errorf("no scope is given: there are %s", strings.Join(scopeNames, ", "))
	}
	return s, nil
}

// Identity is what a key says about its holder.
type Identity struct {
	ID      string // of the key; see ID
	Name    string // of the key, once for each tenant
	Tenant  string
	Scopes  Scopes
	Expires time.Time // zero: never
}

// KeyPrefix begins every token, so that people and scanners of leaked secrets know one:
// mta_[A-Za-z0-9_-]{43}.
const KeyPrefix = "mta_"

const (
	tokenBytes = 32
	tokenSize  = len(KeyPrefix) + (tokenBytes*8+5)/6 // octets of a token's text
	idSize     = 12
)

// KeySum is the SHA-256 of a token.
type KeySum [sha256.Size]byte

// newToken makes a token.
func newToken() (token string, sum KeySum) {
	var secret [tokenBytes]byte
	rand.Read(secret[:])
	token = KeyPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	return token, KeySumOf(token)
}

// KeySumOf gives the sum of a token.
func KeySumOf(token string) KeySum { return sha256.Sum256([]byte(token)) }

// ID names a key in lists and logs: the first 12 hexadecimal digits of its sum.
func (s KeySum) ID() string { return hex.EncodeToString(s[:idSize/2]) }

// wellFormed reports whether a text could be a token. What is none may be a password that someone
// mistyped, of which nothing may be logged.
func wellFormed(token string) bool {
	return len(token) == tokenSize && strings.HasPrefix(token, KeyPrefix)
}
