package web

import "testing"

// TestRemediesAreAFewClicksAway: the pages on the way from the overview to the remedy of a problem lead to each other.
func TestRemediesAreAFewClicksAway(t *testing.T) {
	b := newSample(t).as("otto")
	b.get("/").wants(t, 200, `href="/tenants?name=acme"`, `href="/site?name=mx.grey.example"`)
	b.get("/tenants?name=acme").wants(t, 200, `<a href="/queue?tenant=acme">3</a>`)
	b.get("/queue?tenant=acme").wants(t, 200, `<a href="/tenants?name=acme">Tenant acme</a>`)
	b.get("/queue?site=mx.grey.example").wants(t, 200, `<a href="/site?name=mx.grey.example">Site mx.grey.example</a>`)
	b.get("/site?name=mx.grey.example").wants(t, 200, `<option value="">all sources</option><option>out1</option>`, `href="/sources?name=out1"`, `action="/queue/reroute"`)
	b.post("/sites/suspend", "site", "mx.grey.example", "source", "out1", "for", "1h").wants(t, 200, "<dt>source</dt><dd>out1</dd>")
}
