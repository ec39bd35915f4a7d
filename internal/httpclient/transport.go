// Package httpclient makes the transports of HTTP requests to other servers: for web hooks, certificate authorities,
// MTA-STS policies and TLS reports; and the connections of other clients, such as those of brokers. A transport asks a
// given resolver for addresses, and bounds each step up to the request; the request is bounded by its context. It
// starts no goroutines but those of net/http.
package httpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

const (
	connectTimeout = 10 * time.Second // of one address, and of a TLS handshake
	maxHeaderSize  = 16 << 10
	maxAddresses   = 4 // of one server that are tried, by IPv4 and by IPv6: the machine may have only one of them
)

// Addresses gives the addresses of a host. An error says why there are none.
type Addresses func(ctx context.Context, host string) ([]netip.Addr, error)

// Config is what a transport is made from.
type Config struct {
	Addresses Addresses // nil: those of the system's resolver
	// Refuse says why there must be no connection to an address; nil: to all there may.
	Refuse func(netip.Addr) error
	// Dial connects. Nil: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS has the authorities that are believed. Nil: those of the system. The server's name is added (SNI), and the
	// certificate is verified for it.
	TLS *tls.Config
}

// New makes a transport that uses no proxy, keeps no connection, and does not unzip: limits are on what is sent. The
// caller may change that.
func New(cfg Config) *http.Transport {
	return &http.Transport{
		DialContext:            cfg.Dialer(),
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderSize,
		TLSClientConfig:        cfg.TLS,
		TLSHandshakeTimeout:    connectTimeout,
	}
}

// Dialer returns a function that connects to the first address of a host that answers, as net.Dialer's DialContext.
func (c Config) Dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.Addresses == nil {
		c.Addresses = System
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	return c.dial
}

// System asks the system's resolver, which knows the names of this machine and the domains to search, too.
func System(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// dial connects to the first address of a host that answers.
func (c *Config) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := c.find(ctx, host)
	if err != nil {
		return nil, err
	}
	tried := make(map[bool]int) // by IPv4, and not
	for _, a := range addrs {
		family := a.Unmap().Is4()
		if tried[family]++; tried[family] > maxAddresses {
			continue
		}
		nc, failed := c.dialOne(ctx, a, port)
		if failed == nil {
			return nc, nil
		}
		if err == nil {
			err = failed
		} else { // as errors.Join, on one line
			err = fmt.Errorf("%w; %w", err, failed)
		}
	}
	if err == nil {
		err = errors.New("the server has no address")
	}
	return nil, err
}

// find gives the addresses of a host, which may be one.
func (c *Config) find(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	return c.Addresses(ctx, host)
}

func (c *Config) dialOne(ctx context.Context, a netip.Addr, port string) (net.Conn, error) {
	if c.Refuse != nil {
		if err := c.Refuse(a.Unmap()); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.Dial(ctx, "tcp", net.JoinHostPort(a.String(), port))
}
