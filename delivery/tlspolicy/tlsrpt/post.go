package tlsrpt

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

const (
	postTimeout   = time.Minute
	maxHeaderSize = 16 << 10
)

// NewTransport makes the transport of reports. loopback allows collectors on this machine and in private
// networks: where reports go is in the hands of strangers, who must not reach those.
func NewTransport(loopback bool) http.RoundTripper {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if a := at.Addr().Unmap(); !loopback && (!a.IsGlobalUnicast() || a.IsPrivate()) {
			return fmt.Errorf("%s is no address of the Internet", a)
		}
		return nil
	}}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaderSize, TLSHandshakeTimeout: 10 * time.Second,
		// A domain whose certificates are broken wants to hear of it (RFC 8460, 3).
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
}

// post hands a report to an HTTPS server (RFC 8460, 5.4). Redirects are not followed.
func (c *Config) post(ctx context.Context, to string, report []byte) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(compressed(report)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/tlsrpt+gzip")
	req.Header.Set("User-Agent", "mta (TLS-RPT)")
	res, err := c.Transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxHeaderSize)
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the web server answered %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	}
	return nil
}
