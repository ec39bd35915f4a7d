package api

import "golang.org/x/sys/unix"

// peerID returns the user and the id of the process that has connected a unix socket.
func peerID(fd int) (uid uint32, pid int, known bool) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, false
	}
	return c.Uid, int(c.Pid), true
}
