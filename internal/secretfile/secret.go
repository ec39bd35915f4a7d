package secretfile

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
)

const secretSize = 32

// Secret reads a secret of the relay's from a file, and makes it, for its owner alone, when the file is not
// there. loss is the consequence of a new one, for the error of a damaged file: "clients ...".
func Secret(path, loss string) (secret []byte, err error) {
	err = Update(path, func(text []byte) ([]byte, error) {
		if len(text) == 0 {
			secret = make([]byte, secretSize)
			rand.Read(secret) // never fails
			return append(hex.AppendEncode(nil, secret), '\n'), nil
		}
		secret, err = hex.DecodeString(string(bytes.TrimSpace(text)))
		if err != nil || len(secret) != secretSize {
			return nil, fmt.Errorf("%s does not hold a secret of %d hexadecimal digits: restore it from a backup; if you remove it, %s", path, 2*secretSize, loss)
		}
		return nil, errThere
	})
	var mode *ModeError
	switch {
	case errors.Is(err, errThere):
		return secret, nil
	case errors.As(err, &mode):
		return nil, fmt.Errorf("%w: %s", err, mode.Remedy())
	case err != nil:
		return nil, err
	}
	return secret, nil
}

// errThere ends an Update that has nothing to change.
var errThere = errors.New("the secret is there")
