package secrets

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"example.org/mta/internal/smallfile"
)

// FileName is that of a new file of keys.
const FileName = "secrets.key"

// keysAtOnce are the keys in a file while one takes over from another.
const keysAtOnce = 2

// Keys encrypt secrets on their way through the engine, by XChaCha20-Poly1305: whoever reads the database, or a backup
// of it, can't make tokens, and whoever writes it can't have a node accept tokens of theirs. The key of a value is
// authenticated, too, so that nothing can be moved from one name to another.
type Keys struct {
	path string
	all  []key // the first encrypts, all decrypt
}

type key struct {
	id   string // which names it in the database and in errors, and gives nothing of it away
	aead cipher.AEAD
}

// ReadKeys reads a file of one or two lines of 64 hexadecimal digits. Others than its owner and group must not be able
// to read it.
func ReadKeys(path string) (*Keys, error) {
	_, err := smallfile.ReadSecret(path)
	var mode *smallfile.ModeError
	if errors.As(err, &mode) {
		err = fmt.Errorf("%w: %s", err, mode.Remedy())
	}
	if err != nil {
		return nil, err
	}
	secrets, err := smallfile.ExistingSecrets(path, keysAtOnce)
	if err != nil {
		return nil, err
	}
	k := &Keys{path: path}
	for _, secret := range secrets {
		both, err := hkdf.Key(sha256.New, secret, nil, "mta cluster secrets", chacha20poly1305.KeySize+4)
		if err != nil {
			return nil, err
		}
		aead, err := chacha20poly1305.NewX(both[:chacha20poly1305.KeySize])
		if err != nil {
			return nil, err
		}
		k.all = append(k.all, key{hex.EncodeToString(both[chacha20poly1305.KeySize:]), aead})
	}
	return k, nil
}

// WriteKeys makes a file with a key by chance, for its owner alone. It fails when there is one.
func WriteKeys(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s exists", path))
	}
	secret := make([]byte, Size)
	rand.Read(secret) // never fails
	return smallfile.Write(path, 0o600, append(hex.AppendEncode(nil, secret), '\n'))
}

// sealed is a value.
type sealed struct {
	Key  string `json:"key"` // its id
	Data []byte `json:"data"`
}

// Seal encrypts a value of a key.
func (k *Keys) Seal(at string, plain []byte) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce) // never fails
	first := k.all[0]
	text, _ := json.Marshal(sealed{first.id, first.aead.Seal(nonce, nonce, plain, []byte(at))}) // never fails
	return text
}

// ID is that of the key that Seal uses.
func (k *Keys) ID() string { return k.all[0].id }

// Open decrypts a value of a key.
func (k *Keys) Open(at string, value []byte) ([]byte, error) {
	var s sealed
	if err := json.Unmarshal(value, &s); err != nil || len(s.Data) < chacha20poly1305.NonceSizeX {
		return nil, errors.New("it is not encrypted: somebody has edited it")
	}
	var ids []string
	for _, key := range k.all {
		if ids = append(ids, key.id); key.id != s.Key {
			continue
		}
		nonce, text := s.Data[:chacha20poly1305.NonceSizeX], s.Data[chacha20poly1305.NonceSizeX:]
		plain, err := key.aead.Open(nil, nonce, text, []byte(at))
		if err != nil {
			return nil, fmt.Errorf("it can't be decrypted by key %s: somebody has edited it", key.id)
		}
		return plain, nil
	}
	if len(s.Key) > 16 {
		return nil, errors.New("it names no key: somebody has edited it")
	}
	return nil, fmt.Errorf("it is encrypted under key %q, and secrets_key of this node, %s, has %s: all nodes need "+
		"the same file, and a restart after a change of it", s.Key, k.path, strings.Join(ids, " and "))
}
