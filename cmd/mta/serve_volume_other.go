//go:build !linux

package main

// mountID knows no mounts here.
func mountID(string) (id uint64, ok bool) { return 0, false }
