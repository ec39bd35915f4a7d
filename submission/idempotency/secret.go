package idempotency

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"example.org/mta/internal/secretfile"
)

const secretSize = 32

// Secret reads the secret of a book from a file, which it makes for its owner alone when it is not there. With another
// secret no key is known any more.
func Secret(path string) (secret []byte, err error) {
	err = secretfile.Update(path, func(text []byte) ([]byte, error) {
		if len(text) == 0 {
			fresh := make([]byte, secretSize)
			rand.Read(fresh) // never fails
			text = append(hex.AppendEncode(nil, fresh), '\n')
		}
		secret, err = hex.DecodeString(string(bytes.TrimSpace(text)))
		if err != nil || len(secret) != secretSize {
			return nil, fmt.Errorf("%s is not the secret of idempotency keys, %d hexadecimal digits: restore it, or remove it and the relay forgets the keys of earlier requests", path, 2*secretSize)
		}
		return text, nil
	})
	return secret, err
}
