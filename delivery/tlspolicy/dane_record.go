package tlspolicy

import (
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
)

// Usages, selectors and matching types (RFC 7218, 2). The usages 0 (PKIX-TA) and 1 (PKIX-EE) can't
// be used for SMTP (RFC 7672, 3.1.3).
const (
	trustAnchor uint8 = 2 // DANE-TA
	endEntity   uint8 = 3 // DANE-EE

	wholeCertificate uint8 = 0 // Cert
	publicKey        uint8 = 1 // SPKI

	full      uint8 = 0
	digest256 uint8 = 1
	digest512 uint8 = 2
)

// TLSARecord is a TLSA record as it stands in the DNS (RFC 6698, 2.1). Its values may be any.
type TLSARecord struct {
	Usage, Selector, Matching uint8
	Data                      []byte // the certificate association data
}

// String gives the record as a zone file has it, with the beginning of its data: "3 1 1 0b9fa5a59eed715c...".
func (r TLSARecord) String() string {
	const few = 16
	data := hex.EncodeToString(r.Data[:min(few, len(r.Data))])
	if len(r.Data) > few {
		data += "..."
	}
	return fmt.Sprintf("%d %d %d %s", r.Usage, r.Selector, r.Matching, data)
}

// usable gives the records that a certificate can be verified against. Of those with the same usage and
// selector, only the ones with the strongest digest count (RFC 7671, 9), and those that have no digest.
func usable(records []TLSARecord) []TLSARecord {
	type kind struct{ usage, selector uint8 }
	strongest := make(map[kind]uint8)
	var well []TLSARecord
	for _, r := range records {
		if r.wellFormed() {
			well = append(well, r)
			k := kind{r.Usage, r.Selector}
			strongest[k] = max(strongest[k], r.Matching) // SHA-512 has the higher number
		}
	}
	return slices.DeleteFunc(well, func(r TLSARecord) bool {
		return r.Matching != full && r.Matching != strongest[kind{r.Usage, r.Selector}]
	})
}

func (r TLSARecord) wellFormed() bool {
	if r.Usage != trustAnchor && r.Usage != endEntity {
		return false
	}
	switch {
	case r.Selector > publicKey:
		return false
	case r.Matching == digest256:
		return len(r.Data) == sha256.Size
	case r.Matching == digest512:
		return len(r.Data) == sha512.Size
	case r.Matching != full:
		return false
	case r.Selector == wholeCertificate:
		cert, err := x509.ParseCertificate(r.Data)
		return err == nil && checkable(cert.PublicKey)
	}
	key, err := x509.ParsePKIXPublicKey(r.Data)
	return err == nil && checkable(key)
}

// maxRSA is the longest RSA key that crypto/tls takes, in bits. To check one signature with the longest
// that fits into a TLSA record takes seconds.
const maxRSA = 8192

func checkable(key any) bool {
	k, ok := key.(*rsa.PublicKey)
	return !ok || k.N.BitLen() <= maxRSA
}

// matches reports whether a certificate is the one that the record is about (RFC 6698, 2.1.4).
func (r TLSARecord) matches(cert *x509.Certificate) bool {
	selected := cert.Raw
	if r.Selector == publicKey {
		selected = cert.RawSubjectPublicKeyInfo
	}
	switch r.Matching {
	case digest256:
		sum := sha256.Sum256(selected)
		return string(sum[:]) == string(r.Data)
	case digest512:
		sum := sha512.Sum512(selected)
		return string(sum[:]) == string(r.Data)
	}
	return string(selected) == string(r.Data)
}
