package store

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"example.org/mta/queue/vfs"
)

// Errors of the disk. All of them are this relay's own trouble: the client is to try again later.
var (
	ErrDiskFull = errors.New("disk is full")
	ErrStorage  = errors.New("storage failed")
	// ErrDamaged is returned for a record that can't be read.
	ErrDamaged = errors.New("record is damaged")
	// ErrLocked is returned when another process has the directory.
	ErrLocked = vfs.ErrLocked
)

// StorageError wraps an error of the disk in one of this package's own.
func StorageError(step string, err error) error {
	if errors.Is(err, ErrDiskFull) || errors.Is(err, ErrStorage) {
		return fmt.Errorf("%s: %w", step, err)
	}
	if isFull(err) {
		return fmt.Errorf("%w: %s: %w", ErrDiskFull, step, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrStorage, step, err)
}

// isFull reports whether err says that there is no more room.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// FailureClass is what failures have in common that one log line is enough for.
func FailureClass(err error) string {
	if errors.Is(err, ErrDiskFull) || isFull(err) {
		return "disk full"
	}
	return "storage"
}

// IsNotExist reports whether a file is not there.
func IsNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
