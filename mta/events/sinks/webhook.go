package sinks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/httpclient"
	"example.org/mta/internal/legible"
	"example.org/mta/mta/events"
)

const (
	// maxAnswer is how much of an answer is read.
	maxAnswer = 64 << 10
	// minGzip is the size from which on a request is compressed: the tables for a small one cost more than they save.
	minGzip = 16 << 10
	// writeBuffer has room for a request that is not compressed, so that it is one write.
	writeBuffer = minGzip + 4<<10
	// shownAnswer is how much of an answer an error shows.
	shownAnswer = 200
)

// HookOptions say how a hook is called.
type HookOptions struct {
	URL     string
	Format  events.Format
	Gzip    bool
	Signer  events.Signer // nil: requests are not signed
	Headers http.Header   // further fields
	Timeout time.Duration // of a request with its answer
	Agent   string        // User-Agent
	Now     func() time.Time

	// Transport carries requests: NewTransport makes one, which streams may share.
	Transport *http.Transport
}

// NewTransport returns a transport that trusts authorities, nil for those of the system, and asks a resolver; nil: the
// system's.
func NewTransport(roots *x509.CertPool, addresses httpclient.Addresses) *http.Transport {
	t := httpclient.New(httpclient.Config{Addresses: addresses,
		TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	t.DisableKeepAlives, t.MaxIdleConnsPerHost, t.IdleConnTimeout = false, 256, 90*time.Second
	t.ForceAttemptHTTP2, t.MaxResponseHeaderBytes, t.WriteBufferSize = true, maxAnswer, writeBuffer
	return t
}

// Hook calls a hook.
type Hook struct{ o HookOptions }

// NewHook returns the sink of a hook.
func NewHook(o HookOptions) *Hook {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Hook{o}
}

// Close closes connections that no request uses.
func (s *Hook) Close() error {
	s.o.Transport.CloseIdleConnections()
	return nil
}

// Send implements events.Sink. The transport is asked itself, since an http.Client adds only what hooks don't get:
// redirects and cookies.
func (s *Hook) Send(ctx context.Context, b *events.Batch) error {
	if s.o.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, s.o.Timeout)
		defer cancel()
		ctx = limited
	}
	request, err := s.request(ctx, b)
	if err != nil || request == nil {
		return err
	}
	answer, err := s.o.Transport.RoundTrip(request)
	if err != nil {
		return inWords(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode/100 == 2 {
		return nil // whatever became of the rest of the answer
	}
	if err != nil {
		text = nil
	}
	return s.refusal(answer, text)
}

// request makes the request for a batch; nil if the format has no word for any of its events.
func (s *Hook) request(ctx context.Context, b *events.Batch) (*http.Request, error) {
	content, err := b.Body(s.o.Format)
	if err != nil || len(content) == 0 {
		return nil, err
	}
	sent := content
	if s.o.Gzip && len(content) >= minGzip {
		if sent, err = b.Gzip(s.o.Format); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.o.URL, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", s.o.Format.ContentType())
	r.Header.Set("User-Agent", s.o.Agent)
	r.Header.Set("Webhook-Id", b.ID)
	for name, values := range s.o.Headers {
		if r.Header[name] = values; name == "Host" {
			r.Host = values[0]
		}
	}
	if len(sent) != len(content) || s.o.Gzip && len(content) >= minGzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	if s.o.Signer != nil {
		if err := s.o.Signer.Sign(r.Header, b.ID, s.o.Now(), content); err != nil {
			return nil, fmt.Errorf("signing a request: %w", err)
		}
	}
	return r, nil
}

// refusal is the error for an answer that is no success.
func (s *Hook) refusal(answer *http.Response, text []byte) error {
	reason := fmt.Sprintf("the receiver answered %s", shown(answer.Status))
	if text := shown(string(text[:min(len(text), shownAnswer)])); text != "" {
		reason += ": " + text
	}
	switch code := answer.StatusCode; {
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge,
		code == http.StatusUnprocessableEntity:
		return &events.Rejected{Reason: reason}
	case code/100 == 3:
		return fmt.Errorf("%s; redirects are not followed: write the address that it leads to", reason)
	}
	if after, ok := retryAfter(answer.Header.Get("Retry-After"), s.o.Now()); ok {
		return &events.Later{After: after, Reason: reason}
	}
	return errors.New(reason)
}

// shown makes a line of a receiver's text that no terminal or log obeys.
func shown(text string) string {
	text = strings.Map(func(r rune) rune {
		if legible.Hidden(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return strings.Join(strings.Fields(text), " ")
}

// retryAfter reads the field (RFC 9110, 10.2.3): seconds, or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// inWords is the error of a request in words for an operator.
func inWords(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errors.New("the receiver did not answer in time")
	}
	return err
}
