package smallfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

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
