//go:build unix

package store

import (
	"errors"

	"golang.org/x/sys/unix"
)

// isFull reports whether err says that there is no more room.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
