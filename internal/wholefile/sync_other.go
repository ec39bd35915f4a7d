//go:build !linux

package wholefile

import "os"

// Sync is fsync.
func Sync(f *os.File) error { return f.Sync() }
