package control

import "golang.org/x/sys/unix"

// peerID is the user id of the process that has connected a unix socket.
func peerID(fd int) (uid uint32, known bool) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, false
	}
	return c.Uid, true
}
