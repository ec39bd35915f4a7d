package http

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
)

// someLinks are unsubscribe links of tests: a token is the tenant. It counts what is ended.
type someLinks map[string]int

func (l someLinks) Subscription(token string) (string, envelope.Address, bool) {
	_, ok := l[token]
	return token, "üe<b>@box.example", ok
}

func (l someLinks) Unsubscribe(_ context.Context, token, request string) error {
	if token == "broken" || request == "" {
		return errors.New("secret of the list")
	}
	l[token]++
	return nil
}

// A link needs no key, works by POST only, shows no more of the address than its owner needs, and is not a
// redirect. One of a tenant who is not served here is none.
func TestUnsubscribe(t *testing.T) {
	links := someLinks{"acme": 0, "other": 0, "broken": 0}
	s := testServer(t, func(c *Config) { c.Unsubscribes, c.Tenants = links, []string{"acme", "broken"} })
	for _, c := range []struct {
		method, token string
		status        int
		want          string
		ended         int // of acme, then
	}{
		{"GET", "acme", 200, `mail from this sender to ü...@box.example.`, 0},
		{"HEAD", "acme", 200, "", 0},
		{"GET", "acme", 200, `<form method="post">`, 0},
		{"POST", "acme", 200, "You will get no more mail from this sender at ü...@box.example.", 1},
		{"POST", "acme", 200, "You will get no more mail", 2},
		{"GET", "other", 404, "This link is not valid", 2},
		{"POST", "other", 404, "This link is not valid", 2},
		{"POST", "nobody", 404, "This link is not valid", 2},
		{"POST", "broken", 503, "could not be unsubscribed", 2},
		{"PUT", "acme", 405, "", 2},
	} {
		w := ask(s, c.method, "/unsubscribe/"+c.token, "", strings.NewReader("List-Unsubscribe=One-Click"), "Content-Type", "application/x-www-form-urlencoded")
		body := w.Body.String()
		if w.Code != c.status || !strings.Contains(body, c.want) || links["acme"] != c.ended || links["other"] != 0 || strings.Contains(body, "secret") || w.Header().Get("Location") != "" {
			t.Errorf("%s %s: %d, %d ended, want %d %q:\n%s", c.method, c.token, w.Code, links["acme"], c.status, c.want, body)
		}
		if c.status != http.StatusMethodNotAllowed && (w.Header().Get("Referrer-Policy") != "no-referrer" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html")) {
			t.Errorf("%s %s: header %v", c.method, c.token, w.Header())
		}
	}
}

// A POST ends a subscription only with the form field of RFC 8058, 3.1: whatever else follows links must not. The forms
// are those of 3.2.
func TestOneClickWantsItsBody(t *testing.T) {
	const pair, form = "List-Unsubscribe=One-Click", "application/x-www-form-urlencoded"
	parts := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n--b--\r\n"
	}
	for _, c := range []struct {
		kind, body, query string
		ends              bool
	}{
		{form, pair, "", true},
		{form + "; charset=UTF-8", pair, "", true},
		{form, "a=b&" + pair + "&c=d", "", true},
		{"multipart/form-data; boundary=b", parts("List-Unsubscribe", "One-Click"), "", true},
		{"", pair + "\r\n", "", true},
		{"text/plain", pair, "", true},
		{form, "", "", false},
		{"", "", "", false},
		{form, "", "?" + pair, false},
		{form, "List-Unsubscribe=Yes", "", false},
		{form, "x=" + pair, "", false},
		{form, "%zz", "", false},
		{"multipart/form-data; boundary=b", parts("List-Unsubscribe", "x"), "", false},
		{"multipart/form-data", pair[:4], "", false},
		{"application/json", `{"List-Unsubscribe":"One-Click"}`, "", false},
		{form, "x=" + strings.Repeat("x", 1<<20) + "&" + pair, "", false},
	} {
		links := someLinks{"acme": 0}
		s := testServer(t, func(c *Config) { c.Unsubscribes = links })
		w := ask(s, "POST", "/unsubscribe/acme"+c.query, "", strings.NewReader(c.body), "Content-Type", c.kind)
		page, status, ended := w.Body.String(), http.StatusBadRequest, 0
		if c.ends {
			status, ended = http.StatusOK, 1
		}
		if w.Code != status || links["acme"] != ended {
			t.Errorf("%q, %.60q: %d, %d ended\n%s", c.kind, c.body, w.Code, links["acme"], page)
		}
		if !c.ends && (!strings.Contains(page, pair) || !strings.Contains(page, `<form method="post">`)) {
			t.Errorf("%q, %.60q: the page doesn't help:\n%s", c.kind, c.body, page)
		}
	}
}
