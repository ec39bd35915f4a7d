package events

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The header fields of a signed request.
const (
	IDField        = "webhook-id"
	TimestampField = "webhook-timestamp"
	SignatureField = "webhook-signature"
)

// The prefixes by which a secret shows its kind.
const (
	symmetric = "whsec_" // a secret that both sides share
	private   = "whsk_"  // an Ed25519 key, for the sender alone
	public    = "whpk_"  // its public part, for the receiver
)

// The octets of a shared secret, by the specification.
const (
	shortest = 24
	longest  = 64
)

// WebhookKey is one secret.
type WebhookKey struct {
	shared []byte             // for HMAC-SHA256; or
	own    ed25519.PrivateKey // for Ed25519
}

// ParseSecret reads a secret: "whsec_" and 24 to 64 octets in base64, or "whsk_" and an Ed25519 private key, as its
// seed of 32 octets or as the seed and the public key. Its errors don't repeat the secret.
func ParseSecret(secret string) (WebhookKey, error) {
	switch {
	case strings.HasPrefix(secret, symmetric):
		octets, err := decode(secret[len(symmetric):])
		if err != nil {
			return WebhookKey{}, err
		}
		if len(octets) < shortest || len(octets) > longest {
			return WebhookKey{},
				fmt.Errorf("the secret has %d octets, and must have %d to %d", len(octets), shortest, longest)
		}
		return WebhookKey{shared: octets}, nil
	case strings.HasPrefix(secret, private):
		octets, err := decode(secret[len(private):])
		if err != nil {
			return WebhookKey{}, err
		}
		return parsePrivate(octets)
	case strings.HasPrefix(secret, public):
		return WebhookKey{},
			errors.New("this is a public key, for those who verify: the relay needs the private key (" +
				private + "...)")
	}
	return WebhookKey{},
		errors.New("a secret begins with " + symmetric + " (shared by both sides) or " + private + " (a private key)")
}

func decode(text string) ([]byte, error) {
	octets, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, errors.New("the secret is not base64 after its prefix")
	}
	return octets, nil
}

func parsePrivate(octets []byte) (WebhookKey, error) {
	switch len(octets) {
	case ed25519.SeedSize:
		return WebhookKey{own: ed25519.NewKeyFromSeed(octets)}, nil
	case ed25519.PrivateKeySize:
		key := ed25519.NewKeyFromSeed(octets[:ed25519.SeedSize])
		if !key.Equal(ed25519.PrivateKey(octets)) {
			return WebhookKey{}, errors.New("the second half of the private key is not its public key")
		}
		return WebhookKey{own: key}, nil
	}
	return WebhookKey{}, fmt.Errorf("the private key has %d octets, and must have %d or %d", len(octets),
		ed25519.SeedSize, ed25519.PrivateKeySize)
}

// NewShared returns a new secret for both sides.
func NewShared() string {
	octets := make([]byte, 32)
	rand.Read(octets)
	return symmetric + base64.StdEncoding.EncodeToString(octets)
}

// NewPrivate returns a new private key.
func NewPrivate() string {
	octets := make([]byte, ed25519.SeedSize)
	rand.Read(octets)
	return private + base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(octets))
}

// Public returns the text of the public key that receivers verify with, "" for a shared secret.
func (k WebhookKey) Public() string {
	if k.own == nil {
		return ""
	}
	return public + base64.StdEncoding.EncodeToString(k.own.Public().(ed25519.PublicKey))
}

// StandardWebhooks signs requests to web hooks as Standard Webhooks 1.0 has it, symmetrically (HMAC-SHA256) and
// asymmetrically (Ed25519). The project's Go module is not used: it knows no asymmetric keys and one secret at a time,
// and copies the body for each signature.
//
// It signs with each of its keys, so that a receiver can change from one to the next. Any number of goroutines
// may use it.
type StandardWebhooks struct{ keys []WebhookKey }

// NewStandardWebhooks returns a signer with these keys, of which there must be one at least.
func NewStandardWebhooks(keys ...WebhookKey) *StandardWebhooks { return &StandardWebhooks{keys} }

// Sign adds the header fields of a request with this body, before its compression. The id stays when the request is
// sent again, the time does not. An id must have no full stop: what is signed is joined by them.
func (s *StandardWebhooks) Sign(header http.Header, id string, at time.Time, body []byte) error {
	seconds := strconv.FormatInt(at.Unix(), 10)
	start := id + "." + seconds + "."
	var signatures []byte
	var signed []byte // start and body in one piece, which Ed25519 needs
	for _, k := range s.keys {
		if len(signatures) > 0 {
			signatures = append(signatures, ' ')
		}
		if k.own == nil {
			mac := hmac.New(sha256.New, k.shared)
			mac.Write([]byte(start))
			mac.Write(body)
			signatures = base64.StdEncoding.AppendEncode(append(signatures, "v1,"...), mac.Sum(nil))
			continue
		}
		if signed == nil {
			signed = append(append(make([]byte, 0, len(start)+len(body)), start...), body...)
		}
		signatures = base64.StdEncoding.AppendEncode(append(signatures, "v1a,"...), ed25519.Sign(k.own, signed))
	}
	header.Set(IDField, id)
	header.Set(TimestampField, seconds)
	header.Set(SignatureField, string(signatures))
	return nil
}

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
