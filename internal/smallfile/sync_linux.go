package smallfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sync makes a file durable, by fdatasync: the content and what is needed to find it again, without the file system's
// write for a mere change of times.
func Sync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}
