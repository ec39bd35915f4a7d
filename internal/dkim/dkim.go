// Package dkim signs messages (RFC 6376, RFC 8463), reads private keys, and writes and reads the DNS
// records that publish them. It knows neither queue nor SMTP.
//
// A message is read once, whatever the number of its signatures: Read keeps the header and hashes the
// body, and Message.Sign adds one DKIM-Signature field for each key. Both header and body are in
// relaxed canonical form; the whole body is covered, as the l= tag would let anybody add to it.
package dkim

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/net/publicsuffix"
)

// Algorithm is how a key signs, as the k= tag of its record has it.
type Algorithm string

// The algorithms of RFC 6376 and RFC 8463, both over SHA-256.
const (
	RSA     Algorithm = "rsa"
	Ed25519 Algorithm = "ed25519"
)

// Key is a private key under the name at which its public part is published. It is safe for use by
// many goroutines if its signer is.
type Key struct {
	Domain   string // the d= tag, in A-label form
	Selector string // the s= tag
	signer   crypto.Signer
	alg      Algorithm
}

// NewKey puts a name to a private key. The error names what signer is if it is not a key for DKIM.
func NewKey(domain, selector string, signer crypto.Signer) (*Key, error) {
	alg, err := algorithmOf(signer.Public())
	if err != nil {
		return nil, err
	}
	return &Key{Domain: domain, Selector: selector, signer: signer, alg: alg}, nil
}

// minRSABits is the least that signers may use (RFC 8301, 3.2).
const minRSABits = 1024

func algorithmOf(public crypto.PublicKey) (Algorithm, error) {
	switch k := public.(type) {
	case ed25519.PublicKey:
		return Ed25519, nil
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSABits {
			return "", fmt.Errorf("the RSA key has %d bits, and receivers take none below %d (RFC 8301)",
				bits, minRSABits)
		}
		return RSA, nil
	}
	return "", fmt.Errorf("a key of type %T can't sign mail: DKIM has RSA and Ed25519", public)
}

// Algorithm is how the key signs.
func (k *Key) Algorithm() Algorithm { return k.alg }

// Bits is the size of the key: of an RSA key its modulus.
func (k *Key) Bits() int {
	if p, ok := k.signer.Public().(*rsa.PublicKey); ok {
		return p.N.BitLen()
	}
	return 8 * ed25519.PublicKeySize
}

// Name is the DNS name of the key's record.
func (k *Key) Name() string { return k.Selector + "._domainkey." + k.Domain }

// Sign gives the DKIM-Signature fields of keys, each ending in CRLF, to be put in front of the
// message. at is their t= tag.
func (m *Message) Sign(keys []*Key, at time.Time) ([]byte, error) {
	signed, names, err := m.signedFields()
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 640*len(keys))
	for _, k := range keys {
		start := len(out)
		out = k.appendField(out, m.bodyHash, names, at)
		sum := sha256.New()
		sum.Write(signed)
		sum.Write(relaxedField(nil, out[start:])) // without a CRLF (RFC 6376, 3.7)
		signature, err := k.sign(sum.Sum(nil))
		if err != nil {
			return nil, fmt.Errorf("signing with key %s: %w", k.Name(), err)
		}
		out = appendFolded(out, base64.StdEncoding.EncodeToString(signature))
		out = append(out, '\r', '\n')
	}
	return out, nil
}

// sign signs a SHA-256 digest. Ed25519 takes the digest as its message (RFC 8463, 3).
func (k *Key) sign(digest []byte) ([]byte, error) {
	if k.alg == Ed25519 {
		return k.signer.Sign(rand.Reader, digest, crypto.Hash(0))
	}
	return k.signer.Sign(rand.Reader, digest, crypto.SHA256)
}

// appendField adds the field with an empty b= tag, which comes last.
func (k *Key) appendField(out []byte, bodyHash [sha256.Size]byte, names []string, at time.Time) []byte {
	out = append(out, fieldName+": v=1; a="...)
	out = append(out, k.alg...)
	out = append(out, "-sha256; c=relaxed/relaxed; d="...)
	out = append(out, k.Domain...)
	out = append(out, ";\r\n\ts="...)
	out = append(out, k.Selector...)
	out = append(out, "; t="...)
	out = strconv.AppendInt(out, at.Unix(), 10)
	out = append(out, ";\r\n\tbh="...)
	out = base64.StdEncoding.AppendEncode(out, bodyHash[:])
	out = append(out, ";\r\n\th="...)
	return append(appendNames(out, names), ";\r\n\tb="...)
}

const (
	fieldName  = "DKIM-Signature"
	lineLength = 74 // of folded lines, without CRLF
)

// appendNames adds the h= tag's value, folded behind colons (RFC 6376, 3.5).
func appendNames(out []byte, names []string) []byte {
	column := len("\th=")
	for i, name := range names {
		if i > 0 {
			out = append(out, ':')
			column++
			if column+len(name) > lineLength {
				out = append(out, "\r\n\t "...)
				column = 2
			}
		}
		out = append(out, name...)
		column += len(name)
	}
	return out
}

// appendFolded adds base64 behind the b= tag, in lines.
func appendFolded(out []byte, text string) []byte {
	for width := lineLength - len("\tb="); len(text) > width; width = lineLength - 2 {
		out = append(out, text[:width]...)
		out = append(out, "\r\n\t "...)
		text = text[width:]
	}
	return append(out, text...)
}

// Organization gives the domain that the owner of a domain has registered (RFC 7489, 3.2): the name below a public
// suffix as "co.uk". A public suffix is its own.
func Organization(domain string) string {
	if d, err := publicsuffix.EffectiveTLDPlusOne(domain); err == nil {
		return d
	}
	return domain
}

// SameOrganization reports whether two domains have one owner, as relaxed alignment demands (RFC 7489, 3.1.1).
func SameOrganization(a, b string) bool { return Organization(a) == Organization(b) }
