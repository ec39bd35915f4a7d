package secretfile

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
)

const secretSize = 32

// Secret reads a secret of the relay's from a file, and makes it, for its owner alone, when the file is not
// there. loss is the consequence of a new one, for the error of a damaged file: "clients ...".
func Secret(path, loss string) ([]byte, error) {
	secrets, err := Secrets(path, 1, loss)
	if err != nil {
		return nil, err
	}
	return secrets[0], nil
}

// Secrets is Secret for a file with up to most secrets, one a line: so one can take over from another.
func Secrets(path string, most int, loss string) (secrets [][]byte, err error) {
	err = Update(path, func(text []byte) ([]byte, error) {
		if len(text) == 0 {
			secret := make([]byte, secretSize)
			rand.Read(secret) // never fails
			secrets = [][]byte{secret}
			return append(hex.AppendEncode(nil, secret), '\n'), nil
		}
		if secrets = parseSecrets(text, most); secrets == nil {
			return nil, fmt.Errorf("%s does not hold %s: restore it from a backup; if you remove it, %s", path, wanted(most), loss)
		}
		return nil, errThere
	})
	var mode *ModeError
	switch {
	case errors.Is(err, errThere):
		return secrets, nil
	case errors.As(err, &mode):
		return nil, fmt.Errorf("%w: %s", err, mode.Remedy())
	case err != nil:
		return nil, err
	}
	return secrets, nil
}

// Existing is Secrets for who only looks: it makes no file.
func Existing(path string, most int) ([][]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	secrets := parseSecrets(text, most)
	if secrets == nil {
		return nil, fmt.Errorf("%s does not hold %s: restore it from a backup", path, wanted(most))
	}
	return secrets, nil
}

// parseSecrets gives none for a file that is damaged.
func parseSecrets(text []byte, most int) (secrets [][]byte) {
	for line := range bytes.Lines(bytes.TrimSpace(text)) {
		secret, err := hex.DecodeString(string(bytes.TrimSpace(line)))
		if err != nil || len(secret) != secretSize || len(secrets) == most {
			return nil
		}
		secrets = append(secrets, secret)
	}
	return secrets
}

func wanted(most int) string {
	if most == 1 {
		return fmt.Sprintf("a secret of %d hexadecimal digits", 2*secretSize)
	}
	return fmt.Sprintf("1 to %d lines with a secret of %d hexadecimal digits each", most, 2*secretSize)
}

// errThere ends an Update that has nothing to change.
var errThere = errors.New("the secret is there")
