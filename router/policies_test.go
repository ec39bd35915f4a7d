package router

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
	"example.org/mta/router/resolver"
)

// domainPolicies are those of a test: what each domain has, and who was asked for.
type domainPolicies struct {
	found map[string]route.STS
	fail  bool
	asked []string
}

func (p *domainPolicies) STS(_ context.Context, rt *route.Route) (route.STS, error) {
	p.asked = append(p.asked, rt.Domain)
	if p.fail {
		return route.STS{}, errors.New("cut off")
	}
	return p.found[rt.Domain], nil
}

func TestRoutesBringPolicies(t *testing.T) {
	enforce := route.STS{Mode: route.STSEnforce, MX: "mx.x.test"}
	p := &domainPolicies{found: map[string]route.STS{"x.test": enforce, "smart.test": enforce}}
	server := sink.NewDNS(sink.MustZone("x.test. 60 IN MX 10 mx.x.test.\nmx.x.test. 60 IN A 192.0.2.1\nplain.test. 60 IN A 192.0.2.1"))
	addr, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r := New(Config{
		Settings: Settings{Smarthosts: []SmarthostRoute{{"smart.test", hosts("mx.x.test:25")}}}, Policies: p,
	}, resolver.New(resolver.Config{Servers: []netip.AddrPort{addr}}))
	defer r.Close()
	for domain, want := range map[string]route.STS{"x.test": enforce, "plain.test": {}, "smart.test": {}, "[192.0.2.1]": {}} {
		if res := r.Lookup(t.Context(), domain); res.Route == nil || res.Route.STS != want {
			t.Errorf("%s: %+v", domain, res.Route)
		}
	}
	slices.Sort(p.asked)
	if !slices.Equal(p.asked, []string{"plain.test", "x.test"}) {
		t.Errorf("asked for %q", p.asked)
	}
	// While nobody knows whether there is a policy there is no route, and that is not remembered.
	p.fail = true
	answer := func() (rt *route.Route, why *reply.Reply) {
		done := make(chan struct{})
		r.Submit(Request{Message: 1, Domains: []string{"x.test"}, Done: func(_ string, found *route.Route, failure *reply.Reply) {
			rt, why = found, failure
			close(done)
		}})
		<-done
		return rt, why
	}
	if rt, why := answer(); rt != nil || why == nil || !why.Temporary() {
		t.Errorf("%+v, %v", rt, why)
	}
	p.fail = false
	if rt, why := answer(); rt == nil || rt.STS != enforce {
		t.Errorf("%+v, %v", rt, why)
	}
}
