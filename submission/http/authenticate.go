package http

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// Keys knows who uses a key.
type Keys interface {
	// Check returns auth.ErrRefused for a key that is not accepted, whatever the reason. It may keep a
	// client waiting that guesses, until ctx ends.
	Check(ctx context.Context, token string, from netip.Addr) (auth.Identity, error)
}

// keyParameters are names of query parameters in which clients of other services put keys.
var keyParameters = []string{"key", "api_key", "apikey", "api-key", "token", "access_token", "auth",
	"authorization", "password"}

// keyPrefix begins all keys.
const keyPrefix = "mta_"

// keyInURL refuses a request that has a key in its URL: URLs get into logs and histories.
func keyInURL(req *http.Request) *Problem {
	found := req.URL.User != nil || strings.Contains(req.URL.Path, keyPrefix)
	if req.URL.RawQuery == "" && !found {
		return nil
	}
	for name, values := range req.URL.Query() {
		found = found || slices.Contains(keyParameters, strings.ToLower(name)) ||
			slices.ContainsFunc(values, func(v string) bool { return strings.HasPrefix(v, keyPrefix) })
	}
	if !found {
		return nil
	}
	p := Problemf(http.StatusBadRequest,
		"a key must not be in a URL, since URLs are logged: send it as Authorization: Bearer, and replace it if it "+
			"was real")
	p.Reason = "key_in_url"
	return p
}

// token is the key that a request has: a Bearer token (RFC 6750, 2.1), or the password of Basic (RFC
// 7617).
func token(req *http.Request) (string, bool) {
	values := req.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	if scheme, t, ok := strings.Cut(values[0], " "); ok && strings.EqualFold(scheme, "Bearer") {
		t = strings.TrimSpace(t)
		return t, t != ""
	}
	_, password, ok := req.BasicAuth()
	return password, ok && password != ""
}

// authenticate finds out who asks, and whether the key is allowed what the route does.
func (s *Server) authenticate(c *Call) error {
	t, ok := token(c.Request)
	if !ok {
		return unauthorized("send a key as Authorization: Bearer mta_..., or as the password of Basic")
	}
	id, err := s.config.Keys.Check(c.Request.Context(), t, c.Client.Addr())
	if auth.KeyRefused(err) && !errors.Is(err, auth.ErrExpired) && !s.isProxy(c.Client.Addr()) {
		s.config.Refused(c.Client.Addr(), intake.IntrusionLogin)
	}
	switch {
	case errors.Is(err, auth.ErrRefused):
		return unauthorized("the key is not accepted: it is unknown, has expired, or may not be used from this address")
	case errors.Is(err, auth.ErrTooManyWrongKeys):
		return &Problem{Status: http.StatusTooManyRequests,
			Detail: "too many requests from this network had no valid key", RetryAfter: time.Minute, Reason: "guessing"}
	case errors.Is(err, auth.ErrNoTenant):
		return noTenant()
	case err != nil:
		return &Problem{Status: http.StatusServiceUnavailable, Detail: "keys can't be checked at present", Cause: err,
			RetryAfter: shortPause, Reason: "keys"}
	case len(s.config.Tenants) > 0 && !slices.Contains(s.config.Tenants, id.Tenant):
		return &Problem{Status: http.StatusForbidden, Detail: "the key's tenant is not served at this address",
			Reason: "tenant"}
	case !id.Scopes.Has(c.Route.Scope):
		return &Problem{
			Status: http.StatusForbidden, Detail: "the key does not have the scope that " + c.Route.name() +
				" requires", Reason: "scope",
			// RFC 6750, 3.1
			Header: http.Header{"Www-Authenticate": {`Bearer realm="mta", error="insufficient_scope"`}},
		}
	}
	c.Identity = id
	return nil
}

func noTenant() *Problem {
	return &Problem{Status: http.StatusForbidden,
		Detail: "the key is good, but its tenant has no block in the relay's configuration", Reason: "tenant"}
}

func unauthorized(detail string) *Problem {
	return &Problem{
		Status: http.StatusUnauthorized, Detail: detail, Reason: "key",
		Header: http.Header{"Www-Authenticate": {`Bearer realm="mta"`, `Basic realm="mta", charset="UTF-8"`}},
	}
}
