//go:build darwin || freebsd

package control

import "golang.org/x/sys/unix"

// peerID is the user id of the process that has connected a unix socket.
func peerID(fd int) (uid uint32, known bool) {
	const level = 0 // SOL_LOCAL
	c, err := unix.GetsockoptXucred(fd, level, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, false
	}
	return c.Uid, true
}
