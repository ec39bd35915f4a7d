package events

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The header fields of a signed request.
const (
	SendGridSignature = "X-Twilio-Email-Event-Webhook-Signature"
	SendGridTimestamp = "X-Twilio-Email-Event-Webhook-Timestamp"
)

// SendGridSigner signs requests with ECDSA on the curve P-256 and SHA-256.
type SendGridSigner struct{ key *ecdsa.PrivateKey }

// ParseSendGridKey reads a private key: PKCS #8 or SEC 1, in PEM or in base64 on one line as NewSendGridKey makes it.
// Its errors don't repeat the key.
func ParseSendGridKey(text string) (*SendGridSigner, error) {
	var der []byte
	if block, _ := pem.Decode([]byte(text)); block != nil {
		der = block.Bytes
	} else if octets, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil {
		der = octets
	} else {
		return nil, errors.New("the key is neither PEM nor base64")
	}
	key, err := x509.ParseECPrivateKey(der)
	if err != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return nil, errors.New("the key is not an ECDSA private key in PKCS #8 or SEC 1")
		}
		var ok bool
		if key, ok = parsed.(*ecdsa.PrivateKey); !ok {
			return nil, errors.New("the key is not an ECDSA key")
		}
	}
	if key.Curve != elliptic.P256() {
		return nil, errors.New("the key is on another curve than P-256")
	}
	return &SendGridSigner{key}, nil
}

// NewSendGridKey returns a new private key on one line, for a variable of the environment.
func NewSendGridKey() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return base64.StdEncoding.EncodeToString(der), err
}

// Public returns the public key as SendGrid's libraries take it: base64 without PEM's lines.
func (s *SendGridSigner) Public() string {
	der, err := x509.MarshalPKIXPublicKey(&s.key.PublicKey)
	if err != nil {
		panic(err) // P-256 can be marshalled
	}
	return base64.StdEncoding.EncodeToString(der)
}

// Sign sets the header fields of a request with this body. SendGrid's requests have no id.
func (s *SendGridSigner) Sign(header http.Header, _ string, at time.Time, body []byte) error {
	seconds := strconv.FormatInt(at.Unix(), 10)
	hash := sha256.New()
	hash.Write([]byte(seconds))
	hash.Write(body)
	signature, err := ecdsa.SignASN1(rand.Reader, s.key, hash.Sum(nil))
	if err != nil {
		return err
	}
	header.Set(SendGridTimestamp, seconds)
	header.Set(SendGridSignature, base64.StdEncoding.EncodeToString(signature))
	return nil
}
