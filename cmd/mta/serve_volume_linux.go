package main

import "golang.org/x/sys/unix"

// mountID identifies the mount that a path is in. Linux has it from 5.8 on.
func mountID(path string) (id uint64, ok bool) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &stat)
	return stat.Mnt_id, err == nil && stat.Mask&unix.STATX_MNT_ID != 0
}
