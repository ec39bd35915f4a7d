// Package vfstest has file systems for tests of what stands on vfs.FS: one in memory that can lose power, one that
// fails and one that fills up. It starts no goroutines.
package vfstest
