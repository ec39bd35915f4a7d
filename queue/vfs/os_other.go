//go:build !linux

package vfs

// Sync is fsync.
func (f osFile) Sync() error { return f.File.Sync() }

// Allocate makes a sparse file.
func (f osFile) Allocate(size int64) error { return f.Truncate(size) }
