package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

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
