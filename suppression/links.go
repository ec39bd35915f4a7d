package suppression

// Makes the links by which a recipient unsubscribes from a tenant's mail with one click
// (RFC 8058), and reads them.
//
// A link ends in a token that only this relay can make or read: it is encrypted and authenticated
// (XChaCha20-Poly1305) by a secret in the data directory, so that no address stands in logs of proxies and
// in browsers' histories, and nobody can unsubscribe others by guessing. It never expires: a recipient must be
// able to unsubscribe from a mail found years later. The nonce is derived from the content, so the same mail
// to the same recipient has the same link, and no randomness can repeat one.

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"example.org/mta/internal/envelope"
)

const (
	secretSize = 32
	// linkVersion is of what is encrypted, and begins it. A link of a newer linkVersion is not valid here.
	linkVersion = 1
	// maxToken bounds what is decoded: the longest tenant, campaign and address fit.
	maxToken = 2048
)

// Subscription is what a link ends: a tenant's mail to an address.
type Subscription struct {
	Tenant   string
	Address  envelope.Address
	Campaign string    // of the message with the link, "" for none
	Sent     time.Time // the message was accepted, to the second
}

// linkEncoding is that of tokens: characters that a URL's path can have (RFC 3986, 2.3), without the underscore of
// API keys' prefix, which is refused in URLs.
var linkEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-~").WithPadding(
	base64.NoPadding).Strict()

// Links makes and reads links. It is safe for concurrent use.
type Links struct {
	aead   cipher.AEAD
	nonce  []byte                   // the key that nonces are derived by
	others atomic.Pointer[[]*Links] // whose links are read, too
}

// Accept has the links of other relays read, too: those of these secrets and of none else.
func (l *Links) Accept(secrets [][]byte) error {
	others := make([]*Links, len(secrets))
	for i, secret := range secrets {
		var err error
		if others[i], err = NewLinks(secret); err != nil {
			return err
		}
	}
	l.others.Store(&others)
	return nil
}

// NewLinks makes links of a secret of 32 octets.
func NewLinks(secret []byte) (*Links, error) {
	if len(secret) != secretSize {
		return nil, fmt.Errorf("the secret has %d octets, not %d", len(secret), secretSize)
	}
	key, err := hkdf.Expand(sha256.New, secret, "mta unsubscribe key", chacha20poly1305.KeySize)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Expand(sha256.New, secret, "mta unsubscribe nonce", sha256.Size)
	if err != nil {
		return nil, err
	}
	aead, err := chacha20poly1305.NewX(key)
	return &Links{aead: aead, nonce: nonce}, err
}

// URL gives the link of a subscription: base, a slash, and the token.
func (l *Links) URL(base string, s *Subscription) string { return base + "/" + l.Token(s) }

// Token gives a subscription's token, in characters that a URL's path can have.
func (l *Links) Token(s *Subscription) string {
	plain := make([]byte, 0, 16+len(s.Tenant)+len(s.Campaign)+len(s.Address))
	plain = append(plain, linkVersion)
	plain = binary.AppendVarint(plain, s.Sent.Unix())
	for _, text := range []string{s.Tenant, s.Campaign, string(s.Address)} {
		plain = binary.AppendUvarint(plain, uint64(len(text)))
		plain = append(plain, text...)
	}
	m := hmac.New(sha256.New, l.nonce)
	m.Write(plain)
	nonce := m.Sum(nil)[:chacha20poly1305.NonceSizeX]
	sealed := l.aead.Seal(nonce, nonce, plain, nil)
	return linkEncoding.EncodeToString(sealed)
}

// open decrypts a token by the first secret that fits, nil without one.
func (l *Links) open(sealed []byte) []byte {
	plain, err := l.aead.Open(nil, sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:], nil)
	if err == nil {
		return plain
	}
	if others := l.others.Load(); others != nil {
		for _, other := range *others {
			if plain := other.open(sealed); plain != nil {
				return plain
			}
		}
	}
	return nil
}

// Read gives the subscription of a token; false for one that neither this relay nor one of the others has made.
func (l *Links) Read(token string) (s Subscription, ok bool) {
	if len(token) > maxToken {
		return s, false
	}
	sealed, err := linkEncoding.DecodeString(token)
	if err != nil || len(sealed) < chacha20poly1305.NonceSizeX {
		return s, false
	}
	plain := l.open(sealed)
	if len(plain) == 0 || plain[0] != linkVersion {
		return s, false
	}
	plain = plain[1:]
	sent, n := binary.Varint(plain)
	if n <= 0 {
		return s, false
	}
	plain, s.Sent = plain[n:], time.Unix(sent, 0).UTC()
	var address string
	for _, text := range []*string{&s.Tenant, &s.Campaign, &address} {
		size, n := binary.Uvarint(plain)
		if n <= 0 || size > uint64(len(plain)-n) {
			return s, false
		}
		*text, plain = string(plain[n:n+int(size)]), plain[n+int(size):]
	}
	s.Address = envelope.Address(address)
	return s, len(plain) == 0
}
