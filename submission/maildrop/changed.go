//go:build !(darwin || freebsd || netbsd)

package maildrop

import (
	"syscall"
	"time"
)

// changed is when a file's inode last changed: nobody can set it, unlike the time of the last write.
func changed(stat *syscall.Stat_t) time.Time { return time.Unix(stat.Ctim.Unix()) }
