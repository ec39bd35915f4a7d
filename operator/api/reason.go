package api

import (
	"context"
	"net/http"
	"net/url"
	"unicode/utf8"
)

const (
	// reasonHeader carries why an operator changes something, percent-encoded.
	reasonHeader = "Mta-Reason"
	// MaxReason is the largest length of a reason, in octets of UTF-8.
	MaxReason = 500
)

type reasonKey struct{}

// WithReason gives the changing requests that a client sends with ctx a reason, for the audit log: text of at most
// MaxReason octets.
func WithReason(ctx context.Context, text string) context.Context {
	return context.WithValue(ctx, reasonKey{}, text)
}

// sendReason puts the reason of a context into a request.
func sendReason(ctx context.Context, h http.Header) {
	if text := ReasonOf(ctx); text != "" {
		h.Set(reasonHeader, url.PathEscape(text))
	}
}

// readReason returns the reason that a request comes with, "" if it has none.
func readReason(h http.Header) (string, error) {
	text, err := url.PathUnescape(h.Get(reasonHeader))
	switch {
	case err != nil || !utf8.ValidString(text) || hasControl(text):
		return "", Invalid("write it on one line, as percent-encoded UTF-8", "%s: can't be read", reasonHeader)
	case len(text) > MaxReason:
		return "", Invalid("", "the reason has %d octets; %d is the most", len(text), MaxReason)
	}
	return text, nil
}

// reasonOf returns the reason of a request that act has read.
func ReasonOf(ctx context.Context) string {
	text, _ := ctx.Value(reasonKey{}).(string)
	return text
}
