//go:build darwin || freebsd

package api

import "golang.org/x/sys/unix"

// peerID returns the user of the process that has connected a unix socket; the system does not give its id there.
func peerID(fd int) (uid uint32, pid int, known bool) {
	const level = 0 // SOL_LOCAL
	c, err := unix.GetsockoptXucred(fd, level, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, false
	}
	return c.Uid, 0, true
}
