package events

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSharedSecret: the vector of the specification's own libraries.
func TestSharedSecret(t *testing.T) {
	key, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	header := make(http.Header)
	if err := NewStandardWebhooks(key).Sign(header, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		IDField:        "msg_p5jXN8AQM9LWM0D4loKWxJek",
		TimestampField: "1614265330",
		SignatureField: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	} {
		if got := header.Get(field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
}

// TestRotation: each secret has its signature, in the order in which they stand.
func TestRotation(t *testing.T) {
	var keys []WebhookKey
	for _, secret := range []string{NewShared(), NewPrivate(), NewShared()} {
		key, err := ParseSecret(secret)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	header := make(http.Header)
	body := []byte(`[{"type":"Delivery"}]`)
	if err := NewStandardWebhooks(keys...).Sign(header, "b1", time.Unix(1, 0), body); err != nil {
		t.Fatal(err)
	}
	signatures := strings.Split(header.Get(SignatureField), " ")
	if len(signatures) != 3 {
		t.Fatalf("%d signatures of 3 secrets: %q", len(signatures), signatures)
	}
	for i, want := range []string{"v1,", "v1a,", "v1,"} {
		if !strings.HasPrefix(signatures[i], want) {
			t.Errorf("signature %d is %q, want %s...", i, signatures[i], want)
		}
	}
	public, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(keys[1].Public(), "whpk_"))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signatures[1], "v1a,"))
	if err != nil {
		t.Fatal(err)
	}
	if !ed25519.Verify(public, append([]byte("b1.1."), body...), signature) {
		t.Error("the Ed25519 signature doesn't verify")
	}
	if keys[0].Public() != "" {
		t.Error("a shared secret has a public key")
	}
	alone := make(http.Header)
	if err := NewStandardWebhooks(keys[2]).Sign(alone, "b1", time.Unix(1, 0), body); err != nil {
		t.Fatal(err)
	}
	if alone.Get(SignatureField) != signatures[2] {
		t.Error("a secret's signature depends on the others")
	}
}

func TestParseSecret(t *testing.T) {
	seed := make([]byte, ed25519.SeedSize)
	long := ed25519.NewKeyFromSeed(seed)
	b64 := base64.StdEncoding.EncodeToString
	for text, good := range map[string]bool{
		"whsec_" + b64(make([]byte, 23)):                         false,
		"whsec_" + b64(make([]byte, 24)):                         true,
		"whsec_" + b64(make([]byte, 64)):                         true,
		"whsec_" + b64(make([]byte, 65)):                         false,
		"whsec_" + strings.TrimRight(b64(make([]byte, 25)), "="): true, // without padding
		"whsec_%%%":         false,
		"whsec_":            false,
		"":                  false,
		"secret":            false,
		"whsk_" + b64(seed): true,
		"whsk_" + b64(long): true,
		"whsk_" + b64(append(seed[:32:32], make([]byte, 32)...)): false,
		"whsk_" + b64(seed[:31]):                                 false,
		"whpk_" + b64(long.Public().(ed25519.PublicKey)):         false,
	} {
		_, err := ParseSecret(text)
		if (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
		if _, octets, _ := strings.Cut(text, "_"); err != nil && len(octets) > 3 && strings.Contains(err.Error(), octets) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	body := make([]byte, 100<<10)
	for name, secret := range map[string]string{"shared": NewShared(), "private": NewPrivate()} {
		b.Run(name, func(b *testing.B) {
			key, err := ParseSecret(secret)
			if err != nil {
				b.Fatal(err)
			}
			s := NewStandardWebhooks(key)
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if err := s.Sign(make(http.Header), "b", time.Unix(1, 0), body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
