package smallfile

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

const secretSize = 32

// CopySuffix is the end of the name of a secret's second copy.
const CopySuffix = ".copy"

// Secret is a secret of the relay's own, in a file that it makes for its owner alone, with a second copy. A file that
// is damaged is set aside: its copy takes its place, else a new secret.
type Secret struct {
	Path string
	Loss string // the consequence of a new secret: "clients ..."
	Now  func() time.Time
	Log  *slog.Logger
}

// Secret reads or makes the secret, in hexadecimal digits.
func (o Secret) Secret() ([]byte, error) {
	secrets, err := o.Secrets(1)
	if err != nil {
		return nil, err
	}
	return secrets[0], nil
}

// Secrets is Secret for a file with up to most secrets, one a line: so one can take over from another.
func (o Secret) Secrets(most int) ([][]byte, error) {
	text, err := o.read(func(text []byte) bool { return parseSecrets(text, most) != nil }, func(secret []byte) []byte {
		return append(hex.AppendEncode(nil, secret), '\n')
	})
	return parseSecrets(text, most), err
}

// Octets reads or makes the secret, which is the file's content as it is.
func (o Secret) Octets() ([]byte, error) {
	return o.read(func(text []byte) bool {
		return len(text) == secretSize
	}, func(secret []byte) []byte { return secret })
}

// read returns the text of the file, which is sound.
func (o Secret) read(sound func(text []byte) bool, encode func(secret []byte) []byte) (text []byte, err error) {
	copied, err := o.readCopy(sound)
	if err != nil {
		return nil, err
	}
	err = update(o.Path, 0o600, func(there []byte) ([]byte, error) {
		if text = bytes.Clone(there); sound(there) && !isRot(there, copied) {
			return nil, errThere
		}
		if text = copied; copied == nil {
			secret := make([]byte, secretSize)
			rand.Read(secret) // never fails
			text = encode(secret)
		}
		return text, o.setAside(there, copied != nil)
	})
	var mode *ModeError
	switch {
	case errors.As(err, &mode):
		return nil, fmt.Errorf("%w: %s", err, mode.Remedy())
	case err != nil && !errors.Is(err, errThere):
		return nil, err
	}
	if bytes.Equal(text, copied) {
		return text, nil
	}
	return text, Replace(o.Path+CopySuffix, 0o600, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%08x\n%s", Sum(text), text)
		return err
	})
}

// setAside keeps what was damaged, and reports it.
func (o Secret) setAside(there []byte, copied bool) error {
	if len(there) == 0 && !copied { // the first start
		return nil
	}
	then := "its second copy is in its place"
	if !copied {
		then = "a new one is made: " + o.Loss
	}
	aside := AsideName(o.Path, o.Now())
	if err := os.WriteFile(aside, there, 0o600); err != nil {
		return err
	}
	o.Log.Error("a secret was damaged, or is gone: "+then, "file", o.Path, "kept", aside)
	return nil
}

// readCopy returns the text of the second copy, nil without one. It sets one aside that is not what was written.
func (o Secret) readCopy(sound func(text []byte) bool) ([]byte, error) {
	path := o.Path + CopySuffix
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	sum, text, _ := bytes.Cut(b, []byte("\n"))
	if err == nil && string(sum) == fmt.Sprintf("%08x", Sum(text)) && sound(text) {
		return text, nil
	}
	aside, moved := SetAside(path, o.Now())
	o.Log.Error("the second copy of a secret was damaged, and is made anew", "file", path, "kept", aside, "error",
		errors.Join(err, moved))
	return nil, moved
}

// isRot reports whether a text differs from its copy as no two secrets do: in few octets. Another secret is the
// operator's.
func isRot(text, copied []byte) bool {
	if len(text) != len(copied) {
		return false
	}
	differ := 0
	for i := range text {
		if text[i] != copied[i] {
			differ++
		}
	}
	return differ > 0 && differ <= len(text)/8
}

// ExistingSecrets reads the secrets for who only looks: it makes no file.
func ExistingSecrets(path string, most int) ([][]byte, error) {
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

// errThere ends an update that has nothing to change.
var errThere = errors.New("the secret is there")
