package tlsrpt

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"example.org/mta/internal/httpclient"
)

const (
	postTimeout   = time.Minute
	maxAnswerSize = 16 << 10
)

// NewTransport makes the transport of reports. loopback allows collectors on this machine and in private
// networks: where reports go is in the hands of strangers, who must not reach those.
func NewTransport(loopback bool, addresses httpclient.Addresses) http.RoundTripper {
	return httpclient.New(httpclient.Config{
		Addresses: addresses,
		Refuse: func(a netip.Addr) error {
			if !loopback && (!global(a) || ours(a)) {
				return fmt.Errorf("%s is not a public address, or belongs to this machine", a)
			}
			return nil
		},
		// A domain whose certificates are broken wants to hear of it (RFC 8460, 3).
		TLS: &tls.Config{InsecureSkipVerify: true},
	})
}

// inner are the networks, besides those that net/netip knows, that are not of the Internet (RFC 6890), or
// whose addresses have another one within, which may not be (RFC 4291, 2.5.5.1; RFC 6052; RFC 3056).
var inner = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fec0::/10"),
}

// global reports whether an address is of the Internet. One with a zone is not, and no prefix contains it.
func global(a netip.Addr) bool {
	return a.Zone() == "" && a.IsGlobalUnicast() && !a.IsPrivate() &&
		!slices.ContainsFunc(inner, func(p netip.Prefix) bool {
			return p.Contains(a)
		})
}

// ours reports whether an address is one of this machine, as far as that can be found out.
func ours(a netip.Addr) bool {
	all, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(all, func(m net.Addr) bool {
		p, err := netip.ParsePrefix(m.String())
		return err == nil && p.Addr().Unmap() == a
	})
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
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswerSize)
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the web server answered %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	}
	return nil
}

// Mail is a report as a message. It must be delivered whatever is wrong with TLS, and not be counted
// (RFC 8460, 3): its field "TLS-Required: No" (RFC 8689) sees to both.
type Mail struct {
	From, To string // addresses
	Content  []byte
}

// lineLength is how many characters of base64 a line has (RFC 2045, 6.8).
const lineLength = 76

// mail makes the message of RFC 8460, 5.3 about a day.
func (c *Config) mail(d *Day, to string, report []byte, now time.Time) Mail {
	id, boundary := c.reportID(d), fmt.Sprintf("tlsrpt-%s-%x", d.Date, now.UnixNano())
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\r\n", args...) }
	line("From: TLS reports <%s>", c.From)
	line("To: <%s>", to)
	line("Date: %s", now.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	line("Message-ID: <%x.%s>", now.UnixNano(), id)
	line("Subject: Report Domain: %s\r\n Submitter: %s\r\n Report-ID: <%s>", d.Domain, c.Submitter, id)
	line("TLS-Report-Domain: %s", d.Domain)
	line("TLS-Report-Submitter: %s", c.Submitter)
	line("TLS-Required: No")
	line("Auto-Submitted: auto-generated")
	line("MIME-Version: 1.0")
	line("Content-Type: multipart/report; report-type=\"tlsrpt\";\r\n boundary=\"%s\"", boundary)
	line("\r\n--%s\r\nContent-Type: text/plain; charset=us-ascii\r\n", boundary)
	line("This is a report on how TLS went for mail from %s to %s", c.Submitter, d.Domain)
	line("on %s (UTC). RFC 8460 describes the attached file.", d.Date)
	line("\r\n--%s\r\nContent-Type: application/tlsrpt+gzip\r\nContent-Transfer-Encoding: base64", boundary)
	line("Content-Disposition: attachment;\r\n filename=\"%s\"\r\n", c.filename(d))
	text := base64.StdEncoding.EncodeToString(compressed(report))
	for len(text) > lineLength {
		line("%s", text[:lineLength])
		text = text[lineLength:]
	}
	line("%s\r\n--%s--", text, boundary)
	return Mail{From: c.From, To: to, Content: b.Bytes()}
}
