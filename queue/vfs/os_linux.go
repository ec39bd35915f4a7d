package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Allocate reserves the disk, so that a later write can't meet a full one. File systems without
// that (some network ones) give a sparse file.
func (f osFile) Allocate(size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return f.Truncate(size)
		default:
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
		}
	}
}
