package audit

import (
	"os"

	"golang.org/x/sys/unix"
)

// reserve takes disk for a file up to a size, without making the file larger. File systems that can't are left as
// they are.
func reserve(f *os.File, from, size int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, size)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return nil
	}
	return err
}
