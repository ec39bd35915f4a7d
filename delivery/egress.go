package delivery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"
	"golang.org/x/net/proxy"
)

// Dialer opens a connection to a host. Its errors name the proxy, if there is one, and never hold
// credentials.
type Dialer func(ctx context.Context, host netip.AddrPort) (net.Conn, error)

// Direct connects from an address of this machine; the zero address leaves it to the system.
func Direct(from netip.Addr) Dialer {
	return func(ctx context.Context, host netip.AddrPort) (net.Conn, error) {
		d := plain()
		if from.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from.Unmap(), 0))
		}
		return d.DialContext(ctx, "tcp", host.String())
	}
}

// plain dials without TCP's keep-alive: SMTP has its own time-outs.
func plain() *net.Dialer { return &net.Dialer{KeepAlive: -1} }

// SOCKS5 connects through a SOCKS5 proxy at "host:port" (RFC 1928), with the credentials of RFC 1929
// unless the user name is "". From which address the proxy goes on is the proxy's affair.
func SOCKS5(at, username, password string) Dialer {
	return func(ctx context.Context, host netip.AddrPort) (net.Conn, error) {
		var auth *proxy.Auth
		if username != "" {
			auth = &proxy.Auth{User: username, Password: password}
		}
		d, err := proxy.SOCKS5("tcp", at, auth, plain())
		if err != nil {
			return nil, problem("socks5 proxy", at, err)
		}
		nc, err := d.(proxy.ContextDialer).DialContext(ctx, "tcp", unmap(host).String())
		if err != nil {
			return nil, problem("socks5 proxy", at, err)
		}
		return nc, nil
	}
}

// PROXY connects through a proxy at "host:port" that takes a header of the PROXY protocol, version 2:
// the header names from, of the proxy's machine, as the client and the host as the destination, and
// the proxy connects on from the one to the other. The protocol has no answer: a host that the proxy
// can't reach, or an address that it doesn't have, shows as a connection that ends without greeting.
func PROXY(at string, from netip.Addr) Dialer {
	return func(ctx context.Context, host netip.AddrPort) (net.Conn, error) {
		from, host := from.Unmap(), unmap(host)
		if from.Is4() != host.Addr().Is4() {
			return nil, fmt.Errorf("source address %v reaches no host of the other family, as %v is", from, host.Addr())
		}
		nc, err := plain().DialContext(ctx, "tcp", at)
		if err != nil {
			return nil, problem("haproxy", at, err)
		}
		if err := introduce(ctx, nc, from, host); err != nil {
			nc.Close()
			return nil, problem("haproxy", at, err)
		}
		return nc, nil
	}
}

// introduce writes the header, within the context's deadline.
func introduce(ctx context.Context, nc net.Conn, from netip.Addr, host netip.AddrPort) error {
	if t, ok := ctx.Deadline(); ok {
		if err := nc.SetWriteDeadline(t); err != nil {
			return err
		}
	}
	// Port 0: the proxy is to choose one.
	client := net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	if _, err := proxyproto.HeaderProxyFromAddrs(2, client, net.TCPAddrFromAddrPort(host)).WriteTo(nc); err != nil {
		return err
	}
	return nc.SetWriteDeadline(time.Time{})
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// problem names the proxy, and the cause without the addresses that the libraries put around it.
func problem(what, at string, err error) error {
	if t := net.Error(nil); errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout() {
		return fmt.Errorf("%s %s: timed out", what, at)
	}
	for op := (*net.OpError)(nil); errors.As(err, &op); {
		err = op.Err
	}
	return fmt.Errorf("%s %s: %s", what, at, strings.TrimPrefix(err.Error(), "unknown error "))
}
