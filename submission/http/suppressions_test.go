package http

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"example.org/mta/internal/envelope"
	"example.org/mta/submission/request"
)

// someSuppressions are lists of tests, by tenant and address; "" is everybody's.
type someSuppressions map[string]map[string]Suppression

func (l someSuppressions) List(_ context.Context, tenant, domain, after string, limit int) (page []Suppression, last string, more bool, err error) {
	var addresses []string
	for a := range l[tenant] {
		addresses = append(addresses, a)
	}
	slices.Sort(addresses)
	for _, a := range addresses {
		switch {
		case a <= after || domain != "" && envelope.Address(a).Domain() != domain:
		case len(page) == limit:
			return page, last, true, nil
		default:
			page, last = append(page, l[tenant][a]), a
		}
	}
	return page, last, false, nil
}

func (l someSuppressions) Match(tenant string, a envelope.Address) (Suppression, bool) {
	if e, ok := l[tenant][string(a)]; ok {
		return e, true
	}
	e, ok := l[""][string(a)]
	e.Shared = true
	return e, ok
}

func (l someSuppressions) Add(_ context.Context, tenant string, entries []request.Suppression) (done SuppressionsAdded, _ error) {
	for _, e := range entries {
		if e.Address.Domain() == "broken.example" {
			return done, errors.New("secret of the store")
		}
		if e.Address.Domain() == "many.example" {
			return done, TooManySuppressions(500)
		}
		l[tenant][string(e.Address)] = Suppression{Address: string(e.Address), Reason: e.Reason, Source: "tenant", ExpiresAt: e.ExpiresAt}
		done.Added++
	}
	return done, nil
}

func (l someSuppressions) Remove(_ context.Context, tenant string, addresses []envelope.Address) (n int, _ error) {
	for _, a := range addresses {
		if _, ok := l[tenant][string(a)]; ok {
			delete(l[tenant], string(a))
			n++
		}
	}
	return n, nil
}

func TestSuppressions(t *testing.T) {
	list := someSuppressions{"acme": {}, "other": {"x@box.example": {Address: "x@box.example"}}, "": {"all@box.example": {Address: "all@box.example", Reason: "secret of others"}}}
	s := testServer(t, func(c *Config) { c.Suppressions = list })
	const path = "/v1/suppressions"
	for _, c := range []struct {
		method, target, token, body string
		status                      int
		want                        string // the answer, or a part of a problem
	}{
		{"GET", path, "good", "", 200, `{"suppressions":[]}`},
		{"POST", path + "/add", "good", `{"suppressions":[{"address":"b@box.example","reason":"asked us to"},{"address":"c@other.example","expires_at":"2099-01-01T00:00:00Z"},{"address":"a@box.example"}]}`, 200, `{"added":3,"changed":0,"unchanged":0}`},
		{"GET", path + "?limit=1", "good", "", 200, `{"suppressions":[{"address":"a@box.example","source":"tenant"}],"next":"YUBib3guZXhhbXBsZQ"}`},
		{"GET", path + "?after=YUBib3guZXhhbXBsZQ&domain=Box.example", "good", "", 200, `{"suppressions":[{"address":"b@box.example","reason":"asked us to","source":"tenant"}]}`},
		{"GET", path, "other", "", 200, `{"suppressions":[{"address":"x@box.example"}]}`},
		{"POST", path + "/check", "good", `{"addresses":["x@box.example","c@other.example","all@box.example"]}`, 200, `{"suppressions":[{"address":"c@other.example","source":"tenant","expires_at":"2099-01-01T00:00:00Z"},{"address":"all@box.example","shared":true}]}`},
		{"POST", path + "/remove", "good", `{"addresses":["x@box.example","c@other.example","all@box.example"]}`, 200, `{"removed":1,"still_suppressed":["all@box.example"]}`},
		{"POST", path + "/check", "other", `{"addresses":["x@box.example"]}`, 200, `{"suppressions":[{"address":"x@box.example"}]}`},

		{"GET", path + "?limit=0", "good", "", 400, "1 to 1000"},
		{"GET", path + "?limit=", "good", "", 400, "1 to 1000"},
		{"GET", path + "?after=*", "good", "", 400, "next of the page before"},
		{"GET", path + "?domain=a..b", "good", "", 400, "not a valid domain"},
		{"GET", path + "?tenant=other", "good", "", 400, "there is no parameter"},
		{"GET", path + "?limit=1&limit=2", "good", "", 400, "limit: send it once"},
		{"POST", path + "/add", "good", `{"suppressions":[{"address":"nobody"},{"adress":"a@b.example"},{"address":"postmaster@b.example","reason":"x\ny"},{"address":"a@b.example","expires_at":"2001-01-01T00:00:00Z"}]}`, 400,
			`"pointer":"/suppressions/0/address"`},
		{"POST", path + "/add", "good", `{"suppressions":[{"adress":"a@b.example"}]}`, 400, `did you mean \"address\"?`},
		{"POST", path + "/add", "good", `{}`, 400, "missing or empty"},
		{"POST", path + "/add", "good", `[`, 400, "ends early"},
		{"POST", path + "/check", "good", `{"addresses":["` + strings.Repeat(`a@b.example","`, 1000) + `a@b.example"]}`, 400, "send 1000 at most"},
		{"POST", path + "/remove", "good", `{"addresses":[""]}`, 400, `"pointer":"/addresses/0"`},
		{"POST", path + "/add", "good", `{"suppressions":[{"address":"a@broken.example"}]}`, 503, "try again"},
		{"POST", path + "/add", "good", `{"suppressions":[{"address":"a@many.example"}]}`, 403, "the list keeps 500 at most, and nothing was added: remove some"},
	} {
		w := ask(s, c.method, c.target, c.token, strings.NewReader(c.body))
		got := strings.TrimSpace(w.Body.String())
		if w.Code != c.status || c.status == 200 && got != c.want || !strings.Contains(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%s %s %.80s: %d %s, want %d %s", c.method, c.target, c.body, w.Code, got, c.status, c.want)
		}
	}
	w := ask(s, "POST", path+"/add", "good", strings.NewReader(`{"suppressions":[{"address":"nobody"},{"adress":"a@b.example"},{"address":"postmaster@b.example","reason":"x\ny"},{"address":"a@b.example","expires_at":"2001-01-01T00:00:00Z"}]}`))
	var p struct{ Faults []fault }
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || len(p.Faults) != 6 {
		t.Errorf("want 6 faults at once: %s", w.Body)
	}
	if len(list["acme"]) != 2 {
		t.Errorf("a request with faults has changed the list: %v", list["acme"])
	}
}
