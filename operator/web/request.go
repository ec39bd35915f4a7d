package web

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

// request is what somebody asks of the console. Pages see it as it is after the checks: the role
// suffices, and there are no parameters but those of the route.
type request struct {
	ctx   context.Context
	relay *api.Client
	now   time.Time
	http  *http.Request

	route   *route
	node    int      // of the cluster, that is asked; 0: this relay
	base    string   // of the URLs of its pages
	session *session // nil: nobody has logged in
	silent  int      // the node where the session began, which can't be asked now; 0: none
	most    Role     // that anybody has here
	client  netip.Addr
	secure  bool       // it came by TLS
	values  url.Values // of the query, or of an action's form
	notice  string     // stands above the page
}

// url gives a path of the console at the node that is asked; see pathWith.
func (r *request) url(path string, query ...any) string { return pathWith(r.base, path, query...) }

// get gives a parameter, "" when it is missing.
func (r *request) get(name string) string { return r.values.Get(name) }

// list gives a parameter that may stand more than once, or have several values with commas between.
func (r *request) list(name string) (all []string) {
	for _, v := range r.values[name] {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}

// flag reports whether a box is ticked.
func (r *request) flag(name string) bool {
	v := r.get(name)
	return v == "true" || v == "on" || v == "1"
}

// path gives a part of the path, as {id} of the route.
func (r *request) path(name string) string { return r.http.PathValue(name) }

// role is that of who asks.
func (r *request) role() Role {
	if r.session == nil {
		return Anyone
	}
	return min(r.session.identity.Role, r.most)
}

// filterParams are those that filter reads.
var filterParams = paramsOf(new(api.Filter))

// filter reads which recipients are meant.
func (r *request) filter() (f api.Filter, err error) {
	if err := r.read(&f); err != nil {
		return f, err
	}
	return f, f.Check()
}

// known refuses parameters that the route has not: a filter that is misspelt and then ignored would fit
// everything.
func (r *request) known(more ...string) error {
	for name := range r.values {
		if !slices.Contains(r.route.params, name) && !slices.Contains(more, name) {
			return api.Invalid("", "unknown parameter %q", name)
		}
	}
	return nil
}

// paging is the place of a page of a list.
type paging struct {
	First    string // URL of the first page, "" when this is it
	Next     string // URL of the next page, "" when this is the last
	Looked   int    // entries examined for this page, 0: not known
	Complete bool   // false: the page ended for time, and there may be more that fits
}

// paging makes the links of a list from the cursor of its next page. The route needs the parameter
// "after", and the page hands it to the relay.
func (r *request) paging(next string) paging {
	p := paging{Complete: true}
	with := func(after string) string {
		v := maps.Clone(r.values)
		v.Del("after")
		if after != "" {
			v.Set("after", after)
		}
		return "?" + v.Encode()
	}
	if r.get("after") != "" {
		p.First = with("")
	}
	if next != "" {
		p.Next = with(next)
	}
	return p
}
