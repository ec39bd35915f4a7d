package dkim

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Record is the text of the TXT record that publishes the key (RFC 6376, 3.6.1).
func (k *Key) Record() string {
	return "v=DKIM1; k=" + string(k.alg) + "; p=" + base64.StdEncoding.EncodeToString(k.public())
}

// public is the public key as the p= tag has it, before base64.
func (k *Key) public() []byte {
	switch p := k.signer.Public().(type) {
	case ed25519.PublicKey:
		return p
	case *rsa.PublicKey:
		if der, err := x509.MarshalPKIXPublicKey(p); err == nil {
			return der
		}
	}
	return nil
}

// ZoneLine is the record as a line of a zone file.
func (k *Key) ZoneLine() string { return TextRecord(k.Name(), k.Record()) }

// TextRecord is a TXT record as a line of a zone file. A text of more than 255 octets is several
// strings there (RFC 1035, 3.3.14).
func TextRecord(name, text string) string {
	var parts []string
	for rest := text; rest != ""; {
		n := min(len(rest), 255)
		parts = append(parts, `"`+quoted.Replace(rest[:n])+`"`)
		rest = rest[n:]
	}
	if len(parts) > 1 {
		return name + ". IN TXT ( " + strings.Join(parts, " ") + " )"
	}
	return name + ". IN TXT " + strings.Join(parts, "")
}

var quoted = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// ErrOtherKey says that a record is good and belongs to another private key.
var ErrOtherKey = errors.New("the record has another key than the private one")

// Fits holds the text of a published record against the key. testing says that its t=y asks
// receivers to treat mail as if it were not signed; the error, why the record does not fit.
func (k *Key) Fits(record string) (testing bool, err error) {
	tags, err := parseTags(record)
	if err != nil {
		return false, err
	}
	if v, ok := tags["v"]; ok && v != "DKIM1" {
		return false, fmt.Errorf("the record is of version %q, and receivers know DKIM1", v)
	}
	alg, ok := tags["k"]
	if !ok {
		alg = string(RSA)
	}
	if alg != string(k.alg) {
		return false, fmt.Errorf("the record is for a key of type %s, and the private key is %s", alg, k.alg)
	}
	if h, ok := tags["h"]; ok && !listed(h, "sha256") {
		return false, fmt.Errorf("the record allows the hashes %q only, and mail is signed with sha256", h)
	}
	if s, ok := tags["s"]; ok && !listed(s, "email") && !listed(s, "*") {
		return false, fmt.Errorf("the record is for services %q, and not for email", s)
	}
	p, ok := tags["p"]
	p = strings.Join(strings.Fields(p), "")
	if !ok {
		return false, errors.New("the record has no p= tag, and so no key")
	}
	if p == "" {
		return false, errors.New("the record revokes the key: its p= tag is empty")
	}
	der, err := base64.StdEncoding.DecodeString(p)
	if err != nil {
		return false, errors.New(
			"the p= tag of the record is not base64: a part may have been lost when it was entered")
	}
	if !k.publishedAs(der) {
		return false, ErrOtherKey
	}
	return listed(tags["t"], "y"), nil
}

// publishedAs takes both forms of RSA keys that are in use: RFC 6376 has the one of PKCS #1, most
// publish the one of X.509.
func (k *Key) publishedAs(der []byte) bool {
	if bytes.Equal(der, k.public()) {
		return true
	}
	p, ok := k.signer.Public().(*rsa.PublicKey)
	return ok && bytes.Equal(der, x509.MarshalPKCS1PublicKey(p))
}

// parseTags reads a tag list (RFC 6376, 3.2).
func parseTags(text string) (map[string]string, error) {
	tags := make(map[string]string)
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, errors.New(`the record is not a list of tags such as "v=DKIM1; k=...; p=..."`)
		}
		if _, dup := tags[name]; dup {
			return nil, fmt.Errorf("the record has the tag %s= twice", name)
		}
		tags[name] = strings.TrimSpace(value)
	}
	return tags, nil
}

// listed reports whether a value with colons names word.
func listed(value, word string) bool {
	for v := range strings.SplitSeq(value, ":") {
		if strings.TrimSpace(v) == word {
			return true
		}
	}
	return false
}
