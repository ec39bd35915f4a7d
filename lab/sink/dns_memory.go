package sink

import (
	"net"

	"github.com/miekg/dns"
)

// Conn gives a client's connection that stands for one over UDP, without a network: nothing in it waits for the
// outside, so it works in a testing/synctest bubble. Close waits until the client has closed it.
func (s *DNSServer) Conn() net.Conn {
	client, server := net.Pipe()
	s.running.Go(func() {
		defer server.Close()
		for datagram := make([]byte, dns.MaxMsgSize); ; {
			n, err := server.Read(datagram)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if q.Unpack(datagram[:n]) == nil {
				s.handle(memoryWriter{conn: server}, q)
			}
		}
	})
	return client
}

// memoryWriter writes answers into a pipe, each in one piece.
type memoryWriter struct {
	dns.ResponseWriter // of nothing that a handler here calls besides
	conn               net.Conn
}

func (w memoryWriter) LocalAddr() net.Addr            { return w.conn.LocalAddr() }
func (w memoryWriter) Write(text []byte) (int, error) { return w.conn.Write(text) }

func (w memoryWriter) WriteMsg(m *dns.Msg) error {
	text, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = w.conn.Write(text)
	return err
}
