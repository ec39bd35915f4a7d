package sts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// maxPolicySize is the most that is read of a policy, in octets (RFC 8461, 3.3 suggests it).
const maxPolicySize = 64 << 10

// fetch gets the policy of a domain over HTTPS, as RFC 8461, 3.3 says: no redirects, no cache, text/plain only. What the
// certificate must be is the transport's to know.
func fetch(ctx context.Context, transport http.RoundTripper, domain string) (*Policy, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://mta-sts."+domain+"/.well-known/mta-sts.txt", nil)
	if err != nil {
		return nil, fmt.Errorf("fetching the policy: %w", err)
	}
	req.Header.Set("User-Agent", "mta (MTA-STS)")
	res, err := transport.RoundTrip(req) // not by a Client, which would follow redirects
	if err != nil {
		return nil, fmt.Errorf("fetching the policy: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetching the policy: the web server answered %s", statusOf(res))
	}
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err != nil || media != "text/plain" {
		return nil, fmt.Errorf("fetching the policy: its media type is %.40q, not text/plain", res.Header.Get("Content-Type"))
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxPolicySize+1))
	if err == nil {
		err = ctx.Err() // a server may end its answer because it sees us go
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("fetching the policy: %w", err)
	case len(text) > maxPolicySize:
		return nil, fmt.Errorf("fetching the policy: it has more than %d octets", maxPolicySize)
	}
	policy, err := Parse(text)
	if err != nil {
		return nil, &policyError{err}
	}
	return policy, nil
}

// statusOf is the status in our words: those of the server are anybody's.
func statusOf(res *http.Response) string {
	if 300 <= res.StatusCode && res.StatusCode < 400 {
		return fmt.Sprintf("%d, a redirect, which must not be followed", res.StatusCode)
	}
	return fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode))
}

// Dial settings of a transport.
const (
	connectTimeout  = 10 * time.Second // of one address
	maxHeaderSize   = 16 << 10
	maxWebAddresses = 4 // of one web server that are tried
)

// TransportConfig is what a transport is made from.
type TransportConfig struct {
	// Addresses gives the addresses of a web server. An error says why there are none.
	Addresses func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial connects. Nil: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS has the authorities that are believed. Nil: those of the system. The server's name is added (SNI), and the
	// certificate is verified for it.
	TLS *tls.Config
}

// NewTransport makes an HTTPS transport that asks a given resolver for addresses and keeps no connection: the next
// fetch from the same server is a day away.
func NewTransport(cfg TransportConfig) *http.Transport {
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	return &http.Transport{
		Proxy:                  nil,
		DisableKeepAlives:      true,
		DisableCompression:     true, // the limit is on what is sent
		MaxResponseHeaderBytes: maxHeaderSize,
		TLSClientConfig:        cfg.TLS,
		TLSHandshakeTimeout:    connectTimeout,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			addrs, err := cfg.Addresses(ctx, host)
			if err != nil {
				return nil, err
			}
			return dialFirst(ctx, cfg.Dial, addrs, port)
		},
	}
}

// dialFirst connects to the first address that answers.
func dialFirst(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), addrs []netip.Addr, port string) (net.Conn, error) {
	err := errors.New("the web server has no address")
	for _, a := range addrs[:min(len(addrs), maxWebAddresses)] {
		one, cancel := context.WithTimeout(ctx, connectTimeout)
		c, failed := dial(one, "tcp", net.JoinHostPort(a.String(), port))
		cancel()
		if failed == nil {
			return c, nil
		}
		err = failed
	}
	return nil, err
}
