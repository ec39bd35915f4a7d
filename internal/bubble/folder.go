package bubble

import (
	"os"
	"testing"
)

// Folder makes a directory that goes with the test, in memory where the machine has one: days of virtual time sync
// thousands of small files, and on a disk each takes real time.
func Folder(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "mta-test")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
