package sts

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// maxPolicySize is the most that is read of a policy, in octets (RFC 8461, 3.3 suggests it).
const maxPolicySize = 64 << 10

// fetch gets the policy of a domain over HTTPS, as RFC 8461, 3.3 says: no redirects, no cache, text/plain only. What
// the certificate must be is the transport's to know.
func fetch(ctx context.Context, transport http.RoundTripper, domain string) (*Policy, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"https://mta-sts."+domain+"/.well-known/mta-sts.txt", nil)
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
		return nil, fmt.Errorf("fetching the policy: its media type is %.40q, not text/plain",
			res.Header.Get("Content-Type"))
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
