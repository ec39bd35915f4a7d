package dkim

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// maxKeyFile is far above any key.
const maxKeyFile = 64 << 10

// LoadKey reads a private key from a file, which no other user may read or change.
func LoadKey(path string) (crypto.Signer, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return nil, &ModeError{Path: path, Mode: mode}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// ModeError is about a file with a private key that too many may read or change.
type ModeError struct {
	Path string
	Mode os.FileMode
}

func (e *ModeError) Error() string {
	return fmt.Sprintf("%s has mode %04o: others than its owner can read or change the private key", e.Path, e.Mode)
}

// Remedy is a command that repairs it.
func (e *ModeError) Remedy() string { return fmt.Sprintf("chmod %04o %s", e.Mode&0o640, e.Path) }

// ParseKey reads a private key: PEM (PKCS #8 or PKCS #1), or what stands between the lines of PEM
// without its line breaks, or the 32 octets of an Ed25519 seed in base64.
func ParseKey(text []byte) (crypto.Signer, error) {
	der := []byte(nil)
	if block, _ := pem.Decode(text); block != nil {
		switch {
		case strings.Contains(block.Type, "PUBLIC KEY"):
			return nil, errors.New("this is a public key: the private one is needed to sign")
		case strings.Contains(block.Type, "ENCRYPTED") || block.Headers["DEK-Info"] != "":
			return nil, errors.New("the private key is encrypted: remove its passphrase, as with 'openssl pkey'")
		}
		der = block.Bytes
	} else {
		var err error
		if der, err = base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text))); err != nil {
			return nil, errors.New("not a valid private key (want PEM: make one with 'mta dkim keygen')")
		}
	}
	if len(der) == ed25519.SeedSize {
		return ed25519.NewKeyFromSeed(der), nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return usable(key)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, errors.New("the private key can't be read: make one with 'mta dkim keygen'")
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T can't sign mail: DKIM has RSA and Ed25519", key)
	}
	return usable(signer)
}

func usable(key crypto.Signer) (crypto.Signer, error) {
	if _, err := algorithmOf(key.Public()); err != nil {
		return nil, err
	}
	return key, nil
}

// Generate makes a private key and gives it in PEM (PKCS #8). bits counts for RSA only.
func Generate(alg Algorithm, bits int) (crypto.Signer, []byte, error) {
	var key crypto.Signer
	var err error
	switch alg {
	case Ed25519:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case RSA:
		key, err = rsa.GenerateKey(rand.Reader, bits)
	default:
		err = fmt.Errorf("%q is not a valid algorithm (want %q or %q)", alg, RSA, Ed25519)
	}
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
