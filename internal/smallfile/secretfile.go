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
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSize bounds a file, in octets.
const maxSize = 64 << 20

// ReadSecret gives the text of a file. Its mode must keep others out: see ModeError.
func ReadSecret(path string) ([]byte, error) {
	text, _, err := read(path)
	return text, err
}

func read(path string) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would block
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a file", path)
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return nil, nil, &ModeError{path, mode}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxSize {
		return nil, nil, fmt.Errorf("%s has more than %d octets: is it the right file?", path, maxSize)
	}
	return text, info, nil
}

// ModeError is about a file that too many may read or change.
type ModeError struct {
	Path string
	Mode os.FileMode
}

func (e *ModeError) Error() string {
	return fmt.Sprintf("%s has mode %04o: others than its owner can read or change it", e.Path, e.Mode)
}

// Remedy is a command that fixes it.
func (e *ModeError) Remedy() string { return fmt.Sprintf("chmod %04o %s", e.Mode&0o640, e.Path) }

// UpdateSecret replaces a file by what change makes of its text: a reader has all of the old file or all of
// the new one. Two changes at a time are made one after the other. The new file has the owner and the mode
// of the old one. A file that is not there counts as empty, and gets the mode of NewMode.
func UpdateSecret(path string, change func(text []byte) ([]byte, error)) error {
	return update(path, NewMode(filepath.Dir(path)), change)
}

// NewMode is the mode of a new file with secrets in a folder: for its owner only, or for its group too where the
// folder hands its group on.
func NewMode(dir string) fs.FileMode {
	if info, err := os.Stat(dir); err == nil && info.Mode()&fs.ModeSetgid != 0 {
		return 0o640
	}
	return 0o600
}

// update is UpdateSecret, with the mode of a new file.
func update(path string, mode fs.FileMode, change func(text []byte) ([]byte, error)) error {
	real, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		real = path
	case err != nil:
		return err
	}
	dir, err := os.Open(filepath.Dir(real))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := flock(dir); err != nil {
		return fmt.Errorf("locking %s: %w", dir.Name(), err)
	}
	text, info, err := read(real)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if text, err = change(text); err != nil {
		return err
	}
	if err := replace(real, text, info, mode); err != nil {
		return err
	}
	return dir.Sync()
}

// PreviewSecret has a change made and writes nothing: it fails as UpdateSecret would, as far as that is known
// beforehand.
func PreviewSecret(path string, change func(text []byte) ([]byte, error)) error {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		real, err = path, nil
	}
	if err != nil {
		return err
	}
	text, _, err := read(real)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := change(text); err != nil {
		return err
	}
	if err := unix.Access(filepath.Dir(real), unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "replacing", Path: real, Err: err}
	}
	return nil
}

// flock holds dir until it is closed.
func flock(dir *os.File) error {
	for {
		if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// replace puts a file in place of one whose owner and mode it gets; a new one gets the mode that is given.
func replace(path string, text []byte, like fs.FileInfo, mode fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if like != nil && err == nil {
		mode = like.Mode().Perm()
		if owner, ok := like.Sys().(*syscall.Stat_t); ok &&
			(int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid()) {
			if err = f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
				err = fmt.Errorf("keeping the owner of %s: %w", path, err)
			}
		}
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

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
