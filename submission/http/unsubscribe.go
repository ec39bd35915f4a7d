package http

import (
	"bytes"
	"context"
	_ "embed" // unsubscribe.html
	"errors"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
)

// Unsubscribes knows the links by which recipients unsubscribe (RFC 8058).
type Unsubscribes interface {
	// Subscription reads the token of a link; false for one that this relay did not make.
	Subscription(token string) (tenant string, a envelope.Address, ok bool)
	// Unsubscribe ends the subscription of a token that Subscription has read, and returns when that is
	// durable. To end it again does no harm. request is the request's id, for the record of it.
	Unsubscribe(ctx context.Context, token, request string) error
}

// unsubscribeRoutes have no key: the token is one. A GET changes nothing, since scanners of mail follow links.
func (s *Server) unsubscribeRoutes() []Route {
	if s.config.Unsubscribes == nil {
		return nil
	}
	const pattern = "/unsubscribe/{token}"
	return []Route{
		{Method: http.MethodGet, Pattern: pattern, Open: true, Handle: func(c *Call) error {
			return s.unsubscribe(c, false)
		}},
		{Method: http.MethodPost, Pattern: pattern, Open: true, Handle: func(c *Call) error {
			return s.unsubscribe(c, true)
		}},
	}
}

func (s *Server) unsubscribe(c *Call, post bool) error {
	token := c.Request.PathValue("token")
	tenant, a, ok := s.config.Unsubscribes.Subscription(token)
	switch {
	case !ok || len(s.config.Tenants) > 0 && !slices.Contains(s.config.Tenants, tenant):
		return unsubscribePage(c, http.StatusNotFound,
			page{Title: "This link is not valid",
				Text: "It may be incomplete. Open it from the message again, or write to the sender."})
	case !post:
		return unsubscribePage(c, http.StatusOK,
			page{Title: "Unsubscribe", Text: "Stop mail from this sender to " + masked(a) + ".", Button: "Unsubscribe"})
	}
	switch asked, err := oneClick(c.Request); {
	case err != nil:
		return err
	case !asked:
		return unsubscribePage(c, http.StatusBadRequest, page{
			Title: "Please confirm", Button: "Unsubscribe",
			Text: "The request lacks " + oneClickPair +
				" (RFC 8058), and has changed nothing. The button stops mail from this sender to " + masked(a) + ".",
		})
	}
	if err := s.config.Unsubscribes.Unsubscribe(c.Context(), token, c.ID); err != nil {
		c.Log().Error("a recipient could not be unsubscribed", "tenant", tenant, "error", err)
		return unsubscribePage(c, http.StatusServiceUnavailable,
			page{Title: "Try again", Text: "You could not be unsubscribed just now.", Button: "Unsubscribe"})
	}
	return unsubscribePage(c, http.StatusOK,
		page{Title: "Unsubscribed", Text: "You will get no more mail from this sender at " + masked(a) + "."})
}

const (
	oneClickPair = "List-Unsubscribe=One-Click"
	maxOneClick  = 16 << 10 // octets of a body; browsers and mail programs send a few hundred
)

// oneClick reports whether the body of a POST asks to unsubscribe (RFC 8058, 3.1 and 3.2): as a form of either type,
// or as the bare pair. Its errors are Problems.
func oneClick(r *http.Request) (bool, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxOneClick))
	if err != nil {
		return false, err
	}
	if string(bytes.TrimSpace(body)) == oneClickPair {
		return true, nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err := r.ParseMultipartForm(maxOneClick); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return false, nil //nolint:nilerr // what is no form asks for nothing
	}
	return r.PostForm.Get("List-Unsubscribe") == "One-Click", nil
}

// masked shows an address so that its owner knows it, and others who see the page learn little.
func masked(a envelope.Address) string {
	first := a.Local()
	for i := range first {
		if i > 0 {
			first = first[:i]
			break
		}
	}
	return first + "...@" + a.Domain()
}

// page is what a recipient sees.
type page struct{ Title, Text, Button string }

//go:embed unsubscribe.html
var unsubscribeHTML string

var unsubscribeTemplate = template.Must(template.New("unsubscribe").Parse(unsubscribeHTML))

// unsubscribePage answers with a page, never with a redirect (RFC 8058, 3.1).
func unsubscribePage(c *Call, status int, p page) error {
	var b strings.Builder
	if err := unsubscribeTemplate.Execute(&b, p); err != nil {
		return err
	}
	h := c.Writer.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the link is a secret
	h.Set("X-Robots-Tag", "noindex")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "60")
	}
	c.Writer.WriteHeader(status)
	_, err := c.Writer.Write([]byte(b.String()))
	c.gone(err)
	return nil
}
