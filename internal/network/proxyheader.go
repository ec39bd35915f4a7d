package network

import (
	"bytes"
	"net"
	"time"

	"github.com/pires/go-proxyproto"
)

// ProxyHeader expects a header on a new connection, of version 1 or 2, for so long. Reading from a connection
// without one fails.
func ProxyHeader(conn net.Conn, wait time.Duration) *proxyproto.Conn {
	return proxyproto.NewConn(&whole{Conn: conn}, proxyproto.WithPolicy(proxyproto.REQUIRE),
		proxyproto.SetReadHeaderTimeout(wait))
}

// maxV1 is the longest header of version 1, in octets, line end included (PROXY protocol, 2.1).
const maxV1 = 107

// whole gives a header of version 1 in one piece, however it came: the library refuses one that took
// two TCP segments. The deadline of the socket bounds the wait.
type whole struct {
	net.Conn
	begun bool
}

func (c *whole) Read(p []byte) (n int, err error) {
	if c.begun {
		return c.Conn.Read(p)
	}
	c.begun = true
	for {
		m, err := c.Conn.Read(p[n:])
		if n += m; err != nil {
			return n, err
		}
		if !half(p[:n]) || n == len(p) {
			return n, nil
		}
	}
}

// half reports whether b is the start of a version 1 header and not all of it.
func half(b []byte) bool {
	const signature = "PROXY "
	k := min(len(b), len(signature))
	return string(b[:k]) == signature[:k] && len(b) < maxV1 && bytes.IndexByte(b, '\n') < 0
}
