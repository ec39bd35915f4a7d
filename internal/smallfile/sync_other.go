//go:build !linux

package smallfile

import "os"

// Sync is fsync.
func Sync(f *os.File) error { return f.Sync() }
