//go:build !linux

package vfs

// Allocate makes a sparse file.
func (f osFile) Allocate(size int64) error { return f.Truncate(size) }
