package sink

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
)

// Proxy is a proxy on loopback before a Server, for the sources of a relay: SOCKS5Proxy or HAProxy starts it. Two
// goroutines carry each connection, and end with it; Close ends and awaits all.
type Proxy struct {
	// Addr is where it listens, as "127.0.0.1:1080".
	Addr string

	socket net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu   sync.Mutex // guards what follows
	seen []ProxyRequest
}

// ProxyRequest is a connection that was asked for.
type ProxyRequest struct {
	From     netip.Addr // of which client: as the PROXY header says; invalid with SOCKS5
	To       netip.AddrPort
	Username string // of SOCKS5
}

// proxyDeadline of all that a proxy does with a connection: a test that hangs fails.
const proxyDeadline = 30 * time.Second

// SOCKS5Proxy starts a server that connects on from an address. With a user name it wants that and the
// password (RFC 1929). It answers the request with code when that is not 0.
func SOCKS5Proxy(from netip.Addr, username, password string, code byte) (*Proxy, error) {
	return startProxy(nil, func(s *Proxy, nc net.Conn) error {
		r, err := negotiate(nc, username, password)
		if err != nil {
			return err
		}
		s.note(r)
		answer := []byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0}
		if code != 0 {
			_, err := nc.Write(answer)
			return err
		}
		host, err := s.dial(from, r.To)
		if err != nil {
			answer[1] = 5 // connection refused
			_, err := nc.Write(answer)
			return err
		}
		if _, err := nc.Write(answer); err != nil {
			return errors.Join(err, host.Close())
		}
		s.carry(nc, host)
		return nil
	})
}

// HAProxy starts a server that connects on as the header says: from the client's address to the
// destination. Connections without a header are closed.
func HAProxy() (*Proxy, error) {
	required := func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) { return proxyproto.REQUIRE, nil }
	wrap := func(l net.Listener) net.Listener {
		return &proxyproto.Listener{Listener: l, ConnPolicy: required, ReadHeaderTimeout: proxyDeadline}
	}
	return startProxy(wrap, func(s *Proxy, nc net.Conn) error {
		h := nc.(*proxyproto.Conn).ProxyHeader()
		if h == nil || h.Version != 2 {
			return errors.New("no header of version 2")
		}
		from, to, ok := h.TCPAddrs()
		if !ok {
			return errors.New("header without addresses")
		}
		r := ProxyRequest{From: from.AddrPort().Addr().Unmap(),
			To: netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), uint16(to.Port))}
		s.note(r)
		host, err := s.dial(r.From, r.To)
		if err != nil {
			return err
		}
		s.carry(nc, host)
		return nil
	})
}

func startProxy(wrap func(net.Listener) net.Listener, serve func(*Proxy, net.Conn) error) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Proxy{Addr: l.Addr().String(), socket: l}
	if wrap != nil {
		s.socket = wrap(l)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.all.Go(func() {
		for {
			nc, err := s.socket.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() { s.one(nc, serve) })
		}
	})
	return s, nil
}

// one serves a connection. What goes wrong shows to the client by its end.
func (s *Proxy) one(nc net.Conn, serve func(*Proxy, net.Conn) error) {
	defer nc.Close()
	defer context.AfterFunc(s.ctx, func() { nc.Close() })()
	nc.SetDeadline(time.Now().Add(proxyDeadline))
	_ = serve(s, nc)
}

// Close ends all connections and waits for their end.
func (s *Proxy) Close() {
	s.socket.Close()
	s.cancel()
	s.all.Wait()
}

// Requests lists what was asked for so far.
func (s *Proxy) Requests() []ProxyRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]ProxyRequest(nil), s.seen...)
}

func (s *Proxy) note(r ProxyRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r)
}

func (s *Proxy) dial(from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: proxyDeadline, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	return d.DialContext(s.ctx, "tcp", to.String())
}

// carry copies in both directions until either ends.
func (s *Proxy) carry(a, b net.Conn) {
	defer b.Close()
	s.all.Go(func() {
		_, _ = io.Copy(b, a)
		b.Close()
	})
	_, _ = io.Copy(a, b)
	a.Close()
}

// negotiate reads what a SOCKS5 client says up to its request to connect (RFC 1928, 3 and 4).
func negotiate(nc net.Conn, username, password string) (ProxyRequest, error) {
	var r ProxyRequest
	hello := make([]byte, 2)
	if _, err := io.ReadFull(nc, hello); err != nil {
		return r, err
	}
	methods := make([]byte, hello[1])
	if _, err := io.ReadFull(nc, methods); err != nil {
		return r, err
	}
	want := byte(0) // none
	if username != "" {
		want = 2
	}
	offered := false
	for _, m := range methods {
		offered = offered || m == want
	}
	if !offered {
		_, err := nc.Write([]byte{5, 0xff})
		return r, errors.Join(errors.New("the method was not offered"), err)
	}
	if _, err := nc.Write([]byte{5, want}); err != nil {
		return r, err
	}
	if username != "" {
		user, pass, err := credentials(nc)
		if err != nil {
			return r, err
		}
		if user != username || pass != password {
			_, err := nc.Write([]byte{1, 1})
			return r, errors.Join(errors.New("wrong credentials"), err)
		}
		if _, err := nc.Write([]byte{1, 0}); err != nil {
			return r, err
		}
		r.Username = user
	}
	var err error
	r.To, err = destination(nc)
	return r, err
}

// credentials are read as RFC 1929, 2 has them.
func credentials(nc net.Conn) (username, password string, err error) {
	var version [1]byte
	if _, err := io.ReadFull(nc, version[:]); err != nil {
		return "", "", err
	}
	var parts [2]string
	for i := range parts {
		var n [1]byte
		if _, err := io.ReadFull(nc, n[:]); err != nil {
			return "", "", err
		}
		text := make([]byte, n[0])
		if _, err := io.ReadFull(nc, text); err != nil {
			return "", "", err
		}
		parts[i] = string(text)
	}
	return parts[0], parts[1], nil
}

// destination reads the request (RFC 1928, 4).
func destination(nc net.Conn) (netip.AddrPort, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(nc, head); err != nil {
		return netip.AddrPort{}, err
	}
	size := map[byte]int{1: 4, 4: 16}[head[3]]
	if head[1] != 1 || size == 0 {
		return netip.AddrPort{}, errors.New("not a request to connect to an address")
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(nc, rest); err != nil {
		return netip.AddrPort{}, err
	}
	a, _ := netip.AddrFromSlice(rest[:size])
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(rest[size:])), nil
}
