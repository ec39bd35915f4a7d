package submission

import (
	"bytes"
	"net"
)

// maxProxyV1 is the longest header of PROXY version 1, in octets, line end included (PROXY
// protocol, 2.1).
const maxProxyV1 = 107

// headerConn gives a PROXY header of version 1 in one piece, however it came: the library refuses
// one that took two TCP segments. The deadline of the socket bounds the wait.
type headerConn struct {
	net.Conn
	begun bool
}

func (c *headerConn) Read(p []byte) (n int, err error) {
	if c.begun {
		return c.Conn.Read(p)
	}
	c.begun = true
	for {
		m, err := c.Conn.Read(p[n:])
		if n += m; err != nil {
			return n, err
		}
		if !halfHeader(p[:n]) || n == len(p) {
			return n, nil
		}
	}
}

// halfHeader reports whether b is the start of a version 1 header and not all of it.
func halfHeader(b []byte) bool {
	const signature = "PROXY "
	k := min(len(b), len(signature))
	return string(b[:k]) == signature[:k] && len(b) < maxProxyV1 && bytes.IndexByte(b, '\n') < 0
}
