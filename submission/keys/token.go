package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// Prefix begins every token, so that people and scanners of leaked secrets know one:
// mta_[A-Za-z0-9_-]{43}.
const Prefix = "mta_"

const (
	tokenBytes = 32
	tokenSize  = len(Prefix) + (tokenBytes*8+5)/6 // octets of a token's text
	idSize     = 12
)

// Sum is the SHA-256 of a token.
type Sum [sha256.Size]byte

// newToken makes a token.
func newToken() (token string, sum Sum) {
	var secret [tokenBytes]byte
	rand.Read(secret[:])
	token = Prefix + base64.RawURLEncoding.EncodeToString(secret[:])
	return token, SumOf(token)
}

// SumOf gives the sum of a token.
func SumOf(token string) Sum { return sha256.Sum256([]byte(token)) }

// ID names a key in lists and logs: the first 12 hexadecimal digits of its sum.
func (s Sum) ID() string { return hex.EncodeToString(s[:idSize/2]) }

// wellFormed reports whether a text could be a token. What is none may be a password that someone
// mistyped, of which nothing may be logged.
func wellFormed(token string) bool {
	return len(token) == tokenSize && strings.HasPrefix(token, Prefix)
}
