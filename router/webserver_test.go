package router

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

func TestAddressesOfWebServers(t *testing.T) {
	z := sink.MustZone(`
		both.test.     60 IN AAAA 2001:db8::1
		both.test.     60 IN A    192.0.2.1
		six.test.      60 IN AAAA 2001:db8::1
		alias.test.    60 IN CNAME both.test.
		loop.test.     60 IN A    127.0.0.1
		mixed.test.    60 IN A    127.0.0.1
		mixed.test.    60 IN A    192.0.2.2
		private.test.  60 IN A    10.0.0.1
		half.test.     60 IN AAAA 2001:db8::2
		text.test.     60 IN TXT  "no address"
	`)
	z.Fault("half.test", sink.DNSFault{Rcode: dns.RcodeServerFailure, Types: []uint16{dns.TypeA}})
	z.Fault("fail.test", sink.DNSFault{Rcode: dns.RcodeServerFailure})
	for _, tc := range []struct {
		settings Settings
		host     string
		want     string
	}{
		{Settings{}, "both.test", "[192.0.2.1 2001:db8::1]"},
		{Settings{}, "alias.test", "[192.0.2.1 2001:db8::1]"},
		{Settings{NoIPv6: true}, "both.test", "[192.0.2.1]"},
		{Settings{NoIPv4: true}, "both.test", "[2001:db8::1]"},
		{Settings{NoIPv6: true}, "six.test", "no such record"},
		{Settings{}, "loop.test", "loop.test is at 127.0.0.1, and it is a loopback address"},
		{Settings{AllowLoopback: true}, "loop.test", "[127.0.0.1]"},
		{Settings{}, "mixed.test", "[192.0.2.2]"},
		{Settings{}, "private.test", "[10.0.0.1]"},
		{Settings{RefusePrivate: true}, "private.test", "it is a private address"},
		{Settings{}, "half.test", "[2001:db8::2]"},
		{Settings{}, "text.test", "no such record"},
		{Settings{}, "nosuch.test", "no such name"},
		{Settings{}, "fail.test", "SERVFAIL"},
	} {
		r, _ := start(t, z, tc.settings)
		addrs, err := r.Addresses(t.Context(), tc.host)
		got := fmt.Sprint(addrs)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %s, want %s", tc.host, got, tc.want)
		}
	}
}

func TestForgottenRoutesAreLookedUp(t *testing.T) {
	z := sink.MustZone("x.test. 60 IN MX 10 mx.x.test.\nmx.x.test. 60 IN A 192.0.2.1")
	r, _ := start(t, z, Settings{})
	r.Forget("x.test") // not known yet
	done := make(chan struct{})
	r.Submit(Request{Message: 1, Domains: []string{"x.test"}, Done: func(string, *route.Route, *reply.Reply) { close(done) }})
	<-done
	if _, _, known := r.Known("x.test"); !known {
		t.Fatal("not known")
	}
	r.Forget("x.test")
	if _, _, known := r.Known("x.test"); known {
		t.Error("still known")
	}
}
