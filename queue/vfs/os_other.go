//go:build !linux

package vfs

import "os"

// Sync is fsync.
func Sync(f *os.File) error { return f.Sync() }

// Allocate makes a sparse file.
func (f osFile) Allocate(size int64) error { return f.Truncate(size) }
